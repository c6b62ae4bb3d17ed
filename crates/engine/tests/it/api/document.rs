//! The OpenAPI document, and the spellings that only `compat.rstream` supports.

use engine::live::LiveLimits;
use serde_json::{Value, json};

use crate::support::{TestApi, manual_clock};

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
async fn the_spellings_of_the_other_brand_are_opt_in() {
    let tunnel = json!({"name": "web", "svc_auth": false});
    for compat in [false, true] {
        let api = TestApi::with(manual_clock(), LiveLimits::default(), compat).await;
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

/// EN-2: every `limit` has its bounds in the document; the engine accepts them and refuses the next
/// numbers by name.
#[tokio::test]
async fn en_2_a_limit_has_the_bounds_of_its_schema() {
    let api = TestApi::start().await;
    let document = ::api::engine::document();
    let mut bounded = 0;
    for (path, item) in document["paths"].as_object().unwrap() {
        let parameters = item["get"]["parameters"].as_array();
        let params = parameters
            .into_iter()
            .flatten()
            .find(|one| one["name"] == "params");
        let Some(schema) = params.map(|params| &params["content"]["application/json"]["schema"])
        else {
            continue;
        };
        let name = schema["$ref"].as_str().unwrap().rsplit_once('/').unwrap().1;
        let schema = &document["components"]["schemas"][name];
        let Some(limit) = schema["properties"].get("limit") else {
            continue;
        };
        let [least, most] = ["minimum", "maximum"].map(|bound| limit[bound].as_u64().unwrap());
        let path = path.replace("{id}", "wts_00000000000000000000000000");
        let ask = async |limit: u64| {
            let mut params = json!({"limit": limit});
            for required in schema["required"].as_array().into_iter().flatten() {
                params[required.as_str().unwrap()] = json!("text");
            }
            let request = api.get(&path).query(&[("params", params.to_string())]);
            let response = request.send().await.unwrap();
            let status = response.status().as_u16();
            let body: Value = response.json().await.unwrap();
            (status, body["field"].clone())
        };
        for limit in [least, most] {
            let (status, field) = ask(limit).await;
            assert_ne!(status, 400, "{path} {limit} {field}");
        }
        for limit in [least - 1, most + 1] {
            assert_eq!(ask(limit).await, (400, json!("limit")), "{path} {limit}");
        }
        bounded += 1;
    }
    assert_eq!(bounded, 7);
}
