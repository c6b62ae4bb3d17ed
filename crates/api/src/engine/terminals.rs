//! The operations of managed terminals, and their descriptions in the document.

use types::filter::{Filter, MAX_LIMIT};
use types::permission::{Permission, Rule};
use utoipa::PartialSchema;
use utoipa::ToSchema;
use utoipa::openapi::path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::request_body::RequestBodyBuilder;
use utoipa::openapi::schema::{AdditionalProperties, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Content, Ref, RefOr, Required, ResponseBuilder};

use super::document::{json_of, list_of, params};
use super::{Access, Method, Operation, recordings};
use crate::webtty as shapes;

pub(super) const CAPABILITIES: Operation = Operation {
    id: "get_engine_webtty_capabilities",
    method: Method::Get,
    path: shapes::CAPABILITIES,
    access: Access::Authenticated,
    stable: false,
};
pub(super) const SESSIONS: Operation =
    reads("list_engine_webtty_sessions", Method::Get, shapes::SESSIONS);
pub(super) const SESSION: Operation =
    reads("get_engine_webtty_session", Method::Get, shapes::SESSION);
pub(super) const TERMINATE: Operation = writes(
    "terminate_engine_webtty_session",
    Method::Delete,
    shapes::SESSION,
);
pub(super) const PARTICIPANTS: Operation = reads(
    "list_engine_webtty_participants",
    Method::Get,
    shapes::PARTICIPANTS,
);
pub(super) const ATTACH: Operation = reads(
    "attach_engine_webtty_participant",
    Method::Post,
    shapes::PARTICIPANTS,
);
pub(super) const DETACH: Operation = reads(
    "detach_engine_webtty_participant",
    Method::Post,
    shapes::PARTICIPANT,
);
pub(super) const STREAM: Operation = Operation {
    id: "join_engine_webtty_session",
    method: Method::Get,
    path: shapes::STREAM,
    access: Access::Granted,
    stable: false,
};
pub(super) const CONTROL_REQUESTS: Operation = reads(
    "list_engine_webtty_control_requests",
    Method::Get,
    shapes::CONTROL_REQUESTS,
);
pub(super) const REQUEST_CONTROL: Operation = writes(
    "create_engine_webtty_control_request",
    Method::Post,
    shapes::CONTROL_REQUESTS,
);
pub(super) const RESOLVE: Operation = writes(
    "resolve_engine_webtty_control_request",
    Method::Post,
    shapes::CONTROL_REQUEST,
);
pub(super) const KEY_GRANTS: Operation = reads(
    "list_engine_webtty_key_grants",
    Method::Get,
    shapes::KEY_GRANTS,
);
pub(super) const GROUPS: Operation =
    reads("list_engine_webtty_groups", Method::Get, shapes::GROUPS);
pub(super) const GROUP: Operation = reads("get_engine_webtty_group", Method::Get, shapes::GROUP);

/// An operation of `webtty.sessions.read-only`. `webtty.sessions.read-write` also permits it,
/// because it has the same rule.
const fn reads(id: &'static str, method: Method, path: &'static str) -> Operation {
    Operation {
        id,
        method,
        path,
        access: Access::Permitted(Permission::WebttySessionsReadOnly, &[READ]),
        stable: false,
    }
}

const fn writes(id: &'static str, method: Method, path: &'static str) -> Operation {
    Operation {
        id,
        method,
        path,
        access: Access::Permitted(Permission::WebttySessionsReadWrite, &[READ, WRITE]),
        stable: false,
    }
}

