//! Lists and look-ups, and their visibility.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use store::members::Role;
use types::permission::Permission;

use super::{order, path, place, preview, project};
use crate::support::{Person, TestControl, both, next};

async fn named(control: &TestControl, person: &Person, name: &str) -> Value {
    // Ids of one millisecond are not ordered.
    control.clock.advance(1);
    let mut order = order(&preview(control, person, "basic").await);
    order["name"] = json!(name);
    order["idempotencyKey"] = json!(format!("named-{}", next()));
    place(control, person, &order).await.expect(201)
}

both! {
    cp_2_projects_are_listed_by_page_search_and_order,
    cp_5_another_workspaces_project_is_not_found,
    cp_11_each_route_requires_its_permission,
    a_boundary_restricts_reading_and_changing,
    cp_3_the_region_near_the_caller_is_recommended,
}

/// CP-2: pages, search and order.
async fn cp_2_projects_are_listed_by_page_search_and_order(control: TestControl) {
    let person = control.person("ada").await;
    for name in ["beta", "Alpha", "gamma", "50% off"] {
        named(&control, &person, name).await;
    }
    let token = &person.token;
    let ask = async |query: &str| {
        let list = control
            .get(&format!("/api/projects/tunnels{query}"), token)
            .await
            .expect(200);
        let names: Vec<_> = list["projects"]
            .as_array()
            .unwrap()
            .iter()
            .map(|project| project["name"].as_str().unwrap().to_owned())
            .collect();
        (
            names,
            list["page"].as_u64().unwrap(),
            list["pageSize"].as_u64().unwrap(),
            list["total"].as_u64().unwrap(),
            list["totalPages"].as_u64().unwrap(),
        )
    };
    let (names, page, size, total, pages) = ask("").await;
    assert_eq!((names.len(), page, size, total, pages), (4, 1, 20, 4, 1));
    let (names, page, size, total, pages) = ask("?page=2&pageSize=3&sort=id&order=desc").await;
    assert_eq!(
        (names, page, size, total, pages),
        (vec!["beta".to_owned()], 2, 3, 4, 2)
    );
    assert_eq!(ask("?q=ALPHA").await.0, ["Alpha"]);
    assert_eq!(ask("?q=%25").await.0, ["50% off"]);
    assert_eq!(ask("?q=_").await.0, Vec::<String>::new());
    assert_eq!(
        ask(&format!("?workspaceId={}", person.workspace)).await.3,
        4
    );
    assert_eq!(
        ask("?workspaceId=wks_01h455vb4pex5vsknk084sn02q").await.3,
        0
    );
    for (query, field) in [
        ("?page=0", "page"),
        ("?pageSize=101", "pageSize"),
        ("?sort=plans", "sort"),
        ("?order=up", "order"),
        ("?colour=red", "colour"),
        ("?q=a&q=b", "q"),
    ] {
        let reply = control
            .get(&format!("/api/projects/tunnels{query}"), token)
            .await;
        assert_eq!(reply.refused(400).1.as_deref(), Some(field), "{query}");
    }
}

