//! Schemas of the engine document: those of the served types, and `params` in its two forms.

use types::client::Client;
use types::event::Event;
use types::filter::{ClientFilter, MAX_LIMIT, TunnelFilter};
use types::problem::ProblemBody;
use types::tunnel::Tunnel;
use utoipa::openapi::schema::{AdditionalProperties, Object, ObjectBuilder, Schema, Type};
use utoipa::openapi::{Ref, RefOr};
use utoipa::{PartialSchema, ToSchema};

/// Name of a tunnel in lists: a token may select fields, so all of them may be absent.
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
        (LIST_CLIENTS.to_owned(), list_params("ClientFilter").into()),
        (LIST_TUNNELS.to_owned(), list_params("TunnelFilter").into()),
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

/// The JSON object that `params` of a list holds.
fn list_params(filter: &str) -> Object {
    let limit = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1))
        .maximum(Some(MAX_LIMIT))
        .description(Some(
            "At most this many objects, oldest first; without it all of them.",
        ));
    closed(
        ObjectBuilder::new()
            .property("limit", limit)
            .property("filters", Ref::from_schema_name(filter)),
    )
}

/// The JSON object that `params` of a stream holds.
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

/// Unknown keys are refused (EN-2), and the schema says so.
fn closed(object: ObjectBuilder) -> Object {
    object
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
        .build()
}
