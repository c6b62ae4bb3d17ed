//! Ends active requests and connections when their authorisation ends: a token is revoked, a user
//! leaves the project, the project is suspended, an address is no longer trusted, or a caller of the
//! Engine API closes the tunnel.
//!
//! Each worker keeps a list of its active visits. After a change every worker authorises the affected
//! visits again and ends those that are no longer allowed. Each visit occupies one entry of a slab.
//! On an engine without a platform only a close ends visits.

mod active_visits;
mod signal;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::watch;
use tracing::info;

use self::active_visits::ActiveVisit;
pub(crate) use self::active_visits::ActiveVisits;
pub(in crate::edge) use self::signal::access_ended;
pub(crate) use self::signal::{RevocationSignal, revoked};
use crate::access::{self, Invalidations, Proof, VisitorInfo};
use crate::agents::Agent;
use crate::core::{Core, Worker};
use crate::live::LiveTunnel;

/// Keeps a visit in the list of active visits until it is dropped.
#[derive(Debug)]
pub(crate) struct RevocationGuard {
    worker: Arc<Worker>,
    index: usize,
    signal: Arc<RevocationSignal>,
}

impl ActiveVisit {
    /// True if the visit is no longer allowed.
    fn is_denied(&self, core: &Core) -> bool {
        let tunnel = &self.tunnel;
        if tunnel.is_closed_by_caller() {
            return true;
        }
        // Without a platform the authorisation of a visit never changes.
        if core.tenancy.directory().is_none() {
            return false;
        }
        if tunnel.agent.is_revoked() || core.has_lost_name(tunnel) {
            return true;
        }
        // The policy may not have needed the country when the visit started.
        let country = core.country_for(&self.tunnel, self.peer);
        let visitor = VisitorInfo {
            country: country.as_ref(),
            tls_version: self.tls_version,
            ..VisitorInfo::at(self.peer)
        };
        !access::reauthorize_visit(
            &self.tunnel,
            visitor,
            self.proof.as_ref(),
            core.auth_context(),
        )
    }
}

impl RevocationGuard {
    /// Adds an authorised visit.
    pub(crate) fn register(
        worker: &Arc<Worker>,
        tunnel: &Arc<LiveTunnel<Agent>>,
        visitor: VisitorInfo<'_>,
        proof: Option<&Proof>,
    ) -> Self {
        let signal = Arc::<RevocationSignal>::default();
        let visit = Arc::new(ActiveVisit {
            tunnel: Arc::clone(tunnel),
            peer: visitor.peer,
            tls_version: visitor.tls_version,
            proof: proof.cloned(),
            signal: Arc::clone(&signal),
        });
        let index = worker.active_visits.0.lock().insert(visit);
        let guard = Self {
            worker: Arc::clone(worker),
            index,
            signal,
        };
        guard.end_if_closed(tunnel);
        guard
    }

    /// Ends the visit if its tunnel was closed meanwhile: the round for that may have missed it.
    fn end_if_closed(&self, tunnel: &LiveTunnel<Agent>) {
        if tunnel.is_closed_by_caller() {
            self.signal.revoke();
        }
    }

    /// Moves the visit to another tunnel, after a fail-over.
    pub(crate) fn retarget(&self, tunnel: &Arc<LiveTunnel<Agent>>) {
        let mut visits = self.worker.active_visits.0.lock();
        let Some(entry) = visits.get_mut(self.index) else {
            return;
        };
        let visit = Arc::new(ActiveVisit {
            tunnel: Arc::clone(tunnel),
            peer: entry.peer,
            tls_version: entry.tls_version,
            proof: entry.proof.clone(),
            signal: Arc::clone(&entry.signal),
        });
        let before = std::mem::replace(entry, visit);
        drop(visits);
        // Dropping the visit may drop the last reference to a tunnel, so it happens outside the
        // lock.
        drop(before);
        self.end_if_closed(tunnel);
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.signal.is_revoked.load(Ordering::Acquire)
    }

    /// Ready when the visit is revoked.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        self.signal.poll(cx)
    }

    /// Signal that fires when the visit is revoked.
    pub(crate) fn signal(&self) -> Arc<RevocationSignal> {
        Arc::clone(&self.signal)
    }
}

impl Drop for RevocationGuard {
    fn drop(&mut self) {
        let visit = self.worker.active_visits.0.lock().try_remove(self.index);
        // Dropping the visit may drop the last reference to a tunnel, so it happens outside the
        // lock.
        drop(visit);
    }
}

impl ActiveVisits {
    /// Authorises the affected visits again, outside the lock. Returns the number of visits that
    /// ended.
    fn reauthorize(&self, core: &Core, invalidations: &Invalidations) -> usize {
        let visits: Vec<_> = self
            .0
            .lock()
            .iter()
            .filter(|(_, visit)| {
                invalidations.affects(&visit.tunnel.project.id, visit.proof.as_ref())
            })
            .map(|(_, visit)| Arc::clone(visit))
            .collect();
        let ending = visits.iter().filter(|visit| visit.is_denied(core));
        let ended = ending.map(|visit| visit.signal.revoke());
        ended.count()
    }
}

/// Pause between two rounds, so that a burst of changes is handled in one round.
const PAUSE: Duration = Duration::from_millis(50);

/// Starts a round on every worker after each change. The task runs until the end of a drain, so
/// that revocation also ends the visits that the drain waits for.
pub(crate) async fn reauthorize_on_changes(core: Arc<Core>, mut changes: watch::Receiver<u64>) {
    let stop = &core.agents_stop;
    loop {
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
        let invalidations = Arc::new(core.tokens.take_invalidations());
        for worker in core.workers() {
            let (task_worker, invalidations) = (Arc::clone(worker), Arc::clone(&invalidations));
            worker.runtime.spawn(async move {
                let cut = task_worker
                    .active_visits
                    .reauthorize(&task_worker.core, &invalidations);
                if cut > 0 {
                    info!(cut, "visits ended because their authorization ended");
                }
            });
        }
        tokio::time::sleep(PAUSE).await;
    }
}
