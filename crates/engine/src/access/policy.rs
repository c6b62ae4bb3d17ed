//! What the edge enforces for one tunnel, compiled when the tunnel is opened.

use std::net::IpAddr;

use types::tunnel::{IpRange, TunnelProperties};

/// The guards of a tunnel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelPolicy {
    /// Visitors reach it at the edge; otherwise agents alone dial it.
    pub(super) published: bool,
    /// Every request needs a token (ED-1).
    pub(super) token_auth: bool,
    /// A guard is asked for that this engine cannot keep. Such a tunnel is not opened (EN-11);
    /// were it, nobody would pass.
    pub(super) unenforceable: bool,
    trusted_ips: Box<[IpRange]>,
}

impl TunnelPolicy {
    /// Compiles resolved properties.
    pub fn compile(properties: &TunnelProperties) -> Self {
        Self {
            published: properties.publish.unwrap_or(true),
            token_auth: properties.token_auth == Some(true),
            unenforceable: properties.svc_auth == Some(true)
                || properties.challenge_mode == Some(true)
                || properties.mtls_auth == Some(true)
                || !properties.geo_ip.is_empty(),
            trusted_ips: properties.trusted_ips.as_slice().into(),
        }
    }

    /// Whether a visitor from this address may come near. Without ranges everybody may.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_ips.is_empty() || self.trusted_ips.iter().any(|range| range.contains(peer))
    }
}
