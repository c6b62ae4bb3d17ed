//! The lists, their filters, and their contents under a boundary.

use serde_json::{Value, json};

use crate::support::{NOW, TestApi, auth, names};

/// Three clients and four tunnels that differ in every filterable field.
fn inhabit(api: &TestApi) -> Vec<String> {
    let ann = api.client(
        "ann",
        json!({"agent": "svc", "channel": "stable", "version": "1.2.3", "os": "linux",
        "arch": "x86_64", "protocol_version": "1.4.5", "labels": {"site": "zurich"}}),
    );
    let bob = api.client(
        "bob",
        json!({"agent": "other", "channel": "sdk", "version": "2.0.0", "os": "macos",
        "arch": "aarch64", "protocol_version": "1.4.3", "labels": {"site": "geneva", "rack": "7"}}),
    );
    api.client("cid", json!({}));
    let web = api.tunnel(
        &ann,
        json!({"name": "web", "hostname": "web.t.x", "labels": {"env": "prod"}}),
    );
    api.tunnel(
        &ann,
        json!({"name": "db", "publish": false, "labels": {"env": "dev"}}),
    );
    api.tunnel(
        &bob,
        json!({"name": "sni", "protocol": "tls", "hostname": "sni.t.x"}),
    );
    api.tunnel(
        &bob,
        json!({"name": "grpc", "hostname": "grpc.t.x", "http_version": "h2c"}),
    );
    vec![
        ann.client_id.to_string(),
        bob.client_id.to_string(),
        web.view.id.to_string(),
    ]
}

/// EN-1.
#[tokio::test]
async fn en_1_lists_are_bare_arrays_of_flat_objects_oldest_first() {
    let api = TestApi::start().await;
    let ids = inhabit(&api);
    let response = api.get("/api/clients").send().await.unwrap();
    assert_eq!(response.headers()["content-type"], "application/json");
    assert_eq!(response.headers()["cache-control"], "no-store");
    let clients: Value = response.json().await.unwrap();
    assert_eq!(clients.as_array().unwrap().len(), 3);
    assert_eq!(clients[0]["id"], ids[0]);
    assert_eq!(clients[0]["agent"], "svc");
    let nothing_told: Vec<_> = clients[2].as_object().unwrap().keys().cloned().collect();
    assert_eq!(
        nothing_told,
        ["id", "project_id", "status", "user_id"],
        "fields without a value are omitted"
    );
    let (status, tunnels) = api.json("/api/tunnels").await;
    assert_eq!(status, 200);
    assert_eq!(names(&tunnels), ["web", "db", "sni", "grpc"]);
    assert_eq!(tunnels[0]["client_id"], ids[0]);
    assert_eq!(tunnels[0]["user_id"], "ann");
    assert_eq!(tunnels[0]["status"], "online");
    assert_eq!(tunnels[0]["creation_date"], "2027-01-15T08:00:00.000Z");
}

/// EN-2a.
#[tokio::test]
async fn en_2a_tunnels_are_filtered_by_each_key() {
    let api = TestApi::start().await;
    let ids = inhabit(&api);
    for (filters, expected) in [
        (json!({}), &["web", "db", "sni", "grpc"][..]),
        (json!({"name": "web"}), &["web"]),
        (json!({"name": "we"}), &[]),
        (json!({"labels": {"env": "prod"}}), &["web"]),
        (json!({"labels": {"env": null}}), &["web", "db"]),
        (json!({"labels": {"env": "prod", "x": null}}), &[]),
        (json!({"publish": false}), &["db"]),
        (json!({"protocol": "http"}), &["web", "grpc"]),
        (json!({"protocol": "tls"}), &["sni"]),
        (json!({"http_version": "h2c"}), &["grpc"]),
        (json!({"user_id": "bob"}), &["sni", "grpc"]),
        (json!({"client_id": ids[0]}), &["web", "db"]),
        (json!({"id": ids[2]}), &["web"]),
        (json!({"hostname": "sni.t.x"}), &["sni"]),
        (json!({"type": "bytestream"}), &["web", "db", "sni", "grpc"]),
        (json!({"type": "datagram"}), &[]),
        (json!({"status": "online"}), &["web", "db", "sni", "grpc"]),
        (json!({"status": "offline"}), &[]),
        (json!({"user_id": "bob", "protocol": "tls"}), &["sni"]),
    ] {
        let (status, list) = api.list("/api/tunnels", &json!({"filters": filters})).await;
        assert_eq!(
            (status, names(&list)),
            (200, expected.to_vec()),
            "{filters}"
        );
    }
    let (_, list) = api.list("/api/tunnels", &json!({"limit": 2})).await;
    assert_eq!(names(&list), ["web", "db"]);
    let (_, list) = api
        .list(
            "/api/tunnels",
            &json!({"limit": 1, "filters": {"user_id": "bob"}}),
        )
        .await;
    assert_eq!(names(&list), ["sni"]);
}

