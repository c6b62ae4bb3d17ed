//! `POST /api/credentials`.

use std::sync::Arc;

use api::control::credentials::{
    CreateCredential, GroupMode, IssuedCredential, MAX_CREDENTIALS, PermissionPolicy,
};
use axum::Json;
use axum::extract::State;
use credentials::{AccessClaims, Provenance, Secret, SigningKey, TokenKind, digest, mint_from};
use http::StatusCode;
use jiff::Timestamp;
use serde_json::{Value, json};
use store::credentials::{self as stored, Credential, Kind};
use store::{Conflict, SecretHash, Tx, sessions};
use types::id::{CredentialId, UserId, unix_millis};
use types::permission::Permission;
use types::problem::Problem;

use super::material::{Material, SubmittedMaterial};
use super::view::view;
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::caller::{Caller, CredentialsWrite, Principal, Source};
use crate::credentials::delegation;
use crate::credentials::delegation::{Grant, RequestedLimits};
use crate::credentials::tokens::{mint_request, text, token_id};
use crate::http_api::extract::{Body, ClientIp};
use crate::http_api::problem::{HandlerResult, Refusal, bad};
use crate::http_api::user_text::validate_name;
use crate::people::notices::{self, Notice};
use crate::people::session::is_recent;
use crate::runtime::metrics;
use crate::runtime::random;

pub(super) async fn create(
    Caller { principal: who, .. }: Caller<CredentialsWrite>,
    State(app): State<Arc<App>>,
    ClientIp(ip): ClientIp,
    Body(body): Body<CreateCredential>,
) -> HandlerResult<(StatusCode, Json<IssuedCredential>)> {
    let now = app.now();
    let name = validate_name(&body.name)?;
    let sent = SubmittedMaterial {
        public_key: body.public_key_pem.as_deref(),
        certificate: body.certificate_pem.as_deref(),
        issuer: body.issuer_pem.as_deref(),
    };
    let material = Material::of(body.kind, sent, now)?;
    let permissions = requested_permissions(body.permissions, body.permission_policy)?;
    let expires_at = expiry(body.expires_at.as_deref(), &who, now)?;
    let compat = app.config.compat_rstream;
    let resources = requested_boundary(body.resources, body.tunnels_grants)?;
    let targets = [who.resources.as_ref(), resources.as_ref()];
    delegation::refuse_suspended(&app, targets).await?;
    let requested = RequestedLimits {
        permissions,
        resources,
        expires_at,
    };
    let grant = Grant::of_credential(&who, requested, compat)?;
    let is_endless = grant.expires_at().is_none();
    let draft = NewCredential {
        owner: who.user.id,
        name,
        grant,
        material,
        access: None,
        issuer: Issuer::of(&who),
    };
    // A public id has 32 bits. If it is taken, another one is drawn.
    for _ in 0..MAX_DRAWS {
        let issued = issue(&app, draft.clone(), now)?;
        let mut tx = app.store.begin().await?;
        lock_issuer(&mut tx, &who, now).await?;
        if is_endless {
            require_proof(&mut tx, &who, now).await?;
        }
        match stored::insert(&mut tx, &issued.credential).await {
            Err(store::Error::Conflict(Conflict::TokenEndpointTaken)) => continue,
            other => other?,
        }
        require_credential_quota(&mut tx, who.user.id, now).await?;
        let actor = Actor::caller(&who).with_ip(ip);
        let target = AuditTarget::Credential(issued.credential.id);
        audit::record(&mut tx, &actor, None, Action::CredentialIssued, target, now).await?;
        tx.commit().await?;
        metrics::minted(issued.credential.kind.as_str());
        let notice = Notice::CredentialIssued(issued.credential.name.clone());
        notices::send(&app, &who.user, &notice, ip, now);
        return Ok((StatusCode::CREATED, Json(issued.to_response(now)?)));
    }
    tracing::error!("no free token endpoint was found");
    Err(Problem::internal().into())
}

