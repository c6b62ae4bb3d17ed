use serde_json::{Value, json};

use super::*;
use crate::sample::{NOW, verify_claims};

/// A watch token by EN-5d, with members replaced.
fn judge(changes: &Value) -> Result<(), WatchRefusal> {
    let mut claims = json!({
        "type": "auth", "userId": "u1", "exp": NOW + 60, "permissions": ["tunnels.resources.read-only"],
    });
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    check(&verify_claims(&claims).unwrap(), NOW)
}

fn scopes(actions: &Value) -> Value {
    json!({"permissions": null, "resources": {"tunnels": {"projects": ["p1"], "scopes": {"tunnels": actions}}}})
}

/// EN-5a.
#[test]
fn en_5a_the_type_is_auth_or_app() {
    assert_eq!(judge(&json!({})), Ok(()));
    assert_eq!(judge(&json!({"type": "app"})), Ok(()));
    assert_eq!(judge(&json!({"type": "pat"})), Err(WatchRefusal::Kind));
}

/// EN-5b.
#[test]
fn en_5b_an_hour_and_a_minute_are_in() {
    for (remaining, expected) in [
        (1, Ok(())),
        (3600, Ok(())),
        (3660, Ok(())),
        (3661, Err(WatchRefusal::Lifetime)),
        (i64::MAX - NOW, Err(WatchRefusal::Lifetime)),
    ] {
        assert_eq!(
            judge(&json!({"exp": NOW + remaining})),
            expected,
            "{remaining}"
        );
    }
    let endless =
        verify_claims(&json!({"type": "auth", "userId": "u1", "permissions": []})).unwrap();
    assert_eq!(check(&endless, NOW), Err(WatchRefusal::Lifetime));
    // Time passes between verification and this check.
    let short = verify_claims(&json!({
        "type": "auth", "userId": "u1", "exp": NOW + 1, "permissions": ["tunnels.resources.read-only"],
    }));
    let short = short.unwrap();
    assert_eq!(check(&short, NOW), Ok(()));
    assert_eq!(check(&short, NOW + 1), Err(WatchRefusal::Lifetime));
}

/// EN-5c.
#[test]
fn en_5c_resources_are_watch_only() {
    for (actions, expected) in [
        (json!({"list": true}), Ok(())),
        (
            json!({"list": {"filters": {"name": "web"}, "select": {"id": true}}}),
            Ok(()),
        ),
        (
            json!({"list": true, "create": false, "connect": false}),
            Ok(()),
        ),
        (
            json!({"list": true, "create": true}),
            Err(WatchRefusal::Resources),
        ),
        (
            json!({"list": true, "connect": {"filters": {"name": "web"}}}),
            Err(WatchRefusal::Resources),
        ),
        (json!({"list": false}), Err(WatchRefusal::Resources)),
        (json!({"connect": true}), Err(WatchRefusal::Resources)),
    ] {
        assert_eq!(judge(&scopes(&actions)), expected, "{actions}");
    }
    for resources in [
        json!({"tunnels": {"projects": ["p1"]}}),
        json!({}),
        json!(null),
    ] {
        assert_eq!(
            judge(&json!({"resources": resources})),
            Err(WatchRefusal::Resources),
            "{resources}"
        );
    }
}

/// EN-5d.
#[test]
fn en_5d_without_resources_permissions_only_read() {
    let read = "tunnels.resources.read-only";
    for (permissions, expected) in [
        (json!([read]), Ok(())),
        (json!([read, "webtty.sessions.read-only"]), Ok(())),
        (
            json!([read, "tunnels.tunnels.create-delete"]),
            Err(WatchRefusal::Permissions),
        ),
        (
            json!([read, "tunnels.streams.create-delete"]),
            Err(WatchRefusal::Permissions),
        ),
        (
            json!(["webtty.sessions.read-only"]),
            Err(WatchRefusal::Permissions),
        ),
        (json!([]), Err(WatchRefusal::Permissions)),
        // Not restricted: it has every permission.
        (json!(null), Err(WatchRefusal::Permissions)),
    ] {
        assert_eq!(
            judge(&json!({"permissions": permissions})),
            expected,
            "{permissions}"
        );
    }
}