/// CP-5, CP-2: another workspace's project gives the same answer as a missing one, byte for byte,
/// and appears in no list.
async fn cp_5_another_workspaces_project_is_not_found(control: TestControl) {
    let (owner, stranger) = (control.person("ada").await, control.person("eve").await);
    let project = project(&control, &owner).await;
    let endpoint = project["endpoint"].as_str().unwrap();
    let token = &stranger.token;
    let missing = control
        .get(
            "/api/projects/tunnels/prj_01h455vb4pex5vsknk084sn02q",
            token,
        )
        .await;
    assert_eq!(missing.clone().refused(404).0, "not_found");
    let own = path(&project);
    for path in [
        own.clone(),
        "/api/projects/tunnels/x".to_owned(),
        "/api/projects/tunnels/%FF".to_owned(),
        format!("/api/projects/tunnels/resolve/{endpoint}"),
        "/api/projects/tunnels/resolve/00000000".to_owned(),
        "/api/projects/tunnels/resolve/nothing".to_owned(),
        format!("{own}/settings"),
        format!("{own}/plan"),
        format!("{own}/usage"),
        format!("{own}/turn/usage"),
        format!("{own}/logs"),
        format!("{own}/events"),
    ] {
        assert_eq!(control.get(&path, token).await, missing, "{path}");
    }
    for (method, path, body) in [
        (
            http::Method::PATCH,
            own.clone(),
            Some(json!({"name": "Mine now"})),
        ),
        (http::Method::DELETE, own.clone(), None),
        (
            http::Method::POST,
            format!("{own}/transfer"),
            Some(json!({"workspaceId": stranger.workspace})),
        ),
        (
            http::Method::PATCH,
            format!("{own}/settings"),
            Some(json!({})),
        ),
        (
            http::Method::PUT,
            format!("{own}/settings"),
            Some(json!({})),
        ),
        (http::Method::DELETE, format!("{own}/settings"), None),
    ] {
        assert_eq!(
            control
                .send(method, &path, Some(token), body.as_ref())
                .await,
            missing,
            "{path}"
        );
    }
    assert!(super::names(&control, &stranger).await.is_empty());
    assert_eq!(control.get(&own, &owner.token).await.expect(200), project);
    // A member sees it until the membership ends.
    control.join(&stranger, owner.workspace, Role::Viewer).await;
    assert_eq!(control.get(&own, token).await.expect(200), project);
    assert_eq!(super::names(&control, &stranger).await, ["My project"]);
}

/// CP-11: each route requires exactly the permission of its task.
async fn cp_11_each_route_requires_its_permission(control: TestControl) {
    use Permission::{
        AccountPlanReadOnly, AccountProjectsReadOnly, AccountProjectsReadWrite,
        NetworkEventsReadOnly, NetworkStreamsReadOnly,
    };
    let person = control.person("ada").await;
    let project = project(&control, &person).await;
    let own = path(&project);
    let endpoint = project["endpoint"].as_str().unwrap();
    let creation = super::creation(&person);
    for (method, path, permission) in [
        (
            "GET",
            "/api/projects/tunnels".to_owned(),
            AccountProjectsReadOnly,
        ),
        ("GET", own.clone(), AccountProjectsReadOnly),
        (
            "GET",
            format!("/api/projects/tunnels/resolve/{endpoint}"),
            AccountProjectsReadOnly,
        ),
        (
            "GET",
            format!("{creation}/plan/config"),
            AccountPlanReadOnly,
        ),
        ("GET", format!("{own}/plan"), AccountPlanReadOnly),
        ("GET", format!("{own}/usage"), AccountPlanReadOnly),
        ("GET", format!("{own}/turn/usage"), AccountPlanReadOnly),
        ("GET", format!("{own}/logs"), NetworkStreamsReadOnly),
        ("GET", format!("{own}/events"), NetworkEventsReadOnly),
        ("GET", format!("{own}/settings"), AccountProjectsReadWrite),
        ("POST", creation.clone(), AccountProjectsReadWrite),
        ("PATCH", own.clone(), AccountProjectsReadWrite),
        ("PATCH", format!("{own}/settings"), AccountProjectsReadWrite),
        ("PUT", format!("{own}/settings"), AccountProjectsReadWrite),
        (
            "DELETE",
            format!("{own}/settings"),
            AccountProjectsReadWrite,
        ),
        ("POST", format!("{own}/transfer"), AccountProjectsReadWrite),
        ("DELETE", own.clone(), AccountProjectsReadWrite),
    ] {
        let method: http::Method = method.parse().unwrap();
        let all_others: Vec<_> = Permission::ALL
            .iter()
            .copied()
            .filter(|other| *other != permission)
            .collect();
        let weak = control
            .delegated(&person, json!({"permissions": all_others}))
            .await;
        // The permission is checked before the body is read.
        let body = (method != http::Method::GET && method != http::Method::DELETE)
            .then(|| json!({"x": 1}));
        let refused = control
            .send(method.clone(), &path, Some(&weak), body.as_ref())
            .await
            .expect(403);
        assert_eq!(refused["code"], "insufficient_scope", "{method} {path}");
        assert_eq!(refused["scope"], permission.as_str(), "{method} {path}");
        assert_eq!(
            control
                .send(method.clone(), &path, Some("nonsense"), body.as_ref())
                .await
                .refused(401)
                .0,
            "invalid_token"
        );
        let enough = control
            .delegated(&person, json!({"permissions": [permission]}))
            .await;
        let allowed = control
            .send(method.clone(), &path, Some(&enough), body.as_ref())
            .await;
        assert_ne!(allowed.status, 403, "{method} {path}");
    }
}