/// Checks in the issuing transaction that the caller's credential is valid, and locks it until the
/// transaction ends. So no credential is issued after a revocation.
pub(super) async fn lock_issuer(tx: &mut Tx, who: &Principal, now: Timestamp) -> HandlerResult<()> {
    let Some(issuer) = who.source.credential() else {
        return Ok(());
    };
    if stored::lock_issuer(tx, who.user.id, issuer, now).await? {
        Ok(())
    } else {
        Err(Problem::invalid_token().into())
    }
}

/// An unattended session must not issue a credential without expiry, so the user has to
/// authenticate again. Tokens that were minted from a session expire, and so do the credentials
/// that they issue.
async fn require_proof(tx: &mut Tx, who: &Principal, now: Timestamp) -> HandlerResult<()> {
    let Source::Session(session) = who.source else {
        return Ok(());
    };
    let live = sessions::of_user(tx, who.user.id, now).await?;
    let own = live.into_iter().find(|one| one.id == session);
    if own.is_some_and(|own| is_recent(own.proved_at, now)) {
        return Ok(());
    }
    let detail = "A credential without an expiry requires a recent sign-in: confirm your identity \
        at /account/confirm, or set an expiry.";
    Err(Problem::new(403, "proof_required", detail)
        .with_field("expiresAt")
        .into())
}

/// Refuses a credential beyond the limit. It is counted together with those that the transaction
/// has added.
pub(crate) async fn require_credential_quota(
    tx: &mut Tx,
    owner: UserId,
    now: Timestamp,
) -> HandlerResult<()> {
    if stored::count_active(tx, owner, now).await? <= u64::from(MAX_CREDENTIALS) {
        return Ok(());
    }
    let detail = format!("There are already {MAX_CREDENTIALS} credentials; revoke one first.");
    Err(Problem::conflict().with_detail(detail).into())
}

/// Four duplicate draws in a row would need billions of tokens.
const MAX_DRAWS: u32 = 4;

/// A new credential before it is issued.
#[derive(Clone, Debug)]
pub(super) struct NewCredential {
    pub(super) owner: UserId,
    pub(super) name: String,
    pub(super) grant: Grant,
    pub(super) material: Material,
    /// The access claims, if an OAuth client gets the token.
    pub(super) access: Option<AccessClaims>,
    pub(super) issuer: Issuer,
}

/// The chain of credentials that a new one continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Issuer {
    /// The caller's credential, used directly or through a token that was minted from it.
    pub(super) issued_by: Option<CredentialId>,
    /// The first credential of the chain.
    pub(super) root: Option<CredentialId>,
}

impl Issuer {
    /// The caller as issuer. A user in a browser starts a new chain.
    pub(super) fn of(who: &Principal) -> Self {
        Self {
            issued_by: who.source.credential(),
            root: who.root,
        }
    }

    /// The caller as issuer of a successor. If the caller is a user in a browser, the successor
    /// keeps the issuer of the old credential and stays in its chain.
    pub(super) fn of_successor(who: &Principal, old: &Credential) -> Self {
        match who.source.credential() {
            Some(_) => Self::of(who),
            None => Self {
                issued_by: old.issued_by,
                root: Some(old.root()),
            },
        }
    }
}

/// A credential and its secret, if it has one.
#[derive(Clone, Debug)]
pub struct CredentialWithSecret {
    /// The stored credential.
    pub credential: Credential,
    /// The secret of a personal access token, which is shown once.
    pub token: Option<Secret>,
}

impl CredentialWithSecret {
    pub(super) fn to_response(&self, now: Timestamp) -> HandlerResult<IssuedCredential> {
        Ok(IssuedCredential {
            credential: view(&self.credential, now),
            token: self.token.as_ref().map(text).transpose()?,
        })
    }
}

