//! The operations of managed terminals, and their schemas.

use types::filter::{Filter, ListParams};
use types::permission::{Permission, Rule};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use super::operation::{Parameter, SuccessResponse};
use super::{Access, Method, Operation};
use crate::webtty as shapes;

pub(super) const CAPABILITIES: Operation = Operation::new(
    "get_engine_webtty_capabilities",
    Method::Get,
    shapes::CAPABILITIES,
    "Get the support of this engine for managed terminals",
    Access::Authenticated,
    SuccessResponse::object("WebttyCapabilities", "The supported features."),
);
pub(super) const SESSIONS: Operation = Operation {
    query: &[Parameter::Params(shapes::SessionFilter::PARAMS_SCHEMA)],
    ..Operation::new(
        "list_engine_webtty_sessions",
        Method::Get,
        shapes::SESSIONS,
        "Terminal sessions of the project",
        READ_ONLY,
        SuccessResponse::list(
            "WebttySession",
            "The matching sessions: active ones, newest first, then those that ended last.",
        ),
    )
};
pub(super) const SESSION: Operation = Operation::new(
    "get_engine_webtty_session",
    Method::Get,
    shapes::SESSION,
    "Get a terminal session",
    READ_ONLY,
    SuccessResponse::object("WebttySession", "The session."),
);
pub(super) const TERMINATE: Operation = Operation {
    refusals: &[409],
    ..Operation::new(
        "terminate_engine_webtty_session",
        Method::Delete,
        shapes::SESSION,
        "End a terminal session, as its owner",
        READ_WRITE,
        SuccessResponse::empty(204, "The session ends."),
    )
};
pub(super) const PARTICIPANTS: Operation = Operation::new(
    "list_engine_webtty_participants",
    Method::Get,
    shapes::PARTICIPANTS,
    "List the current and past participants of a session",
    READ_ONLY,
    SuccessResponse::list("WebttyParticipant", "In the order in which they joined."),
);
pub(super) const ATTACH: Operation = Operation {
    body: Some(("WebttyAttach", false)),
    refusals: &[409],
    ..Operation::new(
        "attach_engine_webtty_participant",
        Method::Post,
        shapes::PARTICIPANTS,
        "Join a session, as a spectator",
        READ_ONLY,
        SuccessResponse::object(
            "WebttyParticipant",
            "With the grant for the first message of the stream; it is valid once and for \
             a short time.",
        ),
    )
};
pub(super) const DETACH: Operation = Operation {
    body: Some(("WebttyDetach", false)),
    refusals: &[409],
    ..Operation::new(
        "detach_engine_webtty_participant",
        Method::Post,
        shapes::PARTICIPANT,
        "Leave a session, or, as its owner, remove the participant of a browser session",
        READ_ONLY,
        SuccessResponse::empty(204, "The participant has left."),
    )
};
pub(super) const STREAM: Operation = Operation {
    refusals: &[401, 403, 409, 426],
    ..Operation::new(
        "join_engine_webtty_session",
        Method::Get,
        shapes::STREAM,
        "The stream of a participant: WebTTY over a WebSocket",
        Access::Granted,
        SuccessResponse::empty(101, "The first message must be the attach message."),
    )
};
pub(super) const CONTROL_REQUESTS: Operation = Operation {
    query: &[Parameter::Params(
        shapes::ControlRequestFilter::PARAMS_SCHEMA,
    )],
    ..Operation::new(
        "list_engine_webtty_control_requests",
        Method::Get,
        shapes::CONTROL_REQUESTS,
        "Requests for control",
        READ_ONLY,
        SuccessResponse::list(
            "WebttyControlRequest",
            "In the order in which they were created.",
        ),
    )
};
pub(super) const REQUEST_CONTROL: Operation = Operation {
    body: Some(("WebttyControlRequestCreate", true)),
    refusals: &[409],
    ..Operation::new(
        "create_engine_webtty_control_request",
        Method::Post,
        shapes::CONTROL_REQUESTS,
        "Ask for control",
        READ_WRITE,
        SuccessResponse {
            status: 201,
            ..SuccessResponse::object("WebttyControlRequest", "The request.")
        },
    )
};
pub(super) const RESOLVE: Operation = Operation {
    body: Some(("WebttyControlRequestResolve", true)),
    refusals: &[409],
    ..Operation::new(
        "resolve_engine_webtty_control_request",
        Method::Post,
        shapes::CONTROL_REQUEST,
        "Answer a request for control, as the controller or an owner",
        READ_WRITE,
        SuccessResponse::object("WebttyControlRequest", "The current state of the request."),
    )
};
pub(super) const KEY_GRANTS: Operation = Operation::new(
    "list_engine_webtty_key_grants",
    Method::Get,
    shapes::KEY_GRANTS,
    "List the recipients of a session's wrapped keys",
    READ_ONLY,
    SuccessResponse::list("WebttyKeyGrant", "Without the keys."),
);
pub(super) const GROUPS: Operation = Operation {
    query: &[Parameter::Params(shapes::GroupFilter::PARAMS_SCHEMA)],
    ..Operation::new(
        "list_engine_webtty_groups",
        Method::Get,
        shapes::GROUPS,
        "List groups of related sessions",
        READ_ONLY,
        SuccessResponse::list("WebttySessionGroup", "The matching groups, newest first."),
    )
};
pub(super) const GROUP: Operation = Operation::new(
    "get_engine_webtty_group",
    Method::Get,
    shapes::GROUP,
    "Get a group of sessions",
    READ_ONLY,
    SuccessResponse::object("WebttySessionGroup", "The group."),
);

/// `webtty.sessions.read-write` permits these operations too, because it has the same rule.
const READ_ONLY: Access = Access::Permitted(Permission::WebttySessionsReadOnly, &[READ]);
const READ_WRITE: Access = Access::Permitted(Permission::WebttySessionsReadWrite, &[READ, WRITE]);

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
    ];
    list::<shapes::SessionFilter>(&mut schemas);
    list::<shapes::GroupFilter>(&mut schemas);
    list::<shapes::ControlRequestFilter>(&mut schemas);
    shapes::Capabilities::schemas(&mut schemas);
    shapes::Session::schemas(&mut schemas);
    shapes::Participant::schemas(&mut schemas);
    shapes::ControlRequest::schemas(&mut schemas);
    shapes::SessionGroup::schemas(&mut schemas);
    shapes::AttachBody::schemas(&mut schemas);
    shapes::ControlRequestBody::schemas(&mut schemas);
    shapes::ResolveBody::schemas(&mut schemas);
    schemas
}

fn named(name: &str, schema: RefOr<Schema>) -> (String, RefOr<Schema>) {
    (name.to_owned(), schema)
}

/// Adds the `params` of a list, and its filter.
fn list<F: Filter + ToSchema>(schemas: &mut Vec<(String, RefOr<Schema>)>) {
    schemas.push(named(F::PARAMS_SCHEMA, ListParams::<F>::schema()));
    ListParams::<F>::schemas(schemas);
}

const READ: Rule = Rule {
    resource: "engine.webtty.sessions",
    actions: &["read"],
};
const WRITE: Rule = Rule {
    resource: "engine.webtty.sessions",
    actions: &["write"],
};
