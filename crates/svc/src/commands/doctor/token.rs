//! What the token is, and what it allows.

use client::{Config, api::ApiError};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use types::permission::Permission;

use super::check::Check;

const TOKEN: &str = "token";
const PERMISSIONS: &str = "permissions";

/// The token that the engine takes.
pub(super) fn taken(config: &Config) -> Check {
    let claims = claims(config);
    let Some(ends) = ends(&claims) else {
        return Check::pass(TOKEN, format!("the engine takes it: {}", kind(&claims)));
    };
    let left = ends.duration_since(Timestamp::now());
    let message = format!(
        "the engine takes it: {}, for another {}",
        kind(&claims),
        in_words(left)
    );
    if left < SOON {
        return Check::warn(TOKEN, message)
            .next("an agent that comes back after its end is refused");
    }
    Check::pass(TOKEN, message)
}

/// The token that the engine refuses.
pub(super) fn refused(config: &Config, error: ApiError) -> Check {
    let claims = claims(config);
    let check = Check::failed(TOKEN, &error.into());
    if claims.is_null() {
        return Check {
            message: "it cannot be read: a token has three parts with dots between them".to_owned(),
            ..check
        }
        .next("sign in with `svc login`, or give --token");
    }
    match ends(&claims) {
        Some(ends) if ends <= Timestamp::now() => Check {
            message: format!("{} has expired at {ends}", kind(&claims)),
            ..check
        }
        .next("sign in again with `svc login`, or make another one (`svc token`)"),
        _ => Check {
            message: format!("{}: {}", kind(&claims), check.message),
            ..check
        }
        .next("is it of this engine, and was it not revoked? `svc context show` tells where it is from"),
    }
}

/// What it allows of that which the daily commands need.
pub(super) fn permissions(config: &Config) -> Check {
    let claims = claims(config);
    let Some(held) = claims.get("permissions").and_then(Value::as_array) else {
        return Check::pass(PERMISSIONS, "all permissions (token is not restricted)");
    };
    let lacks = |needed: &&(Permission, &str)| {
        !held
            .iter()
            .any(|word| word.as_str() == Some(needed.0.as_str()))
    };
    let missing: Vec<_> = NEEDED.iter().filter(lacks).collect();
    if missing.is_empty() {
        return Check::pass(
            PERMISSIONS,
            format!(
                "{} permissions, including all that common commands need",
                held.len()
            ),
        );
    }
    let told = missing
        .iter()
        .map(|(permission, what)| format!("{} ({what})", permission.as_str()));
    let told: Vec<_> = told.collect();
    Check::warn(PERMISSIONS, format!("it lacks {}", told.join(", ")))
        .next("nothing is wrong where these are not needed")
}

/// What daily commands need, and what for.
const NEEDED: [(Permission, &str); 3] = [
    (Permission::TunnelsTunnelsCreateDelete, "to publish"),
    (Permission::TunnelsStreamsCreateDelete, "to visit and dial"),
    (Permission::TunnelsResourcesReadOnly, "to list and watch"),
];

fn claims(config: &Config) -> Value {
    let token = config.tokens.fixed();
    let seen = token.and_then(|token| credentials::inspect(token.expose()));
    seen.and_then(|mut seen| Some(seen.get_mut("claims")?.take()))
        .unwrap_or_default()
}

/// `pat of usr_1`, and the project that it is narrowed to.
fn kind(claims: &Value) -> String {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let kind = text("type").unwrap_or("a token without a type");
    let whose = text("userId").or_else(|| text("clientId"));
    let mut told = match whose {
        Some(whose) => format!("{kind} of {whose}"),
        None => kind.to_owned(),
    };
    let projects = claims
        .pointer("/resources/tunnels/projects")
        .and_then(Value::as_array);
    if let Some(projects) = projects {
        let projects: Vec<_> = projects.iter().filter_map(Value::as_str).collect();
        told.push_str(", for project ");
        told.push_str(&projects.join(", "));
    } else if claims
        .get("resources")
        .is_some_and(|claim| !claim.is_null())
    {
        told.push_str(", with a boundary");
    }
    told
}

fn ends(claims: &Value) -> Option<Timestamp> {
    let ends = claims.get("exp").and_then(Value::as_i64)?;
    Timestamp::from_second(ends).ok()
}

/// The largest unit is enough.
fn in_words(left: SignedDuration) -> String {
    match (left.as_hours(), left.as_mins()) {
        (48.., _) => format!("{} days", left.as_hours() / 24),
        (2.., _) => format!("{} hours", left.as_hours()),
        (_, 2..) => format!("{} minutes", left.as_mins()),
        _ => format!("{} seconds", left.as_secs()),
    }
}

/// Less than that is over before somebody has looked.
const SOON: SignedDuration = SignedDuration::from_mins(2);
