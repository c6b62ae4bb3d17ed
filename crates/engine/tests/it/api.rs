//! Lists, refusals, credentials and the document of the Engine API.

use ::api::engine::{Access, OPERATIONS};
use http::Method;
use serde_json::{Value, json};

use crate::support::{CREATE, NOW, READ, STREAMS, TestApi, auth, names, pat, signed, token};

/// Three clients and four tunnels that differ in every field that a filter can name.
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
        "what has no value is left out"
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
async fn en_2_params_that_are_no_json_object_are_refused() {
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
async fn one_tunnel_is_found_by_its_id_alone() {
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
    assert_eq!(status, 404, "not shown is not there");
}

/// EN-7.
#[tokio::test]
async fn en_7_a_boundary_cuts_the_lists() {
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
        "a boundary of tunnels shows no clients"
    );
    let (_, clients) = api.json_as(&list(json!(true)), "/api/clients").await;
    assert_eq!(clients.as_array().unwrap().len(), 3);
}

/// EN-1a.
#[tokio::test]
async fn en_1a_what_is_not_a_route_is_a_json_404_and_a_wrong_method_a_405() {
    let api = TestApi::start().await;
    for path in [
        "/",
        "/api",
        "/api/",
        "/api/tunnels/",
        "/api/nothing",
        "/api/clients/x",
        "/metrics",
    ] {
        let response = api.get(path).send().await.unwrap();
        assert_eq!(response.status(), 404, "{path}");
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        assert_eq!(response.json::<Value>().await.unwrap()["code"], "not_found");
    }
    for operation in OPERATIONS {
        for method in [
            Method::POST,
            Method::PUT,
            Method::DELETE,
            Method::PATCH,
            Method::OPTIONS,
        ] {
            let request = api.http.request(method.clone(), api.url(operation.path));
            let response = request.bearer_auth(token(&pat())).send().await.unwrap();
            assert_eq!(response.status(), 405, "{method} {}", operation.path);
            assert!(
                response.headers()["allow"]
                    .to_str()
                    .unwrap()
                    .contains("GET")
            );
            assert_eq!(
                response.headers()["content-type"],
                "application/problem+json"
            );
            assert_eq!(
                response.json::<Value>().await.unwrap()["code"],
                "method_not_allowed"
            );
        }
    }
}

#[tokio::test]
async fn api_auth_answers_204_to_any_valid_credential() {
    let api = TestApi::start().await;
    for claims in [
        pat(),
        auth(NOW, 5, json!({"permissions": []})),
        json!({"type": "app", "clientId": "a"}),
    ] {
        let response = api
            .http
            .get(api.url("/api/auth"))
            .bearer_auth(token(&claims))
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 204, "{claims}");
        assert_eq!(response.bytes().await.unwrap().len(), 0);
    }
}

/// A path of an operation with its parameters filled in.
fn path_of(operation: &str) -> String {
    operation.replace("{id}", "tun_01h455vb4pex5vsknk084sn02q")
}

