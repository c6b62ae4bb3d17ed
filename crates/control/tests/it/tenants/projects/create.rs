//! Creation: idempotency, staleness, capacity, and properties that a caller cannot set.

use std::sync::Arc;

use serde_json::json;
use tokio::task::JoinSet;

use super::{creation, names, order, place, preview, project};
use crate::support::{TestControl, both, next};

both! {
    cp_4_a_project_is_created_as_it_was_previewed,
    cp_4a_one_key_makes_one_project,
    cp_4a_another_body_is_refused,
    cp_4b_exhausted_capacity_makes_the_preview_stale,
    cp_4b_the_last_slot_is_assigned_once,
    cp_4b_an_unavailable_plan_is_refused,
    cp_4b_a_fingerprint_is_bound_to_its_workspace,
    cp_4c_no_caller_chooses_a_billing_mode,
    parallel_creations_do_not_make_each_other_stale,
    cp_4_tenancy_is_checked_before_the_role,
}

/// CP-3, CP-4, CP-5: a project is created as previewed, and found by its endpoint.
async fn cp_4_a_project_is_created_as_it_was_previewed(control: TestControl) {
    let person = control.person("ada").await;
    let project = project(&control, &person).await;
    let endpoint = project["endpoint"].as_str().unwrap();
    assert_eq!(endpoint.len(), 8);
    assert_eq!(project["workspaceId"], person.workspace.as_str());
    assert_eq!(project["domain"], "engine.example");
    assert_eq!(project["enginePort"], 443);
    assert_eq!(project["url"], format!("{endpoint}.engine.example:443"));
    assert_eq!(
        (&project["routing"], &project["placement"]),
        (&json!("regional"), &json!("regional"))
    );
    assert_eq!(
        (&project["plan"], &project["status"]),
        (&json!("basic"), &json!("active"))
    );
    let token = &person.token;
    let resolve = format!("/api/projects/tunnels/resolve/{endpoint}");
    assert_eq!(control.get(&resolve, token).await.expect(200), project);
    assert_eq!(
        control.get(&super::path(&project), token).await.expect(200),
        project
    );
}

/// CP-4a: the same key with the same body returns the same project, for sequential and parallel
/// requests.
async fn cp_4a_one_key_makes_one_project(control: TestControl) {
    let control = Arc::new(control);
    let person = control.person("ada").await;
    let order = order(&preview(&control, &person, "basic").await);
    let mut posts = JoinSet::new();
    for _ in 0..16 {
        let (control, person, order) = (Arc::clone(&control), person.clone(), order.clone());
        posts.spawn(async move { place(&control, &person, &order).await });
    }
    let replies = posts.join_all().await;
    let first = replies[0].clone().expect(201);
    for reply in replies {
        assert_eq!(reply.expect(201), first);
    }
    // The answer is the same whether the preview is stale or not.
    control.clock.advance(3 * 24 * 3600);
    assert_eq!(place(&control, &person, &order).await.expect(201), first);
    assert_eq!(names(&control, &person).await, ["My project"]);
    // White space and the order of members do not change the body.
    let mut reordered = serde_json::Map::new();
    for (name, value) in order.as_object().unwrap().iter().rev() {
        reordered.insert(name.clone(), value.clone());
    }
    assert_eq!(
        place(&control, &person, &reordered.into())
            .await
            .expect(201),
        first
    );
}

/// CP-4a: the same key with any other body is refused.
async fn cp_4a_another_body_is_refused(control: TestControl) {
    let person = control.person("ada").await;
    let order = order(&preview(&control, &person, "basic").await);
    place(&control, &person, &order).await.expect(201);
    for (member, value) in [
        ("name", json!("Another")),
        ("plan", json!("pro")),
        ("region", json!("elsewhere")),
        ("creationFingerprint", json!("x")),
    ] {
        let mut other = order.clone();
        other[member] = value;
        let refused = place(&control, &person, &other).await.refused(422);
        assert_eq!(
            refused,
            (
                "idempotency_key_reused".to_owned(),
                Some("idempotencyKey".to_owned())
            ),
            "{member}"
        );
    }
    assert_eq!(names(&control, &person).await.len(), 1);
    // Each workspace has its own keys.
    let neighbour = control.person("eve").await;
    let mut own = super::order(&preview(&control, &neighbour, "basic").await);
    own["idempotencyKey"] = order["idempotencyKey"].clone();
    place(&control, &neighbour, &own).await.expect(201);
}

