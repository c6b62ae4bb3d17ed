//! The audit log: sign-ins, and credentials and objects that were issued, revoked or changed.
//!
//! An entry is written in the transaction of its action, so that neither is stored without the
//! other. Entries contain no secrets.

mod filter;
mod list;

use std::net::IpAddr;
use std::sync::Arc;

use api::control::people::{LIST_AUDIT, LIST_OWN_AUDIT};
use axum::Router;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::Tx;
use store::audit::Entry;
use types::id::{
    AuditId, CredentialId, InvitationId, ProjectId, TunnelId, UserId, WorkspaceId, unix_millis,
};

pub(crate) use self::filter::AuditFilter;
pub(crate) use self::list::entry;
use crate::app::App;
use crate::caller::Principal;
use crate::http_api::problem::HandlerResult;
use crate::http_api::route::OperationRouter as _;
use crate::runtime::random;

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .serve(LIST_AUDIT, list::list)
        .serve(LIST_OWN_AUDIT, list::list_own)
}

/// Writes an entry.
pub async fn record(
    tx: &mut Tx,
    actor: &Actor,
    workspace: Option<WorkspaceId>,
    action: Action,
    target: AuditTarget,
    now: Timestamp,
) -> HandlerResult<()> {
    record_with(tx, actor, workspace, action, target, json!({}), now).await
}

/// Writes an entry with details, as a JSON object.
pub async fn record_with(
    tx: &mut Tx,
    actor: &Actor,
    workspace: Option<WorkspaceId>,
    action: Action,
    target: AuditTarget,
    details: Value,
    now: Timestamp,
) -> HandlerResult<()> {
    let (target_kind, target_id) = target.kind_and_id();
    let entry = Entry {
        id: AuditId::new(unix_millis(now), random::bytes()?),
        workspace_id: workspace,
        actor_user_id: actor.user,
        actor_credential_id: actor.credential,
        action: action.as_str().to_owned(),
        target_kind: target_kind.to_owned(),
        target_id,
        details,
        ip: actor.ip.map(|ip| ip.to_string()),
        created_at: now,
    };
    Ok(store::audit::insert(tx, &entry).await?)
}

/// The subject of an action.
#[derive(Clone, Debug)]
pub struct Actor {
    user: Option<UserId>,
    credential: Option<CredentialId>,
    ip: Option<IpAddr>,
}

impl Actor {
    /// A user in a browser.
    pub fn user(user: UserId) -> Self {
        Self {
            user: Some(user),
            credential: None,
            ip: None,
        }
    }

    /// An unknown visitor.
    pub fn anonymous() -> Self {
        Self {
            user: None,
            credential: None,
            ip: None,
        }
    }

    /// The caller of an API operation, with the credential that was used.
    pub fn caller(who: &Principal) -> Self {
        Self {
            user: Some(who.user.id),
            credential: who.source.credential(),
            ip: None,
        }
    }

    /// A caller of an engine, with the credential that was used.
    pub fn at_engine(user: Option<UserId>, credential: Option<CredentialId>) -> Self {
        Self {
            user,
            credential,
            ip: None,
        }
    }

    /// Adds the actor's network address.
    #[must_use]
    pub fn with_ip(mut self, ip: IpAddr) -> Self {
        self.ip = Some(ip);
        self
    }
}

/// Object of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditTarget {
    User(UserId),
    Workspace(WorkspaceId),
    Invitation(InvitationId),
    Project(ProjectId),
    Credential(CredentialId),
    Tunnel(TunnelId),
}

impl AuditTarget {
    fn kind_and_id(self) -> (&'static str, String) {
        match self {
            Self::User(id) => ("user", id.to_string()),
            Self::Workspace(id) => ("workspace", id.to_string()),
            Self::Invitation(id) => ("invitation", id.to_string()),
            Self::Project(id) => ("project", id.to_string()),
            Self::Credential(id) => ("credential", id.to_string()),
            Self::Tunnel(id) => ("tunnel", id.to_string()),
        }
    }
}

macro_rules! actions {
    ($($name:ident $word:literal)+) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Action {
            $(#[doc = concat!("`", $word, "`")] $name,)+
        }

        impl Action {
            /// The action's name in the log.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }
        }
    };
}

actions! {
    SignedIn "user.signed_in"
    SignedOut "user.signed_out"
    UserCreated "user.created"
    UserSuspended "user.suspended"
    UserResumed "user.resumed"
    RoleChanged "user.role_changed"
    PasswordChanged "user.password_changed"
    PasswordReset "user.password_reset"
    ResetRequested "user.reset_requested"
    NameChanged "user.name_changed"
    EmailChangeRequested "user.email_change_requested"
    EmailChanged "user.email_changed"
    EmailVerified "user.email_verified"
    IdentityLinked "user.identity_linked"
    IdentityUnlinked "user.identity_unlinked"
    SessionsEnded "user.sessions_ended"
    SecondFactorOn "user.second_factor_on"
    SecondFactorOff "user.second_factor_off"
    SecondFactorFailed "user.second_factor_failed"
    PasskeyAdded "user.passkey_added"
    PasskeyRemoved "user.passkey_removed"
    WorkspaceCreated "workspace.created"
    WorkspaceRenamed "workspace.renamed"
    WorkspaceDeleted "workspace.deleted"
    WorkspaceSuspended "workspace.suspended"
    WorkspaceResumed "workspace.resumed"
    ProjectSuspended "project.suspended"
    ProjectResumed "project.resumed"
    TunnelClosed "tunnel.closed"
    HostnameTakenDown "project.hostname_taken_down"
    HostnameRestored "project.hostname_restored"
    WebhookDisabled "webhook.disabled"
    DomainVerified "domain.verified"
    DomainWarned "domain.warned"
    DomainSuspended "domain.suspended"
    DomainReleased "domain.released"
    DomainDeleted "domain.deleted"
    MemberAdded "member.added"
    MemberChanged "member.changed"
    MemberRemoved "member.removed"
    InvitationSent "invitation.sent"
    InvitationRevoked "invitation.revoked"
    InvitationAccepted "invitation.accepted"
    CredentialIssued "credential.issued"
    CredentialRotated "credential.rotated"
    CredentialRevoked "credential.revoked"
    CredentialsRevoked "user.credentials_revoked"
    OauthApproved "oauth.approved"
    OauthDenied "oauth.denied"
    OauthTokenIssued "oauth.token_issued"
    OauthTokenRevoked "oauth.token_revoked"
    OauthCodeReused "oauth.code_reused"
}
