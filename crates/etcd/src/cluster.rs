//! The membership of an engine in a cluster, as the engine uses it.

use std::sync::Arc;
use std::time::Duration;

use ownership::{Claimant, Engine, EngineId, Name, Owner, Server};
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::warn;

use crate::changes::ChangedNames;
use crate::claims::{Claim, ClaimError};
use crate::clock;
use crate::membership::Membership;
use crate::settings::Settings;
use crate::status::Status;

/// The membership. [`Cluster::stop`] leaves the cluster. Dropping the value ends only the contact
/// with the store, so the names stay held until the lease ends.
pub struct Cluster {
    membership: Arc<Membership>,
    runtime: Handle,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Cluster {
    /// Starts to join the cluster, on the current runtime. The store may be unreachable: claims are
    /// refused until it is reached.
    pub fn start(settings: &Settings) -> Self {
        let membership = Arc::new(Membership::new(new_id(), settings));
        let (runtime, tasks) = (Handle::current(), TaskTracker::new());
        let stop = CancellationToken::new();
        tasks.spawn_on(Arc::clone(&membership).run(stop.clone()), &runtime);
        let parking = Arc::clone(&membership).run_parking(stop.clone());
        tasks.spawn_on(parking, &runtime);
        let entries = Arc::clone(&membership).run_entries(stop.clone());
        tasks.spawn_on(entries, &runtime);
        Self {
            membership,
            runtime,
            tasks,
            stop,
        }
    }

    /// Claims names for an agent, all or none. `shares` is true if other tunnels of the owner may
    /// have the names at the same time.
    ///
    /// If the future is dropped, and the claim succeeds later, the names are parked.
    ///
    /// # Errors
    /// [`ClaimError`]
    pub async fn claim(
        &self,
        names: Vec<Name>,
        owner: Owner,
        shares: bool,
    ) -> Result<Claim, ClaimError> {
        let membership = Arc::clone(&self.membership);
        let claimant = Claimant {
            engine: membership.id,
            owner,
            shares,
        };
        // Agents are served by other runtimes than the connections to the store.
        let claiming = async move { membership.claim(names, claimant).await };
        let claimed = self.tasks.spawn_on(claiming, &self.runtime).await;
        claimed.unwrap_or(Err(ClaimError::Stopping))
    }

    /// True if the engine may serve its own names now. It reads the clock and one number.
    pub fn serves(&self) -> bool {
        self.membership.serves()
    }

    /// Waits until the engine may serve names: it has joined, and reads the changes of the store.
    pub async fn wait_until_serving(&self) {
        self.wait_until(Self::serves).await;
    }

    /// Waits until a condition is true. It is evaluated after each contact with the store
    /// and each failure.
    pub async fn wait_until(&self, is_met: impl Fn(&Self) -> bool) {
        let mut contacts = self.membership.contacts.subscribe();
        // The sender lives as long as this value.
        while !is_met(self) && contacts.changed().await.is_ok() {}
    }

    /// The engines that have agents with a name now, without a request to the store.
    pub fn servers(&self, name: &Name) -> Vec<Server> {
        self.membership.state.lock().view.servers(name)
    }

    /// As [`Cluster::servers`]. A change after the servers were read is noted for
    /// [`Cluster::take_changes`] after `read` has returned, so a value that it stores is not older
    /// than the last change that was taken.
    pub fn read_servers<R>(&self, name: &Name, read: impl FnOnce(Vec<Server>) -> R) -> R {
        let state = self.membership.state.lock();
        read(state.view.servers(name))
    }

    /// The names that have changed since the last call, which only one caller makes.
    pub fn take_changes(&self) -> ChangedNames {
        self.membership.state.lock().log.take()
    }

    /// Changes with each contact with the store, after its changes were applied, and each failure.
    pub fn contacts(&self) -> watch::Receiver<()> {
        self.membership.contacts.subscribe()
    }

    /// The id of this run of the engine.
    pub fn engine_id(&self) -> EngineId {
        self.membership.id
    }

    /// The engines of the cluster, including this one.
    pub fn engines(&self) -> Vec<(EngineId, Engine)> {
        let state = self.membership.state.lock();
        let engines = state.view.engines();
        engines.map(|(id, engine)| (*id, engine.clone())).collect()
    }

    /// True if the name belongs to an owner, also without an agent.
    pub fn is_held(&self, name: &Name) -> bool {
        let state = self.membership.state.lock();
        !state.view.holds(name).is_empty()
    }

    /// The state of the membership.
    pub fn status(&self) -> Status {
        let mut engines = self.engines();
        engines.sort_by_key(|(id, _)| *id);
        let (membership, now) = (&self.membership, clock::now());
        let state = membership.state.lock();
        Status {
            engine: membership.id,
            is_serving: state.tenure.may_serve(now),
            serves_until: state.tenure.ends_at(),
            lease_age: state.tenure.lease_age(now),
            latency: membership.client.latency(),
            revision: state.view.revision(),
            names: state.view.counts(),
            own_names: state.owned.len(),
            engines,
            failure: state.failure.as_ref().map(ToString::to_string),
        }
    }

    /// Ends all contact with the store, as the loss of the network does. Only for tests.
    pub fn cut_off(&self) {
        self.stop.cancel();
    }

    /// Parks the names of the engine, and leaves the cluster. The agents are gone.
    pub async fn stop(&self) {
        self.membership.leave();
        let leaving = self.membership.wait_until_parked();
        let parked = tokio::time::timeout(LEAVE_TIME, leaving).await;
        let lease = self.membership.state.lock().lease;
        if parked.is_err() {
            warn!("names of the engine stay held until its lease ends");
        } else if let Some(lease) = lease
            && let Err(error) = self.membership.client.revoke_lease(lease).await
        {
            warn!(%error, "the engine stays listed in the cluster until its lease ends");
        }
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.stop.cancel();
    }
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster")
            .field("engine", &self.membership.id)
            .finish_non_exhaustive()
    }
}

#[expect(
    clippy::expect_used,
    reason = "the library ends the process itself where the system has no randomness"
)]
fn new_id() -> EngineId {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has randomness");
    EngineId(u128::from_be_bytes(bytes))
}

/// Time limit for parking the names at the stop: thousands of names take a second.
const LEAVE_TIME: Duration = Duration::from_secs(5);
