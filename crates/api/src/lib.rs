//! Paths of the HTTP surfaces, and the OpenAPI documents assembled from the types that are served.
//!
//! Servers, the command line and the SDK take paths from here; the documents are made from the
//! same constants and the same types, so they cannot say something else. There are no handlers
//! here, and no HTTP library.

pub mod control;
pub mod engine;
mod order;
