//! Reserved TCP addresses.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::{Answer, Person, Project, TestControl, both};

both! {
    addresses_are_reserved_and_released,
    a_released_port_is_blocked_for_other_projects_at_first,
    an_address_needs_a_plan_a_policy_and_a_pool,
    parallel_reservations_get_different_ports,
}

/// The same with these ports in the pool, and a plan with this many addresses.
async fn with_ports(
    control: TestControl,
    ports: Option<RangeInclusive<u16>>,
    most: u32,
) -> TestControl {
    let plans = json!({"plans": [{"plan": "basic", "tcp_addresses": most}]});
    let control = control.configured(json!({"catalog": plans})).await;
    let mut config = control.app.config.clone();
    config.engines[0].tcp_ports = ports;
    control.restarted_with(config).await
}

async fn call(
    control: &TestControl,
    (who, project): (&Person, &Project),
    method: Method,
    path: &str,
) -> Answer {
    let path = format!("/api/projects/tunnels/{}/addresses{path}", project.id);
    control.send(method, &path, Some(&who.token), None).await
}

async fn reserve(control: &TestControl, of: (&Person, &Project)) -> Value {
    call(control, of, Method::POST, "").await.expect(201)
}

async fn release(control: &TestControl, of: (&Person, &Project), address: &Value) {
    let path = format!("/{}", address["id"].as_str().unwrap());
    call(control, of, Method::DELETE, &path).await.expect(204);
}

async fn addresses_are_reserved_and_released(control: TestControl) {
    let control = with_ports(control, Some(20_000..=20_001), 2).await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let own = (&ada, &project);
    let path = format!("/api/projects/tunnels/{}/addresses", project.id);
    let first = control
        .post(&path, &ada.token, &json!({}))
        .await
        .expect(201);
    assert_eq!(
        first,
        json!({
            "id": first["id"],
            "projectId": project.id,
            "domain": "engine.example",
            "port": 20_000,
            "createdAt": "2026-01-01T00:00:00.000Z",
        })
    );
    let refused = control
        .post(&path, &ada.token, &json!({"port": 1}))
        .await
        .refused(400);
    assert_eq!(refused.1.as_deref(), Some("port"));
    control.clock.advance(1);
    let second = reserve(&control, own).await;
    assert_eq!(second["port"], 20_001);
    let list = call(&control, own, Method::GET, "").await.expect(200);
    assert_eq!(list, json!({"addresses": [first, second]}));
    let refused = call(&control, own, Method::POST, "").await.refused(409);
    assert_eq!(refused.0, "not_in_plan");
    release(&control, own, &first).await;
    let path = format!("/{}", first["id"].as_str().unwrap());
    call(&control, own, Method::DELETE, &path)
        .await
        .refused(404);
    call(&control, own, Method::DELETE, "/nothing")
        .await
        .refused(404);
    let list = call(&control, own, Method::GET, "").await.expect(200);
    assert_eq!(list, json!({"addresses": [second]}));
    let log = format!("/api/workspaces/{}/audit", ada.workspace);
    let log = control.get(&log, &ada.token).await.expect(200);
    let actions = log["entries"].as_array().unwrap().iter();
    let actions: Vec<_> = actions
        .map(|entry| entry["action"].as_str().unwrap())
        .collect();
    for (action, times) in [("address.reserved", 2), ("address.released", 1)] {
        let found = actions.iter().filter(|logged| **logged == action).count();
        assert_eq!(found, times, "{actions:?}");
    }
}

/// For a day only the former project can reserve the port again. Ports of a deleted project are
/// blocked as well.
async fn a_released_port_is_blocked_for_other_projects_at_first(control: TestControl) {
    let control = with_ports(control, Some(20_000..=20_000), 2).await;
    let (ada, eve) = (control.person("ada").await, control.person("eve").await);
    let (hers, other) = (control.project(&ada).await, control.project(&eve).await);
    let (hers, other) = ((&ada, &hers), (&eve, &other));
    let address = reserve(&control, hers).await;
    release(&control, hers, &address).await;
    assert_eq!(
        call(&control, other, Method::POST, "").await.refused(409).0,
        "conflict"
    );
    let again = reserve(&control, hers).await;
    assert_eq!(again["port"], 20_000);
    let project = format!("/api/projects/tunnels/{}", hers.1.id);
    control.delete(&project, &ada.token).await.expect(204);
    control.clock.advance(24 * 3600 - 1);
    call(&control, other, Method::POST, "").await.refused(409);
    control.clock.advance(1);
    assert_eq!(reserve(&control, other).await["port"], 20_000);
}

async fn an_address_needs_a_plan_a_policy_and_a_pool(control: TestControl) {
    let control = with_ports(control, None, 1).await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let own = (&ada, &project);
    let refused = call(&control, own, Method::POST, "").await.refused(409);
    assert_eq!(refused.0, "feature_unavailable");
    let control = with_ports(control, Some(20_000..=20_009), 0).await;
    let refused = call(&control, own, Method::POST, "").await.refused(409);
    assert_eq!(refused.0, "not_in_plan");
    let control = with_ports(control, Some(20_000..=20_009), 1).await;
    let settings = format!("/api/projects/tunnels/{}/settings", project.id);
    let body = json!({"publishedTcpEnabled": false});
    let token = Some(ada.token.as_str());
    let changed = control
        .send(Method::PATCH, &settings, token, Some(&body))
        .await;
    changed.expect(200);
    let refused = call(&control, own, Method::POST, "").await.refused(409);
    assert_eq!(refused.0, "published_tcp_disabled");
    control.delete(&settings, &ada.token).await.expect(204);
    reserve(&control, own).await;
}

/// The plan's limit holds within a workspace, and no workspace gets a port of another one.
async fn parallel_reservations_get_different_ports(control: TestControl) {
    let control = Arc::new(with_ports(control, Some(20_000..=20_009), 2).await);
    let mut tasks = JoinSet::new();
    for name in ["ada", "eve", "bob"] {
        let who = control.person(name).await;
        let project = control.project(&who).await;
        for _ in 0..3 {
            let (control, who, project) = (Arc::clone(&control), who.clone(), project.clone());
            tasks.spawn(async move { call(&control, (&who, &project), Method::POST, "").await });
        }
    }
    let answers = tasks.join_all().await;
    let made = answers.iter().filter(|answer| answer.status == 201);
    let ports: Vec<_> = made.map(|answer| answer.json()["port"].clone()).collect();
    let different: BTreeSet<_> = ports.iter().map(Value::to_string).collect();
    assert_eq!((ports.len(), different.len()), (6, 6), "{answers:?}");
}
