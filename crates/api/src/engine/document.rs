//! Builds the OpenAPI document from [`OPERATIONS`] and the schemas.

use serde_json::{Value, json};
use types::permission::{ENGINE_BUNDLES, Permission, Rule};
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::{HttpMethod, OperationBuilder, Parameter, PathItem};
use utoipa::openapi::response::Response;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Type};
use utoipa::openapi::security::SecurityRequirement;
use utoipa::openapi::{ComponentsBuilder, Content, PathsBuilder, Ref, ResponseBuilder};

use super::operation::{self, Shape, SuccessResponse};
use super::{Access, Method, OPERATIONS, Operation, SSE, TUNNEL, TUNNELS, WEBSOCKET, schemas};
use crate::openapi::{self, of_schema, problem};

pub(super) fn assemble() -> Value {
    let mut paths = PathsBuilder::new();
    for operation in OPERATIONS {
        let item = PathItem::new(operation.method.into(), describe(operation));
        paths = paths.path(operation.path, item);
    }
    openapi::assemble(
        "Engine API",
        "Live clients, tunnels and events of one tunnel project.",
        paths,
        components(),
        document_extensions(),
    )
}

const BEARER: &str = "bearerAuth";

fn components() -> ComponentsBuilder {
    let bearer = openapi::bearer("A token of any type that has the permission of the operation.");
    // The published clients look these parameters up by name. The operations contain them, because
    // some generators leave out an operation with a reference to a parameter that has no `schema`.
    let mut components = ComponentsBuilder::new()
        .security_scheme(BEARER, bearer)
        .parameter(schemas::LIST_CLIENTS, params(schemas::LIST_CLIENTS))
        .parameter(schemas::LIST_TUNNELS, params(schemas::LIST_TUNNELS))
        .parameter(schemas::WATCH, params(schemas::WATCH));
    for (_, name, description) in REFUSALS {
        components = components.response(*name, problem(description));
    }
    for (name, schema) in schemas::all() {
        components = components.schema(name, schema);
    }
    components
}

fn describe(operation: &Operation) -> utoipa::openapi::path::Operation {
    let mut builder = OperationBuilder::new()
        .operation_id(Some(operation.id))
        .summary(Some(operation.summary))
        .description(operation.description)
        .extensions(Some(operation_extensions(operation)));
    for name in openapi::path_parameters(operation.path) {
        let description = match name {
            "participant_id" => "Id of the participant.",
            "request_id" => "Id of the request.",
            _ if operation.path == TUNNEL => "Id of the tunnel.",
            _ => "Id of the session or group.",
        };
        builder = builder.parameter(openapi::path_parameter(name, Some(description)));
    }
    for parameter in operation.query {
        builder = query_parameter(builder, parameter);
    }
    if let Some((schema, is_required)) = operation.body {
        let body = openapi::json_body(of_schema(schema), is_required);
        builder = builder.request_body(Some(body));
    }
    let status = operation.answer.status.to_string();
    builder = builder.response(status, answer(operation.answer));
    if operation.path.contains('{') {
        builder = refusals(builder, &[404]);
    }
    security(refusals(builder, operation.refusals), operation.access).build()
}

fn query_parameter(
    builder: OperationBuilder,
    parameter: &operation::Parameter,
) -> OperationBuilder {
    let object = ObjectBuilder::new;
    let parameter = match *parameter {
        operation::Parameter::Params(schema) => params(schema),
        operation::Parameter::WatchToken => openapi::query_parameter(
            "svc.token",
            "A watch token, for browsers that cannot set headers: of type `auth` or `app`, valid \
             for at most one more hour, that may only list. If it is present, only it is checked.",
        )
        .schema(Some(object().schema_type(Type::String)))
        .build(),
        operation::Parameter::Plain(name, description, shape) => {
            let schema = match shape {
                Shape::OneOf(words) => object()
                    .schema_type(Type::String)
                    .enum_values(Some(words.iter().copied())),
                Shape::Number => object().schema_type(Type::Integer).minimum(Some(0)),
                Shape::Switch => object().schema_type(Type::Boolean),
            };
            openapi::query_parameter(name, description)
                .schema(Some(schema))
                .build()
        }
    };
    builder.parameter(parameter)
}

/// `params`: one query parameter with a JSON value.
fn params(schema: &str) -> Parameter {
    let description = "A JSON object. Unknown keys are refused by name.";
    openapi::query_parameter("params", description)
        .content("application/json", of_schema(schema))
        .build()
}