/// CP-4b: without capacity the preview is stale, nothing is created, and a fresh preview works.
async fn cp_4b_exhausted_capacity_makes_the_preview_stale(control: TestControl) {
    let catalog = json!({"regions": [
        {"provider": "aws", "region": "eu", "capacity": {"basic": 1}},
        {"provider": "aws", "region": "us"},
    ]});
    let control = control.configured(json!({"catalog": catalog})).await;
    let (early, late) = (control.person("ada").await, control.person("eve").await);
    let mut stale = order(&preview(&control, &late, "basic").await);
    assert_eq!(stale["region"], "eu");
    project(&control, &early).await;
    let refused = place(&control, &late, &stale).await.refused(409);
    assert_eq!(refused.0, "creation_preview_stale");
    assert!(names(&control, &late).await.is_empty());
    // The refusal did not use up the key.
    let fresh = order(&preview(&control, &late, "basic").await);
    assert_eq!(fresh["region"], "us");
    stale["region"] = fresh["region"].clone();
    stale["creationFingerprint"] = fresh["creationFingerprint"].clone();
    assert_eq!(
        place(&control, &late, &stale).await.expect(201)["region"],
        "us"
    );
}

/// CP-4b: of sixteen parallel requests for the last slot, one succeeds.
async fn cp_4b_the_last_slot_is_assigned_once(control: TestControl) {
    let catalog =
        json!({"regions": [{"provider": "aws", "region": "eu", "capacity": {"basic": 2}}]});
    let control = Arc::new(control.configured(json!({"catalog": catalog})).await);
    let mut orders = Vec::new();
    for number in 0..16 {
        let person = control.person(&format!("person{number}")).await;
        let order = order(&preview(&control, &person, "basic").await);
        orders.push((person, order));
    }
    let mut posts = JoinSet::new();
    for (person, order) in orders {
        let control = Arc::clone(&control);
        posts.spawn(async move { place(&control, &person, &order).await });
    }
    let mut replies: Vec<_> = posts
        .join_all()
        .await
        .iter()
        .map(|reply| reply.status)
        .collect();
    replies.sort_unstable();
    let mut wanted = vec![201; 2];
    wanted.extend([409; 14]);
    assert_eq!(replies, wanted);
    let late = control.person("eve").await;
    let full = preview(&control, &late, "basic").await;
    assert_eq!(
        (&full["available"], &full["unavailableReasonCode"]),
        (&json!(false), &json!("no_capacity"))
    );
    assert_eq!(full["providers"], json!([]));
}

/// CP-4b: an unavailable plan cannot be created, even if the request confirms the unavailability.
async fn cp_4b_an_unavailable_plan_is_refused(control: TestControl) {
    let catalog = json!({
        "plans": [{"plan": "basic", "projects_per_workspace": 1}],
        "regions": [{"provider": "aws", "region": "eu"}, {"provider": "gcp", "region": "us", "plans": ["pro"]}],
    });
    let control = control.configured(json!({"catalog": catalog})).await;
    let person = control.person("ada").await;
    let wrong = |member: &str, value: serde_json::Value, order: &serde_json::Value| {
        let mut order = order.clone();
        order[member] = value;
        order
    };
    let fresh = order(&preview(&control, &person, "basic").await);
    for (member, value) in [("region", json!("moon")), ("provider", json!("gcp"))] {
        let reply = place(&control, &person, &wrong(member, value, &fresh)).await;
        assert_eq!(reply.refused(400).1.as_deref(), Some("region"), "{member}");
    }
    place(&control, &person, &fresh).await.expect(201);
    let full = preview(&control, &person, "basic").await;
    assert_eq!(full["unavailableReasonCode"], "project_limit");
    assert_eq!(
        place(&control, &person, &order(&full)).await.refused(409).0,
        "conflict"
    );
    let arranged = preview(&control, &person, "enterprise").await;
    assert_eq!(arranged["unavailableReasonCode"], "by_arrangement");
    assert_eq!(
        place(&control, &person, &order(&arranged))
            .await
            .refused(409)
            .0,
        "conflict"
    );
    // Another workspace has its own limit.
    project(&control, &control.person("eve").await).await;
}

