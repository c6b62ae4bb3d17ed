//! Mapping of a provider's identity to a user of the platform.

use std::net::IpAddr;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::json;
use store::users::{self, Role, Status, User};
use store::{Tx, passkeys, sessions};
use types::problem::Problem;

use super::provider::ProviderIdentity;
use super::section::{EmailSource, OpenIdConfig, SignUp};
use super::token::Profile;
use super::{groups, logout};
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::people::accounts::{self, NewAccount};
use crate::people::email::Email;
use crate::people::notices::{self, Notice};
use crate::people::session::{self, Browser, ProviderProof, SignedIn, StartedSession};
use crate::workspaces::invitations::{self, ReturnLink};

/// The result of a sign-in: a session, whose second factor may still be pending.
#[derive(Debug)]
pub struct SignInResult {
    pub session: StartedSession,
    /// The path on the platform that the browser is redirected to.
    pub next: String,
}

/// Reasons that a user of the provider may not sign in.
#[derive(Debug)]
pub enum SignInError {
    /// The provider does not report a verified email address. The claim is the one that is missing,
    /// malformed or not true.
    EmailNotVerified { claim: String },
    /// The address is not in a domain for which the operator trusts the provider.
    DomainNotTrusted { claim: String },
    /// An account has the address, and the provider did not confirm that it is this user's.
    AccountExists { claim: String },
    /// An account has the address, but never verified it. An attacker may have created the account
    /// before the owner of the address signs in (account pre-hijacking).
    AccountEmailNotVerified,
    /// The account is linked to another identity of this provider. In a sign-in, the address now
    /// belongs to a different user there.
    LinkedToOtherIdentity,
    /// The identity signs in to another account.
    IdentityOfOtherAccount,
    /// Users with this address get an account only with an invitation.
    NotInvited { claim: String },
    /// An operator has suspended this user.
    Suspended,
    /// Internal failure.
    Failed(Refusal),
}

impl SignInError {
    /// The claim that is the reason, for the log.
    pub fn claim(&self) -> Option<&str> {
        match self {
            Self::EmailNotVerified { claim }
            | Self::DomainNotTrusted { claim }
            | Self::AccountExists { claim }
            | Self::NotInvited { claim } => Some(claim),
            Self::AccountEmailNotVerified => Some("email"),
            Self::LinkedToOtherIdentity | Self::IdentityOfOtherAccount | Self::Suspended => {
                Some("sub")
            }
            Self::Failed(_) => None,
        }
    }
}

impl<R: Into<Refusal>> From<R> for SignInError {
    fn from(error: R) -> Self {
        Self::Failed(error.into())
    }
}

/// Finds or creates the user, and starts a session.
pub(super) async fn sign_in_identity(
    app: &App,
    config: &OpenIdConfig,
    identity: ProviderIdentity,
    next: String,
    browser: &Browser,
    now: Timestamp,
) -> Result<SignInResult, SignInError> {
    let mut tx = app.store.begin().await?;
    let linked = linked_user(&mut tx, &config.issuer, &identity.subject).await?;
    let (user, next) = match linked {
        Some(user) => (user, next),
        None => link_or_sign_up(app, &mut tx, config, &identity, next, browser, now).await?,
    };
    if user.status != Status::Active {
        return Err(SignInError::Suspended);
    }
    groups::apply(app, &mut tx, config, &user, &identity.groups, now).await?;
    let proof = ProviderProof {
        issuer: &config.issuer,
        subject: &identity.subject,
        sid: identity.sid.as_deref(),
        // The session at the provider may be weeks old (OpenID Connect Core, section 2,
        // `auth_time`).
        proved_at: identity
            .auth_time
            .and_then(|at| Timestamp::from_second(at).ok()),
    };
    let started_session = session::start_external(app, &mut tx, &user, browser, proof, now).await?;
    if !started_session.is_second_factor_pending {
        let details = json!({"openid": config.issuer});
        let actor = Actor::user(user.id).with_ip(browser.ip);
        let target = AuditTarget::User(user.id);
        audit::record_with(
            &mut tx,
            &actor,
            None,
            Action::SignedIn,
            target,
            details,
            now,
        )
        .await?;
    }
    tx.commit().await?;
    Ok(SignInResult {
        session: started_session,
        next,
    })
}

