//! Invitations to a workspace: sending and accepting them.

use std::net::IpAddr;
use std::sync::Arc;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use store::invitations::{self, Invitation, NewInvitation};
use store::users::{self, User};
use store::workspaces::{Membership, Workspace};
use store::{Conn, PasswordHash, SecretHash, Tx, members};
use types::id::{InvitationId, UserId, WorkspaceId, unix_millis};
use types::permission::Permission;
use types::problem::Problem;

use super::role::Role;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::caller::Principal;
use crate::caller::access;
use crate::http_api::problem::HandlerResult;
use crate::http_api::user_text::printable;
use crate::mail::Message;
use crate::people::accounts::{self, NewAccount};
use crate::people::email::Email;
use crate::people::password::Password;
use crate::people::secret_link::LinkSecret;
use crate::people::session::{self, Browser, SignedIn, StartedSession, later};
use crate::runtime::random;

/// A sent invitation.
#[derive(Debug)]
pub struct SentInvitation {
    /// The stored invitation.
    pub invitation: Invitation,
    /// The link, shown once.
    pub url: String,
}

/// Invites `email` to the workspace. The caller has checked that `who` may give the role. No mail
/// is sent if the address recently got several, or if `who` sent many. The inviter has the link and
/// can pass it on.
pub async fn send(
    app: &Arc<App>,
    who: &Principal,
    workspace: &Membership,
    email: Email,
    role: Role,
    ip: IpAddr,
) -> HandlerResult<SentInvitation> {
    let now = app.now();
    let secret = LinkSecret::draw()?;
    let new = NewInvitation {
        id: InvitationId::new(unix_millis(now), random::bytes()?),
        workspace_id: workspace.id,
        email: email.as_str().to_owned(),
        role: role.into(),
        hash: SecretHash(secret.hash()),
        invited_by: who.user.id,
        expires_at: later(now, LIFETIME),
        now,
    };
    let mut tx = app.store.begin().await?;
    if let Some(user) = users::by_email(&mut tx, email.as_str()).await?
        && members::by_user(&mut tx, workspace.id, user.id)
            .await?
            .is_some()
    {
        return Err(store::Error::Conflict(store::Conflict::AlreadyMember).into());
    }
    require_invitation_quota(&mut tx, who, now).await?;
    // The lock makes each concurrent request count the earlier ones.
    store::workspaces::lock(&mut tx, workspace.id).await?;
    let limit = app.config.limits.open_invitations;
    if invitations::count_open(&mut tx, workspace.id, now).await? >= u64::from(limit) {
        let detail = format!("{limit} invitations are already open; revoke some of them first.");
        return Err(Problem::conflict().with_detail(detail).into());
    }
    invitations::insert(&mut tx, &new).await?;
    audit::record_with(
        &mut tx,
        &Actor::caller(who).with_ip(ip),
        Some(workspace.id),
        Action::InvitationSent,
        AuditTarget::Invitation(new.id),
        json!({"email": email.as_str(), "role": role.as_str()}),
        now,
    )
    .await?;
    let invitation = invitations::by_open_link(&mut tx, new.hash, now).await?;
    let invitation = invitation.ok_or_else(Problem::internal)?;
    tx.commit().await?;
    let url = app.config.url(&format!("/invitations/{}", secret.reveal()));
    // Many workspaces may invite one address. The throttles keep them from filling its mailbox. The
    // response is the same without a mail, so that a workspace cannot detect the invitations of
    // others.
    let people = &app.people;
    if people
        .inviter_throttle
        .record_attempt(&who.user.id, now)
        .is_err()
        || people.invitee_throttle.record_attempt(&email, now).is_err()
    {
        return Ok(SentInvitation { invitation, url });
    }
    let proof = MailProof::of(app, &secret)?.reveal();
    let mailed = format!("{url}?{MAIL_PROOF}={proof}");
    let text = format!(
        "Hello,\n\n{inviter} invites you to the workspace \"{workspace}\" at {platform}. Open this \
         link to join; it works once, within a week:\n\n{mailed}\n",
        inviter = printable(&who.user.name),
        workspace = printable(&workspace.name),
        platform = app.config.base_url,
    );
    let message = Message::new(email, "Join a workspace", text);
    // The response contains the link too, so a lost mail does not prevent the invitation.
    let failure = "an invitation could not be sent";
    app.people.mail_after_response(message, now, failure);
    Ok(SentInvitation { invitation, url })
}

