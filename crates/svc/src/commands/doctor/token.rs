//! Checks of the token and its permissions.

use client::{Config, api::ApiError};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use types::permission::Permission;

use super::check::Check;

const TOKEN: &str = "token";
const PERMISSIONS: &str = "permissions";

/// Describes a token that the engine accepts.
pub(super) fn accepted(config: &Config) -> Check {
    let claims = read_claims(config);
    let Some(expires_at) = expires_at(&claims) else {
        return Check::pass(TOKEN, format!("the engine accepts it: {}", kind(&claims)));
    };
    let left = expires_at.duration_since(Timestamp::now());
    let message = format!(
        "the engine accepts it: {}, valid for another {}",
        kind(&claims),
        format_duration(left)
    );
    if left < SOON {
        return Check::warn(TOKEN, message)
            .with_next_step("an agent that reconnects after the token has expired is refused");
    }
    Check::pass(TOKEN, message)
}

/// Describes a token that the engine rejects.
pub(super) fn rejected(config: &Config, error: ApiError) -> Check {
    let claims = read_claims(config);
    let check = Check::failed(TOKEN, &error.into());
    if claims.is_null() {
        return Check {
            message: "the token cannot be parsed: a token has three parts separated by dots"
                .to_owned(),
            ..check
        }
        .with_next_step("sign in with `svc login`, or give --token");
    }
    match expires_at(&claims) {
        Some(expires_at) if expires_at <= Timestamp::now() => Check {
            message: format!("{} expired at {expires_at}", kind(&claims)),
            ..check
        }
        .with_next_step("sign in again with `svc login`, or create another one (`svc token`)"),
        _ => Check {
            message: format!("{}: {}", kind(&claims), check.message),
            ..check
        }
        .with_next_step(
            "was it issued for this engine, and has it been revoked? `svc context \
                         show` shows where the token comes from",
        ),
    }
}

/// Checks the permissions that the daily commands need.
pub(super) fn permissions(config: &Config) -> Check {
    let claims = read_claims(config);
    let Some(held) = claims.get("permissions").and_then(Value::as_array) else {
        return Check::pass(PERMISSIONS, "all permissions (token is not restricted)");
    };
    let lacks = |needed: &&(Permission, &str)| {
        !held
            .iter()
            .any(|word| word.as_str() == Some(needed.0.as_str()))
    };
    let missing: Vec<_> = REQUIRED_PERMISSIONS.iter().filter(lacks).collect();
    if missing.is_empty() {
        return Check::pass(
            PERMISSIONS,
            format!(
                "{} permissions, including all that common commands need",
                held.len()
            ),
        );
    }
    let missing: Vec<_> = missing
        .iter()
        .map(|(permission, purpose)| format!("{} ({purpose})", permission.as_str()))
        .collect();
    Check::warn(
        PERMISSIONS,
        format!("the token lacks {}", missing.join(", ")),
    )
    .with_next_step("ignore this if you do not need them")
}

/// Permissions that daily commands need, with their purpose.
const REQUIRED_PERMISSIONS: [(Permission, &str); 3] = [
    (Permission::TunnelsTunnelsCreateDelete, "to publish"),
    (Permission::TunnelsStreamsCreateDelete, "to visit and dial"),
    (Permission::TunnelsResourcesReadOnly, "to list and watch"),
];

/// The issuer in the claims of a token, unverified.
pub(super) fn issuer(token: &str) -> Option<String> {
    let inspected = credentials::inspect(token)?;
    let issuer = inspected.pointer("/claims/iss")?.as_str()?;
    Some(issuer.to_owned())
}

fn read_claims(config: &Config) -> Value {
    let token = config.tokens.fixed();
    let seen = token.and_then(|token| credentials::inspect(token.expose()));
    seen.and_then(|mut seen| Some(seen.get_mut("claims")?.take()))
        .unwrap_or_default()
}

/// Formats `pat of usr_1`, and the project that the token is restricted to.
fn kind(claims: &Value) -> String {
    let text = |name: &str| claims.get(name).and_then(Value::as_str);
    let kind = text("type").unwrap_or("a token without a type");
    let whose = text("userId").or_else(|| text("clientId"));
    let mut description = match whose {
        Some(whose) => format!("{kind} of {whose}"),
        None => kind.to_owned(),
    };
    let projects = claims
        .pointer("/resources/tunnels/projects")
        .and_then(Value::as_array);
    if let Some(projects) = projects {
        let projects: Vec<_> = projects.iter().filter_map(Value::as_str).collect();
        description.push_str(", for project ");
        description.push_str(&projects.join(", "));
    } else if claims
        .get("resources")
        .is_some_and(|claim| !claim.is_null())
    {
        description.push_str(", with a boundary");
    }
    description
}

fn expires_at(claims: &Value) -> Option<Timestamp> {
    let expires_at = claims.get("exp").and_then(Value::as_i64)?;
    Timestamp::from_second(expires_at).ok()
}

/// Formats a duration in its largest unit.
fn format_duration(left: SignedDuration) -> String {
    match (left.as_hours(), left.as_mins()) {
        (48.., _) => format!("{} days", left.as_hours() / 24),
        (2.., _) => format!("{} hours", left.as_hours()),
        (_, 2..) => format!("{} minutes", left.as_mins()),
        _ => format!("{} seconds", left.as_secs()),
    }
}

/// A token with a shorter remaining lifetime may expire before the user reads the report.
const SOON: SignedDuration = SignedDuration::from_mins(2);
