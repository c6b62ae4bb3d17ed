//! From a bearer token to a principal: the signature first, then what is stored of it.

use api::control::whoami::CallerKind;
use credentials::{Identity, Keyring, TokenKind, Verified, access_claims, inspect};
use jiff::Timestamp;
use serde_json::Value;
use store::credentials::{self as stored, Credential, Kind};
use store::{Conn, SecretHash, sessions, users};
use types::boundary::Boundary;
use types::id::{CredentialId, SessionId, UserId};
use types::permission::{Permission, Permissions};
use types::problem::Problem;

use super::principal::{Principal, Source, both_permissions, both_resources};
use crate::app::App;
use crate::oauth::Client;
use crate::people::session::limits;
use crate::problem::Answer;

/// The principal of a token. Every reason for a refusal looks alike from outside; the log has it.
pub(super) async fn principal(app: &App, token: &str) -> Answer<Principal> {
    let now = app.now();
    let mut read = app.store.read().await?;
    let claims = inspect(token).and_then(|mut token| Some(token.get_mut("claims")?.take()));
    let Some(claims) = claims else {
        return refused("not a compact JWS");
    };
    // Who signed is decided by what the token says of itself; whether that is true, by the key.
    let application = match claims.get("type").and_then(Value::as_str) {
        Some("app") => match application(&mut read, &claims).await? {
            Some(credential) => Some(credential),
            None => return refused("no such application"),
        },
        _ => None,
    };
    let own;
    let keys = match &application {
        Some(credential) => {
            let pem = credential.public_key.as_deref().unwrap_or_default();
            match Keyring::new()
                .with_compat(app.config.compat_rstream)
                .with_pem(pem)
            {
                Ok(keyring) => own = keyring,
                Err(_) => return refused("the application has no key"),
            }
            &own
        }
        None => app.keys.keyring(),
    };
    let verified = match credentials::verify(token, keys, now.as_second()) {
        Ok(verified) => verified,
        Err(reason) => return refused(reason),
    };
    let resources = claims.get("resources").cloned();
    let found = match (application, verified.kind) {
        (Some(credential), TokenKind::App) => {
            of_credential(&credential, &verified, resources, now, CallerKind::App)
        }
        (None, TokenKind::Pat) => {
            let client = match oauth_client(app, &claims) {
                Ok(client) => client,
                Err(reason) => return refused(reason),
            };
            pat(&mut read, &verified, client, resources, now).await?
        }
        (None, TokenKind::Auth) => delegated(&mut read, &verified, resources, now).await?,
        _ => None,
    };
    let Some(found) = found else {
        return refused("the credential behind the token is not in force");
    };
    let Some(user) = users::by_id(&mut read, found.owner).await? else {
        return refused("its user does not exist");
    };
    if user.status != users::Status::Active {
        return refused("its user is suspended");
    }
    drop(read);
    if let Some(credential) = found.last_used {
        note_use(app, credential, now).await;
    }
    Ok(Principal {
        kind: found.kind,
        user,
        source: found.source,
        source_updated_at: found.updated_at,
        permissions: found.permissions,
        boundary: found.boundary,
        resources: found.resources,
        expires_at: found.expires_at,
    })
}

/// A token whose credential is in force.
struct Found {
    kind: CallerKind,
    owner: UserId,
    source: Source,
    updated_at: Timestamp,
    permissions: Option<Permissions>,
    boundary: Boundary,
    resources: Option<Value>,
    expires_at: Option<Timestamp>,
    /// The credential whose use is to be noted.
    last_used: Option<CredentialId>,
}

/// The application that a token says it comes from. Not verified: it says which key to ask.
async fn application(conn: &mut Conn, claims: &Value) -> Answer<Option<Credential>> {
    let id = claims.get("clientId").and_then(Value::as_str);
    let Some(id) = id.and_then(|id| id.parse::<CredentialId>().ok()) else {
        return Ok(None);
    };
    let credential = stored::by_id(conn, id).await?;
    Ok(credential.filter(|credential| credential.kind == Kind::App))
}

/// The client of an OAuth access token (OA-8, MC-4): what the token says of itself is whole and
/// consistent, for this platform, and of a client that is still registered.
fn oauth_client<'a>(app: &'a App, claims: &Value) -> Result<Option<&'a Client>, String> {
    let base_url = &app.config.base_url;
    let claims = access_claims(claims, base_url, base_url).map_err(|bad| bad.to_string())?;
    let Some(claims) = claims else {
        return Ok(None);
    };
    let client = app.config.oauth.client(&claims.client_id);
    client
        .map(Some)
        .ok_or_else(|| "its client is not registered".to_owned())
}

