//! Input and output schemas, derived from the document of the API.

use std::collections::{BTreeSet, HashMap};
use std::sync::LazyLock;

use api::control::{Operation, Shape};
use serde_json::{Map, Value, json};

use crate::tools::{Call, TOOLS, Tool};

/// An argument of a tool, and its place in the request.
#[derive(Debug, Clone)]
pub(crate) struct Argument {
    /// Name among the arguments, in `snake_case`.
    pub(crate) name: String,
    /// Place and name in the request.
    pub(crate) place: ArgumentPlace,
    pub(crate) required: bool,
    schema: Value,
}

/// Place of an argument in the request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ArgumentPlace {
    /// In the path, replacing `{name}`.
    Path(String),
    /// In the query.
    Query(String),
    /// A member of the body.
    Member(String),
    /// The whole body.
    Body,
}

/// The arguments of a tool for one of its operations. They are cached because each call needs them.
pub(crate) fn arguments(tool: &Tool, operation: &Operation) -> &'static [Argument] {
    static ALL: LazyLock<HashMap<(&str, &str), Vec<Argument>>> = LazyLock::new(|| {
        let pairs = TOOLS.iter().flat_map(|tool| {
            let operations = tool.operations().into_iter();
            operations.map(move |operation| (tool, operation))
        });
        pairs
            .map(|(tool, operation)| ((tool.name, operation.id), build_arguments(tool, operation)))
            .collect()
    });
    let known = ALL.get(&(tool.name, operation.id));
    known.map(Vec::as_slice).unwrap_or_default()
}

fn build_arguments(tool: &Tool, operation: &Operation) -> Vec<Argument> {
    let mut arguments = Vec::new();
    for name in path_parameters(operation.path) {
        arguments.push(Argument {
            name: name.to_owned(),
            place: ArgumentPlace::Path(name.to_owned()),
            required: true,
            schema: json!({"type": "string", "minLength": 1, "maxLength": 128}),
        });
    }
    for parameter in operation.query {
        let about = parameter.description;
        let schema = match parameter.shape {
            Shape::Text => json!({"description": about, "type": "string"}),
            Shape::OneOf(values) => {
                json!({"description": about, "type": "string", "enum": values})
            }
            Shape::Integer {
                least,
                most,
                default,
            } => json!({
                "description": about, "type": "integer",
                "minimum": least, "maximum": most, "default": default,
            }),
            Shape::Time => json!({"description": about, "type": "string", "format": "date-time"}),
        };
        arguments.push(Argument {
            name: snake(parameter.name),
            place: ArgumentPlace::Query(parameter.name.to_owned()),
            required: parameter.is_required,
            schema,
        });
    }
    let Some(body) = operation.body else {
        return arguments;
    };
    if let Call::WithBody(_, name) = tool.call {
        arguments.push(Argument {
            name: name.to_owned(),
            place: ArgumentPlace::Body,
            required: body.required,
            schema: reference(body.schema),
        });
        return arguments;
    }
    let schema = component(&CONTROL_PLANE, body.schema);
    let required = names(schema.get("required"));
    let members = schema.get("properties").and_then(Value::as_object);
    for (member, schema) in members.into_iter().flatten() {
        arguments.push(Argument {
            name: snake(member),
            place: ArgumentPlace::Member(member.clone()),
            required: required.contains(member.as_str()),
            schema: schema.clone(),
        });
    }
    if matches!(tool.call, Call::CreateProject) {
        for argument in &mut arguments {
            if argument.place == ArgumentPlace::Member("idempotencyKey".to_owned()) {
                argument.required = false;
            }
        }
    }
    arguments
}

/// Input schema of a tool.
pub(crate) fn input(tool: &Tool) -> Value {
    match tool.call {
        Call::Live(list) => return list.input(),
        Call::LiveObject(object) => return object.input(),
        Call::Terminal(tool) => return tool.input(),
        _ => {}
    }
    let mut properties = Map::new();
    let mut required: Option<BTreeSet<String>> = None;
    for operation in tool.operations() {
        let mut needed = BTreeSet::new();
        for argument in arguments(tool, operation) {
            if argument.required {
                needed.insert(argument.name.clone());
            }
            properties.insert(argument.name.clone(), argument.schema.clone());
        }
        // With two operations, only arguments that both require are required. The other arguments
        // decide between them.
        required = Some(match required {
            None => needed,
            Some(others) => others.intersection(&needed).cloned().collect(),
        });
    }
    let mut required = required.unwrap_or_default();
    match tool.call {
        Call::CreateProject => {
            properties.insert(CONFIRMED.to_owned(), confirmed("creation_fingerprint"));
            required.insert(CONFIRMED.to_owned());
        }
        Call::ChangePlan => {
            properties.insert(CONFIRMED.to_owned(), confirmed("change_fingerprint"));
            required.insert(CONFIRMED.to_owned());
        }
        Call::OpenApi => {
            properties.insert("document".to_owned(), which_document());
            properties.insert("operation_id".to_owned(), which_operation());
        }
        _ => {}
    }
    with_definitions(json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    }))
}