/// A personal access token of a user that is not stored yet: for the first administrator.
pub fn issue_pat(
    app: &App,
    owner: UserId,
    name: &str,
    expires_at: Option<Timestamp>,
) -> HandlerResult<CredentialWithSecret> {
    let draft = NewCredential {
        owner,
        name: name.to_owned(),
        grant: Grant::unrestricted(expires_at),
        material: Material::Token,
        access: None,
        issuer: Issuer::default(),
    };
    issue(app, draft, app.now())
}

/// The access token of an OAuth client, which is not stored yet.
pub fn issue_access_token(
    app: &App,
    owner: UserId,
    client_name: &str,
    claims: AccessClaims,
    resources: Option<Value>,
    (now, expires_at): (Timestamp, Timestamp),
) -> HandlerResult<CredentialWithSecret> {
    let draft = NewCredential {
        owner,
        name: client_name.to_owned(),
        grant: Grant::approved(claims.scope, resources, expires_at),
        material: Material::Token,
        access: Some(claims),
        issuer: Issuer::default(),
    };
    issue(app, draft, now)
}

/// Issues a personal access token with every permission and no boundary to the operator of the
/// installation.
pub(crate) async fn issue_admin_pat(
    app: &App,
    owner: UserId,
    name: &str,
    expires_at: Option<Timestamp>,
) -> HandlerResult<Secret> {
    for _ in 0..MAX_DRAWS {
        let now = app.now();
        let CredentialWithSecret { credential, token } = issue_pat(app, owner, name, expires_at)?;
        let mut tx = app.store.begin().await?;
        match stored::insert(&mut tx, &credential).await {
            Err(store::Error::Conflict(Conflict::TokenEndpointTaken)) => continue,
            other => other?,
        }
        let (actor, target) = (Actor::user(owner), AuditTarget::Credential(credential.id));
        audit::record(&mut tx, &actor, None, Action::CredentialIssued, target, now).await?;
        tx.commit().await?;
        return token.ok_or_else(|| Problem::internal().into());
    }
    tracing::error!("no free token endpoint was found");
    Err(Problem::internal().into())
}

/// Creates a credential from a draft, with a token if it is a personal access token.
pub(super) fn issue(
    app: &App,
    draft: NewCredential,
    now: Timestamp,
) -> HandlerResult<CredentialWithSecret> {
    let NewCredential {
        owner,
        name,
        grant,
        material,
        access,
        issuer,
    } = draft;
    let mut credential = Credential {
        id: CredentialId::new(unix_millis(now), random::bytes()?),
        user_id: owner,
        workspace_id: None,
        kind: Kind::Pat,
        name,
        token_hash: None,
        token_endpoint: None,
        public_key: None,
        certificate_fingerprint: None,
        certificate: None,
        issuer_fingerprint: None,
        permissions: grant.permission_names(),
        resources: grant.resources().cloned(),
        created_at: now,
        updated_at: now,
        expires_at: grant.expires_at(),
        revoked_at: None,
        last_used_at: None,
        last_used_ip: None,
        signing_key: None,
        rotated_to: None,
        oauth_client: access.as_ref().map(|access| access.client_id.clone()),
        issued_by: issuer.issued_by,
        root_id: issuer.root,
    };
    let mut token = None;
    match material {
        Material::Token => {
            let endpoint = hex::encode(random::bytes::<4>()?);
            let source = match access {
                Some(claims) => credentials::Source::AccessToken {
                    endpoint: endpoint.clone(),
                    claims,
                },
                None => credentials::Source::TokenEndpoint(endpoint.clone()),
            };
            let key = app.keys.signing();
            let secret = personal_token(app, &key, owner, source, &grant, now)?;
            credential.token_hash = Some(hash(&secret)?);
            credential.signing_key = key.kid().map(str::to_owned);
            credential.token_endpoint = Some(endpoint);
            token = Some(secret);
        }
        Material::PublicKey(pem) => {
            credential.kind = Kind::App;
            credential.public_key = Some(pem);
        }
        Material::Certificate { pem, fingerprint } => {
            credential.kind = Kind::Mtls;
            credential.certificate = Some(pem);
            credential.certificate_fingerprint = Some(fingerprint.to_vec());
        }
        Material::Issuer { pem, fingerprint } => {
            credential.kind = Kind::Mtls;
            credential.certificate = Some(pem);
            credential.issuer_fingerprint = Some(fingerprint.to_vec());
        }
    }
    Ok(CredentialWithSecret { credential, token })
}