/// A personal access token is the secret of its credential: found by its hash alone, so that what
/// was revoked is refused from then on, by every process (OA-8).
async fn pat(
    conn: &mut Conn,
    verified: &Verified,
    client: Option<&Client>,
    resources: Option<Value>,
    now: Timestamp,
) -> Answer<Option<Found>> {
    let credential = stored::by_token(conn, SecretHash(verified.digest)).await?;
    Ok(credential
        .filter(|credential| {
            credential.kind == Kind::Pat
                && credential.oauth_client.as_deref() == client.map(Client::id)
                && credential.token_endpoint == verified.credential_id
                && verified.user_id.as_deref() == Some(credential.user_id.as_str())
        })
        .and_then(|credential| {
            of_credential(&credential, verified, resources, now, CallerKind::Pat)
        }))
}

/// A delegated token lives as long as what it was minted from.
async fn delegated(
    conn: &mut Conn,
    verified: &Verified,
    resources: Option<Value>,
    now: Timestamp,
) -> Answer<Option<Found>> {
    let source = verified.credential_id.as_deref().unwrap_or_default();
    let Identity::User(user) = &verified.identity else {
        return Ok(None);
    };
    if let Ok(id) = source.parse::<CredentialId>() {
        let credential = stored::by_id(conn, id).await?;
        return Ok(credential
            .filter(|credential| credential.user_id.as_str() == user)
            .and_then(|credential| {
                of_credential(&credential, verified, resources, now, CallerKind::Auth)
            }));
    }
    let (Ok(id), Ok(owner)) = (source.parse::<SessionId>(), user.parse::<UserId>()) else {
        return Ok(None);
    };
    let sessions = sessions::of_user(conn, owner, now).await?;
    let session = sessions.into_iter().find(|session| session.id == id);
    Ok(session.map(|session| {
        let (permissions, boundary) = limits(&session);
        Found {
            kind: CallerKind::Auth,
            owner,
            source: Source::Session(id),
            updated_at: session.rotated_at,
            permissions: both_permissions(verified.permissions, permissions),
            boundary: verified.boundary.and(&boundary),
            resources,
            expires_at: verified.expires_at.and_then(at),
            last_used: None,
        }
    }))
}

/// What a token and the credential behind it allow together.
fn of_credential(
    credential: &Credential,
    verified: &Verified,
    resources: Option<Value>,
    now: Timestamp,
    kind: CallerKind,
) -> Option<Found> {
    if !credential.is_live(now) {
        return None;
    }
    let narrowed = credential.permissions.as_ref().map(|names| {
        names
            .iter()
            .flat_map(|name| name.parse::<Permission>())
            .collect()
    });
    let workspace = credential
        .workspace_id
        .map(|id| serde_json::json!({"tunnels": {"workspaces": [id]}}));
    let stored = both_resources(credential.resources.clone(), workspace);
    // Read as tolerantly as tokens are minted: a spelling that is not known here refuses all.
    let boundary = Boundary::parse(stored.as_ref(), true);
    let ends = [verified.expires_at.and_then(at), credential.expires_at];
    let is_stale = |used: Timestamp| now.as_second() - used.as_second() >= NOTE_EVERY_SECONDS;
    Some(Found {
        kind,
        owner: credential.user_id,
        source: Source::Credential(credential.id),
        updated_at: credential.updated_at,
        permissions: both_permissions(verified.permissions, narrowed),
        boundary: verified.boundary.and(&boundary),
        resources: match kind {
            // What was delegated already says what its parent says.
            CallerKind::Auth => resources,
            _ => both_resources(stored, resources),
        },
        expires_at: ends.into_iter().flatten().min(),
        last_used: credential
            .last_used_at
            .is_none_or(is_stale)
            .then_some(credential.id),
    })
}

/// A use is noted once a minute at most: reads stay reads.
const NOTE_EVERY_SECONDS: i64 = 60;

/// Best effort: a database that cannot be written does not keep anybody from reading.
async fn note_use(app: &App, credential: CredentialId, now: Timestamp) {
    let noted = async {
        let mut tx = app.store.begin().await?;
        stored::used(&mut tx, credential, now).await?;
        tx.commit().await
    };
    if let Err(error) = noted.await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            "a use was not noted"
        );
    }
}

fn at(seconds: i64) -> Option<Timestamp> {
    Timestamp::from_second(seconds).ok()
}

fn refused<T>(reason: impl std::fmt::Display) -> Answer<T> {
    tracing::info!(%reason, "a token was refused");
    Err(Problem::invalid_token().into())
}
