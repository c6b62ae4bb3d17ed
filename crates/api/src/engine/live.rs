//! The operations of clients, tunnels and events.

use types::permission::{Permission, Rule};

use super::operation::{Content, Parameter, SuccessResponse};
use super::{
    AUTH, Access, CLIENTS, Method, OPENAPI, OPENAPI_MEDIA_TYPE, Operation, SSE, TUNNEL, TUNNELS,
    WEBSOCKET, schemas,
};

pub(super) const DOCUMENT: Operation = Operation {
    stable: true,
    ..Operation::new(
        "get_engine_openapi",
        Method::Get,
        OPENAPI,
        "This document",
        Access::Public,
        SuccessResponse::ok("The document.", Content::AnyObject(OPENAPI_MEDIA_TYPE)),
    )
};
pub(super) const LIST_CLIENTS: Operation = Operation {
    stable: true,
    query: &[Parameter::Params(schemas::LIST_CLIENTS)],
    ..Operation::new(
        "list_engine_clients",
        Method::Get,
        CLIENTS,
        "Clients of the project",
        Access::Permitted(Permission::TunnelsResourcesReadOnly, &[READ_STREAMS]),
        SuccessResponse::list(schemas::CLIENT, "The matching clients, oldest first."),
    )
};
pub(super) const LIST_TUNNELS: Operation = Operation {
    stable: true,
    query: &[Parameter::Params(schemas::LIST_TUNNELS)],
    ..Operation::new(
        "list_engine_tunnels",
        Method::Get,
        TUNNELS,
        "Tunnels of the project",
        READ,
        SuccessResponse::list(schemas::TUNNEL, "The matching tunnels, oldest first."),
    )
};
pub(super) const GET_TUNNEL: Operation = Operation::new(
    "get_engine_tunnel",
    Method::Get,
    TUNNEL,
    "One tunnel",
    READ,
    SuccessResponse::object(schemas::TUNNEL, "The tunnel."),
);
pub(super) const CLOSE_TUNNEL: Operation = Operation {
    description: Some(
        "The tunnel goes offline at once, and its open requests and connections end. Its agent is \
         notified. An agent of `svc` does not open the tunnel again before it is started again; \
         other agents may.",
    ),
    ..Operation::new(
        "close_engine_tunnel",
        Method::Delete,
        TUNNEL,
        "Close a tunnel",
        Access::Permitted(Permission::TunnelsTunnelsCreateDelete, &[DELETE_TUNNELS]),
        SuccessResponse::empty(204, "The tunnel is closed."),
    )
};
pub(super) const CHECK: Operation = Operation::new(
    "check_engine_credential",
    Method::Get,
    AUTH,
    "Whether the credential is valid",
    Access::Authenticated,
    SuccessResponse::empty(
        204,
        "It is valid. A managed engine reports the state of its link to the platform in \
         the header `svc-platform-link`: `up` or `lost`, with the seconds of `silence`.",
    ),
);
pub(super) const WATCH_SSE: Operation = Operation {
    stable: true,
    query: &[Parameter::Params(schemas::WATCH), Parameter::WatchToken],
    ..Operation::new(
        "watch_engine_events_sse",
        Method::Get,
        SSE,
        "Live events as server-sent events",
        READ,
        SuccessResponse::ok(
            "`state.initial`, then every change; one `data:` line per event.",
            Content::Text(&["text/event-stream"]),
        ),
    )
};
pub(super) const WATCH_WEBSOCKET: Operation = Operation {
    id: "watch_engine_events_websocket",
    path: WEBSOCKET,
    summary: "Live events over a WebSocket",
    answer: SuccessResponse::empty(
        101,
        "`state.initial`, then every change; one text frame per event.",
    ),
    refusals: &[426],
    ..WATCH_SSE
};

const READ: Access = Access::Permitted(
    Permission::TunnelsResourcesReadOnly,
    &[READ_TUNNELS, READ_STREAMS],
);
const READ_TUNNELS: Rule = Rule {
    resource: "engine.tunnels",
    actions: &["read"],
};
const DELETE_TUNNELS: Rule = Rule {
    resource: "engine.tunnels",
    actions: &["delete"],
};
const READ_STREAMS: Rule = Rule {
    resource: "engine.streams",
    actions: &["read"],
};