fn answer(answer: SuccessResponse) -> Response {
    let response = ResponseBuilder::new().description(answer.description);
    let response = match answer.content {
        operation::Content::Empty => response,
        operation::Content::Object(schema) => {
            response.content("application/json", of_schema(schema))
        }
        operation::Content::List(schema) => {
            let items = ArrayBuilder::new().items(Ref::from_schema_name(schema));
            response.content("application/json", Content::new(Some(items)))
        }
        operation::Content::AnyObject(media_type) => {
            let object = ObjectBuilder::new().schema_type(Type::Object);
            response.content(media_type, Content::new(Some(object)))
        }
        operation::Content::Text(media_types) => {
            media_types.iter().fold(response, |response, media_type| {
                let text = ObjectBuilder::new().schema_type(Type::String);
                response.content(*media_type, Content::new(Some(text)))
            })
        }
    };
    response.build()
}

/// The security requirement and the error responses that follow from it.
fn security(builder: OperationBuilder, access: Access) -> OperationBuilder {
    let bearer = |scopes: &[&str]| SecurityRequirement::new(BEARER, scopes.iter().copied());
    match access {
        // The list is empty instead of absent: the operation needs no credential, even if the
        // document sets a default elsewhere.
        Access::Public => builder.securities(Some(Vec::new())),
        // The grant is inside the stream; a bearer token is optional.
        Access::Granted => builder.securities(Some([SecurityRequirement::default(), bearer(&[])])),
        Access::Authenticated => refusals(builder.security(bearer(&[])), &[401]),
        Access::Permitted(permission, _) => {
            let bearer = bearer(&[permission.as_str()]);
            refusals(builder.security(bearer), &[400, 401, 403])
        }
    }
}

fn refusals(builder: OperationBuilder, statuses: &[u16]) -> OperationBuilder {
    let known = REFUSALS
        .iter()
        .filter(|(status, ..)| statuses.contains(status));
    known.fold(builder, |builder, (status, name, _)| {
        builder.response(status.to_string(), Ref::from_response_name(*name))
    })
}

fn operation_extensions(operation: &Operation) -> Extensions {
    let rules = match operation.access {
        Access::Public | Access::Authenticated | Access::Granted => &[],
        Access::Permitted(_, rules) => rules,
    };
    let rules = rules.iter().map(rule_json).collect();
    let mut extensions = openapi::operation_extensions(rules, operation.stable);
    let is_read = operation.method == Method::Get;
    if is_read && matches!(operation.path, TUNNELS | TUNNEL | SSE | WEBSOCKET) {
        extensions.push(("x-svc-token-metadata-scope", json!("tunnels.list")));
    }
    if matches!(operation.path, SSE | WEBSOCKET) {
        let schema = format!("#/components/schemas/{}", schemas::EVENT);
        extensions.push(("x-svc-event-schema", json!({"$ref": schema})));
    }
    extensions.into_iter().collect()
}

fn document_extensions() -> Extensions {
    let of_the_engine = |permission: &&Permission| {
        permission
            .rules()
            .iter()
            .all(|rule| rule.resource.starts_with("engine."))
    };
    let permissions = Permission::ALL.iter().filter(of_the_engine);
    let rules_of = |permission: &Permission| permission.rules().iter().map(rule_json).collect();
    let mut extensions = openapi::document_extensions(permissions, rules_of, ENGINE_BUNDLES);
    let selection = "Request the permissions of the one entry of x-svc-use-case-permissions that \
        fits the task.";
    extensions.push((
        "x-svc-agent-authentication",
        json!({"scope_selection": selection}),
    ));
    extensions.into_iter().collect()
}

/// A single action is written as a string, several as a list.
fn rule_json(rule: &Rule) -> Value {
    match rule.actions {
        [action] => json!({"resource": rule.resource, "action": action}),
        actions => json!({"resource": rule.resource, "action": actions}),
    }
}

impl From<Method> for HttpMethod {
    fn from(method: Method) -> Self {
        match method {
            Method::Get => Self::Get,
            Method::Post => Self::Post,
            Method::Delete => Self::Delete,
        }
    }
}

/// Error responses: status, name of the component, description.
const REFUSALS: &[(u16, &str, &str)] = &[
    (
        400,
        "BadRequest",
        "`params` is malformed or out of range; `field` names the field.",
    ),
    (
        401,
        "Unauthorized",
        "No credential, or one that is not valid on this engine.",
    ),
    (
        403,
        "Forbidden",
        "The credential lacks the permission, or its boundary does not include the project.",
    ),
    (
        409,
        "Conflict",
        "The current state does not allow it; `code` gives the reason.",
    ),
    (
        404,
        "NotFound",
        "Does not exist, or is not visible to this credential.",
    ),
    (
        426,
        "UpgradeRequired",
        "The request does not open a WebSocket.",
    ),
    (
        503,
        "ServiceUnavailable",
        "Temporarily not possible; `Retry-After` gives the time to wait.",
    ),
];
