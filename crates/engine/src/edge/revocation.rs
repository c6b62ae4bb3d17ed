//! Visits that end when what let them in ends: a token that is revoked, a person who leaves, a
//! project that is suspended, an address that is no longer trusted.
//!
//! Each visit of a managed engine is written down at its worker. When something changes, every
//! worker judges its own again, and cuts those that would not be let in now. A request that ends
//! by itself costs one entry in a slab; nobody waits on anything.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;
use slab::Slab;
use tokio::sync::watch;
use tracing::info;
use types::tunnel::TlsVersion;

use crate::access::{self, Invalidations, Proof, VisitorInfo};
use crate::agents::Agent;
use crate::core::{Core, Worker};
use crate::live::LiveTunnel;

/// The visits of one worker.
#[derive(Debug, Default)]
pub(crate) struct ActiveVisits(Mutex<Slab<Arc<ActiveVisit>>>);

/// A visit that is under way, and on what it was let in.
#[derive(Debug)]
struct ActiveVisit {
    tunnel: Arc<LiveTunnel<Agent>>,
    peer: IpAddr,
    tls_version: Option<TlsVersion>,
    proof: Option<Proof>,
    cut: Arc<RevocationSignal>,
}

/// Whether a visit was cut, and who has to hear of it.
#[derive(Debug, Default)]
pub(crate) struct RevocationSignal {
    is_revoked: AtomicBool,
    waker: AtomicWaker,
    /// Of the library's task, whose stream may wait for the visitor while nobody asks the body.
    stream: AtomicWaker,
}

/// A visit's entry, for as long as it lasts.
#[derive(Debug)]
pub(crate) struct RevocationGuard {
    worker: Arc<Worker>,
    place: usize,
    cut: Arc<RevocationSignal>,
}

impl ActiveVisit {
    /// Whether it would not be let in now.
    fn ends(&self, core: &Core) -> bool {
        if self.tunnel.agent.is_revoked() {
            return true;
        }
        // Nobody may have asked for it before.
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
    /// Writes a visit down that was let in. `None` on an engine where nothing can change.
    pub(crate) fn take(
        worker: &Arc<Worker>,
        tunnel: &Arc<LiveTunnel<Agent>>,
        visitor: VisitorInfo<'_>,
        proof: Option<&Proof>,
    ) -> Option<Self> {
        worker.core.tenancy.directory()?;
        let cut = Arc::<RevocationSignal>::default();
        let held = Arc::new(ActiveVisit {
            tunnel: Arc::clone(tunnel),
            peer: visitor.peer,
            tls_version: visitor.tls_version,
            proof: proof.cloned(),
            cut: Arc::clone(&cut),
        });
        let place = worker.holds.0.lock().insert(held);
        Some(Self {
            worker: Arc::clone(worker),
            place,
            cut,
        })
    }

    /// The visit is to another tunnel from here on.
    pub(crate) fn retarget(&self, tunnel: &Arc<LiveTunnel<Agent>>) {
        let mut holds = self.worker.holds.0.lock();
        let Some(place) = holds.get_mut(self.place) else {
            return;
        };
        let held = Arc::new(ActiveVisit {
            tunnel: Arc::clone(tunnel),
            peer: place.peer,
            tls_version: place.tls_version,
            proof: place.proof.clone(),
            cut: Arc::clone(&place.cut),
        });
        let before = std::mem::replace(place, held);
        drop(holds);
        // Its tunnel may be the last of its kind: not under the lock.
        drop(before);
    }

    pub(crate) fn is_revoked(&self) -> bool {
        self.cut.is_revoked.load(Ordering::Acquire)
    }

    /// Whether the visit was cut; wakes the task when it is.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        self.cut.poll(cx)
    }

    /// What tells that the visit was cut.
    pub(crate) fn cut(&self) -> Arc<RevocationSignal> {
        Arc::clone(&self.cut)
    }
}

impl Drop for RevocationGuard {
    fn drop(&mut self) {
        let held = self.worker.holds.0.lock().try_remove(self.place);
        // Its tunnel may be the last of its kind: not under the lock.
        drop(held);
    }
}

impl RevocationSignal {
    /// Whether the visit was cut; wakes the task when it is.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<()> {
        self.waker.register(cx.waker());
        if self.is_revoked.load(Ordering::Acquire) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    /// The same for the task that carries the visitor's stream.
    pub(crate) fn poll_stream(&self, cx: &Context<'_>) -> Poll<()> {
        self.stream.register(cx.waker());
        if self.is_revoked.load(Ordering::Acquire) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    }

    pub(super) fn now(&self) {
        self.is_revoked.store(true, Ordering::Release);
        self.waker.wake();
        self.stream.wake();
    }
}

/// Waits until a visit is cut; for ever where it cannot be. Cancel safe.
pub(crate) async fn revoked(cut: Option<&RevocationSignal>) {
    match cut {
        Some(cut) => std::future::poll_fn(|cx| cut.poll(cx)).await,
        None => std::future::pending().await,
    }
}

impl ActiveVisits {
    /// Judges every visit again that a change may concern. Looks for them under the lock, and judges
    /// outside it.
    fn reauthorize(&self, core: &Core, concerns: &Invalidations) -> usize {
        let held: Vec<_> = self
            .0
            .lock()
            .iter()
            .filter(|(_, held)| concerns.affects(&held.tunnel.project.id, held.proof.as_ref()))
            .map(|(_, held)| Arc::clone(held))
            .collect();
        let ending = held.iter().filter(|held| held.ends(core));
        let cut = ending.map(|held| held.cut.now());
        cut.count()
    }
}

/// Between two looks at all visits: changes that come in a burst are looked at together.
const PAUSE: Duration = Duration::from_millis(50);

/// Has every worker judge its visits again that are concerned whenever something changes, until the
/// last of them is over: those that a drain waits for end with what let them in, too.
pub(crate) async fn reauthorize_on_changes(core: Arc<Core>, mut changes: watch::Receiver<u64>) {
    let stop = &core.agents_stop;
    loop {
        tokio::select! {
            changed = changes.changed() => if changed.is_err() { return },
            () = stop.cancelled() => return,
        }
        let concerns = Arc::new(core.tokens.take_concerns());
        for worker in core.workers() {
            let (at, concerns) = (Arc::clone(worker), Arc::clone(&concerns));
            worker.runtime.spawn(async move {
                let cut = at.holds.reauthorize(&at.core, &concerns);
                if cut > 0 {
                    info!(cut, "visits ended with what had let them in");
                }
            });
        }
        tokio::time::sleep(PAUSE).await;
    }
}
