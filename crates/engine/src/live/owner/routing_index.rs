//! What leads to a tunnel: its id, its name, its port and its hostname.

use std::sync::Arc;

use jiff::Timestamp;

use super::super::LiveTunnel;
use super::super::group::{LoadMetric, NameHolders};
use super::super::names::{NameKey, routed_hostname, routed_port};
use super::{Live, State};

impl<A: LoadMetric> Live<A> {
    /// Puts a tunnel into the maps, beside those that it shares a name with.
    pub(super) fn route_to(&self, state: &mut State<A>, tunnel: &Arc<LiveTunnel<A>>) {
        self.by_id.pin().insert(tunnel.view.id, Arc::clone(tunnel));
        let joined = |held: Option<&NameHolders<A>>| {
            held.map_or_else(
                || NameHolders::One(Arc::clone(tunnel)),
                |held| held.with(tunnel),
            )
        };
        if let Some(key) = NameKey::of(tunnel) {
            let names = self.by_name.pin();
            let held = joined(names.get(&key));
            names.insert(key, held);
        }
        if let Some(port) = routed_port(&tunnel.view.properties) {
            state.ports.insert(port, tunnel.seq);
        }
        if let Some(hostname) = routed_hostname(&tunnel.view.properties) {
            let hostnames = self.by_hostname.pin();
            let held = joined(hostnames.get(hostname));
            hostnames.insert(hostname.clone(), held);
            self.remembered
                .forget(&mut state.forgetting, hostname.as_str());
        }
    }

    /// Takes a tunnel out of the maps, where it still is what they lead to.
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
                    // Remembered first: between the two a visitor must not read "unknown".
                    let most = self.limits.remembered_hostnames;
                    let share = self.limits.share(&tunnel.project, most);
                    let project = (&*tunnel.identity.project, share);
                    let order = &mut state.forgetting;
                    self.remembered.note(order, hostname.as_str(), project, now);
                    hostnames.remove(hostname);
                }
                None => {}
            }
        }
    }
}