/// EN-7 over the document itself: an operation that is added without a check fails here.
#[tokio::test]
async fn en_7_every_operation_asks_for_what_the_document_says() {
    let api = TestApi::start().await;
    let foreign =
        json!({"resources": {"tunnels": {"projects": ["elsewhere"]}}, "permissions": [READ]});
    let credentials = [
        ("none", None),
        ("garbage", Some("x.y.z".to_owned())),
        (
            "foreign signature",
            Some(signed(&pat(), "another secret of at least 32 bytes")),
        ),
        ("expired", Some(token(&auth(NOW - 60, 60, json!({}))))),
        (
            "weak",
            Some(token(&auth(
                NOW,
                60,
                json!({"permissions": [CREATE, STREAMS]}),
            ))),
        ),
        ("foreign project", Some(token(&auth(NOW, 60, foreign)))),
    ];
    let document = ::api::engine::document();
    let described: Vec<_> = document["paths"]
        .as_object()
        .unwrap()
        .keys()
        .cloned()
        .collect();
    assert_eq!(described.len(), OPERATIONS.len());
    for operation in OPERATIONS {
        assert!(described.iter().any(|path| path == operation.path));
        for (name, credential) in &credentials {
            let mut request = api.http.get(api.url(&path_of(operation.path)));
            if let Some(credential) = credential {
                request = request.bearer_auth(credential);
            }
            let response = request.send().await.unwrap();
            let status = response.status().as_u16();
            let challenge = response
                .headers()
                .get("www-authenticate")
                .map(|c| c.to_str().unwrap().to_owned());
            let case = format!("{} with {name}", operation.id);
            match (operation.access, *name) {
                (Access::Public, _) => assert_eq!(status, 200, "{case}"),
                (_, "none") => {
                    assert_eq!(status, 401, "{case}");
                    let challenge = challenge.unwrap();
                    assert!(
                        challenge.starts_with("Bearer") && !challenge.contains("error"),
                        "{challenge}"
                    );
                }
                (_, "garbage" | "foreign signature" | "expired") => {
                    assert_eq!(status, 401, "{case}");
                    assert!(
                        challenge.unwrap().contains(r#"error="invalid_token""#),
                        "{case}"
                    );
                }
                (Access::Authenticated, _) => assert_eq!(status, 204, "{case}"),
                // It sees no tunnel, so this one is not there for it.
                (Access::Permitted(..), "foreign project") if operation.path.contains('{') => {
                    assert_eq!(status, 404, "{case}");
                }
                (Access::Permitted(permission, _), _) => {
                    // A WebSocket route that is asked without an upgrade still asks who it is first.
                    let expected = if operation.path == "/api/websocket" && *name != "weak" {
                        426
                    } else {
                        403
                    };
                    assert_eq!(status, expected, "{case}");
                    if expected == 403 {
                        let challenge = challenge.unwrap();
                        assert!(
                            challenge.contains(r#"error="insufficient_scope""#),
                            "{case}: {challenge}"
                        );
                        assert!(
                            challenge.contains(permission.as_str()),
                            "{case}: {challenge}"
                        );
                    }
                }
            }
        }
    }
}

/// EN-5.
#[tokio::test]
async fn en_5_the_query_is_no_credential_outside_the_streams() {
    let api = TestApi::start().await;
    let good = token(&auth(NOW, 60, json!({"permissions": [READ]})));
    for path in [
        "/api/clients",
        "/api/tunnels",
        "/api/auth",
        "/api/tunnels/x",
    ] {
        let response = api
            .http
            .get(api.url(&format!("{path}?svc.token={good}")))
            .send()
            .await
            .unwrap();
        assert_eq!(response.status(), 401, "{path}");
        let problem: Value = response.json().await.unwrap();
        assert_eq!(problem["code"], "unauthenticated", "not even looked at");
    }
    // ED-1d: no credential there, so a bad one harms nobody either.
    let response = api
        .get("/api/tunnels?svc.token=bad&svc.token=")
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
}

#[tokio::test]
async fn the_order_of_checks_is_credential_permission_shape_boundary() {
    let api = TestApi::start().await;
    let elsewhere = json!({"tunnels": {"projects": ["elsewhere"]}});
    let bad = "/api/tunnels?params=%7B%22x%22%3A1%7D";
    for (claims, path, expected) in [
        (None, bad, 401),
        (Some(auth(NOW, 60, json!({"permissions": []}))), bad, 403),
        (
            Some(auth(NOW, 60, json!({"resources": elsewhere}))),
            bad,
            400,
        ),
        (
            Some(auth(NOW, 60, json!({"resources": elsewhere}))),
            "/api/tunnels",
            403,
        ),
    ] {
        let mut request = api.http.get(api.url(path));
        if let Some(claims) = &claims {
            request = request.bearer_auth(token(claims));
        }
        assert_eq!(
            request.send().await.unwrap().status(),
            expected,
            "{claims:?} {path}"
        );
    }
}

/// EN-6.
#[tokio::test]
async fn en_6_the_document_needs_no_credential() {
    let api = TestApi::start().await;
    let response = api
        .http
        .get(api.url("/api/openapi.json"))
        .send()
        .await
        .unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(
        response.headers()["content-type"],
        "application/vnd.oai.openapi+json;version=3.1"
    );
    assert_eq!(
        response.text().await.unwrap(),
        ::api::engine::document_json()
    );
}

#[tokio::test]
async fn the_other_brands_spellings_are_for_those_who_ask() {
    let tunnel = json!({"name": "web", "svc_auth": false});
    for compat in [false, true] {
        let api = TestApi::with(
            crate::support::manual_clock(),
            engine::live::LiveLimits::default(),
            compat,
        )
        .await;
        let owner = api.client("ann", json!({}));
        api.tunnel(&owner, tunnel.clone());
        let (_, tunnels) = api.json("/api/tunnels").await;
        assert_eq!(tunnels[0]["svc_auth"], false);
        assert_eq!(tunnels[0].get("rstream_auth").is_some(), compat);
        let (status, _) = api
            .list("/api/tunnels", &json!({"filters": {"rstream_auth": false}}))
            .await;
        assert_eq!(status, if compat { 200 } else { 400 });
    }
}
