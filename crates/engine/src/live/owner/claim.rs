//! Claiming a name: a new tunnel displaces its holders, shares it with them, or is refused.

use std::sync::Arc;

use types::tunnel::TunnelProperties;

use super::super::group::{LoadMetric, NameHolders};
use super::super::names::{NameRef, routed_hostname, routed_port};
use super::super::{ClientHandle, LiveTunnel, OpenTunnelError};
use super::{State, TunnelRegistry};
use crate::access::TunnelPolicy;

impl<A: LoadMetric> TunnelRegistry<A> {
    /// The tunnels that a new one displaces.
    pub(super) fn tunnels_to_displace(
        &self,
        state: &State<A>,
        owner: &ClientHandle<A>,
        properties: &TunnelProperties,
        policy: &TunnelPolicy,
    ) -> Result<Vec<Arc<LiveTunnel<A>>>, OpenTunnelError> {
        let mut displaced: Vec<Arc<LiveTunnel<A>>> = Vec::new();
        let by_name = properties.name.as_ref().and_then(|name| {
            let key = NameRef {
                project: &owner.identity.project,
                name: name.as_str(),
            };
            self.by_name.pin().get(&key).cloned()
        });
        let by_hostname = routed_hostname(properties)
            .and_then(|hostname| self.by_hostname.pin().get(hostname).cloned());
        let by_port = routed_port(properties).and_then(|port| {
            let holder = state.tunnels.get(state.ports.get(&port)?)?;
            Some(NameHolders::One(Arc::clone(holder)))
        });
        let taken = [
            (by_name, OpenTunnelError::NameTaken),
            (by_hostname, OpenTunnelError::HostnameTaken),
            (by_port, OpenTunnelError::PortTaken),
        ];
        for (holder, refusal) in taken {
            let holders = holder
                .as_ref()
                .map(NameHolders::members)
                .unwrap_or_default();
            let is_shared = |properties: &TunnelProperties| properties.share == Some(true);
            let joins = is_shared(properties)
                && holders
                    .iter()
                    .all(|holder| is_shared(&holder.view.properties));
            for holder in holders {
                if holder.view.client_id == owner.client_id {
                    return Err(OpenTunnelError::AlreadyHeld);
                }
                if holder.identity != owner.identity {
                    return Err(refusal);
                }
                if joins {
                    // Visitors are subject to the rules of whichever tunnel they get.
                    if *holder.policy != *policy || !serves_alike(holder, properties) {
                        return Err(OpenTunnelError::GroupMismatch);
                    }
                } else if displaced.iter().all(|other| other.seq != holder.seq) {
                    displaced.push(Arc::clone(holder));
                }
            }
        }
        Ok(displaced)
    }
}

/// Returns true if visitors would be served in the same way by either tunnel.
pub(super) fn serves_alike<A>(tunnel: &LiveTunnel<A>, properties: &TunnelProperties) -> bool {
    let its = &tunnel.view.properties;
    its.publish == properties.publish
        && its.protocol == properties.protocol
        && its.tunnel_type == properties.tunnel_type
        && its.tls_mode == properties.tls_mode
        && its.tls_alpns == properties.tls_alpns
        && its.tls_ciphers == properties.tls_ciphers
        && its.tls_min_version == properties.tls_min_version
}
