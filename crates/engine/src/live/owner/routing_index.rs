//! The routing maps of tunnels: by id, name, port and host name.

use std::sync::Arc;

use jiff::Timestamp;

use super::super::LiveTunnel;
use super::super::group::{LoadMetric, NameHolders};
use super::super::names::{NameKey, routed_hostname, routed_port};
use super::{State, TunnelRegistry};

impl<A: LoadMetric> TunnelRegistry<A> {
    /// Adds a tunnel to the maps, next to those that share its name.
    pub(super) fn route_to(&self, state: &mut State<A>, tunnel: &Arc<LiveTunnel<A>>) {
        self.by_id.pin().insert(tunnel.view.id, Arc::clone(tunnel));
        let joined = |holders: Option<&NameHolders<A>>| {
            holders.map_or_else(
                || NameHolders::One(Arc::clone(tunnel)),
                |holders| holders.with(tunnel),
            )
        };
        if let Some(key) = NameKey::of(tunnel) {
            let names = self.by_name.pin();
            let holders = joined(names.get(&key));
            names.insert(key, holders);
        }
        if let Some(port) = routed_port(&tunnel.view.properties) {
            state.ports.insert(port, tunnel.seq);
        }
        if let Some(hostname) = routed_hostname(&tunnel.view.properties) {
            let hostnames = self.by_hostname.pin();
            let holders = joined(hostnames.get(hostname));
            hostnames.insert(hostname.clone(), holders);
            self.recent_hostnames
                .forget(&mut state.hostname_order, hostname.as_str());
        }
    }

    /// Removes a tunnel from the maps, if they still refer to it.
    pub(super) fn unroute(&self, state: &mut State<A>, tunnel: &LiveTunnel<A>, now: Timestamp) {
        self.by_id.pin().remove(&tunnel.view.id);
        if let Some(key) = NameKey::of(tunnel) {
            let names = self.by_name.pin();
            match names.get(&key).map(|held| held.without(tunnel.seq)) {
                Some(Some(rest)) => drop(names.insert(key, rest)),
                Some(None) => drop(names.remove(&key)),
                None => {}
            }
        }
        if let Some(port) = routed_port(&tunnel.view.properties)
            && state.ports.get(&port) == Some(&tunnel.seq)
        {
            state.ports.remove(&port);
        }
        if let Some(hostname) = routed_hostname(&tunnel.view.properties) {
            let hostnames = self.by_hostname.pin();
            match hostnames.get(hostname).map(|held| held.without(tunnel.seq)) {
                Some(Some(rest)) => drop(hostnames.insert(hostname.clone(), rest)),
                Some(None) => {
                    // Remembered first, so that a visitor never gets "unknown" between the two
                    // steps.
                    let most = self.limits.remembered_hostnames;
                    let share = self.limits.share(&tunnel.project, most);
                    let project = (&*tunnel.identity.project, share);
                    let order = &mut state.hostname_order;
                    self.recent_hostnames
                        .insert(order, hostname.as_str(), project, now);
                    hostnames.remove(hostname);
                }
                None => {}
            }
        }
    }
}