/// Refuses an invitation beyond the limits. Each invitation adds a row and a mail, and lets the
/// inviter probe if an address has an account.
async fn require_invitation_quota(
    tx: &mut Tx,
    who: &Principal,
    now: Timestamp,
) -> HandlerResult<()> {
    let since = now.saturating_sub(DAY).unwrap_or(Timestamp::MIN);
    let (open, sent) = invitations::count_of_inviter(tx, who.user.id, since, now).await?;
    if open >= MAX_OPEN {
        let detail = format!("You have {MAX_OPEN} open invitations; revoke some first.");
        return Err(Problem::conflict().with_detail(detail).into());
    }
    if sent >= MAX_PER_DAY {
        let detail =
            format!("You have sent {MAX_PER_DAY} invitations within a day; try again later.");
        let problem = Problem::too_many_requests().with_detail(detail);
        return Err(problem.with_retry_after(RETRY_AFTER_SECONDS).into());
    }
    Ok(())
}

/// Proves that the visitor has read the mail with an invitation. It is a MAC over the invitation's
/// secret, and no other copy of the link contains it. The inviter also has the link, but without
/// the proof. The link alone must not show if the address has an account.
#[derive(Debug)]
struct MailProof(hmac::Tag);

impl MailProof {
    fn of(app: &App, secret: &LinkSecret) -> HandlerResult<Self> {
        Ok(Self(hmac::sign(&Self::key(app)?, &secret.hash())))
    }

    fn reveal(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.0.as_ref())
    }

    fn verify(app: &App, secret: &LinkSecret, given: &str) -> HandlerResult<bool> {
        let given = BASE64_URL_SAFE_NO_PAD.decode(given).unwrap_or_default();
        Ok(hmac::verify(&Self::key(app)?, &secret.hash(), &given).is_ok())
    }

    fn key(app: &App) -> HandlerResult<hmac::Key> {
        let key = app.keys.derive("invitation-mail")?;
        Ok(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }
}

/// The link parameter of the proof, in the mail.
pub(crate) const MAIL_PROOF: &str = "mail";

/// A valid link and its context.
#[derive(Debug)]
pub struct OpenInvitation {
    /// The invitation.
    pub invitation: Invitation,
    /// The workspace of the invitation.
    pub workspace: Workspace,
    /// Name of the inviter.
    pub invited_by: String,
    /// True if an account has the invited address. A page must not show this unless
    /// `has_mail_proof`.
    pub has_account: bool,
    /// True if the visitor has the mail that was sent to the address.
    pub has_mail_proof: bool,
    /// True if the link creates an account for an address without one.
    pub creates_accounts: bool,
}

/// Looks up a link, with the proof from its mail. `None` if it is not valid.
pub async fn look_up(
    app: &App,
    secret: &LinkSecret,
    proof: &str,
) -> HandlerResult<Option<OpenInvitation>> {
    let has_mail_proof = MailProof::verify(app, secret, proof)?;
    let mut read = app.store.read().await?;
    let hash = SecretHash(secret.hash());
    let Some(invitation) = invitations::by_open_link(&mut read, hash, app.now()).await? else {
        return Ok(None);
    };
    if !is_inviter_authorized(&mut read, &invitation).await? {
        return Ok(None);
    }
    let workspace = store::workspaces::by_id(&mut read, invitation.workspace_id).await?;
    let inviter = users::by_id(&mut read, invitation.invited_by).await?;
    let has_account = users::by_email(&mut read, &invitation.email)
        .await?
        .is_some();
    Ok(workspace.map(|workspace| OpenInvitation {
        workspace,
        invited_by: inviter.map_or_else(|| "Someone".to_owned(), |user| user.name),
        has_account,
        has_mail_proof,
        creates_accounts: has_mail_proof || app.config.mail.links_create_accounts,
        invitation,
    }))
}

/// True if the inviter could still give the role. An invitation must not outlive the membership or
/// the account of the inviter, who may have sent it to another address of their own.
async fn is_inviter_authorized(conn: &mut Conn, invitation: &Invitation) -> HandlerResult<bool> {
    let (workspace, inviter) = (invitation.workspace_id, invitation.invited_by);
    let person = users::by_id(conn, inviter).await?;
    if person.is_none_or(|person| person.status != users::Status::Active) {
        return Ok(false);
    }
    let inviter = members::by_user(conn, workspace, inviter).await?;
    Ok(inviter.is_some_and(|inviter| {
        inviter.status == members::Status::Active
            && Role::from(inviter.role).may_manage(invitation.role.into())
    }))
}

