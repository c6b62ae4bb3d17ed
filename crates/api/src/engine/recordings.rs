//! The operations of recordings, and their schemas.

use types::permission::{Permission, Rule};
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::Schema;
use utoipa::{PartialSchema, ToSchema};

use super::operation::{Content, Parameter, Shape, SuccessResponse};
use super::{Access, Method, Operation};
use crate::webtty as shapes;

/// Records of a session. Reading the terminal bytes in them requires `webtty.logs.read-only`; the
/// fact that there were bytes is visible without it.
pub(super) const EVENTS: Operation = Operation {
    description: Some(
        "Events are visible to callers that may see the session. Typed and displayed bytes \
         require `webtty.logs.read-only`.",
    ),
    query: &[Parameter::Params("WebttyEventsParams")],
    refusals: MAY_FAIL,
    ..Operation::new(
        "list_engine_webtty_events",
        Method::Get,
        shapes::EVENTS,
        "Records of a session",
        Access::Permitted(Permission::WebttySessionsReadOnly, &[SESSIONS]),
        SuccessResponse::list("WebttyRecordedEvent", "In the order of their numbers."),
    )
};
pub(super) const EXPORT: Operation = Operation {
    query: &[
        Parameter::Plain(
            "format",
            "Default `text`.",
            Shape::OneOf(&["text", "json", "ndjson", "asciicast", "asciicast-v3"]),
        ),
        Parameter::number("from_seq", "The number of the first record."),
        Parameter::number("max_events", "The maximum number of records."),
        Parameter::switch("include_stdin", "Whether input is included; default no."),
        Parameter::switch("include_stdout", "Whether output is included; default yes."),
        Parameter::switch(
            "include_stderr",
            "Whether error output is included; default yes.",
        ),
        Parameter::switch(
            "include_timestamps",
            "Only for text: lines start with the time.",
        ),
        Parameter::switch(
            "include_markers",
            "Only for text: joins, control changes and size changes.",
        ),
    ],
    refusals: MAY_FAIL,
    ..Operation::new(
        "export_engine_webtty_recording",
        Method::Get,
        shapes::EXPORT,
        "Export a recording in another format",
        READ,
        SuccessResponse::ok(
            "The recording, streamed.",
            Content::Text(&[
                "text/plain",
                "application/json",
                "application/x-ndjson",
                "application/x-asciicast",
            ]),
        ),
    )
};
pub(super) const VERIFY: Operation = Operation {
    refusals: MAY_FAIL,
    ..Operation::new(
        "verify_engine_webtty_recording",
        Method::Get,
        shapes::VERIFY,
        "Verify that a recording was not modified",
        READ,
        SuccessResponse::object("WebttyRecordingVerdict", "The result of the verification."),
    )
};
pub(super) const SEARCH: Operation = Operation {
    query: &[Parameter::Params("WebttyRecordingSearchParams")],
    refusals: &[503],
    ..Operation::new(
        "search_engine_webtty_recordings",
        Method::Get,
        shapes::SEARCH,
        "Search the output of the project's sessions",
        READ,
        SuccessResponse::object("WebttyRecordingSearch", "The lines."),
    )
};
pub(super) const DELETE: Operation = Operation {
    refusals: MAY_FAIL,
    ..Operation::new(
        "delete_engine_webtty_recording",
        Method::Delete,
        shapes::RECORDING,
        "Delete a recording; the session stays in the list",
        Access::Permitted(Permission::WebttyLogsReadWrite, &[DELETE_LOGS]),
        SuccessResponse::empty(204, "Deleted."),
    )
};

const READ: Access = Access::Permitted(Permission::WebttyLogsReadOnly, &[SESSIONS, LOGS]);

/// Error statuses of every operation on one recording.
const MAY_FAIL: &[u16] = &[409, 503];

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
