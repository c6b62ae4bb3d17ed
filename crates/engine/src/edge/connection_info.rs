//! Facts about a visitor's connection that all its requests share.

use std::net::IpAddr;

use rustls::ProtocolVersion;
use transport::TlsStream;
use types::tunnel::TlsVersion;

use crate::access::ClientCertificate;

/// Facts about the connection of a visitor of published HTTP tunnels.
#[derive(Debug)]
pub(crate) struct ConnectionInfo {
    pub(crate) source: IpAddr,
    /// The server name of the TLS handshake, in lower case.
    pub(crate) server_name: String,
    /// Of the handshake.
    pub(crate) tls_version: Option<TlsVersion>,
    /// Whether the handshake asked for a client certificate.
    pub(crate) asked: bool,
    pub(crate) certificate: Option<ClientCertificate>,
}

impl ConnectionInfo {
    pub(crate) fn of(stream: &TlsStream, server_name: String, asked: bool) -> Self {
        Self {
            source: stream.get_ref().0.peer().ip(),
            tls_version: tls_version(stream),
            certificate: certificate(stream),
            server_name,
            asked,
        }
    }
}

/// The version that the edge and its visitor agreed on; older ones are not offered.
pub(super) fn tls_version(stream: &TlsStream) -> Option<TlsVersion> {
    match stream.get_ref().1.protocol_version()? {
        ProtocolVersion::TLSv1_3 => Some(TlsVersion::Tls13),
        _ => Some(TlsVersion::Tls12),
    }
}

/// The certificate whose key the visitor proved to hold.
pub(super) fn certificate(stream: &TlsStream) -> Option<ClientCertificate> {
    ClientCertificate::proven(stream.get_ref().1.peer_certificates()?)
}
