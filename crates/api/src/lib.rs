//! Paths of the HTTP APIs, and the OpenAPI documents, which are built from the served types.
//!
//! Servers, the command line and the SDK take the paths from this crate. The documents are built
//! from the same constants and types, so they cannot contradict the servers. The crate has no
//! handlers and no HTTP library. The types of the engine link ([`link`]) are here for the same
//! reason, although no document describes them.

pub mod control;
pub mod engine;
pub mod link;
mod openapi;
mod order;
pub mod webtty;
