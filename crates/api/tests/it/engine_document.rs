//! EN-6: the code generates exactly `openapi/engine.json`.

use std::path::Path;

use api::engine::{Access, Method, OPERATIONS};
use serde_json::{Value, json};
use types::permission::{ENGINE_BUNDLES, Permission};

/// With `UPDATE_OPENAPI=1` in the environment the test writes the file instead of comparing it.
/// EN-6.
#[test]
fn en_6_the_committed_document_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi/engine.json");
    let current = api::engine::document_json();
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &current).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(
        committed == current,
        "openapi/engine.json is stale: UPDATE_OPENAPI=1 cargo test -p api, and look at the difference"
    );
}

/// CP-9.
#[test]
fn cp_9_generating_the_document_is_deterministic() {
    for _ in 0..20 {
        assert_eq!(api::engine::document_json(), api::engine::document_json());
    }
}

/// EN-6.
#[test]
fn en_6_it_is_openapi_3_1_with_the_operations_of_the_interface() {
    let document = api::engine::document();
    assert_eq!(document["openapi"], "3.1.0");
    assert_eq!(document["servers"], json!([{"url": "/"}]));
    let paths = document["paths"].as_object().unwrap();
    let operations = paths.values().map(|path| path.as_object().unwrap().len());
    assert_eq!(operations.sum::<usize>(), OPERATIONS.len());
    for operation in OPERATIONS {
        let method = method_of(operation.method);
        assert_eq!(paths[operation.path][method]["operationId"], operation.id);
    }
    let stable: Vec<_> = OPERATIONS
        .iter()
        .filter(|operation| operation.stable)
        .map(|o| o.path)
        .collect();
    assert_eq!(
        stable,
        [
            "/api/openapi.json",
            "/api/clients",
            "/api/tunnels",
            "/api/sse",
            "/api/websocket"
        ]
    );
}

fn method_of(method: Method) -> &'static str {
    match method {
        Method::Get => "get",
        Method::Post => "post",
        Method::Delete => "delete",
    }
}

/// EN-6.
#[test]
fn en_6_every_operation_documents_its_requirements() {
    let document = api::engine::document();
    for operation in OPERATIONS {
        let described = &document["paths"][operation.path][method_of(operation.method)];
        let rules = described["x-svc-required-rules"].as_array().unwrap();
        match operation.access {
            Access::Public => {
                assert_eq!(described["security"], json!([]), "{}", operation.id);
                assert!(rules.is_empty());
            }
            Access::Granted => assert!(rules.is_empty()),
            Access::Authenticated => {
                assert!(rules.is_empty() && described["responses"]["401"].is_object());
            }
            Access::Permitted(permission, _) => {
                assert!(!rules.is_empty());
                for status in ["400", "401", "403"] {
                    assert!(
                        described["responses"][status].is_object(),
                        "{} {status}",
                        operation.id
                    );
                }
                assert!(
                    rules.iter().all(|rule| grants(permission, rule)),
                    "{}",
                    operation.id
                );
            }
        }
    }
}

/// EN-6.
#[test]
fn en_6_permissions_and_bundles_are_in_the_document() {
    let document = api::engine::document();
    let permissions = document["x-svc-permissions"].as_object().unwrap();
    let bundles = document["x-svc-use-case-permissions"].as_object().unwrap();
    assert_eq!(bundles.len(), ENGINE_BUNDLES.len());
    for (bundle, names) in bundles {
        for name in names.as_array().unwrap() {
            assert!(permissions.contains_key(name.as_str().unwrap()), "{bundle}");
        }
    }
    assert!(permissions.keys().all(|name| !name.starts_with("account.")));
}

#[test]
fn every_reference_resolves() {
    let document = api::engine::document();
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

#[test]
fn the_schemas_that_the_sdks_use_exist() {
    let document = api::engine::document();
    let components = &document["components"];
    for name in [
        "Client",
        "Event",
        "ListClientsParams",
        "ListTunnelsParams",
        "TunnelListItem",
        "WatchParams",
    ] {
        assert!(components["schemas"][name].is_object(), "{name}");
    }
    for name in ["ListClientsParams", "ListTunnelsParams", "WatchParams"] {
        assert_eq!(components["parameters"][name]["name"], "params");
        assert!(components["parameters"][name]["content"]["application/json"].is_object());
    }
    for name in ["BadRequest", "Unauthorized", "Forbidden"] {
        assert!(components["responses"][name]["content"]["application/problem+json"].is_object());
    }
}

fn grants(permission: Permission, rule: &Value) -> bool {
    permission.rules().iter().any(|held| {
        rule["resource"] == held.resource
            && held.actions.iter().any(|action| rule["action"] == *action)
    })
}

fn collect<'a>(value: &'a Value, references: &mut Vec<&'a str>) {
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                match member {
                    Value::String(reference) if name == "$ref" => references.push(reference),
                    other => collect(other, references),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        _ => {}
    }
}
