//! Properties of the schemas of both documents (CP-7, EN-6).

use std::collections::BTreeSet;

use serde_json::Value;

fn documents() -> [Value; 2] {
    [api::control::document(), api::engine::document()]
}

/// Names of the component schemas that a part of the document leads to.
fn reached(document: &Value, part: &Value) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    let mut waiting = vec![part];
    while let Some(part) = waiting.pop() {
        match part {
            Value::Object(members) => {
                let reference = members.get("$ref").and_then(Value::as_str);
                if let Some(reference) = reference {
                    let target = document.pointer(reference.strip_prefix('#').unwrap());
                    let name = reference.strip_prefix("#/components/schemas/");
                    if name.is_none_or(|name| names.insert(name.to_owned())) {
                        waiting.push(target.unwrap());
                    }
                }
                waiting.extend(members.values());
            }
            Value::Array(items) => waiting.extend(items),
            _ => {}
        }
    }
    names
}

/// The responses of every operation.
fn responses(document: &Value) -> Value {
    let paths = document["paths"].as_object().unwrap().values();
    let operations = paths.flat_map(|path| path.as_object().unwrap().values());
    operations
        .map(|operation| operation["responses"].clone())
        .collect()
}

/// A member of a response is required, or it is absent without a value. An optional member that can
/// be `null`, or that has a default, belongs to a request: the type writes it into every response.
#[test]
fn an_optional_member_of_a_response_is_absent_without_a_value() {
    for document in documents() {
        let names = reached(&document, &responses(&document));
        assert!(names.len() > 20, "{names:?}");
        for name in names {
            let schema = &document["components"]["schemas"][&name];
            let Some(members) = schema["properties"].as_object() else {
                continue;
            };
            let required = schema["required"].as_array().cloned().unwrap_or_default();
            for (member, schema) in members {
                if required.iter().any(|one| one == member) {
                    continue;
                }
                let kinds = [&schema["type"], &schema["oneOf"], &schema["anyOf"]];
                let may_be_null = kinds
                    .iter()
                    .any(|kind| kind.to_string().contains("\"null\""));
                assert!(!may_be_null, "{name}.{member} is optional and may be null");
                let default = schema.get("default");
                assert_eq!(
                    default, None,
                    "{name}.{member} is optional and has a default"
                );
            }
        }
    }
}

/// Constants of all enums share a namespace in Go.
#[test]
fn constants_of_enums_have_unique_names() {
    for document in documents() {
        let mut all = BTreeSet::new();
        let schemas = document["components"]["schemas"].as_object().unwrap();
        for (name, schema) in schemas {
            let Some(values) = schema.get("enum").and_then(Value::as_array) else {
                continue;
            };
            let constants = schema["x-enum-varnames"].as_array().unwrap();
            assert_eq!(constants.len(), values.len(), "{name}");
            for constant in constants {
                assert!(
                    all.insert(constant.as_str().unwrap().to_owned()),
                    "{constant}"
                );
            }
        }
        assert!(all.contains("TLS_VERSION_TLS1_3") || all.contains("CREDENTIAL_KIND_PAT"));
    }
}
