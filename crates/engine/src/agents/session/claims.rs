//! Names of tunnels in a cluster: a tunnel opens when the engine has claimed its names.

use std::sync::Arc;

use etcd::{Claim, ClaimError};
use tracing::warn;
use types::id::TunnelId;
use wire::Error;

use super::opening::PreparedTunnel;
use super::{Session, SessionEnd};
use crate::agents::Agent;
use crate::core::Core;
use crate::live::LiveTunnel;
use crate::membership;

/// The end of a claim for a tunnel.
pub(super) struct ClaimedTunnel {
    request_id: String,
    prepared: PreparedTunnel,
    claim: Result<Claim, ClaimError>,
}

impl Session {
    /// Opens a tunnel. In a cluster, its names are claimed first: [`Session::open_claimed`] follows.
    pub(super) fn claim_or_open(
        &mut self,
        request_id: String,
        prepared: PreparedTunnel,
    ) -> Result<(), SessionEnd> {
        let Some(cluster) = self.core.membership.clone() else {
            let opened = self.open_tunnel(prepared, None);
            return self.answer(request_id, opened);
        };
        let names = membership::names_of(&self.project.id, &prepared.properties);
        if names.is_empty() {
            let opened = self.open_tunnel(prepared, None);
            return self.answer(request_id, opened);
        }
        if self.claiming.len() >= self.core.config.limits.max_tunnels_per_client {
            let full = Error::capacity_exhausted("no more tunnels can be opened");
            return self.answer(request_id, Err(full));
        }
        let owner = membership::owner_of(&self.identity);
        let shares = prepared.properties.share == Some(true);
        self.claiming.spawn(async move {
            let claim = cluster.claim(names, owner, shares).await;
            ClaimedTunnel {
                request_id,
                prepared,
                claim,
            }
        });
        Ok(())
    }

    /// Opens the tunnel of a claim, or refuses it.
    pub(super) fn open_claimed(&mut self, claimed: ClaimedTunnel) -> Result<(), SessionEnd> {
        let ClaimedTunnel {
            request_id,
            prepared,
            claim,
        } = claimed;
        // The claim took time, in which the agent may have lost its session or its permission.
        if let Some(end) = self.revocation() {
            return Err(end);
        }
        let claim = claim.map_err(|error| membership::refusal(&error));
        let claim = claim.and_then(|claim| self.require_permission().map(|()| claim));
        let opened = claim.and_then(|claim| self.open_tunnel(prepared, Some(claim)));
        self.answer(request_id, opened)?;
        // The project may have lost the address.
        self.close_refused_tunnels()
    }

    /// Keeps a claim for the lifetime of its tunnel, and tells the other engines the tunnel. If the
    /// owner moves to another engine, the tunnel ends.
    pub(super) fn keep_claim(&mut self, opened: &LiveTunnel<Agent>, claim: Claim) {
        let tunnel = opened.view.id;
        if let Some(entry) = membership::entry::encode(opened)
            && let Err(error) = claim.publish_entry(entry)
        {
            warn!(%tunnel, %error, "visitors of other engines do not reach the tunnel");
        }
        let (core, agent) = (Arc::downgrade(&self.core), Arc::clone(&self.agent));
        claim.on_loss(move || {
            if let Some(core) = core.upgrade() {
                give_way(&core, &agent, tunnel);
            }
        });
        self.claims.insert(tunnel, claim);
    }
}

/// Closes a tunnel whose names another engine has taken over.
fn give_way(core: &Core, agent: &Agent, tunnel: TunnelId) {
    if core.handover.successor().borrow().is_some() {
        // The agent has moved to the process that replaces this one, and keeps this channel until
        // its streams have ended.
        return;
    }
    if core.live.close_tunnel(&agent.client_id, &tunnel).is_some() {
        core.tcp_ports.close(&tunnel);
        core.forget_upstreams(vec![tunnel]);
    }
    agent.taken_over(tunnel);
}
