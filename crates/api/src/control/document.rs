//! Builds the OpenAPI document from the operations and the schemas.

use serde_json::{Value, json};
use types::permission::{CONTROL_PLANE_BUNDLES, Permission, Rule};
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, Parameter, PathItem};
use utoipa::openapi::schema::{KnownFormat, ObjectBuilder, SchemaFormat, Type};
use utoipa::openapi::security::{ApiKey, ApiKeyValue, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, ContentBuilder, PathsBuilder, Ref, Required, ResponseBuilder,
};

use super::operation::{Body, Method, Operation, Shape};
use super::{Access, operations, schemas};
use crate::openapi::{self, of_schema, problem};

pub(super) fn assemble() -> Value {
    let mut paths = PathsBuilder::new();
    for operation in operations() {
        let item = PathItem::new(method(operation.method), describe(operation));
        paths = paths.path(operation.path, item);
    }
    openapi::assemble(
        "Control plane API",
        "Workspaces, tunnel projects, plans, credentials and TURN credentials.",
        paths,
        components(),
        document_extensions(),
    )
}

const BEARER: &str = "bearerAuth";
const SESSION: &str = "sessionCookie";

fn components() -> ComponentsBuilder {
    let bearer = openapi::bearer(
        "A personal access token, an application token or a delegated token that has the \
         permission of the operation. If it is present, only it is checked.",
    );
    let session = ApiKeyValue::with_description(
        "__Host-svc_session",
        "A user's session. Requests that change something must come from this origin.",
    );
    let mut components = ComponentsBuilder::new()
        .security_scheme(BEARER, bearer)
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
    for name in openapi::path_parameters(operation.path) {
        builder = builder.parameter(openapi::path_parameter(name, None));
    }
    for parameter in operation.query {
        builder = builder.parameter(query_parameter(parameter));
    }
    if let Some(body) = operation.body {
        builder = builder.request_body(Some(request_body(body)));
    }
    let mut answer = ResponseBuilder::new().description(phrase(operation.answer.status));
    if let Some((media_type, schema)) = operation.answer.content {
        answer = answer.content(media_type, of_schema(schema));
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
    openapi::json_body(content, body.required)
}

fn query_parameter(parameter: &super::Parameter) -> Parameter {
    let text = ObjectBuilder::new().schema_type(Type::String);
    let schema = match parameter.shape {
        Shape::Text => text,
        Shape::OneOf(values) => text.enum_values(Some(values.iter().copied())),
        Shape::Time => text.format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime))),
        Shape::Integer {
            least,
            most,
            default,
        } => ObjectBuilder::new()
            .schema_type(Type::Integer)
            .minimum(Some(least))
            .maximum(Some(most))
            .default(Some(default.into())),
    };
    let required = if parameter.is_required {
        Required::True
    } else {
        Required::False
    };
    openapi::query_parameter(parameter.name, parameter.description)
        .required(required)
        .schema(Some(schema))
        .build()
}

fn operation_extensions(operation: &Operation) -> Extensions {
    let rules = match operation.access {
        Access::Public | Access::Authenticated => &[],
        Access::Permitted(_, rules) | Access::Operator(rules) => rules,
    };
    let rules = rules.iter().flat_map(each_action).collect();
    openapi::operation_extensions(rules, operation.stable)
        .into_iter()
        .collect()
}

fn document_extensions() -> Extensions {
    let rules_of =
        |permission: &Permission| permission.rules().iter().flat_map(each_action).collect();
    openapi::document_extensions(Permission::ALL.iter(), rules_of, CONTROL_PLANE_BUNDLES)
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
