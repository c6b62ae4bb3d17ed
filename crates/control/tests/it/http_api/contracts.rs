//! CP-7, CP-8, CP-9, and the published keys.

use axum::body::Body;
use http::{Method, Request};
use serde_json::{Value, json};

use crate::support::{BASE_URL, TestControl};

/// CP-7.
#[tokio::test]
async fn cp_7_the_document_is_public_and_describes_itself() {
    let control = TestControl::start("").await;
    let answer = control
        .send(Method::GET, "/api/openapi.json", None, None)
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.header("content-type"),
        "application/vnd.oai.openapi+json;version=3.1"
    );
    assert_eq!(answer.json(), api::control::document());
    for path in [
        "/api/openapi.json",
        "/.well-known/api-catalog",
        "/api/engine/openapi.json",
    ] {
        assert!(answer.json()["paths"][path]["get"].is_object(), "{path}");
    }
}

/// CP-8: RFC 9727, by GET and by HEAD.
#[tokio::test]
async fn cp_8_the_catalog_names_both_documents() {
    let control = TestControl::start("").await;
    let path = "/.well-known/api-catalog";
    let answer = control.send(Method::GET, path, None, None).await;
    assert_eq!(answer.status, 200);
    let media_type = answer.header("content-type");
    assert!(
        media_type.starts_with("application/linkset+json"),
        "{media_type}"
    );
    assert!(media_type.contains("profile=\"https://www.rfc-editor.org/info/rfc9727\""));
    let text = answer.json().to_string();
    for document in ["/api/openapi.json", "/api/engine/openapi.json"] {
        assert!(
            text.contains(&format!("\"{BASE_URL}{document}\"")),
            "{text}"
        );
        let document = control.send(Method::GET, document, None, None).await;
        assert_eq!(document.status, 200);
    }
    let head = control.send(Method::HEAD, path, None, None).await;
    assert_eq!((head.status, head.text.len()), (200, 0));
    for name in ["content-type", "link", "etag", "cache-control"] {
        assert_eq!(head.header(name), answer.header(name), "{name}");
        assert!(!head.header(name).is_empty(), "{name}");
    }
}

/// CP-9: the committed bytes, which an engine of this version serves as well.
#[tokio::test]
async fn cp_9_the_engine_document_equals_that_of_the_engine() {
    let control = TestControl::start("").await;
    let answer = control
        .send(Method::GET, "/api/engine/openapi.json", None, None)
        .await;
    assert_eq!(
        answer.text,
        include_str!("../../../../../openapi/engine.json")
    );
    assert_eq!(answer.text, api::engine::document_json());
    assert_eq!(
        answer.header("content-type"),
        "application/vnd.oai.openapi+json;version=3.1"
    );
}

#[tokio::test]
async fn unchanged_documents_are_not_sent_again() {
    let control = TestControl::start("").await;
    for path in [
        "/api/openapi.json",
        "/.well-known/jwks.json",
        "/.well-known/api-catalog",
    ] {
        let answer = control.send(Method::GET, path, None, None).await;
        assert_eq!(answer.header("cache-control"), "public, max-age=300");
        let tag = answer.header("etag").to_owned();
        for (asked, status) in [
            (tag.clone(), 304),
            (format!("\"x\", W/{tag}"), 304),
            ("*".to_owned(), 304),
            ("\"x\"".to_owned(), 200),
        ] {
            let request = Request::get(path).header("if-none-match", &asked);
            let again = control.send_raw(request.body(Body::empty()).unwrap()).await;
            assert_eq!(again.status, status, "{path} {asked}");
            assert_eq!(again.text.is_empty(), status == 304);
        }
    }
}

fn keys(document: &Value) -> &Vec<Value> {
    document["keys"].as_array().unwrap()
}

#[tokio::test]
async fn the_published_keys_verify_the_platforms_tokens() {
    let control = TestControl::start("").await;
    let ada = control.person("ada").await;
    let answer = control
        .send(Method::GET, "/.well-known/jwks.json", None, None)
        .await;
    assert_eq!(answer.header("content-type"), "application/jwk-set+json");
    let document = answer.json();
    assert_eq!(keys(&document).len(), 1);
    assert_eq!(
        (&keys(&document)[0]["alg"], keys(&document)[0].get("d")),
        (&json!("EdDSA"), None)
    );
    let keyring = credentials::Keyring::new()
        .with_jwks(&document.to_string())
        .unwrap();
    let now = control.now().as_second();
    assert!(credentials::verify(&ada.token, &keyring, now).is_ok());
}
