//! Requests for tunnels that wait for an update of the platform.
//!
//! The platform confirms that a terminal server exists and is enrolled before its engines have
//! received it. An agent that starts immediately would be refused for good.

use std::time::Instant;

use wire::Error;
use wire::message::{OpenTunnelReq, OpenTunnelRsp, TunnelOutcome, TunnelProperties};
use wire::{Kind, Message};

use super::{Session, SessionEnd};
use crate::access::UPDATE_WAIT;

/// Maximum number of requests of one agent that wait. An agent has few terminal servers; further
/// requests are refused immediately.
const MAX_DEFERRED: usize = 16;

/// Requests that wait, the oldest first.
#[derive(Default)]
pub(super) struct DeferredRequests(Vec<DeferredRequest>);

struct DeferredRequest {
    request: OpenTunnelReq,
    /// Time at which a refusal is sent.
    deadline: Instant,
}

/// Reasons why a tunnel is not opened.
#[derive(Debug)]
pub(super) enum OpenRefusal {
    /// An update of the platform does not change this.
    Final(Error),
    /// The engine may not have received the update that allows the tunnel.
    NeedsUpdate(Error),
}

impl From<Error> for OpenRefusal {
    fn from(error: Error) -> Self {
        Self::Final(error)
    }
}

impl DeferredRequests {
    /// Time of the next refusal, if a request waits.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.0.first().map(|first| first.deadline)
    }
}

impl Session {
    /// Opens a tunnel, refuses it, or lets it wait for an update of the platform.
    pub(super) fn open_or_defer(
        &mut self,
        request: OpenTunnelReq,
        now: Instant,
    ) -> Result<(), SessionEnd> {
        let deferred = DeferredRequest {
            request,
            deadline: now + UPDATE_WAIT,
        };
        self.open_deferred(deferred, now)
    }

    /// Tries the requests that wait again, and refuses those whose time is over.
    pub(super) fn retry_deferred(&mut self, now: Instant) -> Result<(), SessionEnd> {
        for deferred in std::mem::take(&mut self.deferred.0) {
            self.open_deferred(deferred, now)?;
        }
        Ok(())
    }

    fn open_deferred(&mut self, deferred: DeferredRequest, now: Instant) -> Result<(), SessionEnd> {
        let none = TunnelProperties::default();
        let requested = deferred.request.tunnel_properties.as_ref();
        let outcome = match self.open_tunnel(requested.unwrap_or(&none)) {
            Ok(properties) => TunnelOutcome::TunnelProperties(Box::new(properties)),
            Err(OpenRefusal::NeedsUpdate(_))
                if now < deferred.deadline && self.deferred.0.len() < MAX_DEFERRED =>
            {
                self.deferred.0.push(deferred);
                return Ok(());
            }
            Err(OpenRefusal::NeedsUpdate(error) | OpenRefusal::Final(error)) => {
                TunnelOutcome::Error(error)
            }
        };
        let answer: Message = Kind::OpenTunnelRsp(OpenTunnelRsp {
            request_id: deferred.request.request_id,
            outcome: Some(outcome),
        })
        .into();
        self.queue_message(&answer)
    }
}