/// Describes an operation of terminals. Other operations pass unchanged.
#[expect(clippy::too_many_lines, reason = "a list of descriptions")]
pub(super) fn describe(operation: &Operation, builder: OperationBuilder) -> OperationBuilder {
    let builder = path_parameters(operation.path, builder);
    match (operation.method, operation.path) {
        (Method::Get, shapes::CAPABILITIES) => builder
            .summary(Some("Get the support of this engine for managed terminals"))
            .response(
                "200",
                json_of("WebttyCapabilities", "The supported features."),
            ),
        (Method::Get, shapes::SESSIONS) => builder
            .summary(Some("Terminal sessions of the project"))
            .parameter(params(shapes::SessionFilter::PARAMS_SCHEMA))
            .response(
                "200",
                list_of(
                    "WebttySession",
                    "The matching sessions: active ones, newest first, then those that ended last.",
                ),
            ),
        (Method::Get, shapes::SESSION) => builder
            .summary(Some("Get a terminal session"))
            .response("200", json_of("WebttySession", "The session.")),
        (Method::Delete, shapes::SESSION) => builder
            .summary(Some("End a terminal session, as its owner"))
            .response(
                "204",
                ResponseBuilder::new().description("The session ends."),
            )
            .response("409", Ref::from_response_name("Conflict")),
        (Method::Get, shapes::PARTICIPANTS) => builder
            .summary(Some("List the current and past participants of a session"))
            .response(
                "200",
                list_of("WebttyParticipant", "In the order in which they joined."),
            ),
        (Method::Post, shapes::PARTICIPANTS) => builder
            .summary(Some("Join a session, as a spectator"))
            .request_body(Some(body("WebttyAttach", false)))
            .response(
                "200",
                json_of(
                    "WebttyParticipant",
                    "With the grant for the first message of the stream; it is valid once and for \
                     a short time.",
                ),
            )
            .response("409", Ref::from_response_name("Conflict")),
        (Method::Post, shapes::PARTICIPANT) => builder
            .summary(Some(
                "Leave a session, or, as its owner, remove the participant of a browser session",
            ))
            .request_body(Some(body("WebttyDetach", false)))
            .response(
                "204",
                ResponseBuilder::new().description("The participant has left."),
            )
            .response("409", Ref::from_response_name("Conflict")),
        (Method::Get, shapes::STREAM) => builder
            .summary(Some("The stream of a participant: WebTTY over a WebSocket"))
            .response(
                "101",
                ResponseBuilder::new().description("The first message must be the attach message."),
            )
            .response("401", Ref::from_response_name("Unauthorized"))
            .response("403", Ref::from_response_name("Forbidden"))
            .response("409", Ref::from_response_name("Conflict"))
            .response("426", Ref::from_response_name("UpgradeRequired")),
        (Method::Get, shapes::CONTROL_REQUESTS) => builder
            .summary(Some("Requests for control"))
            .parameter(params(shapes::ControlRequestFilter::PARAMS_SCHEMA))
            .response(
                "200",
                list_of(
                    "WebttyControlRequest",
                    "In the order in which they were created.",
                ),
            ),
        (Method::Post, shapes::CONTROL_REQUESTS) => builder
            .summary(Some("Ask for control"))
            .request_body(Some(body("WebttyControlRequestCreate", true)))
            .response("201", json_of("WebttyControlRequest", "The request."))
            .response("409", Ref::from_response_name("Conflict")),
        (Method::Post, shapes::CONTROL_REQUEST) => builder
            .summary(Some(
                "Answer a request for control, as the controller or an owner",
            ))
            .request_body(Some(body("WebttyControlRequestResolve", true)))
            .response(
                "200",
                json_of("WebttyControlRequest", "The current state of the request."),
            )
            .response("409", Ref::from_response_name("Conflict")),
        (Method::Get, shapes::KEY_GRANTS) => builder
            .summary(Some("List the recipients of a session's wrapped keys"))
            .response("200", list_of("WebttyKeyGrant", "Without the keys.")),
        (Method::Get, shapes::GROUPS) => builder
            .summary(Some("List groups of related sessions"))
            .parameter(params(shapes::GroupFilter::PARAMS_SCHEMA))
            .response(
                "200",
                list_of("WebttySessionGroup", "The matching groups, newest first."),
            ),
        (Method::Get, shapes::GROUP) => builder
            .summary(Some("Get a group of sessions"))
            .response("200", json_of("WebttySessionGroup", "The group.")),
        _ => recordings::describe(operation, builder),
    }
}

