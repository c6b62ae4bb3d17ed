//! The likely reason why an engine refuses a token. The engine does not report it to callers, but
//! the owner of the token can read its claims.

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
    NotYetValid(Timestamp),
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
        let starts_at = time("nbf")
            .max(issued)
            .and_then(|at| Timestamp::from_second(at).ok());
        if let Some(starts_at) = starts_at.filter(|at| at.duration_since(now) > CLOCK_LEEWAY) {
            return Self::NotYetValid(starts_at);
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
            Self::NotYetValid(at) => (
                format!("by the clock of this machine, the token is not valid before {at:.0}"),
                "correct the clock of this machine, or of the one that issued the token; `svc \
                 doctor` compares it with the engine's; `svc token inspect` shows the token",
            ),
            Self::TooLong(lifetime) => (
                format!(
                    "the token is valid for {}, and engines of a platform accept an application's \
                     token for one hour at most",
                    lifetime_text(*lifetime)
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
                "the engine accepts no key that made this token: the application was revoked, the \
                 token is for another engine, or the clock of the machine that signed it is ahead"
                    .to_owned(),
                "`svc context show` shows where token and engine come from; `svc doctor` compares \
                 the clocks; `svc token inspect` shows the token",
            ),
        }
    }
}

fn claims(token: &str) -> Option<Value> {
    let mut inspected = credentials::inspect(token)?;
    Some(inspected.get_mut("claims")?.take())
}

/// The lifetime in its largest unit without a rest. It is longer than an hour.
fn lifetime_text(lifetime: SignedDuration) -> String {
    match lifetime.as_secs() {
        seconds if seconds % 3600 == 0 => format!("{} hours", seconds / 3600),
        seconds if seconds % 60 == 0 => format!("{} minutes", seconds / 60),
        seconds => format!("{seconds} seconds"),
    }
}

/// Engines accept a token that is valid only this much later, because clocks differ.
const CLOCK_LEEWAY: SignedDuration = SignedDuration::from_secs(5);

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
        let late = json!({"type": "app", "iat": 10_006, "exp": 13_000});
        let start = Timestamp::from_second(10_006).unwrap();
        assert_eq!(of(&late), Reason::NotYetValid(start));
        let late = json!({"type": "pat", "iat": 9_000, "nbf": 10_006, "exp": 20_000});
        assert_eq!(of(&late), Reason::NotYetValid(start));
        let in_time = json!({"type": "app", "iat": 10_005, "nbf": 10_005, "exp": 13_000});
        assert_eq!(of(&in_time), Reason::UnknownKey);
        let pat = json!({"type": "pat", "iss": "https://p.example", "exp": 20_000});
        assert_eq!(
            of(&pat),
            Reason::OtherOrRevoked("https://p.example".to_owned())
        );
    }

    #[test]
    fn a_lifetime_is_not_rounded() {
        for (seconds, text) in [
            (86_400, "24 hours"),
            (5_400, "90 minutes"),
            (3_601, "3601 seconds"),
        ] {
            let (message, _) = Reason::TooLong(SignedDuration::from_secs(seconds)).texts();
            assert!(message.contains(&format!("valid for {text},")), "{message}");
        }
    }
}
