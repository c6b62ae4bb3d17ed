//! Builds the OpenAPI document from [`OPERATIONS`] and the schemas.

use serde_json::{Value, json};
use types::permission::{ENGINE_BUNDLES, Permission, Rule};
use utoipa::openapi::extensions::Extensions;
use utoipa::openapi::path::{
    HttpMethod, OperationBuilder, Parameter, ParameterBuilder, ParameterIn, PathItem,
};
use utoipa::openapi::response::Response;
use utoipa::openapi::schema::{ArrayBuilder, ObjectBuilder, Type};
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityRequirement, SecurityScheme};
use utoipa::openapi::{
    ComponentsBuilder, Content, InfoBuilder, LicenseBuilder, OpenApiBuilder, PathsBuilder, Ref,
    Required, ResponseBuilder, Server,
};

use super::{
    AUTH, Access, CLIENTS, Method, OPENAPI, OPENAPI_MEDIA_TYPE, OPERATIONS, Operation, SSE, TUNNEL,
    TUNNELS, WEBSOCKET,
};
use super::{schemas, terminals};
use crate::order::sorted;

pub(super) fn assemble() -> Value {
    let mut paths = PathsBuilder::new();
    for operation in OPERATIONS {
        paths = paths.path(
            operation.path,
            PathItem::new(operation.method.into(), describe(operation)),
        );
    }
    let info = InfoBuilder::new()
        .title("Engine API")
        .version("1.0.0")
        .description(Some(
            "Live clients, tunnels and events of one tunnel project.",
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

fn components() -> ComponentsBuilder {
    let bearer = HttpBuilder::new()
        .scheme(HttpAuthScheme::Bearer)
        .bearer_format("JWT")
        .description(Some(
            "A token of any type that has the permission of the operation.",
        ));
    let mut components = ComponentsBuilder::new()
        .security_scheme("bearerAuth", SecurityScheme::Http(bearer.build()))
        .parameter(schemas::LIST_CLIENTS, params(schemas::LIST_CLIENTS))
        .parameter(schemas::LIST_TUNNELS, params(schemas::LIST_TUNNELS))
        .parameter(schemas::WATCH, params(schemas::WATCH));
    for (name, description) in REFUSALS {
        components = components.response(*name, problem(description));
    }
    for (name, schema) in schemas::all() {
        components = components.schema(name, schema);
    }
    components
}

/// `params`: one query parameter with a JSON value.
pub(super) fn params(schema: &str) -> Parameter {
    ParameterBuilder::new()
        .name("params")
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some("A JSON object. Unknown keys are refused by name."))
        .content(
            "application/json",
            Content::new(Some(Ref::from_schema_name(schema))),
        )
        .build()
}

fn describe(operation: &Operation) -> utoipa::openapi::path::Operation {
    let builder = OperationBuilder::new()
        .operation_id(Some(operation.id))
        .extensions(Some(operation_extensions(operation)));
    let builder = match operation.path {
        OPENAPI => builder.summary(Some("This document")).response(
            "200",
            ResponseBuilder::new()
                .description("The document.")
                .content(OPENAPI_MEDIA_TYPE, any_object()),
        ),
        CLIENTS => builder
            .summary(Some("Clients of the project"))
            .parameter_ref(parameter_ref(schemas::LIST_CLIENTS))
            .response(
                "200",
                list_of(schemas::CLIENT, "The matching clients, oldest first."),
            ),
        TUNNELS => builder
            .summary(Some("Tunnels of the project"))
            .parameter_ref(parameter_ref(schemas::LIST_TUNNELS))
            .response(
                "200",
                list_of(schemas::TUNNEL, "The matching tunnels, oldest first."),
            ),
        TUNNEL => builder
            .summary(Some("One tunnel"))
            .parameter(tunnel_id())
            .response("200", json_of(schemas::TUNNEL, "The tunnel."))
            .response("404", Ref::from_response_name("NotFound")),
        AUTH => builder
            .summary(Some("Whether the credential is valid"))
            .response(
            "204",
            ResponseBuilder::new().description(
                "It is valid. A managed engine reports the state of its link to the platform in \
                 the header `svc-platform-link`: `up` or `lost`, with the seconds of `silence`.",
            ),
        ),
        SSE => builder
            .summary(Some("Live events as server-sent events"))
            .parameter_ref(parameter_ref(schemas::WATCH))
            .parameter(watch_token())
            .response(
                "200",
                ResponseBuilder::new()
                    .description("`state.initial`, then every change; one `data:` line per event.")
                    .content(
                        "text/event-stream",
                        Content::new(Some(ObjectBuilder::new().schema_type(Type::String))),
                    ),
            ),
        WEBSOCKET => builder
            .summary(Some("Live events over a WebSocket"))
            .parameter_ref(parameter_ref(schemas::WATCH))
            .parameter(watch_token())
            .response(
                "101",
                ResponseBuilder::new()
                    .description("`state.initial`, then every change; one text frame per event."),
            )
            .response("426", Ref::from_response_name("UpgradeRequired")),
        _ => terminals::describe(operation, builder),
    };
    refusals(builder, operation).build()
}

/// The error responses of every guarded operation.
fn refusals(builder: OperationBuilder, operation: &Operation) -> OperationBuilder {
    match operation.access {
        // The list is empty instead of absent: the operation needs no credential, even if the
        // document sets a default elsewhere.
        Access::Public => builder.securities(Some(Vec::new())),
        // The grant is inside the stream; a bearer token is optional.
        Access::Granted => builder.securities(Some([
            SecurityRequirement::default(),
            SecurityRequirement::new("bearerAuth", Vec::<String>::new()),
        ])),
        Access::Authenticated => builder
            .security(SecurityRequirement::new("bearerAuth", Vec::<String>::new()))
            .response("401", Ref::from_response_name("Unauthorized")),
        Access::Permitted(permission, _) => builder
            .security(SecurityRequirement::new(
                "bearerAuth",
                [permission.as_str()],
            ))
            .response("400", Ref::from_response_name("BadRequest"))
            .response("401", Ref::from_response_name("Unauthorized"))
            .response("403", Ref::from_response_name("Forbidden")),
    }
}

fn operation_extensions(operation: &Operation) -> Extensions {
    let rules = match operation.access {
        Access::Public | Access::Authenticated | Access::Granted => &[],
        Access::Permitted(_, rules) => rules,
    };
    let stability = if operation.stable {
        "stable"
    } else {
        "preview"
    };
    let mut extensions = vec![
        (
            "x-svc-required-rules",
            rules.iter().map(rule_json).collect(),
        ),
        ("x-svc-stability", json!(stability)),
    ];
    if matches!(operation.path, TUNNELS | TUNNEL | SSE | WEBSOCKET) {
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
    let permissions: serde_json::Map<_, _> = Permission::ALL
        .iter()
        .filter(of_the_engine)
        .map(|permission| {
            let rules: Value = permission.rules().iter().map(rule_json).collect();
            let description = permission.description();
            let entry =
                json!({"name": permission.as_str(), "description": description, "rules": rules});
            (permission.as_str().to_owned(), entry)
        })
        .collect();
    let bundles: serde_json::Map<_, _> = ENGINE_BUNDLES
        .iter()
        .map(|bundle| (bundle.name.to_owned(), json!(bundle.permissions)))
        .collect();
    let selection = "Request the permissions of the one entry of x-svc-use-case-permissions that \
        fits the task.";
    [
        ("x-svc-permissions", Value::Object(permissions)),
        ("x-svc-use-case-permissions", Value::Object(bundles)),
        (
            "x-svc-agent-authentication",
            json!({"scope_selection": selection}),
        ),
    ]
    .into_iter()
    .collect()
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

fn watch_token() -> Parameter {
    ParameterBuilder::new()
        .name("svc.token")
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(
            "A watch token, for browsers that cannot set headers: of type `auth` or `app`, valid \
             for at most one more hour, that may only list. If it is present, only it is checked.",
        ))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

fn tunnel_id() -> Parameter {
    ParameterBuilder::new()
        .name("id")
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some("Id of the tunnel."))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

pub(super) fn list_of(schema: &str, description: &str) -> Response {
    let items = ArrayBuilder::new().items(Ref::from_schema_name(schema));
    ResponseBuilder::new()
        .description(description)
        .content("application/json", Content::new(Some(items)))
        .build()
}

pub(super) fn json_of(schema: &str, description: &str) -> Response {
    ResponseBuilder::new()
        .description(description)
        .content(
            "application/json",
            Content::new(Some(Ref::from_schema_name(schema))),
        )
        .build()
}

fn any_object() -> Content {
    Content::new(Some(ObjectBuilder::new().schema_type(Type::Object)))
}

fn problem(description: &str) -> Response {
    ResponseBuilder::new()
        .description(description)
        .content(
            types::problem::MEDIA_TYPE,
            Content::new(Some(Ref::from_schema_name(schemas::PROBLEM))),
        )
        .build()
}

fn parameter_ref(name: &str) -> Ref {
    Ref::new(format!("#/components/parameters/{name}"))
}

const REFUSALS: &[(&str, &str)] = &[
    (
        "BadRequest",
        "`params` is malformed or out of range; `field` names the field.",
    ),
    (
        "Unauthorized",
        "No credential, or one that is not valid on this engine.",
    ),
    (
        "Forbidden",
        "The credential lacks the permission, or its boundary does not include the project.",
    ),
    (
        "Conflict",
        "The current state does not allow it; `code` gives the reason.",
    ),
    (
        "NotFound",
        "Does not exist, or is not visible to this credential.",
    ),
    ("UpgradeRequired", "The request does not open a WebSocket."),
    (
        "ServiceUnavailable",
        "Temporarily not possible; `Retry-After` gives the time to wait.",
    ),
];