/// Schema of a tool's structured content.
pub(crate) fn output(tool: &Tool) -> Value {
    match tool.call {
        Call::Live(list) => return list.output(),
        Call::LiveObject(_) => return done(),
        Call::Terminal(tool) => return (tool.output)(),
        _ => {}
    }
    let answer = tool.operations().first().map(|operation| operation.answer);
    match answer.map(|answer| answer.content) {
        Some(Some((_, schema))) => with_definitions(json!({
            "type": "object",
            "allOf": [reference(schema)],
        })),
        Some(None) => done(),
        None if matches!(tool.call, Call::OpenApi) => json!({
            "type": "object",
            "properties": {
                "operations": {
                    "type": "array",
                    "description": "The operations of the document.",
                    "items": {"type": "object"},
                },
                "operation": {"type": "object", "description": "The requested operation."},
                "components": {"type": "object", "description": "The schemas that the operation refers to."},
            },
        }),
        None => json!({
            "type": "object",
            "properties": {
                "service": {"type": "string"},
                "summary": {"type": "string"},
                "resource": {
                    "type": "string",
                    "description": "What access tokens are for (RFC 8707).",
                },
                "authorization": {"type": "object"},
                "tools": {"type": "array", "items": {"type": "object"}},
                "permissions": {"type": "object"},
                "bundles": {"type": "array", "items": {"type": "object"}},
            },
            "required": ["service", "summary", "resource", "authorization", "tools", "permissions", "bundles"],
        }),
    }
}

/// Content of a tool whose operation has no response body.
fn done() -> Value {
    json!({
        "type": "object",
        "properties": {"done": {"type": "boolean", "const": true}},
        "required": ["done"],
    })
}

/// The argument that confirms a cost.
pub(crate) const CONFIRMED: &str = "confirmed";

fn confirmed(fingerprint: &str) -> Value {
    let description = format!(
        "True only after the user has seen the billing impact of this {fingerprint} and agreed to it."
    );
    json!({"type": "boolean", "description": description})
}

fn which_document() -> Value {
    json!({
        "type": "string",
        "enum": ["control-plane", "engine"],
        "description": "Which document; control-plane if absent.",
    })
}

fn which_operation() -> Value {
    json!({
        "type": "string",
        "maxLength": 128,
        "description": "The operation to describe; absent: a list of all operations.",
    })
}

/// The document of the control plane.
pub(crate) static CONTROL_PLANE: LazyLock<Value> = LazyLock::new(api::control::document);
/// The document of the engine.
pub(crate) static ENGINE: LazyLock<Value> = LazyLock::new(api::engine::document);

fn component<'a>(document: &'a Value, name: &str) -> &'a Value {
    document
        .pointer(&format!("/components/schemas/{name}"))
        .unwrap_or(&Value::Null)
}

/// A placeholder that [`of_engine`] replaces by the component of this name.
pub(crate) fn reference(schema: &str) -> Value {
    json!({"$ref": format!("{IN_DOCUMENT}{schema}")})
}

/// A self-contained schema that refers to components of the engine's document.
pub(crate) fn of_engine(schema: Value) -> Value {
    with_definitions_of(&ENGINE, schema)
}

fn with_definitions(schema: Value) -> Value {
    with_definitions_of(&CONTROL_PLANE, schema)
}

/// A self-contained schema: the referenced components are added under `$defs`.
fn with_definitions_of(document: &Value, mut schema: Value) -> Value {
    let mut definitions = Map::new();
    let mut waiting = Vec::new();
    relocate(&mut schema, &mut waiting);
    while let Some(name) = waiting.pop() {
        if definitions.contains_key(&name) {
            continue;
        }
        let mut definition = component(document, &name).clone();
        relocate(&mut definition, &mut waiting);
        definitions.insert(name, definition);
    }
    if let Value::Object(members) = &mut schema
        && !definitions.is_empty()
    {
        members.insert("$defs".to_owned(), Value::Object(definitions));
    }
    schema
}

/// Rewrites references to `$defs`, and collects their names. Names of constants, which only
/// generators of code read, are removed.
fn relocate(value: &mut Value, names: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.remove("x-enum-varnames");
            if let Some(Value::String(target)) = members.get_mut("$ref")
                && let Some(name) = target.strip_prefix(IN_DOCUMENT)
            {
                names.push(name.to_owned());
                *target = format!("#/$defs/{name}");
            }
            for member in members.values_mut() {
                relocate(member, names);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| relocate(item, names)),
        _ => {}
    }
}

const IN_DOCUMENT: &str = "#/components/schemas/";

fn names(list: Option<&Value>) -> BTreeSet<&str> {
    let names = list.and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).collect()
}

/// The names between braces, in order.
fn path_parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

/// `creationFingerprint` as `creation_fingerprint`.
pub(crate) fn snake(camel: &str) -> String {
    let mut snake = String::with_capacity(camel.len() + 4);
    for letter in camel.chars() {
        if letter.is_ascii_uppercase() {
            snake.push('_');
        }
        snake.push(letter.to_ascii_lowercase());
    }
    snake
}
