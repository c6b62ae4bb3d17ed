//! Permissions of agents and dialling clients (EN-7).

use std::sync::Arc;

use credentials::VerifiedToken;
use engine::access::{BoundaryDenial, Tokens, apply_and_check_boundary, check_dial_boundary};
use engine::directory::Project;
use serde_json::{Value, json};
use types::permission::Permission;
use types::problem::Problem;
use types::tunnel::TunnelProperties;

use super::{community, tunnel};
use crate::support::{CREATE, NOW, STREAMS, auth, keyring, pat, token};

fn may(token: &VerifiedToken, permission: Permission) -> Result<(), BoundaryDenial> {
    community().require(token, &Project::community(), permission)
}

fn verified(claims: &Value) -> Arc<VerifiedToken> {
    Tokens::new(keyring()).verify(&token(claims), NOW).unwrap()
}

/// EN-7.
#[test]
fn en_7_creating_needs_the_permission_and_the_boundary() {
    assert_eq!(
        may(&verified(&pat()), Permission::TunnelsTunnelsCreateDelete),
        Ok(())
    );
    let weak = verified(&auth(NOW, 60, json!({"permissions": [STREAMS]})));
    assert_eq!(
        may(&weak, Permission::TunnelsTunnelsCreateDelete),
        Err(BoundaryDenial::Permission(
            Permission::TunnelsTunnelsCreateDelete
        ))
    );
    let forced = json!({"filters": {"name": "web", "token_auth": true, "labels": {"env": "prod"}}});
    let resources = json!({"tunnels": {"scopes": {"tunnels": {"create": forced}}}});
    let narrow = verified(&auth(
        NOW,
        60,
        json!({"permissions": [CREATE], "resources": resources}),
    ));
    let mut properties = TunnelProperties::default();
    apply_and_check_boundary(&narrow, &Project::community(), &mut properties).unwrap();
    assert_eq!(properties.name.as_ref().unwrap().as_str(), "web");
    assert_eq!(properties.token_auth, Some(true));
    assert_eq!(properties.labels["env"], "prod");
    let mut properties: TunnelProperties = serde_json::from_value(json!({"name": "db"})).unwrap();
    let denied =
        apply_and_check_boundary(&narrow, &Project::community(), &mut properties).unwrap_err();
    assert!(
        matches!(&denied, BoundaryDenial::Boundary { field: Some(field), .. } if field == "name"),
        "{denied}"
    );
    let problem = Problem::from(denied);
    assert_eq!(
        (
            problem.status,
            problem.field.as_deref(),
            problem.scope.as_deref()
        ),
        (403, Some("name"), Some(CREATE))
    );
}

/// EN-7.
#[test]
fn en_7_dialling_needs_the_permission_and_the_boundary() {
    let tunnel = tunnel(json!({"publish": false, "name": "db"}));
    let project = Project::community();
    let with = |claims: Value| {
        let token = verified(&claims);
        may(&token, Permission::TunnelsStreamsCreateDelete).is_ok()
            && check_dial_boundary(&token, &project, &tunnel.view).is_ok()
    };
    let connect = |scope: Value| {
        auth(
            NOW,
            60,
            json!({"permissions": [STREAMS], "resources": {"tunnels": {"scopes": {"tunnels": {"connect": scope}}}}}),
        )
    };
    assert!(with(pat()));
    assert!(with(connect(json!({"filters": {"name": "db"}}))));
    assert!(!with(connect(json!({"filters": {"name": "web"}}))));
    assert!(
        !with(connect(json!({"params": {"path": {"regex": ".*"}}}))),
        "a dialled stream has no path"
    );
    assert!(!with(auth(NOW, 60, json!({"permissions": [CREATE]}))));
}