/// True if the invitation is for this user. No other user can join with the link.
pub fn is_for(invitation: &Invitation, user: &User) -> bool {
    store::fold_case(&user.email) == store::fold_case(&invitation.email)
}

/// Joins the workspace as an existing user. The link of the mail also verifies the address. False
/// if the link is not valid, or is for another user. True also if the user has joined meanwhile, in
/// another window or with another link.
pub async fn accept(
    app: &App,
    secret: &LinkSecret,
    who: &SignedIn,
    has_mail_proof: bool,
    ip: IpAddr,
) -> HandlerResult<bool> {
    let mut tx = app.store.begin().await?;
    let Some(invitation) = consume(app, &mut tx, secret, &who.user, ip).await? else {
        drop(tx);
        return has_joined(app, secret, who.user.id).await;
    };
    let workspace = invitation.workspace_id;
    if members::by_user(&mut tx, workspace, who.user.id)
        .await?
        .is_none()
        && let Err(refusal) = join(app, &mut tx, &invitation, &who.user).await
    {
        drop(tx);
        let mut read = app.store.read().await?;
        return match members::by_user(&mut read, workspace, who.user.id).await? {
            Some(_) => Ok(true),
            None => Err(refusal),
        };
    }
    if has_mail_proof {
        users::verify_email(&mut tx, who.user.id, &invitation.email, app.now()).await?;
    }
    tx.commit().await?;
    Ok(true)
}

/// True if this user has joined with the link.
pub async fn has_joined(app: &App, secret: &LinkSecret, user: UserId) -> HandlerResult<bool> {
    let mut read = app.store.read().await?;
    Ok(invitations::is_accepted_by(&mut read, SecretHash(secret.hash()), user).await?)
}

/// True if a user has joined with the link.
pub async fn is_accepted(app: &App, secret: &LinkSecret) -> HandlerResult<bool> {
    let mut read = app.store.read().await?;
    Ok(invitations::is_accepted(&mut read, SecretHash(secret.hash())).await?)
}

/// True if the account with the invited address has accepted this link. The caller uses it when the
/// form was sent twice.
pub async fn is_accepted_by_invitee(
    app: &App,
    secret: &LinkSecret,
    open: &OpenInvitation,
) -> HandlerResult<bool> {
    let mut read = app.store.read().await?;
    match users::by_email(&mut read, &open.invitation.email).await? {
        Some(user) => {
            let hash = SecretHash(secret.hash());
            Ok(invitations::is_accepted_by(&mut read, hash, user.id).await?)
        }
        None => Ok(false),
    }
}

/// Creates an account for the invited address, joins the workspace, and signs in. The link must
/// come from the mail to that address. With `links_create_accounts`, a link that was passed on is
/// also accepted. `None` if the link is not valid, or creates no accounts.
pub async fn accept_as_new(
    app: &App,
    secret: &LinkSecret,
    open: &OpenInvitation,
    given_name: &str,
    password: &str,
    browser: &Browser,
) -> HandlerResult<Option<StartedSession>> {
    if !open.creates_accounts {
        return Ok(None);
    }
    let now = app.now();
    let email = Email::parse(&open.invitation.email).map_err(|_| Problem::internal())?;
    let name = accounts::parse_name(given_name)?;
    let password = Password::chosen(password, email.as_str())
        .map_err(|error| Problem::invalid_request(error.to_string()).with_field("password"))?;
    let hash = app.people.passwords.hash(password).await?;
    let person = NewAccount {
        email,
        name,
        password: Some(PasswordHash(hash)),
        role: users::Role::User,
        // The link may have been passed on in another way than by mail.
        email_verified: open.has_mail_proof,
    };
    let mut tx = app.store.begin().await?;
    let Some(user) = join_as_new(app, &mut tx, secret, person, browser.ip).await? else {
        return Ok(None);
    };
    let started = session::start(app, &mut tx, &user, browser, now).await?;
    tx.commit().await?;
    Ok(Some(started))
}

/// A valid invitation link, to whose page a sign-in returns.
#[derive(Debug)]
pub(crate) struct ReturnLink {
    /// The secret of the invitation.
    pub(crate) secret: LinkSecret,
    /// True if the link is from the mail that was sent to the address.
    pub(crate) has_mail_proof: bool,
    /// True if the link creates an account for an address without one.
    pub(crate) creates_accounts: bool,
}

