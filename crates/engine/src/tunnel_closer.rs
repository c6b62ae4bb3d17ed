//! Closes tunnels for callers of the Engine API, and reports it to the platform.

use std::sync::Weak;

use api::link::{Record, TunnelClosedRecord};
use credentials::VerifiedToken;
use tracing::info;

use crate::agents::Agent;
use crate::api::TunnelCloser;
use crate::core::Core;
use crate::live::LiveTunnel;

/// The closer of an engine. The core owns the API, so this refers to it weakly.
#[derive(Debug)]
pub(crate) struct CoreTunnelCloser(pub(crate) Weak<Core>);

impl TunnelCloser<Agent> for CoreTunnelCloser {
    fn close(&self, tunnel: &LiveTunnel<Agent>, caller: &VerifiedToken) -> bool {
        // Without a core the engine has ended.
        let core = self.0.upgrade();
        core.is_some_and(|core| core.close_for_caller(tunnel, caller))
    }
}

impl Core {
    /// Closes a tunnel, ends its visits and notifies its agent. The agent is notified last, so that
    /// the tunnel is offline even if the agent does not read.
    fn close_for_caller(&self, tunnel: &LiveTunnel<Agent>, caller: &VerifiedToken) -> bool {
        if !self.live.close_for_caller(tunnel) {
            return false;
        }
        let id = tunnel.view.id;
        self.tcp_ports.close(&id);
        self.forget_upstreams(vec![id]);
        self.tokens.tunnel_closed(&tunnel.project.id);
        tunnel.agent.closed_by_caller(id);
        info!(tunnel = %id, "a caller of the API closed a tunnel");
        if let Some(reports) = &self.reports {
            let record = self.closed_record(tunnel, caller);
            reports.records.push(Record::TunnelClosed(Box::new(record)));
        }
        true
    }

    fn closed_record(
        &self,
        tunnel: &LiveTunnel<Agent>,
        caller: &VerifiedToken,
    ) -> TunnelClosedRecord {
        let credential = self.tokens.stored_credential(caller);
        let owner = credential.as_ref().map(|known| known.user_id.to_string());
        let name = tunnel.view.properties.name.as_ref();
        TunnelClosedRecord {
            project_id: tunnel.project.id.to_string(),
            tunnel_id: tunnel.view.id.to_string(),
            tunnel_name: name.map(|name| name.as_str().to_owned()),
            user_id: owner.or_else(|| caller.user_id.clone()),
            credential_id: credential.map(|known| known.id.to_string()),
            closed_at: self.clock.now(),
        }
    }
}
