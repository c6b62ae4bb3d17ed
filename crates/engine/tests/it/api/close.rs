//! `DELETE /api/tunnels/{id}`: its permission and boundary, and the state after it.

use serde_json::{Value, json};

use crate::support::{CREATE, NOW, READ, TestApi, auth, pat, token};

async fn close(api: &TestApi, claims: &Value, id: &str) -> (u16, Value) {
    let request = api.http.delete(api.url(&format!("/api/tunnels/{id}")));
    let response = request.bearer_auth(token(claims)).send().await.unwrap();
    let status = response.status().as_u16();
    let body = response.text().await.unwrap();
    (status, serde_json::from_str(&body).unwrap_or(Value::Null))
}

/// A token with the permissions to list and to close, and this boundary.
fn bounded(actions: &Value) -> Value {
    let resources = json!({"tunnels": {"scopes": {"tunnels": actions}}});
    auth(
        NOW,
        60,
        json!({"permissions": [READ, CREATE], "resources": resources}),
    )
}

/// EN-7.
#[tokio::test]
async fn en_7_a_closed_tunnel_is_removed_and_its_client_and_other_tunnels_stay() {
    let api = TestApi::start().await;
    let ann = api.client("ann", json!({}));
    let web = api.tunnel(&ann, json!({"name": "web", "hostname": "web.t.x"}));
    api.tunnel(&ann, json!({"name": "db", "publish": false}));
    let id = web.view.id.to_string();
    assert_eq!(close(&api, &pat(), &id).await, (204, Value::Null));
    assert!(web.is_closed_by_caller());
    let (_, tunnels) = api.json("/api/tunnels").await;
    assert_eq!(tunnels.as_array().unwrap().len(), 1);
    assert_eq!(tunnels[0]["name"], "db");
    let (_, clients) = api.json("/api/clients").await;
    assert_eq!(clients.as_array().unwrap().len(), 1);
    let (status, problem) = close(&api, &pat(), &id).await;
    assert_eq!((status, &problem["code"]), (404, &json!("not_found")));
    // The name is free for the next request of the same client.
    api.tunnel(&ann, json!({"name": "web", "hostname": "web.t.x"}));
}

/// EN-7: the boundary allows to close what it allows to open, and nothing that it does not show.
#[tokio::test]
async fn en_7_closing_needs_the_permission_and_the_boundary() {
    let api = TestApi::start().await;
    let ann = api.client("ann", json!({}));
    let open = |name: &str| {
        let tunnel = api.tunnel(&ann, json!({"name": name, "publish": false}));
        tunnel.view.id.to_string()
    };
    let (web, db) = (open("web"), open("db"));
    let reader = auth(NOW, 60, json!({"permissions": [READ]}));
    let (status, problem) = close(&api, &reader, &web).await;
    assert_eq!((status, &problem["scope"]), (403, &json!(CREATE)));
    let watcher = bounded(&json!({"list": true}));
    assert_eq!(close(&api, &watcher, &web).await.0, 403, "it opens nothing");
    let only_web = json!({"create": {"filters": {"name": "web"}}, "list": true});
    let narrow = bounded(&only_web);
    assert_eq!(close(&api, &narrow, &db).await.0, 403);
    let blind = bounded(&json!({"create": true}));
    assert_eq!(close(&api, &blind, &web).await.0, 404, "it shows nothing");
    for unknown in ["tun_01h455vb4pex5vsknk084sn02q", "web", "x"] {
        assert_eq!(close(&api, &pat(), unknown).await.0, 404, "{unknown}");
    }
    let (_, tunnels) = api.json("/api/tunnels").await;
    assert_eq!(tunnels.as_array().unwrap().len(), 2);
    assert_eq!(close(&api, &narrow, &web).await.0, 204);
}
