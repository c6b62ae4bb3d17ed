//! Parking: a name whose last agent has left is held for its owner.
//!
//! The hold is attached to a lease that is never renewed. All names that are parked within a
//! twentieth of the hold time share one, so a name is held for the hold time and up to a twentieth
//! longer.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream;
use ownership::{Change, Generation, Name, NameHold};
use tokio_util::sync::CancellationToken;

use crate::clock;
use crate::error::StoreError;
use crate::membership::{CONCURRENT, Membership};
use crate::proto::TxnRequest;

impl Membership {
    /// Parks names until `stop`.
    pub(crate) async fn run_parking(self: Arc<Self>, stop: CancellationToken) {
        tokio::select! {
            () = self.park_continuously() => {}
            () = stop.cancelled() => {}
        }
    }

    async fn park_continuously(&self) {
        loop {
            self.parking.notified().await;
            while let Err(error) = self.park_all().await {
                tracing::debug!(%error, "names are parked later");
                // The names stay held by the engine's lease meanwhile.
                tokio::time::sleep(RETRY).await;
            }
        }
    }

    /// Ends all claims for the stop of the engine, and refuses further ones.
    pub(crate) fn leave(&self) {
        let mut state = self.state.lock();
        state.is_stopping = true;
        let names: Vec<Name> = state.owned.keys().cloned().collect();
        for owned in state.owned.values_mut() {
            owned.claims.clear();
        }
        state.unclaimed.extend(names);
        drop(state);
        self.parking.notify_one();
    }

    /// Waits until no name of this engine is online.
    pub(crate) async fn wait_until_parked(&self) {
        let mut contacts = self.contacts.subscribe();
        loop {
            let is_parked = self.state.lock().owned.is_empty();
            if is_parked || contacts.changed().await.is_err() {
                return;
            }
        }
    }

    async fn park_all(&self) -> Result<(), StoreError> {
        loop {
            let names: Vec<Name> = {
                let state = self.state.lock();
                state.unclaimed.iter().take(BATCH).cloned().collect()
            };
            if names.is_empty() {
                return Ok(());
            }
            let lease = self.parking_lease().await?;
            let parked = names.into_iter().map(|name| self.park(name, lease));
            let mut parked = stream::iter(parked).buffer_unordered(CONCURRENT);
            while let Some(outcome) = parked.next().await {
                outcome?;
            }
            self.contacts.send_replace(());
        }
    }

    /// The lease of names that are parked now.
    async fn parking_lease(&self) -> Result<i64, StoreError> {
        let now = clock::now();
        let current = self.state.lock().parking_lease;
        if let Some((lease, _)) = current.filter(|(_, until)| now < *until) {
            return Ok(lease);
        }
        let window = self.hold / 20;
        let lease = self.client.grant_lease(self.hold + window).await?;
        self.state.lock().parking_lease = Some((lease, now + window));
        Ok(lease)
    }

    async fn park(&self, name: Name, lease: i64) -> Result<(), StoreError> {
        let names = [name];
        let _locks = self.locks.lock(&names).await;
        let [name] = &names;
        let (claimant, generation) = {
            let mut state = self.state.lock();
            // An agent may have claimed the name meanwhile.
            let is_unclaimed = state.unclaimed.contains(name);
            let Some(owned) = state.owned.get(name).filter(|_| is_unclaimed) else {
                state.unclaimed.remove(name);
                return Ok(());
            };
            let Some(generation) = owned.generation else {
                // The hold has ended with the engine's lease.
                state.disown(name);
                return Ok(());
            };
            (owned.claimant.clone(), generation)
        };
        let keys = &self.keys;
        let request = TxnRequest {
            compare: vec![keys.has_generation(name, self.id, generation)],
            success: vec![
                keys.put_hold(name, &claimant, false, lease),
                keys.remove_entry(name, self.id),
            ],
            failure: Vec::new(),
        };
        let answer = self.client.transaction(request).await;
        if answer == Err(StoreError::LeaseEnded) {
            self.state.lock().parking_lease = None;
        }
        let answer = answer?;
        let revision = answer.header.unwrap_or_default().revision;
        let generation = u64::try_from(revision).unwrap_or_default();
        let mut state = self.state.lock();
        state.disown(name);
        if answer.succeeded && state.view.revision() < generation {
            let hold = NameHold {
                engine: self.id,
                owner: claimant.owner,
                generation: Generation(generation),
                is_online: false,
                is_shared: claimant.shares,
            };
            state.change_view(Change::Hold(name.clone(), hold), generation);
        }
        Ok(())
    }
}

/// Names that are read from the state at once.
const BATCH: usize = 1024;

/// The pause after a failure. Requests have their own time limit.
const RETRY: Duration = Duration::from_millis(500);
