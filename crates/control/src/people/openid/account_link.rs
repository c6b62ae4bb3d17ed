//! Mapping of a provider's identity to a user of the platform.

use jiff::Timestamp;
use serde_json::json;
use store::Tx;
use store::users::{self, Role, Status, User};
use types::problem::Problem;

use super::provider::ProviderIdentity;
use super::section::{OpenIdConfig, SignUp};
use crate::app::App;
use crate::audit::{self, Action, Actor, Target};
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::people::accounts::{self, NewAccount};
use crate::people::email::Email;
use crate::people::secret_link::LinkSecret;
use crate::people::session::{self, Browser, StartedSession};
use crate::workspaces::invitations;

/// A signed-in user. The second factor may still be pending.
#[derive(Debug)]
pub struct SignInResult {
    pub session: StartedSession,
    /// A path of the platform, to continue at.
    pub next: String,
}

/// Reasons that a user of the provider may not sign in.
#[derive(Debug)]
pub enum SignInError {
    /// The provider does not report a confirmed mail address.
    AddressNotConfirmed,
    /// An account has the address, but its owner never proved to own the address. An attacker may
    /// have created it and be waiting for the owner (account pre-hijacking).
    AccountNotConfirmed,
    /// The account with the address is linked to another identity at the provider. The address has
    /// a new owner there.
    AnotherIdentity,
    /// Users with this address get an account only with an invitation.
    NotInvited,
    /// An operator has suspended this user.
    Suspended,
    /// Internal failure.
    Failed(Refusal),
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
    proved: ProviderIdentity,
    next: String,
    browser: &Browser,
    now: Timestamp,
) -> Result<SignInResult, SignInError> {
    let mut tx = app.store.begin().await?;
    let known = users::by_identity(&mut tx, &config.issuer, &proved.subject).await?;
    let (user, next) = match known {
        Some(user) => (user, next),
        None => first_time(app, &mut tx, config, &proved, next, browser, now).await?,
    };
    if user.status != Status::Active {
        return Err(SignInError::Suspended);
    }
    // The session at the provider may be weeks old (OpenID Connect Core, section 2, `auth_time`).
    let proved_at = proved
        .auth_time
        .and_then(|at| Timestamp::from_second(at).ok());
    let begun = session::start_external(app, &mut tx, &user, browser, proved_at, now).await?;
    if !begun.is_second_factor_pending {
        let by = json!({"openid": config.issuer});
        let actor = Actor::person(user.id).at(browser.ip);
        let target = Target::User(user.id);
        audit::record_with(&mut tx, &actor, None, Action::SignedIn, target, by, now).await?;
    }
    tx.commit().await?;
    Ok(SignInResult {
        session: begun,
        next,
    })
}

/// Links an identity that was not seen before: to the account with its address, or to a new
/// account.
async fn first_time(
    app: &App,
    tx: &mut Tx,
    config: &OpenIdConfig,
    proved: &ProviderIdentity,
    next: String,
    browser: &Browser,
    now: Timestamp,
) -> Result<(User, String), SignInError> {
    let email = proved
        .profile
        .email
        .as_deref()
        .filter(|_| proved.profile.email_verified)
        .and_then(|text| Email::parse(text).ok())
        .ok_or(SignInError::AddressNotConfirmed)?;
    let Some(user) = users::by_email(tx, email.as_str()).await? else {
        return sign_up(app, tx, config, proved, email, next, browser, now).await;
    };
    if user.status != Status::Active {
        return Err(SignInError::Suspended);
    }
    if !user.email_verified {
        return Err(SignInError::AccountNotConfirmed);
    }
    let theirs = users::identities(tx, user.id).await?;
    if theirs.iter().any(|other| other.issuer == config.issuer) {
        return Err(SignInError::AnotherIdentity);
    }
    link(tx, config, proved, &user, browser, now).await?;
    Ok((user, next))
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
    proved: &ProviderIdentity,
    email: Email,
    next: String,
    browser: &Browser,
    now: Timestamp,
) -> Result<(User, String), SignInError> {
    let invitation = match next
        .strip_prefix("/invitations/")
        .and_then(LinkSecret::parse)
    {
        Some(secret) => invitations::invites(app, tx, &secret, &email)
            .await?
            .then_some(secret),
        None => None,
    };
    if invitation.is_none() && !may_sign_up(&config.sign_up, &email) {
        return Err(SignInError::NotInvited);
    }
    let local = email.as_str().split('@').next().unwrap_or_default();
    let reported_name = proved.profile.name.as_deref().unwrap_or(local);
    let name = accounts::name(reported_name).or_else(|_| accounts::name(local))?;
    let person = NewAccount {
        email,
        name,
        password: None,
        role: Role::User,
        email_verified: true,
    };
    let (user, next) = if let Some(secret) = invitation {
        let joined = invitations::join_as_new(app, tx, &secret, person, browser.ip).await?;
        (
            joined.ok_or(SignInError::NotInvited)?,
            "/account".to_owned(),
        )
    } else {
        let (id, _) = accounts::create(tx, person, now).await?;
        let user = users::by_id(tx, id).await?.ok_or_else(Problem::internal)?;
        (user, next)
    };
    link(tx, config, proved, &user, browser, now).await?;
    Ok((user, next))
}

async fn link(
    tx: &mut Tx,
    config: &OpenIdConfig,
    proved: &ProviderIdentity,
    user: &User,
    browser: &Browser,
    now: Timestamp,
) -> HandlerResult<()> {
    users::link_identity(tx, user.id, &config.issuer, &proved.subject, now).await?;
    let actor = Actor::person(user.id).at(browser.ip);
    let with = json!({"openid": config.issuer});
    let target = Target::User(user.id);
    audit::record_with(tx, &actor, None, Action::IdentityLinked, target, with, now).await
}

fn may_sign_up(rule: &SignUp, email: &Email) -> bool {
    match rule {
        SignUp::Invited => false,
        SignUp::Anyone => true,
        SignUp::Domains(domains) => {
            let domain = email.as_str().rsplit('@').next().unwrap_or_default();
            domains.iter().any(|allowed| allowed == domain)
        }
    }
}
