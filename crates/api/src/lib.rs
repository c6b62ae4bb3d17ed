//! Paths of the HTTP surfaces, and the OpenAPI documents assembled from the types that are served.
//!
//! Servers, the command line and the SDK take paths from here; the documents are made from the
//! same constants and the same types, so they cannot say something else. There are no handlers
//! here, and no HTTP library. The shapes of the engine link ([`link`]) are here for the same reason,
//! though no document has them.

pub mod control;
pub mod engine;
pub mod link;
mod order;
pub mod webtty;
