//! The state of a membership, which one lock protects.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ownership::{Change, Claimant, EngineId, Generation, Hold, Name, Tenure, View};
use parking_lot::Mutex;

use crate::error::StoreError;
use crate::records::StoreChange;

/// The state.
#[derive(Debug)]
pub(crate) struct State {
    /// This engine.
    pub(crate) id: EngineId,
    pub(crate) view: View,
    pub(crate) tenure: Tenure,
    /// The lease of the engine's records.
    pub(crate) lease: Option<i64>,
    /// Time at which the lease was requested, until the names are claimed again with it.
    pub(crate) joining: Option<Duration>,
    /// The store must be read from the beginning.
    pub(crate) needs_snapshot: bool,
    /// The names that this engine has written holds for.
    pub(crate) owned: HashMap<Name, OwnedName>,
    /// Names of `owned` without a claim, which are to be parked.
    pub(crate) unclaimed: HashSet<Name>,
    /// The lease for names without an agent, and the time until which it is used.
    pub(crate) parking_lease: Option<(i64, Duration)>,
    /// Numbers of beats that have not been observed, with the times at which they were sent.
    pub(crate) beats: VecDeque<(u64, Duration)>,
    pub(crate) last_beat: u64,
    /// The store that the view was read from.
    pub(crate) store_id: Option<u64>,
    /// The last failure since the engine was in contact.
    pub(crate) failure: Option<StoreError>,
    /// No further claim is accepted.
    pub(crate) is_stopping: bool,
}

/// A name that this engine has a hold for.
#[derive(Debug)]
pub(crate) struct OwnedName {
    pub(crate) claimant: Claimant,
    /// `None` after the lease has ended: the name must be claimed again.
    pub(crate) generation: Option<Generation>,
    /// One for each tunnel with the name.
    pub(crate) claims: Vec<Arc<ClaimLoss>>,
}

/// The loss of a claim, and the function to call then.
#[derive(Default)]
pub(crate) struct ClaimLoss(Mutex<Loss>);

#[derive(Default)]
enum Loss {
    /// The claim is valid, without a function.
    #[default]
    Pending,
    Awaited(Box<dyn FnOnce() + Send>),
    Occurred,
}

impl ClaimLoss {
    /// Calls `action` when the claim is lost; now, if it already is.
    pub(crate) fn on_loss(&self, action: impl FnOnce() + Send + 'static) {
        let mut loss = self.0.lock();
        if matches!(*loss, Loss::Occurred) {
            drop(loss);
            action();
        } else {
            *loss = Loss::Awaited(Box::new(action));
        }
    }

    /// The claim is lost.
    pub(crate) fn occur(&self) {
        let earlier = std::mem::replace(&mut *self.0.lock(), Loss::Occurred);
        if let Loss::Awaited(action) = earlier {
            action();
        }
    }
}

impl std::fmt::Debug for ClaimLoss {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("ClaimLoss")
    }
}

/// The effects of changes on this engine.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Claims of names that other engines have taken over.
    pub(crate) lost: Vec<Arc<ClaimLoss>>,
    /// The record of this engine has ended with its lease.
    pub(crate) has_lease_ended: bool,
    /// A name with claims must be claimed again.
    pub(crate) has_unheld_name: bool,
}

impl State {
    pub(crate) fn new(id: EngineId, hold: Duration) -> Self {
        Self {
            id,
            view: View::default(),
            tenure: Tenure::new(hold),
            lease: None,
            joining: None,
            needs_snapshot: true,
            owned: HashMap::new(),
            unclaimed: HashSet::new(),
            parking_lease: None,
            beats: VecDeque::new(),
            last_beat: 0,
            store_id: None,
            failure: None,
            is_stopping: false,
        }
    }

    /// The hold of this engine in the view.
    pub(crate) fn own_hold(&self, name: &Name) -> Option<&Hold> {
        let mut holds = self.view.holds(name).iter();
        holds.find(|hold| hold.engine == self.id)
    }

