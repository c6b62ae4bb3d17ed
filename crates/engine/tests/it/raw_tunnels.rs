//! TCP and TLS tunnels, and TLS itself.

pub(crate) mod mtls;
mod ports;
mod resumption;
mod tcp;
pub(crate) mod tls;
