//! The OpenAPI document, and the spellings that only `compat.rstream` supports.

use engine::live::LiveLimits;
use serde_json::json;

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
