//! Deleted projects and workspaces, and their retention.

use serde_json::json;
use types::id::ProjectId;

use crate::operation::jobs::{DAY, purge_counts};
use crate::support::{TestControl, both, next};

both! {
    deleted_projects_and_workspaces_are_removed,
}

/// A deleted project is removed after all rows that refer to it, and its endpoint is never assigned
/// again.
async fn deleted_projects_and_workspaces_are_removed(control: TestControl) {
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let kept = control.project(&ada).await;
    let team = control
        .post("/api/workspaces", &ada.token, &json!({"name": "Team"}))
        .await
        .expect(201);
    let path = format!("/api/workspaces/{}", team["id"].as_str().unwrap());
    control.delete(&path, &ada.token).await.expect(204);
    let path = format!("/api/projects/tunnels/{}", project.id);
    control.delete(&path, &ada.token).await.expect(204);
    control.clock.advance(90 * DAY - 1);
    let gone = purge_counts(&control).await;
    assert!(
        !gone
            .iter()
            .any(|(kind, _)| ["projects", "workspaces"].contains(kind)),
        "{gone:?}"
    );
    control.clock.advance(1);
    let gone = purge_counts(&control).await;
    assert!(
        gone.contains(&("projects", 1)) && gone.contains(&("workspaces", 1)),
        "{gone:?}"
    );
    assert_eq!(purge_counts(&control).await, []);
    let mut tx = control.app.store.begin().await.unwrap();
    let again = store::projects::NewProject {
        id: ProjectId::new(next(), [3; 10]),
        workspace_id: ada.workspace,
        endpoint: project.endpoint.clone(),
        name: "again".to_owned(),
        plan: "basic".to_owned(),
        provider: "other".to_owned(),
        region: None,
        routing: "regional".to_owned(),
        deployment: "shared".to_owned(),
        created_by: ada.user,
        now: control.now(),
    };
    let refused = store::projects::insert(&mut tx, &again).await.unwrap_err();
    assert_eq!(refused.conflict(), Some(store::Conflict::EndpointTaken));
    drop(tx);
    let path = format!("/api/projects/tunnels/{}", kept.id);
    control.get(&path, &ada.token).await.expect(200);
}