/// CP-4b: an unknown fingerprint, or one of another workspace, confirms nothing.
async fn cp_4b_a_fingerprint_is_bound_to_its_workspace(control: TestControl) {
    let (person, other) = (control.person("ada").await, control.person("eve").await);
    let foreign = order(&preview(&control, &other, "basic").await);
    assert_eq!(
        place(&control, &person, &foreign).await.refused(409).0,
        "creation_preview_stale"
    );
    let mut invented = foreign;
    invented["creationFingerprint"] = json!("A".repeat(43));
    assert_eq!(
        place(&control, &person, &invented).await.refused(409).0,
        "creation_preview_stale"
    );
    assert!(names(&control, &person).await.is_empty());
}

/// CP-4c, CP-4a: fields that a body must not contain, and required ones.
async fn cp_4c_no_caller_chooses_a_billing_mode(control: TestControl) {
    let person = control.person("ada").await;
    let good = order(&preview(&control, &person, "basic").await);
    for (member, value) in [
        ("billingMode", json!("invoice")),
        ("billingAction", json!({"type": "create"})),
        ("price", json!(0)),
        ("name", json!("")),
        ("name", json!(" a")),
        ("name", json!(7)),
        ("plan", json!("gold")),
        ("provider", json!("Aws")),
        ("routing", json!("global")),
        ("idempotencyKey", json!("")),
        ("idempotencyKey", json!("a b")),
        ("creationFingerprint", json!("")),
        ("creationFingerprint", json!("A".repeat(129))),
        ("region", json!("")),
    ] {
        let mut bad = good.clone();
        bad[member] = value.clone();
        let refused = place(&control, &person, &bad).await.refused(400);
        assert_eq!(
            refused,
            ("invalid_request".to_owned(), Some(member.to_owned())),
            "{value}"
        );
    }
    for member in [
        "name",
        "plan",
        "provider",
        "region",
        "creationFingerprint",
        "idempotencyKey",
    ] {
        let mut bad = good.clone();
        bad.as_object_mut().unwrap().remove(member);
        place(&control, &person, &bad).await.refused(400);
    }
    assert!(names(&control, &person).await.is_empty());
}

/// Sixteen parallel creations in one workspace result in sixteen projects.
async fn parallel_creations_do_not_make_each_other_stale(control: TestControl) {
    let control = Arc::new(control);
    let person = control.person("ada").await;
    let order = order(&preview(&control, &person, "basic").await);
    let mut posts = JoinSet::new();
    for number in 0..16 {
        let (control, person, mut order) = (Arc::clone(&control), person.clone(), order.clone());
        order["name"] = json!(format!("p{number:02}"));
        order["idempotencyKey"] = json!(format!("parallel-{}", next()));
        posts.spawn(async move { place(&control, &person, &order).await.expect(201) });
    }
    posts.join_all().await;
    let mut names = names(&control, &person).await;
    names.sort();
    let wanted: Vec<_> = (0..16).map(|number| format!("p{number:02}")).collect();
    assert_eq!(names, wanted);
}

/// CP-3, CP-4: another user's workspace is not found, and a viewer creates nothing.
async fn cp_4_tenancy_is_checked_before_the_role(control: TestControl) {
    use store::members::Role;
    let (owner, viewer) = (control.person("ada").await, control.person("eve").await);
    let token = &viewer.token;
    let order = order(&preview(&control, &owner, "basic").await);
    let nowhere = "/api/workspaces/wks_01h455vb4pex5vsknk084sn02q/projects/tunnels";
    let foreign = creation(&owner);
    for tail in ["", "/plan/config"] {
        let method = if tail.is_empty() {
            http::Method::POST
        } else {
            http::Method::GET
        };
        let body = tail.is_empty().then(|| order.clone());
        let ask = async |path: &str| {
            control
                .send(
                    method.clone(),
                    &format!("{path}{tail}"),
                    Some(token),
                    body.as_ref(),
                )
                .await
        };
        let missing = ask(nowhere).await;
        assert_eq!(missing.status, 404);
        assert_eq!(ask(&foreign).await, missing);
        assert_eq!(ask("/api/workspaces/x/projects/tunnels").await, missing);
    }
    control.join(&viewer, owner.workspace, Role::Viewer).await;
    let reply = control.post(&foreign, token, &order).await;
    assert_eq!(reply.refused(403).0, "insufficient_scope");
    control
        .get(&format!("{foreign}/plan/config"), token)
        .await
        .expect(200);
}
