//! Schemas of the OpenAPI document of the Engine API: the types in responses, and the JSON value of
//! the query parameter `params` (of lists and of events).

use types::client::Client;
use types::event::Event;
use types::filter::{ClientFilter, ListClientsParams, ListTunnelsParams, TunnelFilter};
use types::problem::ProblemBody;
use types::tunnel::Tunnel;
use utoipa::openapi::schema::{AdditionalProperties, Object, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

/// Name of the tunnel schema in lists. A token may limit the visible fields, so every field may be
/// absent.
pub(super) const TUNNEL: &str = "TunnelListItem";
pub(super) const CLIENT: &str = "Client";
pub(super) const EVENT: &str = "Event";
pub(super) const PROBLEM: &str = "Problem";
pub(super) const LIST_CLIENTS: &str = "ListClientsParams";
pub(super) const LIST_TUNNELS: &str = "ListTunnelsParams";
pub(super) const WATCH: &str = "WatchParams";

/// Every component schema, by name.
pub(super) fn all() -> Vec<(String, RefOr<Schema>)> {
    let mut schemas = vec![
        (CLIENT.to_owned(), Client::schema()),
        (EVENT.to_owned(), Event::schema()),
        (TUNNEL.to_owned(), Tunnel::schema()),
        (PROBLEM.to_owned(), ProblemBody::schema()),
        ("ClientFilter".to_owned(), ClientFilter::schema()),
        ("TunnelFilter".to_owned(), TunnelFilter::schema()),
        (LIST_CLIENTS.to_owned(), ListClientsParams::schema()),
        (LIST_TUNNELS.to_owned(), ListTunnelsParams::schema()),
        (WATCH.to_owned(), watch_params().into()),
    ];
    schemas.extend(super::terminals::schemas());
    schemas.extend(super::recordings::schemas());
    Client::schemas(&mut schemas);
    Event::schemas(&mut schemas);
    Tunnel::schemas(&mut schemas);
    ProblemBody::schemas(&mut schemas);
    ClientFilter::schemas(&mut schemas);
    TunnelFilter::schemas(&mut schemas);
    schemas.sort_by(|(left, _), (right, _)| left.cmp(right));
    schemas.dedup_by(|(left, _), (right, _)| left == right);
    schemas
}

/// The JSON object in `params` of an event subscription.
fn watch_params() -> Object {
    let webtty = ObjectBuilder::new()
        .schema_type(Type::Boolean)
        .description(Some("Whether `webtty.*` events are sent too."));
    closed(
        ObjectBuilder::new()
            .property("clients", Ref::from_schema_name("ClientFilter"))
            .property("tunnels", Ref::from_schema_name("TunnelFilter"))
            .property("webtty", webtty),
    )
}

/// The engine refuses unknown keys (EN-2), and the schema states this.
fn closed(object: ObjectBuilder) -> Object {
    object
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .build()
}