fn path_parameters(path: &str, mut builder: OperationBuilder) -> OperationBuilder {
    if !path.starts_with(PREFIX) {
        return builder;
    }
    for (name, description) in [
        ("id", "Id of the session or group."),
        ("participant_id", "Id of the participant."),
        ("request_id", "Id of the request."),
    ] {
        if path.contains(&format!("{{{name}}}")) {
            builder = builder.parameter(path_parameter(name, description));
        }
    }
    if path.contains('{') {
        builder = builder.response("404", Ref::from_response_name("NotFound"));
    }
    builder
}

fn path_parameter(name: &str, description: &str) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Path)
        .required(Required::True)
        .description(Some(description))
        .schema(Some(ObjectBuilder::new().schema_type(Type::String)))
        .build()
}

fn body(schema: &str, required: bool) -> utoipa::openapi::request_body::RequestBody {
    let required = if required {
        Required::True
    } else {
        Required::False
    };
    RequestBodyBuilder::new()
        .content(
            "application/json",
            Content::new(Some(Ref::from_schema_name(schema))),
        )
        .required(Some(required))
        .build()
}

/// The schemas, by their names in the document.
pub(super) fn schemas() -> Vec<(String, RefOr<Schema>)> {
    let mut schemas = vec![
        named("WebttyCapabilities", shapes::Capabilities::schema()),
        named("WebttySession", shapes::Session::schema()),
        named("WebttyParticipant", shapes::Participant::schema()),
        named("WebttyControlRequest", shapes::ControlRequest::schema()),
        named("WebttyKeyGrant", shapes::KeyGrant::schema()),
        named("WebttySessionGroup", shapes::SessionGroup::schema()),
        named("WebttyAttach", shapes::AttachBody::schema()),
        named("WebttyDetach", shapes::DetachBody::schema()),
        named(
            "WebttyControlRequestCreate",
            shapes::ControlRequestBody::schema(),
        ),
        named("WebttyControlRequestResolve", shapes::ResolveBody::schema()),
        named("WebttySessionFilter", shapes::SessionFilter::schema()),
        named("WebttyGroupFilter", shapes::GroupFilter::schema()),
        named(
            "WebttyControlRequestFilter",
            shapes::ControlRequestFilter::schema(),
        ),
        list(shapes::SessionFilter::PARAMS_SCHEMA, "WebttySessionFilter"),
        list(shapes::GroupFilter::PARAMS_SCHEMA, "WebttyGroupFilter"),
        list(
            shapes::ControlRequestFilter::PARAMS_SCHEMA,
            "WebttyControlRequestFilter",
        ),
    ];
    shapes::Capabilities::schemas(&mut schemas);
    shapes::Session::schemas(&mut schemas);
    shapes::Participant::schemas(&mut schemas);
    shapes::ControlRequest::schemas(&mut schemas);
    shapes::SessionGroup::schemas(&mut schemas);
    shapes::AttachBody::schemas(&mut schemas);
    shapes::ControlRequestBody::schemas(&mut schemas);
    shapes::ResolveBody::schemas(&mut schemas);
    shapes::SessionFilter::schemas(&mut schemas);
    shapes::ControlRequestFilter::schemas(&mut schemas);
    schemas
}

fn named(name: &str, schema: RefOr<Schema>) -> (String, RefOr<Schema>) {
    (name.to_owned(), schema)
}

fn list(name: &str, filter: &str) -> (String, RefOr<Schema>) {
    let limit = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1))
        .maximum(Some(MAX_LIMIT))
        .description(Some("At most this many objects; default all."));
    let schema = ObjectBuilder::new()
        .property("limit", limit)
        .property("filters", Ref::from_schema_name(filter))
        .additional_properties(Some(AdditionalProperties::<Schema>::FreeForm(false)));
    (name.to_owned(), schema.into())
}

const PREFIX: &str = "/api/webtty/";

const READ: Rule = Rule {
    resource: "engine.webtty.sessions",
    actions: &["read"],
};
const WRITE: Rule = Rule {
    resource: "engine.webtty.sessions",
    actions: &["write"],
};