fn personal_token(
    app: &App,
    key: &SigningKey,
    owner: UserId,
    source: credentials::Source,
    grant: &Grant,
    now: Timestamp,
) -> HandlerResult<Secret> {
    let request = mint_request(TokenKind::Pat, owner, grant, now).ok_or_else(bad_expiry)?;
    let provenance = Provenance {
        issuer: app.config.base_url.clone(),
        id: token_id(now)?,
        source,
    };
    Ok(mint_from(
        key,
        &request,
        Some(&provenance),
        now.as_second(),
    )?)
}

fn hash(token: &Secret) -> HandlerResult<SecretHash> {
    let text = std::str::from_utf8(token.expose()).map_err(|_| Problem::internal())?;
    Ok(SecretHash(digest(text)))
}

/// The boundary, from either name in the request.
fn requested_boundary(
    resources: Option<Value>,
    grants: Option<Value>,
) -> HandlerResult<Option<Value>> {
    match (resources, grants) {
        (Some(_), Some(_)) => Err(bad("tunnelsGrants", "cannot be combined with resources")),
        (resources, None) => Ok(resources),
        (None, Some(grants)) => Ok(Some(json!({"tunnels": grants}))),
    }
}

/// The permissions, from either form in the request.
fn requested_permissions(
    permissions: Option<Vec<Permission>>,
    policy: Option<PermissionPolicy>,
) -> HandlerResult<Option<Vec<Permission>>> {
    let Some(policy) = policy else {
        return Ok(permissions);
    };
    if permissions.is_some() {
        return Err(bad(
            "permissionPolicy",
            "cannot be combined with permissions",
        ));
    }
    let mut chosen = Vec::new();
    for (group, of_engine) in [(policy.control, false), (policy.engine, true)] {
        let Some(group) = group else { continue };
        let field = if of_engine {
            "permissionPolicy.engine"
        } else {
            "permissionPolicy.control"
        };
        if group.mode == GroupMode::None && !group.permissions.is_empty() {
            return Err(bad(field, "lists permissions, but its mode is none"));
        }
        let foreign = |permission: &Permission| is_of_engine(*permission) != of_engine;
        if group.permissions.iter().any(foreign) {
            return Err(bad(field, "lists a permission of the other group"));
        }
        chosen.extend(group.permissions);
    }
    Ok(Some(chosen))
}

/// True if an engine checks the permission, and not the control plane.
fn is_of_engine(permission: Permission) -> bool {
    let of_engine = |resource: &str| resource.starts_with("engine.") || resource == "turn.relay";
    permission
        .rules()
        .iter()
        .all(|rule| of_engine(rule.resource))
}

/// The expiry: in the future, in whole seconds, and not after that of the issuing credential.
fn expiry(
    given: Option<&str>,
    who: &Principal,
    now: Timestamp,
) -> HandlerResult<Option<Timestamp>> {
    let Some(text) = given else {
        return Ok(None);
    };
    let at: Timestamp = text
        .parse()
        .map_err(|_| bad("expiresAt", "expiresAt is not an RFC 3339 time"))?;
    let at = Timestamp::from_second(at.as_second()).map_err(|_| bad_expiry())?;
    if at.as_second() <= now.as_second() {
        return Err(bad("expiresAt", "expiresAt is not in the future"));
    }
    if delegation::lifetime_bound(who).is_some_and(|end| at > end) {
        let detail = "expiresAt is later than the expiry of the credential that was sent";
        return Err(bad("expiresAt", detail));
    }
    Ok(Some(at))
}

fn bad_expiry() -> Refusal {
    bad("expiresAt", "expiresAt is too far in the future")
}
