//! Parts that both OpenAPI documents have.

use serde_json::{Map, Value, json};
use types::permission::{Bundle, Permission};
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::{Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::response::Response;
use utoipa::openapi::schema::{ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, Content, InfoBuilder, LicenseBuilder, OpenApiBuilder, PathsBuilder, Ref,
    Required, ResponseBuilder, Server,
};

use crate::order::sorted;

/// Builds a document from its parts.
pub(crate) fn assemble(
    title: &str,
    description: &str,
    paths: PathsBuilder,
    components: ComponentsBuilder,
    extensions: Extensions,
) -> Value {
    let info = InfoBuilder::new()
        .title(title)
        .version("1.0.0")
        .description(Some(description))
        .license(Some(
            LicenseBuilder::new()
                .name("Apache-2.0")
                .identifier(Some("Apache-2.0"))
                .build(),
        ));
    let mut document = OpenApiBuilder::new()
        .info(info.build())
        .servers(Some([Server::new("/")]))
        .paths(paths.build())
        .components(Some(components.build()))
        .build();
    document.extensions = Some(extensions);
    // The document consists of strings, numbers and maps with string keys, so it always serialises.
    let mut document = serde_json::to_value(&document).unwrap_or_default();
    name_constants(&mut document);
    sorted(document)
}

/// Adds names of the values of each enum, for generators. Go has one namespace for the constants of
/// a package, so the names start with that of the enum: several enums have a value `active`.
fn name_constants(document: &mut Value) {
    let schemas = document.pointer_mut("/components/schemas");
    for (name, schema) in schemas.and_then(Value::as_object_mut).into_iter().flatten() {
        let Some(values) = schema.get("enum").and_then(Value::as_array) else {
            continue;
        };
        let values = values.iter().filter_map(Value::as_str);
        let names: Vec<_> = values.map(|value| constant(name, value)).collect();
        if let Some(members) = schema.as_object_mut() {
            members.insert(CONSTANT_NAMES.to_owned(), names.into());
        }
    }
}

/// `CredentialKind` and `pat` as `CREDENTIAL_KIND_PAT`.
fn constant(name: &str, value: &str) -> String {
    let mut constant = String::with_capacity(name.len() + value.len() + 4);
    for letter in name.chars() {
        if letter.is_ascii_uppercase() && !constant.is_empty() {
            constant.push('_');
        }
        constant.push(letter.to_ascii_uppercase());
    }
    constant.push('_');
    let words = value.chars().map(|letter| match letter {
        'a'..='z' | 'A'..='Z' | '0'..='9' => letter.to_ascii_uppercase(),
        _ => '_',
    });
    constant.extend(words);
    constant
}

/// The extension that generators read.
const CONSTANT_NAMES: &str = "x-enum-varnames";

/// A document as the JSON text that is served and committed.
pub(crate) fn text(document: &Value) -> String {
    let mut text = serde_json::to_string_pretty(document).unwrap_or_default();
    text.push('\n');
    text
}

/// Tokens in the field `Authorization`.
pub(crate) fn bearer(description: &str) -> SecurityScheme {
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("JWT")
        .description(Some(description));
    SecurityScheme::Http(bearer.build())
}

/// The parameter names between braces, in order.
pub(crate) fn path_parameters(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

pub(crate) fn path_parameter(name: &str, description: Option<&str>) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(description)
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

/// An optional query parameter. Its schema or its content is still missing.
pub(crate) fn query_parameter(name: &str, description: &str) -> ParameterBuilder {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(description))
}

pub(crate) fn json_body(content: Content, is_required: bool) -> RequestBody {
    let required = if is_required {
        Required::True
    } else {
        Required::False
    };
    RequestBodyBuilder::new()
        .content("application/json", content)
        .required(Some(required))
        .build()
}

/// Content of a component schema.
pub(crate) fn of_schema(name: &str) -> Content {
    Content::new(Some(Ref::from_schema_name(name)))
}

/// An error response.
pub(crate) fn problem(description: &str) -> Response {
    ResponseBuilder::new()
        .description(description)
        .content(types::problem::MEDIA_TYPE, of_schema("Problem"))
        .build()
}

/// Extensions of one operation: its rules and its stability.
pub(crate) fn operation_extensions(rules: Value, is_stable: bool) -> Vec<(&'static str, Value)> {
    let stability = if is_stable { "stable" } else { "preview" };
    vec![
        ("x-svc-required-rules", rules),
        ("x-svc-stability", json!(stability)),
    ]
}

/// Extensions of a document: permissions with their rules, and bundles of permissions.
pub(crate) fn document_extensions<'a>(
    permissions: impl Iterator<Item = &'a Permission>,
    rules_of: impl Fn(&Permission) -> Value,
    bundles: &[Bundle],
) -> Vec<(&'static str, Value)> {
    let permissions: Map<_, _> = permissions
        .map(|permission| {
            let (name, description) = (permission.as_str(), permission.description());
            let rules = rules_of(permission);
            let entry = json!({"name": name, "description": description, "rules": rules});
            (name.to_owned(), entry)
        })
        .collect();
    let bundles: Map<_, _> = bundles
        .iter()
        .map(|bundle| (bundle.name.to_owned(), json!(bundle.permissions)))
        .collect();
    vec![
        ("x-svc-permissions", Value::Object(permissions)),
        ("x-svc-use-case-permissions", Value::Object(bundles)),
    ]
}
