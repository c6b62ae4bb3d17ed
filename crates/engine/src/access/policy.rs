//! What the edge enforces for one tunnel, compiled when the tunnel is opened.

use std::net::IpAddr;

use types::tunnel::{IpRange, TunnelProperties};

use super::community::Unavailable;

/// The guards of a tunnel. There is none for a guard that this engine cannot enforce: such a
/// tunnel is not opened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TunnelPolicy {
    /// Visitors reach it at the edge; otherwise agents alone dial it.
    pub(super) published: bool,
    /// Every request needs a token (ED-1).
    pub(super) token_auth: bool,
    trusted_ips: Box<[IpRange]>,
}

impl TunnelPolicy {
    /// Compiles resolved properties.
    ///
    /// # Errors
    /// [`Unavailable`] for a guard that the edge does not know how to keep.
    pub fn compile(properties: &TunnelProperties) -> Result<Self, Unavailable> {
        let guards = [
            ("svc_auth", properties.svc_auth == Some(true)),
            ("challenge_mode", properties.challenge_mode == Some(true)),
            ("mtls_auth", properties.mtls_auth == Some(true)),
            ("geo_ip", !properties.geo_ip.is_empty()),
        ];
        if let Some((option, _)) = guards.into_iter().find(|(_, asked)| *asked) {
            return Err(Unavailable { option });
        }
        Ok(Self {
            published: properties.publish.unwrap_or(true),
            token_auth: properties.token_auth == Some(true),
            trusted_ips: properties.trusted_ips.as_slice().into(),
        })
    }

    /// Whether a visitor from this address may come near. Without ranges everybody may.
    pub fn trusts(&self, peer: IpAddr) -> bool {
        self.trusted_ips.is_empty() || self.trusted_ips.iter().any(|range| range.contains(peer))
    }
}
