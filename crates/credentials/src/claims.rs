//! The claims of a token, with their types checked.

use serde_json::{Map, Value, json};
use types::boundary::Boundary;
use types::permission::{Permission, Permissions};

use crate::refusal::TokenRefusal;
use crate::token::{Identity, TokenKind};

/// The claims that are evaluated.
pub(crate) struct Claims {
    pub(crate) kind: TokenKind,
    pub(crate) identity: Identity,
    pub(crate) user_id: Option<String>,
    pub(crate) client_id: Option<String>,
    pub(crate) permissions: Option<Permissions>,
    pub(crate) boundary: Boundary,
    pub(crate) expires_at: Option<i64>,
    pub(crate) not_before: Option<i64>,
    pub(crate) issued_at: Option<i64>,
    pub(crate) credential_id: Option<String>,
    pub(crate) id: Option<String>,
}

impl Claims {
    pub(crate) fn read(claims: &Map<String, Value>, compat: bool) -> Result<Self, TokenRefusal> {
        let kind = match claims.get("type") {
            Some(Value::String(kind)) => kind.parse().map_err(|_| TokenRefusal::UnknownType)?,
            _ => return Err(TokenRefusal::UnknownType),
        };
        for name in TEXTS {
            text(claims, name)?;
        }
        check_audience(claims)?;
        let (user_id, client_id) = (id(claims, "userId")?, id(claims, "clientId")?);
        let as_user = user_id.clone().map(Identity::User);
        let as_client = client_id.clone().map(Identity::Client);
        // An application acts as itself, every other credential as a user.
        let identity = if kind == TokenKind::App {
            as_client.or(as_user)
        } else {
            as_user.or(as_client)
        };
        Ok(Self {
            kind,
            identity: identity.ok_or(TokenRefusal::NoIdentity)?,
            user_id,
            client_id,
            permissions: permissions(claims)?,
            boundary: boundary(claims, compat)?,
            expires_at: time(claims, "exp")?,
            not_before: time(claims, "nbf")?,
            issued_at: time(claims, "iat")?,
            id: text(claims, "jti")?.map(str::to_owned),
            credential_id: match token_endpoint(claims)? {
                Some(endpoint) => Some(endpoint),
                None => text(claims, "sourceCredentialId")?.map(str::to_owned),
            },
        })
    }
}

/// Claims that must be texts if present.
const TEXTS: [&str; 8] = [
    "iss",
    "sub",
    "jti",
    "client_id",
    "resource",
    "scope",
    "sourceCredentialId",
    "sourceCredentialUpdatedAt",
];

/// Longer ids do not exist. Ids are written into logs and into a header towards upstreams.
const MAX_ID_BYTES: usize = 256;

fn text<'a>(
    claims: &'a Map<String, Value>,
    name: &'static str,
) -> Result<Option<&'a str>, TokenRefusal> {
    match claims.get(name) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(_) => Err(TokenRefusal::Claim(name)),
    }
}

fn id(claims: &Map<String, Value>, name: &'static str) -> Result<Option<String>, TokenRefusal> {
    let fits =
        |id: &&str| (1..=MAX_ID_BYTES).contains(&id.len()) && !id.chars().any(char::is_control);
    match text(claims, name)? {
        None => Ok(None),
        Some(id) => Some(id)
            .filter(fits)
            .map(|id| Some(id.to_owned()))
            .ok_or(TokenRefusal::Claim(name)),
    }
}

/// A `NumericDate` (RFC 7519 section 2) as an integer literal, not before 1970.
fn time(claims: &Map<String, Value>, name: &'static str) -> Result<Option<i64>, TokenRefusal> {
    match claims.get(name) {
        None => Ok(None),
        Some(at) => at
            .as_i64()
            .filter(|at| *at >= 0)
            .map(Some)
            .ok_or(TokenRefusal::Claim(name)),
    }
}

/// RFC 7519 section 4.1.3: a text or a list of them.
fn check_audience(claims: &Map<String, Value>) -> Result<(), TokenRefusal> {
    match claims.get("aud") {
        None | Some(Value::String(_)) => Ok(()),
        Some(Value::Array(audiences)) if audiences.iter().all(Value::is_string) => Ok(()),
        Some(_) => Err(TokenRefusal::Claim("aud")),
    }
}

/// Absent or `null` means not restricted. Unknown names grant nothing.
fn permissions(claims: &Map<String, Value>) -> Result<Option<Permissions>, TokenRefusal> {
    const CLAIM: TokenRefusal = TokenRefusal::Claim("permissions");
    match claims.get("permissions") {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(names)) => {
            let names = names
                .iter()
                .map(|name| name.as_str().ok_or(CLAIM))
                .collect::<Result<Vec<_>, _>>()?;
            Ok(Some(
                names
                    .into_iter()
                    .filter_map(|name| name.parse::<Permission>().ok())
                    .collect(),
            ))
        }
        Some(_) => Err(CLAIM),
    }
}

/// The boundary of `resources` and of its older locations. A restriction in an older location is
/// never ignored.
fn boundary(claims: &Map<String, Value>, compat: bool) -> Result<Boundary, TokenRefusal> {
    let mut boundary = Boundary::parse(claims.get("resources"), compat);
    if let Some(grants) = claims.get("tunnelsGrants") {
        boundary = boundary.and(&Boundary::parse(
            Some(&json!({ "tunnels": grants })),
            compat,
        ));
    }
    match claims.get("metadata") {
        None => {}
        Some(Value::Object(metadata)) if !metadata.contains_key("scopes") => {}
        Some(Value::Object(_)) => boundary = Boundary::refuse_everything(),
        Some(_) => return Err(TokenRefusal::Claim("metadata")),
    }
    Ok(boundary)
}

/// Public id of a personal access token: 8 hex digits, under its name or its older spelling.
fn token_endpoint(claims: &Map<String, Value>) -> Result<Option<String>, TokenRefusal> {
    const CLAIM: TokenRefusal = TokenRefusal::Claim("token_endpoint");
    let endpoint = match (
        text(claims, "token_endpoint")?,
        text(claims, "tokendpoint")?,
    ) {
        (Some(one), Some(other)) if one != other => return Err(CLAIM),
        (Some(endpoint), _) | (None, Some(endpoint)) => endpoint,
        (None, None) => return Ok(None),
    };
    let is_hex = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    if endpoint.len() == 8 && endpoint.bytes().all(is_hex) {
        Ok(Some(endpoint.to_owned()))
    } else {
        Err(CLAIM)
    }
}
