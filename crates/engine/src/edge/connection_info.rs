//! Connection data that all requests of a visitor's connection share.

use std::net::{IpAddr, SocketAddr};

use rustls::ProtocolVersion;
use transport::TlsStream;
use types::tunnel::TlsVersion;

use crate::access::ClientCertificate;

/// Data of one connection to published HTTP tunnels.
#[derive(Debug)]
pub(crate) struct ConnectionInfo {
    pub(crate) source: IpAddr,
    port: u16,
    /// The server name of the TLS handshake, in lower case.
    pub(crate) server_name: String,
    /// TLS version of the handshake.
    pub(crate) tls_version: Option<TlsVersion>,
    /// True if the handshake requested a client certificate.
    pub(crate) certificate_requested: bool,
    pub(crate) certificate: Option<ClientCertificate>,
}

impl ConnectionInfo {
    pub(crate) fn new(
        stream: &TlsStream,
        server_name: String,
        certificate_requested: bool,
    ) -> Self {
        let peer = stream.get_ref().0.peer();
        Self {
            source: peer.ip(),
            port: peer.port(),
            tls_version: tls_version(stream),
            certificate: certificate(stream),
            server_name,
            certificate_requested,
        }
    }

    /// The visitor's address.
    pub(crate) fn address(&self) -> SocketAddr {
        SocketAddr::new(self.source, self.port)
    }
}

/// The negotiated TLS version. Versions before 1.2 are not offered.
pub(super) fn tls_version(stream: &TlsStream) -> Option<TlsVersion> {
    match stream.get_ref().1.protocol_version()? {
        ProtocolVersion::TLSv1_3 => Some(TlsVersion::Tls13),
        _ => Some(TlsVersion::Tls12),
    }
}

/// The client certificate, if the visitor proved possession of its key.
pub(super) fn certificate(stream: &TlsStream) -> Option<ClientCertificate> {
    ClientCertificate::proven(stream.get_ref().1.peer_certificates()?)
}
