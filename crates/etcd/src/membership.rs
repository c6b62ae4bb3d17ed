//! The task of an engine's membership: it keeps the lease, reads the store, and follows its changes.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::{self, FuturesUnordered};
use ownership::{Engine, EngineId, Name, View};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use types::backoff::Backoff;

use crate::client::{Client, REQUEST_TIME};
use crate::clock;
use crate::connection::Responses;
use crate::error::StoreError;
use crate::locks::NameLocks;
use crate::proto::{RangeRequest, TxnRequest, WatchCreateRequest, WatchResponse};
use crate::records::{Keys, StoreChange};
use crate::settings::Settings;
use crate::state::{Effects, State};

/// The membership of an engine, which its tasks and claims share.
#[derive(Debug)]
pub(crate) struct Membership {
    pub(crate) id: EngineId,
    pub(crate) engine: Engine,
    pub(crate) hold: Duration,
    pub(crate) keys: Keys,
    pub(crate) client: Client,
    pub(crate) state: Mutex<State>,
    /// The end of the tenure in milliseconds of [`clock::now`]; 0 if nothing may be served.
    serves_until: AtomicU64,
    pub(crate) locks: NameLocks,
    /// Changes with each contact, each failure, and each name that is parked.
    pub(crate) contacts: watch::Sender<()>,
    /// A claim waits for a contact, or its lease has ended.
    pub(crate) beat_now: Notify,
    /// There are names to park.
    pub(crate) parking: Notify,
    /// There are entries to write.
    pub(crate) entries: Notify,
}

impl Membership {
    pub(crate) fn new(id: EngineId, settings: &Settings) -> Self {
        Self {
            id,
            engine: settings.engine.clone(),
            hold: settings.hold,
            keys: Keys::new(&settings.prefix),
            client: Client::new(settings),
            state: Mutex::new(State::new(id, settings.hold)),
            serves_until: AtomicU64::new(0),
            locks: NameLocks::default(),
            contacts: watch::Sender::new(()),
            beat_now: Notify::new(),
            parking: Notify::new(),
            entries: Notify::new(),
        }
    }

    /// True if the engine may serve its names now.
    pub(crate) fn serves(&self) -> bool {
        let end = self.serves_until.load(Ordering::Acquire);
        clock::now().as_millis() < u128::from(end)
    }

    /// Makes a change of the tenure visible.
    pub(crate) fn publish(&self, state: &State) {
        let end = state.tenure.ends_at().unwrap_or_default();
        let millis = u64::try_from(end.as_millis()).unwrap_or(0);
        self.serves_until.store(millis, Ordering::Release);
        self.contacts.send_replace(());
    }

