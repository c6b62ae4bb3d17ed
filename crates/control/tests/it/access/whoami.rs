//! CP-1.

use serde_json::json;

use crate::support::{TestControl, both};

both! {
    cp_1_any_valid_credential_gets_its_identity,
    cp_1_limits_permissions_and_boundaries_are_shown,
    a_boundary_is_evaluated_for_a_limited_number_of_projects,
}

/// CP-1.
async fn cp_1_any_valid_credential_gets_its_identity(control: TestControl) {
    let ada = control.person("ada").await;
    let identity = control.get("/api/whoami", &ada.token).await;
    assert_eq!(identity.status, 200, "{identity:?}");
    let identity = identity.json();
    assert_eq!(identity["id"], ada.user.as_str());
    assert_eq!(identity["email"], "ada@example.com");
    assert_eq!(
        (&identity["type"], &identity["role"]),
        (&json!("pat"), &json!("user"))
    );
    assert_eq!(identity["workspaceIds"], json!([ada.workspace]));
    assert_eq!(identity.get("resources"), None);
    assert_eq!(identity.get("expiresAt"), None);
}

/// CP-1: a restricted credential sees its own restrictions, and needs no permission for that.
async fn cp_1_limits_permissions_and_boundaries_are_shown(control: TestControl) {
    let ada = control.person("ada").await;
    let other = control.person("eve").await;
    let project = control.project(&ada).await;
    let resources = json!({"tunnels": {"projects": [project.id]}});
    let body = json!({"permissions": ["network.streams.read-only"], "resources": resources});
    let token = control.delegated(&ada, body).await;
    let identity = control.get("/api/whoami", &token).await.json();
    assert_eq!(identity["type"], "auth");
    assert_eq!(
        identity["permissions"],
        json!(["network.streams.read-only"])
    );
    assert_eq!(identity["resources"], resources);
    assert_eq!(identity["expiresAt"], "2026-01-01T00:05:00.000Z");
    assert_eq!(identity["workspaceIds"], json!([ada.workspace]));
    let elsewhere = json!({"tunnels": {"workspaces": [other.workspace]}});
    let body = json!({"permissions": [], "resources": elsewhere});
    let token = control.delegated(&ada, body).await;
    let identity = control.get("/api/whoami", &token).await.json();
    assert_eq!(identity["workspaceIds"], json!([]));
    assert_eq!(identity["permissions"], json!([]));
}

/// The project in the boundary is the last one of its workspace.
async fn a_boundary_is_evaluated_for_a_limited_number_of_projects(control: TestControl) {
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let body = json!({
        "permissions": ["account.projects.read-only"],
        "resources": {"tunnels": {"projects": [project.id]}},
    });
    let token = control.delegated(&ada, body).await;
    let reached = async || {
        let identity = control.get("/api/whoami", &token).await.expect(200);
        let list = control.get("/api/projects/tunnels", &token).await;
        let list = list.expect(200);
        let [workspaces, projects] = [&identity["workspaceIds"], &list["projects"]];
        [workspaces, projects].map(|list| list.as_array().unwrap().len())
    };
    control.copy_project(&project, 1, 9_999).await;
    assert_eq!(reached().await, [1, 1]);
    control.copy_project(&project, 10_000, 10_000).await;
    assert_eq!(reached().await, [0, 1]);
    control.copy_project(&project, 10_001, 99_999).await;
    assert_eq!(reached().await, [0, 1]);
    control.copy_project(&project, 100_000, 100_000).await;
    assert_eq!(reached().await, [0, 0]);
}