    /// Applies changes of the store, all up to `revision`.
    pub(crate) fn apply(&mut self, changes: Vec<StoreChange>, revision: u64) -> Effects {
        let mut effects = Effects::default();
        let mut ended = Vec::new();
        for StoreChange {
            change,
            beat,
            revision,
        } in changes
        {
            match &change {
                Change::Engine(id, _) if *id == self.id => self.observe(beat.unwrap_or_default()),
                Change::EngineEnd(id) if *id == self.id => effects.has_lease_ended = true,
                Change::Hold(name, hold) if hold.engine == self.id => {
                    self.adopt(name, hold);
                    effects.has_unheld_name |= self.note_parked(name, hold);
                }
                Change::HoldEnd(name, engine) if *engine == self.id => ended.push(name.clone()),
                _ => {}
            }
            self.view.apply(change, revision);
        }
        self.view.advance(revision);
        if effects.has_lease_ended {
            self.end_lease();
        } else {
            effects.lost = self.remove_lost(&ended, revision);
        }
        effects
    }

    /// Starts again from all records of the store.
    pub(crate) fn replace(&mut self, records: Vec<StoreChange>, revision: u64) -> Effects {
        self.needs_snapshot = false;
        for record in &records {
            if let Change::Hold(name, hold) = &record.change
                && hold.engine == self.id
            {
                self.adopt(name, hold);
                self.note_parked(name, hold);
            }
        }
        let records = records.into_iter().map(|record| record.change);
        self.view.replace(records, revision);
        let names: Vec<Name> = self.owned.keys().cloned().collect();
        let lost = self.remove_lost(&names, revision);
        Effects {
            lost,
            ..Effects::default()
        }
    }

    /// The lease has ended, and with it all holds of the engine.
    pub(crate) fn end_lease(&mut self) {
        self.lease = None;
        self.joining = None;
        self.needs_snapshot = true;
        self.tenure.end();
        for owned in self.owned.values_mut() {
            owned.generation = None;
        }
    }

    /// Removes a name of this engine, and returns its claims.
    pub(crate) fn disown(&mut self, name: &Name) -> Vec<Arc<ClaimLoss>> {
        self.unclaimed.remove(name);
        let owned = self.owned.remove(name);
        owned.map(|owned| owned.claims).unwrap_or_default()
    }

    /// Notes a new record of this engine in the view.
    fn observe(&mut self, beat: u64) {
        while let Some((number, sent)) = self.beats.front().copied() {
            if number > beat {
                break;
            }
            self.beats.pop_front();
            self.tenure.observe(sent);
        }
    }

    /// A hold of this engine without a claim is parked: the claim failed after it was written.
    fn adopt(&mut self, name: &Name, hold: &Hold) {
        if !hold.is_online || self.owned.contains_key(name) {
            return;
        }
        let claimant = Claimant {
            engine: self.id,
            owner: hold.owner.clone(),
            shares: hold.is_shared,
        };
        let owned = OwnedName {
            claimant,
            generation: Some(hold.generation),
            claims: Vec::new(),
        };
        self.owned.insert(name.clone(), owned);
        self.unclaimed.insert(name.clone());
    }

    /// Notes a hold that was parked by a request without an answer, while the name has been claimed
    /// since. Returns true if the name must be claimed again, because the lease of the hold is not
    /// renewed.
    fn note_parked(&mut self, name: &Name, hold: &Hold) -> bool {
        let Some(owned) = self.owned.get_mut(name) else {
            return false;
        };
        let is_newer = owned
            .generation
            .is_some_and(|known| known < hold.generation);
        let is_unheld = is_newer && !hold.is_online && !owned.claims.is_empty();
        if is_unheld {
            owned.generation = None;
        }
        is_unheld
    }

