//! The table of tools and their descriptions.

use std::collections::BTreeSet;

use mcp::{TOOLS, documents};
use serde_json::Value;

/// MC-3: each tool with title, hints, schemas and security scheme, one snapshot per tool.
#[test]
fn mc_3_every_tool_is_described() {
    for document in documents() {
        let name = document["name"].as_str().unwrap().to_owned();
        insta::assert_json_snapshot!(name, document);
    }
}

/// MC-2: exactly these two are anonymous.
#[test]
fn mc_2_two_tools_are_anonymous() {
    let anonymous: Vec<_> = TOOLS
        .iter()
        .filter(|tool| tool.scopes().is_none())
        .map(|tool| tool.name)
        .collect();
    assert_eq!(anonymous, ["svc_discovery", "svc_openapi"]);
}

#[test]
fn names_are_unique_and_short_enough_for_every_client() {
    let names: BTreeSet<_> = TOOLS.iter().map(|tool| tool.name).collect();
    assert_eq!(names.len(), TOOLS.len());
    for name in names {
        assert!(name.starts_with("svc_") && name.len() <= 48, "{name}");
        assert!(
            name.bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_'),
            "{name}"
        );
    }
}

#[test]
fn schemas_are_self_contained_objects() {
    for document in documents() {
        for schema in ["inputSchema", "outputSchema"] {
            let schema = &document[schema];
            assert_eq!(schema["type"], "object", "{}", document["name"]);
            let mut targets = Vec::new();
            references(schema, &mut targets);
            for target in targets {
                let pointer = target.strip_prefix('#').unwrap();
                assert!(
                    schema.pointer(pointer).is_some(),
                    "{}: {target}",
                    document["name"]
                );
            }
        }
        let properties = document["inputSchema"]["properties"].as_object().unwrap();
        for required in document["inputSchema"]["required"].as_array().unwrap() {
            assert!(
                properties.contains_key(required.as_str().unwrap()),
                "{document}"
            );
        }
    }
}

/// Every capability of the interface has a tool: each stable operation is behind one, except for
/// the documents, which `svc_openapi` and `svc_discovery` return.
#[test]
fn every_stable_operation_has_a_tool() {
    let behind: BTreeSet<_> = TOOLS.iter().flat_map(mcp::Tool::operation_ids).collect();
    for operation in api::control::operations().filter(|operation| operation.stable) {
        let is_document = matches!(operation.access, api::control::Access::Public);
        assert!(
            is_document || behind.contains(operation.id),
            "{}",
            operation.id
        );
    }
}

fn references(value: &Value, targets: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(target) = members.get("$ref").and_then(Value::as_str) {
                targets.push(target.to_owned());
            }
            members
                .values()
                .for_each(|member| references(member, targets));
        }
        Value::Array(items) => items.iter().for_each(|item| references(item, targets)),
        _ => {}
    }
}