/// EN-2b.
#[tokio::test]
async fn en_2b_clients_are_filtered_by_each_key() {
    let api = TestApi::start().await;
    let ids = inhabit(&api);
    for (filters, expected) in [
        (json!({}), &["ann", "bob", "cid"][..]),
        (json!({"agent": "svc"}), &["ann"]),
        (json!({"channel": "sdk"}), &["bob"]),
        (json!({"version": "1.2.3"}), &["ann"]),
        (json!({"os": "macos"}), &["bob"]),
        (json!({"arch": "x86_64"}), &["ann"]),
        (json!({"protocol_version": "1.4.3"}), &["bob"]),
        (json!({"labels": {"site": "zurich"}}), &["ann"]),
        (json!({"labels": {"site": null}}), &["ann", "bob"]),
        (json!({"user_id": "cid"}), &["cid"]),
        (json!({"id": ids[1]}), &["bob"]),
        (json!({"status": "online"}), &["ann", "bob", "cid"]),
        (json!({"os": "macos", "agent": "svc"}), &[]),
    ] {
        let (status, list) = api.list("/api/clients", &json!({"filters": filters})).await;
        let users: Vec<_> = list
            .as_array()
            .unwrap()
            .iter()
            .map(|c| c["user_id"].as_str().unwrap())
            .collect();
        assert_eq!((status, users), (200, expected.to_vec()), "{filters}");
    }
}

