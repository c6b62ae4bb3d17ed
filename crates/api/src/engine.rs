//! The Engine API: its paths and its document (EN-6).

mod document;
mod live;
mod operation;
mod recordings;
mod schemas;
mod terminals;

use serde_json::Value;

pub use self::operation::{Access, Method, Operation};

/// `GET`: the clients of the project (EN-1).
pub const CLIENTS: &str = "/api/clients";
/// `GET`: the tunnels of the project (EN-1).
pub const TUNNELS: &str = "/api/tunnels";
/// `GET`: one tunnel, by id. `DELETE`: closes it.
pub const TUNNEL: &str = "/api/tunnels/{id}";
/// `GET`: responds with 204 to a valid credential.
pub const AUTH: &str = "/api/auth";
/// Response header of [`AUTH`] in a managed engine: state of its link to the platform. `up`, or
/// `lost` with the seconds since the last message of the platform: `lost;silence=62` (RFC 9651).
pub const PLATFORM_LINK: &str = "svc-platform-link";
/// `GET`: the live stream as server-sent events (EN-3).
pub const SSE: &str = "/api/sse";
/// `GET` with an upgrade, or extended `CONNECT` (RFC 8441): the live stream (EN-4).
pub const WEBSOCKET: &str = "/api/websocket";
/// `GET`: the document itself, without a credential (EN-6).
pub const OPENAPI: &str = "/api/openapi.json";

/// Media type of the document, as the OpenAPI initiative writes it.
pub const OPENAPI_MEDIA_TYPE: &str = "application/vnd.oai.openapi+json;version=3.1";

/// Every operation, in the order of the document.
pub const OPERATIONS: &[Operation] = &[
    live::DOCUMENT,
    live::LIST_CLIENTS,
    live::LIST_TUNNELS,
    live::GET_TUNNEL,
    live::CLOSE_TUNNEL,
    live::CHECK,
    live::WATCH_SSE,
    live::WATCH_WEBSOCKET,
    terminals::CAPABILITIES,
    terminals::SESSIONS,
    terminals::SESSION,
    terminals::TERMINATE,
    terminals::PARTICIPANTS,
    terminals::ATTACH,
    terminals::DETACH,
    terminals::STREAM,
    terminals::CONTROL_REQUESTS,
    terminals::REQUEST_CONTROL,
    terminals::RESOLVE,
    terminals::KEY_GRANTS,
    terminals::GROUPS,
    terminals::GROUP,
    recordings::EVENTS,
    recordings::EXPORT,
    recordings::VERIFY,
    recordings::DELETE,
    recordings::SEARCH,
];

/// The engine's OpenAPI 3.1 document. Every engine and every copy of this version has the same
/// bytes (CP-9).
pub fn document() -> Value {
    document::assemble()
}

/// [`document`] as the JSON text that is served and committed.
pub fn document_json() -> String {
    crate::openapi::text(&document())
}
