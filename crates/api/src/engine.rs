//! The Engine API: its paths and its document (EN-6).

mod document;
mod recordings;
mod schemas;
mod terminals;

use serde_json::Value;
use types::permission::{Permission, Rule};

/// `GET`: the clients of the project (EN-1).
pub const CLIENTS: &str = "/api/clients";
/// `GET`: the tunnels of the project (EN-1).
pub const TUNNELS: &str = "/api/tunnels";
/// `GET`: one tunnel, by id.
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

/// One operation, as the document lists it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// `operationId`.
    pub id: &'static str,
    pub method: Method,
    pub path: &'static str,
    pub access: Access,
    /// True if the interface guarantees the operation. Otherwise it may still change.
    pub stable: bool,
}

/// HTTP method of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `GET`.
    Get,
    /// `POST`.
    Post,
    /// `DELETE`.
    Delete,
}

/// Credential and permission that an operation requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// No credential.
    Public,
    /// Any valid credential.
    Authenticated,
    /// A grant that another operation issued, sent in the first message of the stream. A credential
    /// is checked if there is one.
    Granted,
    /// A permission; the rules are the ones of the permission that the operation uses.
    Permitted(Permission, &'static [Rule]),
}

/// Every operation, in the order of the document.
pub const OPERATIONS: &[Operation] = &[
    Operation {
        id: "get_engine_openapi",
        method: Method::Get,
        path: OPENAPI,
        access: Access::Public,
        stable: true,
    },
    Operation {
        id: "list_engine_clients",
        method: Method::Get,
        path: CLIENTS,
        access: Access::Permitted(Permission::TunnelsResourcesReadOnly, &[READ_STREAMS]),
        stable: true,
    },
    Operation {
        id: "list_engine_tunnels",
        method: Method::Get,
        path: TUNNELS,
        access: Access::Permitted(
            Permission::TunnelsResourcesReadOnly,
            &[READ_TUNNELS, READ_STREAMS],
        ),
        stable: true,
    },
    Operation {
        id: "get_engine_tunnel",
        method: Method::Get,
        path: TUNNEL,
        access: Access::Permitted(
            Permission::TunnelsResourcesReadOnly,
            &[READ_TUNNELS, READ_STREAMS],
        ),
        stable: false,
    },
    Operation {
        id: "check_engine_credential",
        method: Method::Get,
        path: AUTH,
        access: Access::Authenticated,
        stable: false,
    },
    Operation {
        id: "watch_engine_events_sse",
        method: Method::Get,
        path: SSE,
        access: Access::Permitted(
            Permission::TunnelsResourcesReadOnly,
            &[READ_TUNNELS, READ_STREAMS],
        ),
        stable: true,
    },
    Operation {
        id: "watch_engine_events_websocket",
        method: Method::Get,
        path: WEBSOCKET,
        access: Access::Permitted(
            Permission::TunnelsResourcesReadOnly,
            &[READ_TUNNELS, READ_STREAMS],
        ),
        stable: true,
    },
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
    let mut text = serde_json::to_string_pretty(&document()).unwrap_or_default();
    text.push('\n');
    text
}

const READ_TUNNELS: Rule = Rule {
    resource: "engine.tunnels",
    actions: &["read"],
};
const READ_STREAMS: Rule = Rule {
    resource: "engine.streams",
    actions: &["read"],
};
