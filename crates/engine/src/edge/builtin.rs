//! Paths that the edge serves itself on every host name.

pub(super) mod cors;
pub(super) mod cross_site;
pub(super) mod routes;
pub(super) mod terminal;
