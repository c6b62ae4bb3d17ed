//! CP-11: delegated tokens.

use serde_json::{Value, json};

use crate::support::{Person, TestControl, both};

both! {
    cp_11_a_token_has_the_requested_claims,
    cp_11_a_token_never_exceeds_its_parent,
}

async fn refusal(control: &TestControl, token: &str, body: &Value) -> (u16, String) {
    let answer = control.post("/api/tokens", token, body).await;
    let status = answer.problem().0;
    let body = answer.json();
    let named = body["field"].as_str().or(body["scope"].as_str());
    (status, named.unwrap_or_default().to_owned())
}

/// CP-11.
async fn cp_11_a_token_has_the_requested_claims(control: TestControl) {
    let ada = control.person("ada").await;
    let resources = json!({"tunnels": {"scopes": {"tunnels": {"list": true}}}});
    let body = json!({"permissions": ["tunnels.resources.read-only"], "resources": resources});
    let answer = control.post("/api/tokens", &ada.token, &body).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let minted = answer.json();
    assert_eq!(minted["expiresAt"], "2026-01-01T00:05:00.000Z");
    let token = ::credentials::inspect(minted["token"].as_str().unwrap()).unwrap();
    assert_eq!(token["header"]["alg"], "EdDSA");
    let claims = &token["claims"];
    assert_eq!(
        (&claims["type"], &claims["userId"]),
        (&json!("auth"), &json!(ada.user))
    );
    assert_eq!(
        claims["permissions"],
        json!(["tunnels.resources.read-only"])
    );
    assert_eq!(claims["resources"], resources);
    let (iat, exp) = (
        claims["iat"].as_i64().unwrap(),
        claims["exp"].as_i64().unwrap(),
    );
    assert_eq!(exp - iat, 300);
    assert!(
        claims["sourceCredentialId"]
            .as_str()
            .unwrap()
            .starts_with("crd_")
    );
}

/// CP-11: permissions, boundaries and lifetime can only be reduced.
async fn cp_11_a_token_never_exceeds_its_parent(control: TestControl) {
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let inside = json!({"tunnels": {"projects": [project.id]}});
    let parent = control
        .delegated(
            &ada,
            json!({
                "permissions": ["account.tokens.create", "turn.credentials.create"],
                "resources": inside,
                "ttlSeconds": 120,
            }),
        )
        .await;
    let body = json!({"permissions": ["account.projects.read-only", "turn.credentials.create"]});
    assert_eq!(
        refusal(&control, &parent, &body).await,
        (403, "account.projects.read-only".to_owned())
    );
    control.clock.advance(60);
    let parent = Person {
        token: parent,
        ..ada.clone()
    };
    let child = json!({
        "permissions": null,
        "resources": {"tunnels": {"projects": ["prj_other"]}},
        "ttlSeconds": 3600,
    });
    let child = control.delegated(&parent, child).await;
    let identity = control.get("/api/whoami", &child).await.json();
    assert_eq!(identity["expiresAt"], "2026-01-01T00:02:00.000Z");
    assert_eq!(
        identity["permissions"],
        json!(["account.tokens.create", "turn.credentials.create"])
    );
    // Both boundaries apply, so requesting another project allows nothing.
    assert_eq!(identity["workspaceIds"], json!([]));
    let path = format!(
        "/api/projects/tunnels/{}/turn-server/credentials",
        project.id
    );
    let answer = control
        .send(http::Method::POST, &path, Some(&child), None)
        .await;
    assert_eq!(answer.problem().0, 403);
    let free = control
        .delegated(&parent, json!({"permissions": null}))
        .await;
    let answer = control
        .send(http::Method::POST, &path, Some(&free), None)
        .await;
    assert_eq!(answer.status, 200);
}

/// CP-11: permissions and actions must match, and every field has its format.
#[tokio::test]
async fn cp_11_invalid_combinations_are_named() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let actions = |actions: Value| json!({"tunnels": {"scopes": {"tunnels": actions}}});
    for (permission, resources) in [
        (
            "tunnels.resources.read-only",
            actions(json!({"list": false, "create": true})),
        ),
        (
            "tunnels.tunnels.create-delete",
            actions(json!({"list": true})),
        ),
        (
            "tunnels.streams.create-delete",
            actions(json!({"create": true})),
        ),
        ("webtty.sessions.read-write", actions(json!({"list": true}))),
    ] {
        let body = json!({"permissions": [permission], "resources": resources});
        assert_eq!(
            refusal(&control, &ada.token, &body).await,
            (400, "permissions".to_owned()),
            "{permission}"
        );
    }
    for (body, field) in [
        (json!({}), "permissions"),
        (json!({"permissions": "x"}), "permissions"),
        (json!({"permissions": ["x"]}), "permissions.0"),
        (json!({"permissions": null, "ttlSeconds": 0}), "ttlSeconds"),
        (
            json!({"permissions": null, "ttlSeconds": 3601}),
            "ttlSeconds",
        ),
        (
            json!({"permissions": null, "ttlSeconds": 60.0}),
            "ttlSeconds",
        ),
        (json!({"permissions": null, "resources": []}), "resources"),
        (
            json!({"permissions": null, "resources": {"tunnels": {}}}),
            "resources.tunnels",
        ),
        (json!({"permissions": null, "scopes": []}), "scopes"),
    ] {
        assert_eq!(
            refusal(&control, &ada.token, &body).await,
            (400, field.to_owned()),
            "{body}"
        );
    }
}

/// A parent whose boundary does not allow a permission cannot delegate it.
#[tokio::test]
async fn permissions_outside_the_parents_boundary_are_not_delegated() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let parent = json!({
        "permissions": ["account.tokens.create", "tunnels.resources.read-only"],
        "resources": {"tunnels": {"scopes": {"tunnels": {"list": {"filters": {"name": "web"}}}}}},
    });
    let parent = control.delegated(&ada, parent).await;
    let resources = json!({"tunnels": {"scopes": {"tunnels": {"list": true, "create": true}}}});
    let body = json!({"permissions": ["tunnels.resources.read-only"], "resources": resources});
    let answer = control.post("/api/tokens", &parent, &body).await;
    let token = answer.json()["token"].as_str().unwrap().to_owned();
    let claims = ::credentials::inspect(&token).unwrap()["claims"].clone();
    assert_eq!(
        claims["resources"]["tunnels"]["AND"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    let body = json!({"permissions": ["tunnels.tunnels.create-delete"], "resources": resources});
    assert_eq!(
        refusal(&control, &parent, &body).await,
        (403, "tunnels.tunnels.create-delete".to_owned())
    );
}
