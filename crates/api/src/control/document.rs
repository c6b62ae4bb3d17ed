//! Builds the OpenAPI document from the operations and the schemas.

use serde_json::{Value, json};
use types::permission::{CONTROL_PLANE_BUNDLES, Permission, Rule};
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::{
    HttpMethod, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem,
};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::response::Response;
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::security::{
    ApiKey, ApiKeyValue, HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme,
};
use utoipa::openapi::{
    ComponentsBuilder, Content, ContentBuilder, InfoBuilder, LicenseBuilder, OpenApiBuilder,
    PathsBuilder, Ref, Required, ResponseBuilder, Server,
};

use super::operation::{Body, Method, Operation, Shape};
use super::{Access, operations, schemas};
use crate::order::sorted;

pub(super) fn assemble() -> Value {
    let mut paths = PathsBuilder::new();
    for operation in operations() {
        let item = PathItem::new(method(operation.method), describe(operation));
        paths = paths.path(operation.path, item);
    }
    let info = InfoBuilder::new()
        .title("Control plane API")
        .version("1.0.0")
        .description(Some(
            "Workspaces, tunnel projects, plans, credentials and TURN credentials.",
        ))
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
        .components(Some(components().build()))
        .build();
    document.extensions = Some(document_extensions());
    // The document consists of strings, numbers and maps with string keys, so it always serialises.
    sorted(serde_json::to_value(&document).unwrap_or_default())
}

const BEARER: &str = "bearerAuth";
const SESSION: &str = "sessionCookie";

fn components() -> ComponentsBuilder {
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("JWT")
        .description(Some(
            "A personal access token, an application token or a delegated token that has the \
             permission of the operation. If it is present, only it is checked.",
        ));
    let session = ApiKeyValue::with_description(
        "__Host-svc_session",
        "A user's session. Requests that change something must come from this origin.",
    );
    let mut components = ComponentsBuilder::new()
        .security_scheme(BEARER, SecurityScheme::Http(bearer.build()))
        .security_scheme(SESSION, SecurityScheme::ApiKey(ApiKey::Cookie(session)));
    let is_used = |status| operations().any(|one| one.every_refusal().contains(status));
    for (status, name, description) in REFUSALS.iter().filter(|(status, ..)| is_used(status)) {
        let response = if *status == 304 {
            ResponseBuilder::new().description(*description).build()
        } else {
            problem(description)
        };
        components = components.response(*name, response);
    }
    for (name, schema) in schemas() {
        components = components.schema(name, schema);
    }
    components
}

fn describe(operation: &Operation) -> utoipa::openapi::path::Operation {
    let mut builder = OperationBuilder::new()
        .operation_id(Some(operation.id))
        .summary(Some(operation.summary))
        .extensions(Some(operation_extensions(operation)));
    for name in path_parameters(operation.path) {
        builder = builder.parameter(path_parameter(name));
    }
    for parameter in operation.query {
        builder = builder.parameter(query_parameter(parameter));
    }
    if let Some(body) = operation.body {
        builder = builder.request_body(Some(request_body(body)));
    }
    let mut answer = ResponseBuilder::new().description(phrase(operation.answer.status));
    if let Some((media_type, schema)) = operation.answer.content {
        answer = answer.content(
            media_type,
            Content::new(Some(Ref::from_schema_name(schema))),
        );
    }
    builder = builder.response(operation.answer.status.to_string(), answer);
    for status in operation.every_refusal() {
        if let Some((_, name, _)) = REFUSALS.iter().find(|(known, ..)| *known == status) {
            builder = builder.response(status.to_string(), Ref::from_response_name(*name));
        }
    }
    security(builder, operation).build()
}

fn security(builder: OperationBuilder, operation: &Operation) -> OperationBuilder {
    let scopes: &[&str] = match operation.access {
        // The list is empty instead of absent: the operation needs no credential, even if the
        // document sets a default elsewhere.
        Access::Public => return builder.securities(Some(Vec::new())),
        Access::Authenticated | Access::Operator(_) => &[],
        Access::Permitted(permission, _) => &[permission.as_str()],
    };
    builder
        .security(SecurityRequirement::new(BEARER, scopes.iter().copied()))
        .security(SecurityRequirement::new(SESSION, scopes.iter().copied()))
}

fn request_body(body: Body) -> utoipa::openapi::request_body::RequestBody {
    let content = ContentBuilder::new()
        .schema(Some(Ref::from_schema_name(body.schema)))
        .example(Some((body.example)()))
        .build();
    let required = if body.required {
        Required::True
    } else {
        Required::False
    };
    RequestBodyBuilder::new()
        .content("application/json", content)
        .required(Some(required))
        .build()
}