/// The user of a linked identity. The user is locked and read again: a concurrent suspension, or a
/// removal of the identity, has ended its sessions and must not be followed by a new one.
async fn linked_user(
    tx: &mut Tx,
    issuer: &str,
    subject: &str,
) -> Result<Option<User>, store::Error> {
    let Some(found) = users::by_identity(tx, issuer, subject).await? else {
        return Ok(None);
    };
    users::lock(tx, found.id).await?;
    users::by_identity(tx, issuer, subject).await
}

/// Links an unknown identity to the account with its address, or to a new account.
async fn link_or_sign_up(
    app: &App,
    tx: &mut Tx,
    config: &OpenIdConfig,
    identity: &ProviderIdentity,
    next: String,
    browser: &Browser,
    now: Timestamp,
) -> Result<(User, String), SignInError> {
    let ReportedEmail { email, is_verified } = reported_email(config, &identity.profile)?;
    let Some(user) = users::by_email(tx, email.as_str()).await? else {
        let email = ReportedEmail { email, is_verified };
        return sign_up(app, tx, config, identity, email, next, browser, now).await;
    };
    // Users can edit such an address at some providers. The account's own proof is missing.
    if !is_verified {
        let claim = config.email.claim().to_owned();
        return Err(SignInError::AccountExists { claim });
    }
    if user.status != Status::Active {
        return Err(SignInError::Suspended);
    }
    if !user.email_verified {
        return Err(SignInError::AccountEmailNotVerified);
    }
    let linked_identities = users::identities(tx, user.id).await?;
    if linked_identities
        .iter()
        .any(|other| other.issuer == config.issuer)
    {
        return Err(SignInError::LinkedToOtherIdentity);
    }
    link(tx, config, identity, &user, browser, now).await?;
    Ok((user, next))
}

/// Links an identity to the account of the signed-in user. Both have been authenticated.
pub(super) async fn link_to_account(
    app: &Arc<App>,
    config: &OpenIdConfig,
    identity: &ProviderIdentity,
    who: &SignedIn,
    browser: &Browser,
    now: Timestamp,
) -> Result<(), SignInError> {
    let user = &who.user;
    let mut tx = app.store.begin().await?;
    users::lock(&mut tx, user.id).await?;
    match users::by_identity(&mut tx, &config.issuer, &identity.subject).await? {
        Some(linked) if linked.id == user.id => return Ok(()),
        Some(_) => return Err(SignInError::IdentityOfOtherAccount),
        None => {}
    }
    let linked_identities = users::identities(&mut tx, user.id).await?;
    let is_of_provider = |other: &users::Identity| other.issuer == config.issuer;
    if linked_identities.iter().any(is_of_provider) {
        return Err(SignInError::LinkedToOtherIdentity);
    }
    link(&mut tx, config, identity, user, browser, now).await?;
    tx.commit().await?;
    let notice = Notice::IdentityLinked(config.name.clone());
    notices::send(app, user, &notice, browser.ip, now);
    Ok(())
}

/// Removes the identities of a provider from an account, with the roles that its groups gave and
/// the other sessions that it started. False if nothing else would let the user sign in.
pub async fn unlink(
    app: &Arc<App>,
    issuer: &str,
    who: &SignedIn,
    ip: IpAddr,
) -> HandlerResult<bool> {
    let now = app.now();
    let mut tx = app.store.begin().await?;
    users::lock(&mut tx, who.user.id).await?;
    let user = users::by_id(&mut tx, who.user.id).await?;
    let user = user.ok_or_else(Problem::not_found)?;
    if user.password_hash.is_none() && passkeys::count(&mut tx, user.id).await? == 0 {
        return Ok(false);
    }
    let actor = Actor::user(user.id).with_ip(ip);
    let identities = users::identities(&mut tx, user.id).await?;
    for identity in identities.iter().filter(|other| other.issuer == issuer) {
        users::unlink_identity(&mut tx, user.id, issuer, &identity.subject).await?;
        let mut ended = sessions::of_subject(&mut tx, issuer, &identity.subject).await?;
        ended.retain(|session| session.id != who.session.id);
        logout::end(&mut tx, &actor, issuer, &ended, now).await?;
        let (action, target) = (Action::IdentityUnlinked, AuditTarget::User(user.id));
        let details = json!({"openid": issuer});
        audit::record_with(&mut tx, &actor, None, action, target, details, now).await?;
    }
    // No further sign-in would remove these roles.
    groups::remove_all(app, &mut tx, issuer, &user, now).await?;
    tx.commit().await?;
    Ok(true)
}