/// EN-2.
#[tokio::test]
async fn en_2_bad_params_are_refused_and_the_key_is_named() {
    let api = TestApi::start().await;
    for (path, params, field) in [
        ("/api/tunnels", r#"{"limit": 0}"#, "limit"),
        ("/api/tunnels", r#"{"limit": 1001}"#, "limit"),
        ("/api/tunnels", r#"{"limit": -1}"#, "limit"),
        ("/api/tunnels", r#"{"limit": 1.0}"#, "limit"),
        ("/api/tunnels", r#"{"limit": 1e2}"#, "limit"),
        ("/api/tunnels", r#"{"limit": "5"}"#, "limit"),
        ("/api/tunnels", r#"{"limits": 5}"#, "limits"),
        ("/api/tunnels", r#"{"limit": 1, "limit": 2}"#, "limit"),
        (
            "/api/tunnels",
            r#"{"filters": {"nme": "x"}}"#,
            "filters.nme",
        ),
        (
            "/api/tunnels",
            r#"{"filters": {"name": 5}}"#,
            "filters.name",
        ),
        (
            "/api/tunnels",
            r#"{"filters": {"publish": "yes"}}"#,
            "filters.publish",
        ),
        (
            "/api/tunnels",
            r#"{"filters": {"protocol": "ftp"}}"#,
            "filters.protocol",
        ),
        (
            "/api/tunnels",
            r#"{"filters": {"labels": {"a": 5}}}"#,
            "filters.labels.a",
        ),
        ("/api/tunnels", r#"{"filters": []}"#, "filters"),
        (
            "/api/clients",
            r#"{"filters": {"name": "x"}}"#,
            "filters.name",
        ),
        ("/api/clients", r#"{"filters": {"os": null}}"#, "filters.os"),
        ("/api/sse", r#"{"limit": 5}"#, "limit"),
        ("/api/sse", r#"{"tunnels": {"os": "linux"}}"#, "tunnels.os"),
        ("/api/sse", r#"{"clients": {"os": 1}}"#, "clients.os"),
    ] {
        let response = api
            .get(path)
            .query(&[("params", params)])
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 400, "{params}");
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        let problem: Value = response.json().await.unwrap();
        assert_eq!(problem["field"], field, "{params}: {problem}");
        assert_eq!(problem["code"], "invalid_request");
        assert_eq!(problem["error"], problem["detail"]);
    }
}

/// EN-2.
#[tokio::test]
async fn en_2_params_that_are_not_a_json_object_are_refused() {
    let api = TestApi::start().await;
    let long = format!("params=%7B%22limit%22%3A{}1%7D", "%20".repeat(17 * 1024));
    for query in [
        "params=",
        "params={",
        "params=[]",
        "params=5",
        "params={}&params={}",
        "params=%zz",
        "params=%ff",
        &long,
    ] {
        for path in ["/api/clients", "/api/tunnels", "/api/sse"] {
            let query = query.replace('{', "%7B").replace('}', "%7D");
            let response = api.get(&format!("{path}?{query}")).send().await.unwrap();
            assert_eq!(response.status(), 400, "{path}?{query}");
        }
    }
}

#[tokio::test]
async fn a_tunnel_is_found_by_its_id_only() {
    let api = TestApi::start().await;
    let ids = inhabit(&api);
    let (status, tunnel) = api.json(&format!("/api/tunnels/{}", ids[2])).await;
    assert_eq!((status, &tunnel["name"]), (200, &json!("web")));
    for absent in [
        "web",
        "tun_00000000000000000000000000",
        "%ff",
        "a%2Fb",
        "%00",
    ] {
        let (status, problem) = api.json(&format!("/api/tunnels/{absent}")).await;
        assert_eq!(
            (status, &problem["code"]),
            (404, &json!("not_found")),
            "{absent}"
        );
    }
    let narrow = json!({"tunnels": {"scopes": {"tunnels": {"list": {"filters": {"name": "db"}}}}}});
    let (status, _) = api
        .json_as(
            &auth(NOW, 60, json!({"resources": narrow})),
            &format!("/api/tunnels/{}", ids[2]),
        )
        .await;
    assert_eq!(status, 404, "hidden tunnels are not found");
}

/// EN-7.
#[tokio::test]
async fn en_7_a_boundary_restricts_the_lists() {
    let api = TestApi::start().await;
    inhabit(&api);
    let list = |scope: Value| {
        auth(
            NOW,
            60,
            json!({"resources": {"tunnels": {"scopes": {"tunnels": {"list": scope}}}}}),
        )
    };
    let (status, tunnels) = api
        .json_as(
            &list(json!({"filters": {"publish": false}})),
            "/api/tunnels",
        )
        .await;
    assert_eq!((status, names(&tunnels)), (200, vec!["db"]));
    let (_, tunnels) = api
        .json_as(&list(json!({"select": {"name": true}})), "/api/tunnels")
        .await;
    assert_eq!(
        tunnels,
        json!([{"name": "web"}, {"name": "db"}, {"name": "sni"}, {"name": "grpc"}])
    );
    let (status, clients) = api
        .json_as(
            &list(json!({"filters": {"publish": false}})),
            "/api/clients",
        )
        .await;
    assert_eq!(
        (status, clients),
        (200, json!([])),
        "a tunnel boundary hides all clients"
    );
    let (_, clients) = api.json_as(&list(json!(true)), "/api/clients").await;
    assert_eq!(clients.as_array().unwrap().len(), 3);
}