/// The parameter names between braces, in order.
fn path_parameters(path: &'static str) -> impl Iterator<Item = &'static str> {
    path.split('/')
        .filter_map(|part| part.strip_prefix('{')?.strip_suffix('}'))
}

fn path_parameter(name: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

fn query_parameter(parameter: &super::Parameter) -> Parameter {
    let text = ObjectBuilder::new().schema_type(Type::String);
    let schema = match parameter.shape {
        Shape::Text => text,
        Shape::OneOf(values) => text.enum_values(Some(values.iter().copied())),
        Shape::Time => text.format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))),
        Shape::Integer(least, most) => ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(least))
            .maximum(Some(most)),
    };
    ParameterBuilder::new()
        .name(parameter.name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(parameter.description))
        .schema(Some(schema))
        .build()
}

fn operation_extensions(operation: &Operation) -> Extensions {
    let rules = match operation.access {
        Access::Public | Access::Authenticated => &[],
        Access::Permitted(_, rules) | Access::Operator(rules) => rules,
    };
    let stability = if operation.stable {
        "stable"
    } else {
        "preview"
    };
    [
        (
            "x-svc-required-rules",
            rules.iter().flat_map(each_action).collect(),
        ),
        ("x-svc-stability", json!(stability)),
    ]
    .into_iter()
    .collect()
}

fn document_extensions() -> Extensions {
    let permissions: serde_json::Map<_, _> = Permission::ALL
        .iter()
        .map(|permission| {
            let rules: Value = permission.rules().iter().flat_map(each_action).collect();
            let description = permission.description();
            let entry =
                json!({"name": permission.as_str(), "description": description, "rules": rules});
            (permission.as_str().to_owned(), entry)
        })
        .collect();
    let bundles: serde_json::Map<_, _> = CONTROL_PLANE_BUNDLES
        .iter()
        .map(|bundle| (bundle.name.to_owned(), json!(bundle.permissions)))
        .collect();
    [
        ("x-svc-permissions", Value::Object(permissions)),
        ("x-svc-use-case-permissions", Value::Object(bundles)),
    ]
    .into_iter()
    .collect()
}

/// `{resource, action}` for each action of a rule.
fn each_action(rule: &Rule) -> impl Iterator<Item = Value> {
    let resource = rule.resource;
    rule.actions
        .iter()
        .map(move |action| json!({"resource": resource, "action": action}))
}

fn problem(description: &str) -> Response {
    ResponseBuilder::new()
        .description(description)
        .content(
            types::problem::MEDIA_TYPE,
            Content::new(Some(Ref::from_schema_name("Problem"))),
        )
        .build()
}

fn method(method: Method) -> HttpMethod {
    match method {
        Method::Get => HttpMethod::Get,
        Method::Head => HttpMethod::Head,
        Method::Post => HttpMethod::Post,
        Method::Put => HttpMethod::Put,
        Method::Patch => HttpMethod::Patch,
        Method::Delete => HttpMethod::Delete,
    }
}

const fn phrase(status: u16) -> &'static str {
    match status {
        201 => "Created.",
        204 => "Done; the response has no content.",
        _ => "Successful.",
    }
}

/// Error responses: status, name of the component, description.
const REFUSALS: &[(u16, &str, &str)] = &[
    (
        304,
        "NotModified",
        "The current version matches `If-None-Match`.",
    ),
    (
        400,
        "BadRequest",
        "Malformed or out of range; `field` names the field.",
    ),
    (
        401,
        "Unauthorized",
        "No credential, or one that is not valid.",
    ),
    (
        402,
        "PaymentRequired",
        "A hosted step is required first; `url` is its address.",
    ),
    (
        403,
        "Forbidden",
        "The credential lacks the permission, the role or the boundary; `scope` names what is \
         missing.",
    ),
    (
        404,
        "NotFound",
        "Does not exist, or is not visible to this credential.",
    ),
    (409, "Conflict", "The current state does not allow it."),
    (413, "ContentTooLarge", "The body is too large."),
    (
        415,
        "UnsupportedMediaType",
        "The body is not declared as JSON.",
    ),
    (
        422,
        "IdempotencyKeyReused",
        "The idempotency key belongs to another request.",
    ),
    (
        429,
        "TooManyRequests",
        "Too many requests; `Retry-After` gives the time to wait.",
    ),
    (
        503,
        "Unavailable",
        "Temporarily not possible; `Retry-After` gives the time to wait.",
    ),
];