/// An address that the provider reports.
struct ReportedEmail {
    email: Email,
    /// The provider has confirmed that it is the user's.
    is_verified: bool,
}

/// The address of a user, if the configuration accepts it.
fn reported_email(config: &OpenIdConfig, profile: &Profile) -> Result<ReportedEmail, SignInError> {
    let claim = config.email.claim();
    let text = profile.text(claim);
    let email = text.and_then(|text| Email::parse(text).ok());
    let Some(email) = email else {
        let claim = claim.to_owned();
        return Err(SignInError::EmailNotVerified { claim });
    };
    // The confirmation is one of `email`, and of no other claim.
    let is_verified = claim == "email" && profile.email_verified == Some(true);
    let is_denied = profile.email_verified == Some(false);
    match &config.email {
        _ if is_verified => Ok(ReportedEmail { email, is_verified }),
        EmailSource::Trusted { domains, .. } if !is_denied => {
            if is_in(domains, &email) {
                return Ok(ReportedEmail { email, is_verified });
            }
            let claim = claim.to_owned();
            Err(SignInError::DomainNotTrusted { claim })
        }
        EmailSource::Trusted { .. } | EmailSource::Verified => {
            let claim = "email_verified".to_owned();
            Err(SignInError::EmailNotVerified { claim })
        }
    }
}

fn is_in(domains: &[String], email: &Email) -> bool {
    let domain = email.as_str().rsplit('@').next().unwrap_or_default();
    domains.iter().any(|allowed| allowed == domain)
}

/// Creates an account, if a user with this address may have one. An invited user also joins the
/// workspace.
#[expect(
    clippy::too_many_arguments,
    reason = "the parts of one sign-in, each used once"
)]
async fn sign_up(
    app: &App,
    tx: &mut Tx,
    config: &OpenIdConfig,
    identity: &ProviderIdentity,
    email: ReportedEmail,
    next: String,
    browser: &Browser,
    now: Timestamp,
) -> Result<(User, String), SignInError> {
    let ReportedEmail { email, is_verified } = email;
    // The inviter has the link too, and some providers let users edit such an address.
    let invitation = invitations::by_path(app, tx, &next, &email)
        .await?
        .filter(|invitation| is_verified || invitation.creates_accounts);
    let not_invited = || SignInError::NotInvited {
        claim: config.email.claim().to_owned(),
    };
    if invitation.is_none() && !may_sign_up(&config.sign_up, &email) {
        return Err(not_invited());
    }
    let local_part = email.as_str().split('@').next().unwrap_or_default();
    let reported_name = identity.profile.name.as_deref().unwrap_or(local_part);
    let name = accounts::parse_name(reported_name).or_else(|_| accounts::parse_name(local_part))?;
    let has_mail_proof = invitation
        .as_ref()
        .is_some_and(|invitation| invitation.has_mail_proof);
    let account = NewAccount {
        email,
        name,
        password: None,
        role: Role::User,
        email_verified: is_verified || has_mail_proof,
    };
    let (user, next) = if let Some(ReturnLink { secret, .. }) = invitation {
        let joined = invitations::join_as_new(app, tx, &secret, account, browser.ip).await?;
        (joined.ok_or_else(not_invited)?, "/welcome".to_owned())
    } else {
        let (id, _) = accounts::create(tx, account, now).await?;
        let user = users::by_id(tx, id).await?.ok_or_else(Problem::internal)?;
        (user, next)
    };
    link(tx, config, identity, &user, browser, now).await?;
    Ok((user, next))
}

async fn link(
    tx: &mut Tx,
    config: &OpenIdConfig,
    identity: &ProviderIdentity,
    user: &User,
    browser: &Browser,
    now: Timestamp,
) -> HandlerResult<()> {
    users::link_identity(tx, user.id, &config.issuer, &identity.subject, now).await?;
    let actor = Actor::user(user.id).with_ip(browser.ip);
    let details = json!({"openid": config.issuer});
    let target = AuditTarget::User(user.id);
    audit::record_with(
        tx,
        &actor,
        None,
        Action::IdentityLinked,
        target,
        details,
        now,
    )
    .await
}

fn may_sign_up(rule: &SignUp, email: &Email) -> bool {
    match rule {
        SignUp::Invited => false,
        SignUp::Anyone => true,
        SignUp::Domains(domains) => is_in(domains, email),
    }
}
