//! The visitor that a stream is opened for.

use std::net::SocketAddr;

use types::id::StreamId;

/// The visitor that a stream is opened for, as its service and another engine learn it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StreamOrigin {
    /// The visitor's address.
    pub(crate) source: SocketAddr,
    /// Reference of the record of the visit, if it is written.
    pub(crate) reference: Option<StreamId>,
    /// The edge has terminated the visitor's TLS session.
    pub(crate) is_terminated: bool,
}
