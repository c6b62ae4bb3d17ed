//! The person behind a credential, and the audit logs.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::{
    Access, Method, Operation, PAGE, PAGE_SIZE, Parameter, Schemas, SuccessResponse, add, page,
};

/// The person behind the credential. Any valid credential is enough; no permission is needed.
pub const GET_USER: &Operation = &Operation::get(
    "get_user",
    "/api/user",
    "Get the user of the credential",
    Access::Authenticated,
    "User",
);

/// The audit log of a workspace, newest first.
pub const LIST_AUDIT: &Operation = &Operation {
    query: AUDIT_QUERY,
    ..Operation::get(
        "list_workspace_audit",
        "/api/workspaces/{workspace_id}/audit",
        "Audit log of a workspace: issued and revoked credentials, and changes",
        Access::Permitted(
            Permission::AccountWorkspaceProtectionReadWrite,
            &[Rule {
                resource: "audit",
                actions: &["read"],
            }],
        ),
        "AuditList",
    )
};

/// The audit log of the person behind the credential, newest first.
pub const LIST_OWN_AUDIT: &Operation = &Operation {
    query: &[PAGE, PAGE_SIZE, ACTION, TARGET, START, END],
    ..Operation::get(
        "list_own_audit",
        "/api/user/audit",
        "Audit log of your account: issued and revoked credentials, and changes",
        Access::Permitted(
            Permission::AccountCredentialsReadOnly,
            &[Rule {
                resource: "credentials",
                actions: &["read"],
            }],
        ),
        "AuditList",
    )
};

/// The browser sessions of the person behind the credential.
pub const LIST_SESSIONS: &Operation = &Operation::get(
    "list_own_sessions",
    "/api/user/sessions",
    "List the browser sessions of your account",
    Access::Permitted(
        Permission::AccountCredentialsReadOnly,
        &[Rule {
            resource: "credentials",
            actions: &["read"],
        }],
    ),
    "SessionList",
);

/// Ends one of them, with the tokens that were minted from it.
pub const END_SESSION: &Operation = &Operation::new(
    "end_own_session",
    Method::Delete,
    "/api/user/sessions/{session_id}",
    "End a browser session of your account",
    Access::Permitted(
        Permission::AccountCredentialsReadWrite,
        &[Rule {
            resource: "credentials",
            actions: &["delete"],
        }],
    ),
    SuccessResponse::NO_CONTENT,
);

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[
    GET_USER,
    LIST_OWN_AUDIT,
    LIST_SESSIONS,
    END_SESSION,
    LIST_AUDIT,
];

/// The page and the filters of an audit log with many actors.
pub(super) const AUDIT_QUERY: &[Parameter] = &[PAGE, PAGE_SIZE, ACTION, ACTOR, TARGET, START, END];

const ACTION: Parameter = Parameter::text(
    "action",
    "Only entries of this action, such as `member.changed`.",
);
const ACTOR: Parameter = Parameter::text(
    "actor",
    "Only actions of the user with this id; `platform`: of the platform itself or an unknown actor.",
);
const TARGET: Parameter = Parameter::text("target", "Only changes of the object with this id.");
const START: Parameter = Parameter::time("start", "Only entries of this time or later.");
const END: Parameter = Parameter::time("end", "Only entries before this time.");

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<User>(schemas);
    add::<SessionList>(schemas);
    add::<AuditList>(schemas);
}

/// A person.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct User {
    #[schema(example = "usr_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    #[schema(example = "ada@example.com")]
    pub email: String,
    /// True if the person has verified the address.
    pub email_verified: bool,
    /// The new address, which takes effect once the link that was sent to it is opened; absent: no
    /// change is pending.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub pending_email: Option<String>,
    pub name: String,
    /// Role in the installation: `user` or `admin`.
    #[schema(example = "user")]
    pub role: String,
    /// True if a second factor is set up for signing in.
    pub second_factor: bool,
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// The browser sessions of a person.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct SessionList {
    /// Those that have not ended, oldest first.
    pub sessions: Vec<BrowserSession>,
}

/// A browser in which a person is signed in.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct BrowserSession {
    #[schema(example = "ses_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// The browser's name for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub user_agent: Option<String>,
    /// Client address at the sign-in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ip: Option<String>,
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Last use, with a delay of some minutes.
    #[schema(format = DateTime)]
    pub last_seen_at: String,
    #[schema(format = DateTime)]
    pub expires_at: String,
    /// True for the session that sent this request.
    pub current: bool,
}

page! {
    /// A page of the audit log.
    pub struct AuditList {
        pub entries: Vec<AuditEntry>,
        pub paging: Paging,
    }
}

/// One entry of the audit log.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuditEntry {
    #[schema(example = "adt_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// The action.
    #[schema(example = "member.changed")]
    pub action: String,
    /// The user that did it; absent: the platform itself or an unknown actor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub actor_user_id: Option<String>,
    /// The credential that was used; absent: a browser session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub actor_credential_id: Option<String>,
    /// Kind of the object that the action changed.
    #[schema(example = "user")]
    pub target_kind: String,
    /// Id of the object that the action changed.
    pub target_id: String,
    /// Further details, which depend on the action.
    #[schema(value_type = Object)]
    pub details: Value,
    /// Client address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ip: Option<String>,
    #[schema(format = DateTime)]
    pub created_at: String,
}
