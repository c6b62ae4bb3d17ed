//! Logout tokens and their validation: OpenID Connect Back-Channel Logout 1.0 section 2.6.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use super::token::{
    ExpectedClaims, KeySet, LEEWAY, MAX_SUBJECT, TokenError, check_recipient, one_or_many, verify,
};

/// The sessions that a provider ends.
#[derive(Debug)]
pub(super) struct LogoutToken {
    /// The provider's identifier of the user.
    pub(super) subject: Option<String>,
    /// The provider's identifier of its session.
    pub(super) sid: Option<String>,
    /// Identifier of the token, which is accepted once.
    pub(super) id: String,
    /// Time from which the token is refused as too old.
    pub(super) ends_at: Timestamp,
}

#[derive(Deserialize)]
struct LogoutClaims {
    iss: String,
    #[serde(deserialize_with = "one_or_many")]
    aud: Vec<String>,
    iat: i64,
    exp: i64,
    jti: String,
    sub: Option<String>,
    sid: Option<String>,
    events: serde_json::Map<String, Value>,
}

/// Validates a token. It must be signed by one of the keys, come from the provider, be for the
/// platform, and be recent.
pub(super) fn check(
    token: &str,
    keys: &KeySet,
    expected: ExpectedClaims<'_>,
    now: Timestamp,
) -> Result<LogoutToken, TokenError> {
    let wrong = |claim, why| Err(TokenError::Claim { claim, why });
    let verified = verify(token, keys, expected)?;
    // Section 2.4: an explicit type distinguishes it from other tokens. Not all providers set one.
    let kind = verified.kind.as_deref().unwrap_or("JWT");
    let kind = kind.strip_prefix("application/").unwrap_or(kind);
    if !["logout+jwt", "jwt"].contains(&kind.to_ascii_lowercase().as_str()) {
        return Err(TokenError::Refused("its type is another one"));
    }
    // An ID token must not end sessions.
    if verified.claims.get("nonce").is_some() {
        return wrong("nonce", "a logout token has none");
    }
    let Ok(claims) = serde_json::from_value::<LogoutClaims>(verified.claims) else {
        return Err(TokenError::Refused("a claim is missing or malformed"));
    };
    check_recipient(&claims.iss, &claims.aud, expected)?;
    let second = now.as_second();
    if claims.exp.saturating_add(LEEWAY) <= second {
        return wrong("exp", "the token has expired");
    }
    if claims.iat.saturating_sub(LEEWAY) > second {
        return wrong("iat", "the token was issued in the future");
    }
    // The id of the token is stored until then, so this time has a limit.
    let ends = claims
        .iat
        .saturating_add(MAX_AGE)
        .min(claims.exp)
        .saturating_add(LEEWAY);
    if ends <= second {
        return wrong("iat", "the token is too old");
    }
    let event = claims.events.get(LOGOUT_EVENT);
    if !event.is_some_and(Value::is_object) {
        return wrong("events", "it is not the event of a logout");
    }
    let is_valid = |text: &String| (1..=MAX_SUBJECT).contains(&text.len()) && text.is_ascii();
    if claims.sub.is_none() && claims.sid.is_none() {
        return wrong("sub", "it names neither a user nor a session");
    }
    if !claims.sub.iter().all(is_valid) {
        return wrong("sub", "the subject is empty, too long or not ASCII");
    }
    if !claims.sid.iter().all(is_valid) {
        return wrong("sid", "the session is empty, too long or not ASCII");
    }
    if !is_valid(&claims.jti) {
        return wrong("jti", "the id is empty, too long or not ASCII");
    }
    let Ok(ends_at) = Timestamp::from_second(ends) else {
        return wrong("exp", "the time is out of range");
    };
    Ok(LogoutToken {
        subject: claims.sub,
        sid: claims.sid,
        id: claims.jti,
        ends_at,
    })
}

/// The member of `events` (section 2.4).
const LOGOUT_EVENT: &str = "http://schemas.openid.net/event/backchannel-logout";

/// Providers send a token immediately, and for a minute or two in case of errors. In seconds.
const MAX_AGE: i64 = 600;
