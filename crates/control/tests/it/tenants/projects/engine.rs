//! The engine address of a project, for components that call it on behalf of a caller.

use control::caller::{self, Principal};
use control::http_api::problem::HandlerResult;
use control::projects::{EngineAddress, ProjectSelector, engine_of};
use http::HeaderMap;
use http::header::AUTHORIZATION;
use serde_json::json;
use types::permission::Permission;

use crate::support::{TestControl, both};

both! {
    cp_5_the_engine_of_another_users_project_is_hidden,
    cp_11_the_engine_address_needs_engine_permissions,
}

const NEEDED: Permission = Permission::TunnelsResourcesReadOnly;

async fn who(control: &TestControl, token: &str) -> Principal {
    let mut headers = HeaderMap::new();
    let bearer = format!("Bearer {token}").parse().unwrap();
    headers.insert(AUTHORIZATION, bearer);
    let caller = caller::of_bearer(&control.app, &headers).await;
    caller.unwrap().unwrap()
}

fn code(answer: &HandlerResult<EngineAddress>) -> &str {
    answer.as_ref().unwrap_err().problem().code
}

/// CP-5: another user's project is not found, by id and by endpoint.
async fn cp_5_the_engine_of_another_users_project_is_hidden(control: TestControl) {
    let (ada, eve) = (control.person("ada").await, control.person("eve").await);
    let project = control.project(&ada).await;
    let (id, endpoint) = (project.id.to_string(), project.endpoint.as_str());
    let (ada, eve) = (
        who(&control, &ada.token).await,
        who(&control, &eve.token).await,
    );
    for named in [
        ProjectSelector::Id(&id),
        ProjectSelector::Endpoint(endpoint),
    ] {
        let found = engine_of(&control.app, &ada, named, NEEDED).await.unwrap();
        assert_eq!(found.endpoint, endpoint);
        assert_eq!(found.cluster_domain, "engine.example");
        let refused = engine_of(&control.app, &eve, named, NEEDED).await;
        assert_eq!(code(&refused), "not_found");
    }
    for named in [
        ProjectSelector::Id("prj_none"),
        ProjectSelector::Endpoint("00000000"),
    ] {
        let refused = engine_of(&control.app, &ada, named, NEEDED).await;
        assert_eq!(code(&refused), "not_found");
    }
}

/// CP-11: the permission of the Engine API and the boundary of the credential apply.
async fn cp_11_the_engine_address_needs_engine_permissions(control: TestControl) {
    let person = control.person("ada").await;
    let inside = control.project(&person).await;
    let outside = control.project(&person).await;
    let (inside, outside) = (inside.id.to_string(), outside.id.to_string());
    let other = json!({"permissions": [Permission::AccountProjectsReadOnly]});
    let other = who(&control, &control.delegated(&person, other).await).await;
    let refused = engine_of(&control.app, &other, ProjectSelector::Id(&inside), NEEDED).await;
    assert_eq!(code(&refused), "insufficient_scope");

    let bounded = json!({
        "permissions": [NEEDED],
        "resources": {"tunnels": {"projects": [inside]}},
    });
    let bounded = who(&control, &control.delegated(&person, bounded).await).await;
    let engine = engine_of(&control.app, &bounded, ProjectSelector::Id(&inside), NEEDED).await;
    engine.unwrap();
    let refused = engine_of(
        &control.app,
        &bounded,
        ProjectSelector::Id(&outside),
        NEEDED,
    )
    .await;
    assert_eq!(code(&refused), "insufficient_scope");
}
