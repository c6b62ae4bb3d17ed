//! Ends of tunnels whose address or server the project has lost.

use types::id::TunnelId;
use types::tunnel::Hostname;

use super::{Session, SessionEnd};

impl Session {
    /// Closes the tunnels whose address or server the project no longer has.
    pub(super) fn close_refused_tunnels(&mut self) -> Result<(), SessionEnd> {
        self.close_unreserved_ports()?;
        self.close_lost_domains()?;
        self.close_refused_servers()
    }

    /// Closes the tunnels whose custom domain the project no longer has.
    fn close_lost_domains(&mut self) -> Result<(), SessionEnd> {
        let is_lost = |(_, host): &(&TunnelId, &Hostname)| {
            let namespace = &self.core.namespace;
            !namespace.is_domain_of(host.as_str(), &self.project.id)
        };
        let lost = self.domains.iter().filter(is_lost);
        let lost: Vec<TunnelId> = lost.map(|(tunnel, _)| *tunnel).collect();
        self.close_tunnels(lost, "the project no longer has the custom domain")
    }

    /// Closes the tunnels whose reserved port no longer belongs to the project.
    fn close_unreserved_ports(&mut self) -> Result<(), SessionEnd> {
        let state = self.project.state();
        let released = |(_, port): &(&TunnelId, &u16)| !state.has_reserved(**port);
        let released_ports: Vec<_> = self.reserved.iter().filter(released).collect();
        let released_tunnels: Vec<TunnelId> = released_ports
            .into_iter()
            .map(|(tunnel, _)| *tunnel)
            .collect();
        drop(state);
        self.close_tunnels(released_tunnels, "the reserved port was released")
    }
}