    /// Runs until `stop`.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT);
        loop {
            let failure = tokio::select! {
                failed = self.follow(&mut backoff) => match failed { Err(failure) => failure },
                () = stop.cancelled() => return,
            };
            warn!(error = %failure, "the contact with the cluster's store was lost");
            self.state.lock().failure = Some(failure);
            self.contacts.send_replace(());
            let wait = backoff.next_wait(random());
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => return,
            }
        }
    }

    /// Joins the cluster or resumes, and follows the changes until something fails.
    async fn follow(&self, backoff: &mut Backoff) -> Result<Infallible, StoreError> {
        self.keep_lease().await?;
        let needs_snapshot = self.state.lock().needs_snapshot;
        if needs_snapshot {
            self.load().await?;
        }
        self.claim_again().await?;
        self.finish_join();
        let mut changes = self.watch().await?;
        let mut ticks = tokio::time::interval(self.beat_interval());
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut beats = FuturesUnordered::new();
        loop {
            tokio::select! {
                response = changes.next() => {
                    if self.take_changes(&response?)? {
                        self.claim_again().await?;
                    }
                    backoff.reset();
                }
                Some(outcome) = beats.next() => outcome?,
                _ = ticks.tick() => {
                    self.check_stall().await?;
                    if beats.is_empty() {
                        beats.push(self.beat());
                    }
                }
                () = self.beat_now.notified() => {
                    if beats.is_empty() {
                        beats.push(self.beat());
                    }
                }
            }
        }
    }

    /// Renews the lease, or creates one.
    async fn keep_lease(&self) -> Result<(), StoreError> {
        let sent = clock::now();
        let lease = self.state.lock().lease;
        if let Some(lease) = lease {
            match self.client.renew_lease(lease).await {
                Ok(()) => {
                    let mut state = self.state.lock();
                    if state.joining.is_none() {
                        state.tenure.renew(sent);
                        self.publish(&state);
                    } else {
                        state.joining = Some(sent);
                    }
                    return Ok(());
                }
                Err(StoreError::LeaseEnded) => self.end_lease(),
                Err(error) => return Err(error),
            }
        }
        let sent = clock::now();
        let lease = self.client.grant_lease(self.hold).await?;
        let mut state = self.state.lock();
        state.end_lease();
        state.lease = Some(lease);
        state.joining = Some(sent);
        self.publish(&state);
        Ok(())
    }

    /// The names are claimed with the new lease: its renewals count from now on.
    fn finish_join(&self) {
        let mut state = self.state.lock();
        state.beats.clear();
        if let Some(sent) = state.joining.take() {
            state.tenure.renew(sent);
            self.publish(&state);
            info!(engine = %self.id, "the engine has joined the cluster");
        }
    }

    fn end_lease(&self) {
        let mut state = self.state.lock();
        state.end_lease();
        self.publish(&state);
    }

    /// Reads the whole store at one revision, in pages.
    async fn load(&self) -> Result<(), StoreError> {
        let (mut key, range_end) = self.keys.all();
        let mut records: Vec<StoreChange> = Vec::new();
        let mut revision = 0;
        loop {
            let page = RangeRequest {
                key: key.clone(),
                range_end: range_end.clone(),
                limit: PAGE,
                revision,
                min_mod_revision: 0,
            };
            let page = self.client.range(page).await?;
            let header = page.header.unwrap_or_default();
            if revision == 0 {
                revision = header.revision;
                self.note_store(header.cluster_id, revision)?;
            }
            records.extend(page.kvs.iter().filter_map(|kv| self.keys.record(kv)));
            match page.kvs.into_iter().next_back() {
                Some(last) if page.more => {
                    key = last.key;
                    key.push(0);
                }
                _ => break,
            }
        }
        let effects = {
            let mut state = self.state.lock();
            state.replace(records, u64::try_from(revision).unwrap_or_default())
        };
        self.contacts.send_replace(());
        // Names without a hold are claimed next.
        self.take_effects(effects)?;
        Ok(())
    }

    /// Notes the store that is read. If it has an older state than the view, or is another one, the
    /// holds of this engine may be missing, even if its lease is there: the engine joins again.
    fn note_store(&self, id: u64, revision: i64) -> Result<(), StoreError> {
        let mut state = self.state.lock();
        let known = state.store_id.replace(id);
        let is_older = u64::try_from(revision).unwrap_or_default() < state.view.revision();
        if is_older || known.is_some_and(|known| known != id) {
            state.view = View::default();
            state.end_lease();
            self.publish(&state);
            return Err(StoreError::Restored);
        }
        Ok(())
    }

    /// Opens the stream of changes after the revision of the view.
    async fn watch(&self) -> Result<Responses<WatchResponse>, StoreError> {
        let (key, range_end) = self.keys.all();
        let (since, store_id) = {
            let state = self.state.lock();
            (state.view.revision(), state.store_id)
        };
        let request = WatchCreateRequest {
            key,
            range_end,
            start_revision: i64::try_from(since).unwrap_or(i64::MAX).saturating_add(1),
        };
        let (changes, first) = self.client.watch(request).await?;
        let header = first.header.clone().unwrap_or_default();
        let is_older = u64::try_from(header.revision).unwrap_or_default() < since;
        if is_older || store_id != Some(header.cluster_id) {
            self.state.lock().needs_snapshot = true;
            return Err(StoreError::Restored);
        }
        if self.take_changes(&first)? {
            self.claim_again().await?;
        }
        Ok(changes)
    }

    /// Applies changes. Returns true if names must be claimed again.
    fn take_changes(&self, response: &WatchResponse) -> Result<bool, StoreError> {
        if response.compact_revision > 0 {
            self.state.lock().needs_snapshot = true;
            return Err(StoreError::Compacted);
        }
        if response.canceled {
            let reason = response.cancel_reason.clone();
            return Err(StoreError::Unreachable(reason));
        }
        let changes = response.events.iter();
        let changes: Vec<_> = changes.filter_map(|event| self.keys.event(event)).collect();
        let Some(revision) = changes.iter().map(|change| change.revision).max() else {
            return Ok(false);
        };
        let effects = {
            let mut state = self.state.lock();
            let effects = state.apply(changes, revision);
            if state.tenure.may_serve(clock::now()) {
                state.failure = None;
            }
            self.publish(&state);
            effects
        };
        self.take_effects(effects)
    }

    /// Ends lost claims, without the lock of the state. Returns true if names must be claimed again.
    fn take_effects(&self, effects: Effects) -> Result<bool, StoreError> {
        for loss in effects.lost {
            loss.occur();
        }
        self.parking.notify_one();
        self.entries.notify_one();
        if effects.has_lease_ended {
            return Err(StoreError::LeaseEnded);
        }
        Ok(effects.has_unheld_name)
    }

    /// Claims the names again whose holds ended with an earlier lease.
    async fn claim_again(&self) -> Result<(), StoreError> {
        let names: Vec<Name> = {
            let state = self.state.lock();
            let ended = state.owned.iter();
            let ended = ended.filter(|(_, owned)| owned.generation.is_none());
            ended.map(|(name, _)| name.clone()).collect()
        };
        let claims = names.into_iter().map(|name| self.reclaim(name));
        let mut claims = stream::iter(claims).buffer_unordered(CONCURRENT);
        while let Some(claimed) = claims.next().await {
            claimed?;
        }
        Ok(())
    }

    /// Renews the lease and writes the engine's record, whose arrival in the stream of changes
    /// shows that the stream is current.
    async fn beat(&self) -> Result<(), StoreError> {
        let sent = clock::now();
        let (lease, number) = {
            let mut state = self.state.lock();
            let lease = state.lease.ok_or(StoreError::LeaseEnded)?;
            state.last_beat += 1;
            let number = state.last_beat;
            if state.beats.len() < MAX_BEATS {
                state.beats.push_back((number, sent));
            }
            (lease, number)
        };
        if let Err(error) = self.client.renew_lease(lease).await {
            if error == StoreError::LeaseEnded {
                self.end_lease();
            }
            return Err(error);
        }
        {
            let mut state = self.state.lock();
            state.tenure.renew(sent);
            self.publish(&state);
        }
        let record = self.keys.put_engine(self.id, &self.engine, number, lease);
        let request = TxnRequest {
            success: vec![record],
            ..TxnRequest::default()
        };
        match self.client.transaction(request).await {
            Ok(_) => Ok(()),
            Err(StoreError::NoSpace) => self.observe_by_reading(sent).await,
            Err(error) => Err(error),
        }
    }

    /// A store without space accepts no records. An owner that moved to another engine before has
    /// left a key there that is newer than the view, unless the name is free by now.
    async fn observe_by_reading(&self, sent: Duration) -> Result<(), StoreError> {
        let (key, range_end) = self.keys.all();
        let since = self.state.lock().view.revision();
        let request = RangeRequest {
            key,
            range_end,
            limit: 1,
            revision: 0,
            min_mod_revision: i64::try_from(since).unwrap_or(i64::MAX).saturating_add(1),
        };
        let newer = self.client.range(request).await?.kvs;
        let mut state = self.state.lock();
        state.failure = Some(StoreError::NoSpace);
        if newer.is_empty() {
            state.beats.clear();
            state.tenure.observe(sent);
            self.publish(&state);
        }
        Ok(())
    }

    /// Fails if a beat has not arrived for long: the member does not send the changes.
    async fn check_stall(&self) -> Result<(), StoreError> {
        let oldest = self.state.lock().beats.front().copied();
        let limit = REQUEST_TIME + 3 * self.beat_interval();
        let is_stalled = oldest.is_some_and(|(_, sent)| clock::now() > sent.saturating_add(limit));
        if is_stalled {
            self.client.leave_member().await;
            return Err(StoreError::Slow);
        }
        Ok(())
    }

    fn beat_interval(&self) -> Duration {
        let interval = self.state.lock().tenure.renewal_interval();
        interval.max(SHORTEST_BEAT)
    }
}

/// Random bits for delays.
fn random() -> u64 {
    let mut bytes = [0; 8];
    match aws_lc_rs::rand::fill(&mut bytes) {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_unavailable) => u64::MAX / 2,
    }
}

/// Records in a page: a response of about 400 KiB, and of 16 MiB if all of them are entries of the
/// greatest size.
const PAGE: i64 = 1000;

/// Names that are claimed or parked at the same time. More would only wait in the store.
pub(crate) const CONCURRENT: usize = 32;

/// Beats that wait for their arrival. One is sent at a time, so more means that the stream stalls.
const MAX_BEATS: usize = 16;

/// The store should not be busy with the beats of tests that have a short hold time.
const SHORTEST_BEAT: Duration = Duration::from_millis(100);

const FIRST_WAIT: Duration = Duration::from_millis(200);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