    /// Removes the names whose holds have ended before this revision.
    fn remove_lost(&mut self, names: &[Name], revision: u64) -> Vec<Arc<ClaimLoss>> {
        let mut lost = Vec::new();
        for name in names {
            let generation = self.owned.get(name).and_then(|owned| owned.generation);
            // A hold that was written later is not affected.
            let is_older = generation.is_some_and(|generation| generation.0 <= revision);
            if is_older && self.own_hold(name).is_none() {
                lost.extend(self.disown(name));
            }
        }
        lost
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ownership::Owner;

    use super::*;

    const HERE: EngineId = EngineId(1);
    const THERE: EngineId = EngineId(2);

    fn hold(engine: EngineId, generation: u64) -> Hold {
        Hold {
            engine,
            owner: Owner::new("a"),
            generation: Generation(generation),
            is_online: true,
            is_shared: false,
        }
    }

    fn change(change: Change, revision: u64) -> StoreChange {
        StoreChange {
            change,
            beat: None,
            revision,
        }
    }

    /// A state with one claim of a name, whose hold was written at revision 5.
    fn claimed(name: &Name) -> State {
        let mut state = State::new(HERE, Duration::from_mins(10));
        let written = change(Change::Hold(name.clone(), hold(HERE, 5)), 5);
        state.apply(vec![written], 5);
        assert!(state.unclaimed.remove(name), "a hold without a claim");
        let owned = state.owned.get_mut(name).unwrap();
        owned.claims.push(Arc::default());
        state
    }

    #[test]
    fn a_takeover_ends_the_claims_of_the_name() {
        let name = Name::of_host("a");
        let mut state = claimed(&name);
        let taken = vec![
            change(Change::Hold(name.clone(), hold(THERE, 6)), 6),
            change(Change::HoldEnd(name.clone(), HERE), 6),
        ];
        assert_eq!(state.apply(taken, 6).lost.len(), 1);
        assert!(state.owned.is_empty());
    }

    /// The answer to a claim was lost, and the agent was refused.
    #[test]
    fn a_hold_without_a_claim_is_to_be_parked() {
        let name = Name::of_host("a");
        let written = || vec![change(Change::Hold(name.clone(), hold(HERE, 5)), 5)];
        let mut state = State::new(HERE, Duration::from_mins(10));
        state.apply(written(), 5);
        assert!(state.unclaimed.contains(&name));
        let mut state = State::new(HERE, Duration::from_mins(10));
        state.replace(written(), 5);
        assert!(state.unclaimed.contains(&name));
        let mut state = claimed(&name);
        state.replace(written(), 5);
        assert!(!state.unclaimed.contains(&name));
    }

    #[test]
    fn a_parked_name_with_claims_is_claimed_again() {
        let name = Name::of_host("a");
        let parked = |revision| {
            let hold = Hold {
                is_online: false,
                ..hold(HERE, revision)
            };
            vec![change(Change::Hold(name.clone(), hold), revision)]
        };
        let mut state = claimed(&name);
        assert!(
            !state.apply(parked(4), 6).has_unheld_name,
            "an older change"
        );
        assert!(state.apply(parked(7), 7).has_unheld_name);
        assert_eq!(state.owned[&name].generation, None);
        let mut state = claimed(&name);
        assert!(state.replace(parked(7), 7).lost.is_empty());
        assert_eq!(state.owned[&name].generation, None);
    }

    #[test]
    fn a_hold_that_was_written_again_is_not_lost() {
        let name = Name::of_host("a");
        let mut state = claimed(&name);
        let owned = state.owned.get_mut(&name).unwrap();
        owned.generation = Some(Generation(9));
        let older = vec![change(Change::HoldEnd(name.clone(), HERE), 6)];
        assert!(state.apply(older, 6).lost.is_empty());
        assert!(state.replace(Vec::new(), 8).lost.is_empty());
        assert_eq!(state.replace(Vec::new(), 9).lost.len(), 1);
    }

    #[test]
    fn the_end_of_the_lease_keeps_the_claims() {
        let name = Name::of_host("a");
        let mut state = claimed(&name);
        state.lease = Some(1);
        let ended = vec![
            change(Change::HoldEnd(name.clone(), HERE), 6),
            change(Change::EngineEnd(HERE), 6),
        ];
        let effects = state.apply(ended, 6);
        assert!(effects.has_lease_ended && effects.lost.is_empty());
        assert_eq!(state.owned[&name].generation, None);
        assert!(state.needs_snapshot && state.lease.is_none());
    }

    #[test]
    fn a_loss_is_reported_once_before_or_after_it_is_awaited() {
        static CALLS: AtomicUsize = AtomicUsize::new(0);
        let count = || {
            CALLS.fetch_add(1, Ordering::Relaxed);
        };
        let (early, late) = (ClaimLoss::default(), ClaimLoss::default());
        early.on_loss(count);
        early.occur();
        early.occur();
        late.occur();
        late.on_loss(count);
        assert_eq!(CALLS.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn the_oldest_beats_are_observed_first() {
        let mut state = State::new(HERE, Duration::from_secs(600));
        let second = Duration::from_secs(1);
        state.tenure.renew(100 * second);
        let beats = (1..=3_u32).map(|number| (u64::from(number), number * second));
        state.beats = beats.collect();
        state.observe(2);
        assert_eq!(state.beats.len(), 1);
        assert_eq!(state.tenure.ends_at(), Some(572 * second));
    }
}
