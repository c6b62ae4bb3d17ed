//! The likely reason why an engine refuses a token. The engine does not tell it to callers, but the
//! owner of the token can read its claims.

use client::Config;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::client_key::TOKEN_SECONDS;
use crate::failure::{Code, Failure};

/// Adds the reason to the failure, if the engine refused the token of this configuration.
pub(crate) async fn explain(failure: Failure, config: &Config) -> Failure {
    if !is_refused_token(&failure) {
        return failure;
    }
    let Ok(token) = config.tokens.token().await else {
        return failure;
    };
    let reason = Reason::of(token.expose(), Timestamp::now());
    let (message, hint) = reason.texts();
    failure.with_message(message).hint(hint)
}

/// True if the engine does not accept the token at all; a missing permission is another failure.
fn is_refused_token(failure: &Failure) -> bool {
    match failure.name() {
        "invalid_token" => true,
        // The agent protocol has one code for both, and this text for the token.
        "unauthorized" => failure.code() == Code::Refused && failure.message().contains(NOT_VALID),
        _ => false,
    }
}

/// The reason that the claims of a token show.
#[derive(Debug, PartialEq, Eq)]
enum Reason {
    NotAToken,
    Expired(Timestamp),
    /// An application's token with this lifetime.
    TooLong(SignedDuration),
    /// Issued by the platform at this address.
    OtherOrRevoked(String),
    /// Signed with the key of an application or the secret of an engine.
    UnknownKey,
}

impl Reason {
    fn of(token: &str, now: Timestamp) -> Self {
        let Some(claims) = claims(token) else {
            return Self::NotAToken;
        };
        let time = |name: &str| claims.get(name).and_then(Value::as_i64);
        let (expiry, issued) = (time("exp"), time("iat"));
        let expires_at = expiry.and_then(|at| Timestamp::from_second(at).ok());
        if let Some(expires_at) = expires_at.filter(|at| *at <= now) {
            return Self::Expired(expires_at);
        }
        let text = |name: &str| claims.get(name).and_then(Value::as_str);
        let lifetime = expiry
            .zip(issued)
            .map(|(expiry, issued)| SignedDuration::from_secs(expiry.saturating_sub(issued)));
        let limit = SignedDuration::from_secs(TOKEN_SECONDS.into());
        match (text("type"), lifetime) {
            (Some("app"), Some(lifetime)) if lifetime > limit => Self::TooLong(lifetime),
            _ => match text("iss") {
                Some(issuer) => Self::OtherOrRevoked(issuer.to_owned()),
                None => Self::UnknownKey,
            },
        }
    }

    /// The message and the next step.
    fn texts(&self) -> (String, &'static str) {
        match self {
            Self::NotAToken => (
                "the token cannot be read: a token has three parts separated by dots".to_owned(),
                "sign in with `svc login`, or give --token; `svc token inspect` shows the token",
            ),
            Self::Expired(at) => (
                format!("the token expired at {at:.0}"),
                "sign in again with `svc login`, or create another one (`svc token`); an \
                 application renews its tokens with --client and --key-file; `svc token inspect` \
                 shows the token",
            ),
            Self::TooLong(lifetime) => (
                format!(
                    "the token is valid for {} hours, and engines of a platform accept an \
                     application's token for one hour at most",
                    lifetime.as_hours()
                ),
                "omit --ttl of `svc token mint`, or give --client and --key-file to this command \
                 instead of a token; `svc token inspect` shows the token",
            ),
            Self::OtherOrRevoked(issuer) => (
                format!(
                    "the token was issued by {}, and the engine has no valid credential for it: it \
                     was revoked, or the engine belongs to another platform",
                    crate::output::plain(issuer)
                ),
                "`svc context show` shows where token and engine come from; `svc token inspect` \
                 shows the token",
            ),
            Self::UnknownKey => (
                "the engine accepts no key that made this token: the application was revoked, or \
                 the token is for another engine"
                    .to_owned(),
                "`svc context show` shows where token and engine come from; `svc token inspect` \
                 shows the token",
            ),
        }
    }
}

fn claims(token: &str) -> Option<Value> {
    let mut inspected = credentials::inspect(token)?;
    Some(inspected.get_mut("claims")?.take())
}

/// The text of engines for a token that they do not accept.
const NOT_VALID: &str = "the token is not valid here";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// An unsigned token with these claims.
    fn token(claims: &Value) -> String {
        let part = |value: &Value| {
            use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
            URL_SAFE_NO_PAD.encode(value.to_string())
        };
        format!(
            "{}.{}.{}",
            part(&json!({"alg": "HS256"})),
            part(claims),
            "AAAA"
        )
    }

    #[test]
    fn claims_show_the_reason() {
        let now = Timestamp::from_second(10_000).unwrap();
        let of = |claims: &Value| Reason::of(&token(claims), now);
        assert_eq!(Reason::of("a.b", now), Reason::NotAToken);
        assert_eq!(
            of(&json!({"type": "app", "iat": 9_000, "exp": 10_000})),
            Reason::Expired(now)
        );
        let day = json!({"type": "app", "iat": 9_000, "exp": 9_000 + 86_400});
        assert_eq!(of(&day), Reason::TooLong(SignedDuration::from_hours(24)));
        let hour = json!({"type": "app", "iat": 9_000, "exp": 9_000 + 3_600});
        assert_eq!(of(&hour), Reason::UnknownKey);
        let pat = json!({"type": "pat", "iss": "https://p.example", "exp": 20_000});
        assert_eq!(
            of(&pat),
            Reason::OtherOrRevoked("https://p.example".to_owned())
        );
    }
}
