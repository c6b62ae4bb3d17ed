//! CP-7: the code generates exactly `openapi/control-plane.json`.

use std::collections::BTreeSet;
use std::path::Path;

use api::control::{Access, operations};
use serde_json::{Value, json};
use types::permission::{CONTROL_PLANE_BUNDLES, Permission};

/// With `UPDATE_OPENAPI=1` in the environment the test writes the file instead of comparing it.
/// CP-7.
#[test]
fn cp_7_the_committed_document_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../openapi/control-plane.json");
    let current = api::control::document_json();
    if std::env::var_os("UPDATE_OPENAPI").is_some() {
        std::fs::write(&path, &current).unwrap();
    }
    let committed = std::fs::read_to_string(&path).unwrap();
    assert!(
        committed == current,
        "openapi/control-plane.json is stale: UPDATE_OPENAPI=1 cargo test -p api, and look at the difference"
    );
    assert_eq!(current, api::control::document_json());
}

/// CP-7: every operation documents its requirements, which match its permission.
#[test]
fn cp_7_every_operation_carries_its_rules() {
    let document = api::control::document();
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for operation in operations() {
        let method = format!("{:?}", operation.method).to_lowercase();
        let described = &document["paths"][operation.path][method];
        assert_eq!(described["operationId"], operation.id);
        assert!(ids.insert(operation.id), "{} is there twice", operation.id);
        let rules = described["x-svc-required-rules"].as_array().unwrap();
        match operation.access {
            Access::Public => {
                assert_eq!(described["security"], json!([]), "{}", operation.id);
                assert!(rules.is_empty(), "{}", operation.id);
            }
            Access::Authenticated => {
                assert!(rules.is_empty() && described["responses"]["401"].is_object());
            }
            Access::Operator(_) => {
                assert!(!rules.is_empty(), "{}", operation.id);
                for rule in rules {
                    assert_eq!(rule["resource"], "operator", "{}", operation.id);
                    let given = Permission::ALL.iter().any(|held| grants(*held, rule));
                    assert!(!given, "{}", operation.id);
                }
                for status in ["401", "404"] {
                    assert!(
                        described["responses"][status].is_object(),
                        "{}",
                        operation.id
                    );
                }
            }
            Access::Permitted(permission, _) => {
                assert!(!rules.is_empty(), "{}", operation.id);
                assert!(
                    rules.iter().all(|rule| grants(permission, rule)),
                    "{}",
                    operation.id
                );
                for status in ["401", "403"] {
                    assert!(
                        described["responses"][status].is_object(),
                        "{}",
                        operation.id
                    );
                }
            }
        }
        // An object named in a path may not exist, and a body may be malformed.
        if operation.path.contains('{') {
            assert!(
                described["responses"]["404"].is_object(),
                "{}",
                operation.id
            );
        }
        if operation.body.is_some() || !operation.query.is_empty() {
            assert!(
                described["responses"]["400"].is_object(),
                "{}",
                operation.id
            );
        }
    }
}

/// CP-7, CP-14.
#[test]
fn cp_7_permissions_and_bundles_are_in_the_document() {
    let document = api::control::document();
    let permissions = document["x-svc-permissions"].as_object().unwrap();
    assert_eq!(permissions.len(), Permission::ALL.len());
    let bundles = document["x-svc-use-case-permissions"].as_object().unwrap();
    assert_eq!(bundles.len(), CONTROL_PLANE_BUNDLES.len());
    for (bundle, names) in bundles {
        for name in names.as_array().unwrap() {
            assert!(permissions.contains_key(name.as_str().unwrap()), "{bundle}");
        }
    }
}

#[test]
fn every_reference_of_the_control_plane_resolves() {
    let document = api::control::document();
    let mut references = Vec::new();
    collect(&document, &mut references);
    assert!(!references.is_empty());
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
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
            references.extend(members.get("$ref").and_then(Value::as_str));
            members
                .values()
                .for_each(|member| collect(member, references));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, references)),
        _ => {}
    }
}