/// EN-7 on the control plane: a boundary restricts the projects to those that it names.
async fn a_boundary_restricts_reading_and_changing(control: TestControl) {
    let person = control.person("ada").await;
    let (inside, outside) = (
        named(&control, &person, "inside").await,
        named(&control, &person, "outside").await,
    );
    let bounded = control
        .delegated(
            &person,
            json!({"permissions": Permission::ALL, "resources": {"tunnels": {"projects": [inside["id"]]}}}),
        )
        .await;
    let list = control
        .get("/api/projects/tunnels", &bounded)
        .await
        .expect(200);
    assert_eq!((&list["total"], &list["projects"][0]), (&json!(1), &inside));
    control.get(&path(&inside), &bounded).await.expect(200);
    assert_eq!(
        control.get(&path(&outside), &bounded).await.refused(403).0,
        "insufficient_scope"
    );
    let rename = json!({"name": "renamed"});
    let renamed = control
        .send(
            http::Method::PATCH,
            &path(&outside),
            Some(&bounded),
            Some(&rename),
        )
        .await;
    assert_eq!(renamed.refused(403).0, "insufficient_scope");
    // A boundary with a project does not include its workspace.
    let order = order(&preview(&control, &person, "basic").await);
    let reply = control
        .post(&super::creation(&person), &bounded, &order.clone())
        .await;
    assert_eq!(reply.refused(403).0, "insufficient_scope");
    let wide = json!({"tunnels": {"workspaces": [person.workspace]}});
    let wide = control
        .delegated(
            &person,
            json!({"permissions": Permission::ALL, "resources": wide}),
        )
        .await;
    control
        .post(&super::creation(&person), &wide, &order)
        .await
        .expect(201);
    assert_eq!(
        control
            .get("/api/projects/tunnels", &wide)
            .await
            .expect(200)["total"],
        3
    );
    let elsewhere = json!({"tunnels": {"workspaces": ["wks_01h455vb4pex5vsknk084sn02q"]}});
    let elsewhere = control
        .delegated(
            &person,
            json!({"permissions": Permission::ALL, "resources": elsewhere}),
        )
        .await;
    assert_eq!(
        control
            .get("/api/projects/tunnels", &elsewhere)
            .await
            .expect(200)["total"],
        0
    );
}

/// CP-3: a region is recommended if the caller's location is known, and only then.
async fn cp_3_the_region_near_the_caller_is_recommended(control: TestControl) {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/places.mmdb");
    let regions = json!([
        {"provider": "aws", "region": "us", "latitude": 39.0, "longitude": -77.5},
        {"provider": "aws", "region": "eu", "latitude": 50.1, "longitude": 8.7},
    ]);
    let config = json!({"catalog": {"regions": regions}, "geoip": {"file": file}});
    let control = control.configured(config).await;
    let person = control.person("ada").await;
    let token = &person.token;
    let path = format!("{}/plan/config", super::creation(&person));
    let ask = async |peer: &str| {
        let request = Request::get(&path).header("authorization", format!("Bearer {token}"));
        let request = request.body(Body::empty()).unwrap();
        let answer = control.send_from(peer.parse().unwrap(), request).await;
        answer.expect(200)
    };
    let near = ask("192.0.2.9:7").await;
    assert_eq!(
        near["recommended"],
        json!({"plan": "basic", "provider": "aws", "region": "eu"})
    );
    assert_eq!(
        near["plans"][0]["providers"][0]["regions"],
        json!([
            {"region": "us", "recommended": false}, {"region": "eu", "recommended": true},
        ])
    );
    let unknown = ask("127.0.0.1:7").await;
    assert_eq!(unknown.get("recommended"), None);
    // A confirmation from another address confirms the same offer.
    assert_eq!(
        unknown["plans"][0]["creationFingerprint"],
        near["plans"][0]["creationFingerprint"]
    );
}
