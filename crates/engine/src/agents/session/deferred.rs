//! Requests for tunnels that wait for an update of the platform.
//!
//! The platform confirms that a terminal server exists and is enrolled before its engines have
//! received it. An agent that starts immediately would be refused for good.

use std::time::Instant;

use wire::Error;
use wire::message::{OpenTunnelReq, OpenTunnelRsp, TunnelOutcome, TunnelProperties};
use wire::{Kind, Message};

use super::{Session, SessionEnd};
use crate::access::CHECK_PAUSE;

/// Maximum number of requests of one agent that wait. An agent has few terminal servers; further
/// requests are refused immediately.
const MAX_DEFERRED: usize = 16;

/// Requests that wait.
#[derive(Default)]
pub(super) struct DeferredRequests {
    /// The oldest first.
    requests: Vec<DeferredRequest>,
    /// Time of the next try, if there was a change after the last one.
    retry_at: Option<Instant>,
}

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
    /// Time of the next try or refusal, if a request waits.
    pub(super) fn next_check(&self) -> Option<Instant> {
        let first = self.requests.first()?;
        let retry_at = self.retry_at.unwrap_or(first.deadline);
        Some(retry_at.min(first.deadline))
    }

    /// Notes an update of the platform. The requests are tried again after a pause, so that frequent
    /// changes do not cost a try each.
    pub(super) fn note_change(&mut self, now: Instant) {
        if !self.requests.is_empty() {
            self.retry_at.get_or_insert(now + CHECK_PAUSE);
        }
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
            deadline: now + self.core.config.timeouts.fixed.update,
        };
        self.open_deferred(deferred, now)
    }

    /// Tries the requests that wait again, and refuses those whose time is over.
    pub(super) fn retry_deferred(&mut self, now: Instant) -> Result<(), SessionEnd> {
        for deferred in std::mem::take(&mut self.deferred).requests {
            self.open_deferred(deferred, now)?;
        }
        Ok(())
    }

    fn open_deferred(&mut self, deferred: DeferredRequest, now: Instant) -> Result<(), SessionEnd> {
        let none = TunnelProperties::default();
        let requested = deferred.request.tunnel_properties.as_ref();
        match self.prepare_tunnel(requested.unwrap_or(&none)) {
            Ok(prepared) => self.claim_or_open(deferred.request.request_id, prepared),
            Err(OpenRefusal::NeedsUpdate(_))
                if now < deferred.deadline && self.deferred.requests.len() < MAX_DEFERRED =>
            {
                self.deferred.requests.push(deferred);
                Ok(())
            }
            Err(OpenRefusal::NeedsUpdate(error) | OpenRefusal::Final(error)) => {
                self.answer(deferred.request.request_id, Err(error))
            }
        }
    }

    /// Queues the response to a request for a tunnel.
    pub(super) fn answer(
        &mut self,
        request_id: String,
        opened: Result<TunnelProperties, Error>,
    ) -> Result<(), SessionEnd> {
        let outcome = match opened {
            Ok(properties) => TunnelOutcome::TunnelProperties(Box::new(properties)),
            Err(error) => TunnelOutcome::Error(error),
        };
        let answer: Message = Kind::OpenTunnelRsp(OpenTunnelRsp {
            request_id,
            outcome: Some(outcome),
        })
        .into();
        self.queue_message(&answer)
    }
}