/// Reads the path of an invitation's page. `None` if it is another path, or the link is not valid
/// or not for this address.
pub(crate) async fn by_path(
    app: &App,
    tx: &mut Tx,
    path: &str,
    email: &Email,
) -> HandlerResult<Option<ReturnLink>> {
    let Some(link) = path.strip_prefix("/invitations/") else {
        return Ok(None);
    };
    let (secret, query) = link.split_once('?').unwrap_or((link, ""));
    let Some(secret) = LinkSecret::parse(secret) else {
        return Ok(None);
    };
    let invitation = invitations::by_open_link(tx, SecretHash(secret.hash()), app.now()).await?;
    let is_for_email = invitation.is_some_and(|invitation| {
        store::fold_case(&invitation.email) == store::fold_case(email.as_str())
    });
    if !is_for_email {
        return Ok(None);
    }
    let proof = query
        .strip_prefix(MAIL_PROOF)
        .and_then(|value| value.strip_prefix('='))
        .unwrap_or_default();
    let has_mail_proof = MailProof::verify(app, &secret, proof)?;
    Ok(Some(ReturnLink {
        secret,
        has_mail_proof,
        creates_accounts: has_mail_proof || app.config.mail.links_create_accounts,
    }))
}

/// Creates an account and joins with it. `None` if the link is not valid, or is for another user.
/// Then the caller drops the transaction, so that neither happens.
pub(crate) async fn join_as_new(
    app: &App,
    tx: &mut Tx,
    secret: &LinkSecret,
    person: NewAccount,
    ip: IpAddr,
) -> HandlerResult<Option<User>> {
    let (id, _) = accounts::create(tx, person, app.now()).await?;
    let user = users::by_id(tx, id).await?.ok_or_else(Problem::internal)?;
    let Some(invitation) = consume(app, tx, secret, &user, ip).await? else {
        return Ok(None);
    };
    join(app, tx, &invitation, &user).await?;
    Ok(Some(user))
}

/// Uses the invitation, if it is for this user.
async fn consume(
    app: &App,
    tx: &mut Tx,
    secret: &LinkSecret,
    user: &User,
    ip: IpAddr,
) -> HandlerResult<Option<Invitation>> {
    let now = app.now();
    let hash = SecretHash(secret.hash());
    let accepted = invitations::accept(tx, hash, user.id, now).await?;
    // On `None` the caller drops the transaction, so nothing is used.
    let Some(invitation) = accepted.filter(|invitation| is_for(invitation, user)) else {
        return Ok(None);
    };
    if !is_inviter_authorized(tx, &invitation).await? {
        return Ok(None);
    }
    audit::record(
        tx,
        &Actor::user(user.id).with_ip(ip),
        Some(invitation.workspace_id),
        Action::InvitationAccepted,
        AuditTarget::Invitation(invitation.id),
        now,
    )
    .await?;
    Ok(Some(invitation))
}

async fn join(app: &App, tx: &mut Tx, invitation: &Invitation, user: &User) -> HandlerResult<()> {
    let workspace: WorkspaceId = invitation.workspace_id;
    let found = store::workspaces::by_id(tx, workspace).await?;
    let status = found.ok_or_else(Problem::not_found)?.status;
    access::require_active_workspace(status, Permission::AccountWorkspaceProtectionReadWrite)?;
    // The lock makes each concurrent request count the earlier ones.
    store::workspaces::lock(tx, workspace).await?;
    let limit = app.config.limits.members_per_workspace;
    if members::count(tx, workspace).await? >= u64::from(limit) {
        let detail = format!("The workspace already has {limit} members.");
        return Err(Problem::conflict().with_detail(detail).into());
    }
    let invited = Some(invitation.created_at);
    Ok(members::insert(tx, workspace, user.id, invitation.role, invited, app.now()).await?)
}

/// Maximum number of open invitations of one user: more than a team has, and few enough to read.
const MAX_OPEN: u64 = 100;
/// Maximum number of invitations of one user per day, including revoked ones.
const MAX_PER_DAY: u64 = 200;
const DAY: SignedDuration = SignedDuration::from_hours(24);
/// Retry time for automated clients. A user sees the message.
const RETRY_AFTER_SECONDS: u32 = 3600;

/// Lifetime of a link.
const LIFETIME: SignedDuration = SignedDuration::from_hours(7 * 24);
