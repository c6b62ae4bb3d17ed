//! The operations of recordings, and their descriptions in the document.

use types::permission::{Permission, Rule};
use utoipa::PartialSchema;
use utoipa::ToSchema;
use utoipa::openapi::path::{OperationBuilder, Parameter, ParameterBuilder, ParameterIn};
use utoipa::openapi::schema::{ObjectBuilder, Schema, Type};
use utoipa::openapi::{Content, Ref, RefOr, Required, Response, ResponseBuilder};

use super::document::{json_of, list_of, params};
use super::{Access, Method, Operation};
use crate::webtty as shapes;

/// Records of a session. Reading the terminal bytes in them requires `webtty.logs.read-only`; the
/// fact that there were bytes is visible without it.
pub(super) const EVENTS: Operation = Operation {
    id: "list_engine_webtty_events",
    method: Method::Get,
    path: shapes::EVENTS,
    access: Access::Permitted(Permission::WebttySessionsReadOnly, &[SESSIONS]),
    stable: false,
};
pub(super) const EXPORT: Operation = reads("export_engine_webtty_recording", shapes::EXPORT);
pub(super) const VERIFY: Operation = reads("verify_engine_webtty_recording", shapes::VERIFY);
pub(super) const SEARCH: Operation = reads("search_engine_webtty_recordings", shapes::SEARCH);
pub(super) const DELETE: Operation = Operation {
    id: "delete_engine_webtty_recording",
    method: Method::Delete,
    path: shapes::RECORDING,
    access: Access::Permitted(Permission::WebttyLogsReadWrite, &[DELETE_LOGS]),
    stable: false,
};

const fn reads(id: &'static str, path: &'static str) -> Operation {
    Operation {
        id,
        method: Method::Get,
        path,
        access: Access::Permitted(Permission::WebttyLogsReadOnly, &[SESSIONS, LOGS]),
        stable: false,
    }
}

/// Describes an operation of recordings. Other operations pass unchanged.
pub(super) fn describe(operation: &Operation, builder: OperationBuilder) -> OperationBuilder {
    match operation.path {
        shapes::EVENTS => may_fail(builder)
            .summary(Some("Records of a session"))
            .description(Some(
                "Events are visible to callers that may see the session. Typed and displayed bytes \
                 require `webtty.logs.read-only`.",
            ))
            .parameter(params("WebttyEventsParams"))
            .response(
                "200",
                list_of("WebttyRecordedEvent", "In the order of their numbers."),
            ),
        shapes::EXPORT => export_parameters(may_fail(builder))
            .summary(Some("Export a recording in another format"))
            .response("200", exported()),
        shapes::VERIFY => may_fail(builder)
            .summary(Some("Verify that a recording was not modified"))
            .response(
                "200",
                json_of("WebttyRecordingVerdict", "The result of the verification."),
            ),
        shapes::SEARCH => builder
            .summary(Some("Search the output of the project's sessions"))
            .parameter(params("WebttyRecordingSearchParams"))
            .response("200", json_of("WebttyRecordingSearch", "The lines."))
            .response("503", Ref::from_response_name("ServiceUnavailable")),
        shapes::RECORDING => may_fail(builder)
            .summary(Some("Delete a recording; the session stays in the list"))
            .response("204", ResponseBuilder::new().description("Deleted.")),
        _ => builder,
    }
}

/// The error responses of every operation on one recording.
fn may_fail(builder: OperationBuilder) -> OperationBuilder {
    builder
        .response("409", Ref::from_response_name("Conflict"))
        .response("503", Ref::from_response_name("ServiceUnavailable"))
}

fn export_parameters(builder: OperationBuilder) -> OperationBuilder {
    let formats = ["text", "json", "ndjson", "asciicast", "asciicast-v3"];
    let format = ObjectBuilder::new()
        .schema_type(Type::String)
        .enum_values(Some(formats));
    let builder = builder.parameter(parameter("format", "Default `text`.", format));
    let numbers = [
        ("from_seq", "The number of the first record."),
        ("max_events", "The maximum number of records."),
    ];
    let builder = numbers.into_iter().fold(builder, |builder, (name, what)| {
        let number = ObjectBuilder::new().schema_type(Type::Integer);
        builder.parameter(parameter(name, what, number.minimum(Some(0))))
    });
    let switches = [
        ("include_stdin", "Whether input is included; default no."),
        ("include_stdout", "Whether output is included; default yes."),
        (
            "include_stderr",
            "Whether error output is included; default yes.",
        ),
        (
            "include_timestamps",
            "Only for text: lines start with the time.",
        ),
        (
            "include_markers",
            "Only for text: joins, control changes and size changes.",
        ),
    ];
    switches.into_iter().fold(builder, |builder, (name, what)| {
        let switch = ObjectBuilder::new().schema_type(Type::Boolean);
        builder.parameter(parameter(name, what, switch))
    })
}

fn parameter(name: &str, description: &str, schema: ObjectBuilder) -> Parameter {
    ParameterBuilder::new()
        .name(name)
        .parameter_in(ParameterIn::Query)
        .required(Required::False)
        .description(Some(description))
        .schema(Some(schema))
        .build()
}

fn exported() -> Response {
    let media = [
        "text/plain",
        "application/json",
        "application/x-ndjson",
        "application/x-asciicast",
    ];
    let response = ResponseBuilder::new().description("The recording, streamed.");
    let response = media.into_iter().fold(response, |response, media| {
        let text = ObjectBuilder::new().schema_type(Type::String);
        response.content(media, Content::new(Some(text)))
    });
    response.build()
}

/// The schemas, by their names in the document.
pub(super) fn schemas() -> Vec<(String, RefOr<Schema>)> {
    let mut schemas = vec![
        (
            "WebttyRecordedEvent".to_owned(),
            shapes::RecordedEvent::schema(),
        ),
        (
            "WebttyRecordingVerdict".to_owned(),
            shapes::RecordingVerdict::schema(),
        ),
        (
            "WebttyRecordingSearch".to_owned(),
            shapes::RecordingSearch::schema(),
        ),
        (
            "WebttyEventsParams".to_owned(),
            shapes::EventsParams::schema(),
        ),
        (
            "WebttyRecordingSearchParams".to_owned(),
            shapes::SearchParams::schema(),
        ),
    ];
    shapes::RecordedEvent::schemas(&mut schemas);
    shapes::RecordingSearch::schemas(&mut schemas);
    schemas
}

const SESSIONS: Rule = Rule {
    resource: "engine.webtty.sessions",
    actions: &["read"],
};
const LOGS: Rule = Rule {
    resource: "engine.webtty.logs",
    actions: &["read"],
};
const DELETE_LOGS: Rule = Rule {
    resource: "engine.webtty.logs",
    actions: &["delete"],
};
