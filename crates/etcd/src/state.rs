//! The state of a membership, which one lock protects.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ownership::{Change, Claimant, EngineId, EntryValue, Generation, Name, NameHold, Tenure, View};
use parking_lot::Mutex;

use crate::changes::ChangeLog;
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
    /// Names of `owned` whose entry in the store may not be the one of their claims.
    pub(crate) unwritten: HashSet<Name>,
    /// The changes that the engine has not read.
    pub(crate) log: ChangeLog,
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
    pub(crate) claims: Vec<Arc<SharedClaim>>,
    /// The entry that this engine has written to the store.
    pub(crate) written: Option<EntryValue>,
}

/// The part of a claim that the state needs: the entry of its tunnel, and the function to call when
/// the claim is lost.
#[derive(Default)]
pub(crate) struct SharedClaim {
    loss: Mutex<Loss>,
    entry: Mutex<Option<EntryValue>>,
}

#[derive(Default)]
enum Loss {
    /// The claim is valid, without a function.
    #[default]
    Pending,
    Awaited(Box<dyn FnOnce() + Send>),
    Occurred,
}

impl OwnedName {
    /// The entry for the other engines: of the newest claim, if several tunnels share the name.
    fn entry(&self) -> Option<EntryValue> {
        let mut newest = self.claims.iter().rev();
        newest.find_map(|claim| claim.entry.lock().clone())
    }
}

impl SharedClaim {
    /// Sets the entry of the tunnel.
    pub(crate) fn set_entry(&self, entry: EntryValue) {
        *self.entry.lock() = Some(entry);
    }

    /// Calls `action` when the claim is lost; now, if it already is.
    pub(crate) fn on_loss(&self, action: impl FnOnce() + Send + 'static) {
        let mut loss = self.loss.lock();
        if matches!(*loss, Loss::Occurred) {
            drop(loss);
            action();
        } else {
            *loss = Loss::Awaited(Box::new(action));
        }
    }

    /// The claim is lost.
    pub(crate) fn occur(&self) {
        let earlier = std::mem::replace(&mut *self.loss.lock(), Loss::Occurred);
        if let Loss::Awaited(action) = earlier {
            action();
        }
    }
}

impl std::fmt::Debug for SharedClaim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SharedClaim")
    }
}

/// The effects of changes on this engine.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Claims of names that other engines have taken over.
    pub(crate) lost: Vec<Arc<SharedClaim>>,
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
            unwritten: HashSet::new(),
            log: ChangeLog::default(),
            parking_lease: None,
            beats: VecDeque::new(),
            last_beat: 0,
            store_id: None,
            failure: None,
            is_stopping: false,
        }
    }

    /// The hold of this engine in the view.
    pub(crate) fn own_hold(&self, name: &Name) -> Option<&NameHold> {
        let mut holds = self.view.holds(name).iter();
        holds.find(|hold| hold.engine == self.id)
    }

    /// Changes the view, and notes the change for the engine.
    pub(crate) fn change_view(&mut self, change: Change, revision: u64) {
        self.log.note(&change, &self.view);
        self.view.apply(change, revision);
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
                Change::Entry(name, engine, entry) if *engine == self.id => {
                    self.note_entry(name, Some(&entry.value));
                }
                Change::EntryEnd(name, engine) if *engine == self.id => {
                    self.note_entry(name, None);
                }
                _ => {}
            }
            self.change_view(change, revision);
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
        self.log.note_all();
        let names: Vec<Name> = self.owned.keys().cloned().collect();
        for name in &names {
            let entry = self.view.entry(name, self.id);
            let value = entry.map(|entry| entry.value.clone());
            self.note_entry(name, value.as_ref());
        }
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
            owned.written = None;
        }
    }

    /// The entry of a name that must be written, with the generation of the hold and the lease.
    pub(crate) fn entry_to_write(&self, name: &Name) -> Option<(EntryValue, Generation, i64)> {
        let owned = self.owned.get(name)?;
        let entry = owned.entry().filter(|_| name.is_host())?;
        let is_written = owned.written.as_ref() == Some(&entry);
        let (generation, lease) = (owned.generation?, self.lease?);
        (!is_written).then_some((entry, generation, lease))
    }

    /// Notes the host names among these, whose entries may have to be written. Other names have no
    /// entry.
    pub(crate) fn note_unwritten(&mut self, names: &[Name]) {
        for name in names.iter().filter(|name| name.is_host()) {
            if self.owned.contains_key(name) {
                self.unwritten.insert(name.clone());
            }
        }
    }

    /// The entry of a name must be written again: its hold was written with another lease.
    pub(crate) fn forget_entry(&mut self, name: &Name) {
        if let Some(owned) = self.owned.get_mut(name) {
            owned.written = None;
            self.unwritten.insert(name.clone());
        }
    }

    /// Removes a name of this engine, and returns its claims.
    pub(crate) fn disown(&mut self, name: &Name) -> Vec<Arc<SharedClaim>> {
        self.unclaimed.remove(name);
        self.unwritten.remove(name);
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
    fn adopt(&mut self, name: &Name, hold: &NameHold) {
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
            written: None,
        };
        self.owned.insert(name.clone(), owned);
        self.unclaimed.insert(name.clone());
    }

    /// Notes the entry of a name at this engine in the store. A request without an answer may have
    /// taken effect after a later one, and another engine may have removed the entry.
    fn note_entry(&mut self, name: &Name, value: Option<&EntryValue>) {
        let owned = self.owned.get(name);
        if owned.is_some_and(|owned| owned.entry().as_ref() != value) {
            self.forget_entry(name);
        }
    }

    /// Notes a hold that was parked by a request without an answer, while the name has been claimed
    /// since. Returns true if the name must be claimed again, because the lease of the hold is not
    /// renewed.
    fn note_parked(&mut self, name: &Name, hold: &NameHold) -> bool {
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
    fn remove_lost(&mut self, names: &[Name], revision: u64) -> Vec<Arc<SharedClaim>> {
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

    use ownership::{Entry, Owner};

    use super::*;

    const HERE: EngineId = EngineId(1);
    const THERE: EngineId = EngineId(2);

    fn hold(engine: EngineId, generation: u64) -> NameHold {
        NameHold {
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
            let hold = NameHold {
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

    fn entry(name: &Name, value: &[u8], revision: u64) -> StoreChange {
        let entry = Entry {
            revision: Generation(revision),
            value: EntryValue::new(value),
        };
        change(Change::Entry(name.clone(), HERE, entry), revision)
    }

    #[test]
    fn an_entry_is_written_once_until_the_store_has_another_one() {
        let name = Name::of_host("a");
        let mut state = claimed(&name);
        state.lease = Some(1);
        assert_eq!(state.entry_to_write(&name), None, "no tunnel has one");
        let value = EntryValue::new(*b"new");
        state.owned[&name].claims[0].set_entry(value.clone());
        let expected = Some((value.clone(), Generation(5), 1));
        assert_eq!(state.entry_to_write(&name), expected);
        state.owned.get_mut(&name).unwrap().written = Some(value);
        assert_eq!(state.entry_to_write(&name), None);
        state.apply(vec![entry(&name, b"new", 6)], 6);
        assert_eq!(state.entry_to_write(&name), None);
        let end = || change(Change::EntryEnd(name.clone(), HERE), 8);
        for later in [entry(&name, b"old", 7), end()] {
            state.apply(vec![later], 8);
            assert!(state.unwritten.remove(&name));
            assert_eq!(state.entry_to_write(&name), expected);
            state.owned.get_mut(&name).unwrap().written = expected.clone().map(|(new, ..)| new);
        }
        state.end_lease();
        assert_eq!(state.entry_to_write(&name), None, "the hold is first");
        assert_eq!(state.owned[&name].written, None);
    }

    /// Several tunnels of one owner share the name.
    #[test]
    fn the_entry_is_the_one_of_the_newest_claim() {
        let name = Name::of_host("a");
        let mut state = claimed(&name);
        state.lease = Some(1);
        let newer = Arc::<SharedClaim>::default();
        let claims = &mut state.owned.get_mut(&name).unwrap().claims;
        claims[0].set_entry(EntryValue::new(*b"older"));
        claims.push(Arc::clone(&newer));
        let entry = |state: &State| state.entry_to_write(&name).unwrap().0;
        assert_eq!(entry(&state).as_bytes(), b"older");
        newer.set_entry(EntryValue::new(*b"newer"));
        assert_eq!(entry(&state).as_bytes(), b"newer");
        state.owned.get_mut(&name).unwrap().claims.pop();
        assert_eq!(entry(&state).as_bytes(), b"older");
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
        let (early, late) = (SharedClaim::default(), SharedClaim::default());
        early.on_loss(count);
        early.occur();
        early.occur();
        late.occur();
        late.on_loss(count);
        assert_eq!(CALLS.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn the_oldest_beats_are_observed_first() {
        let mut state = State::new(HERE, Duration::from_mins(10));
        let second = Duration::from_secs(1);
        state.tenure.renew(100 * second);
        let beats = (1..=3_u32).map(|number| (u64::from(number), number * second));
        state.beats = beats.collect();
        state.observe(2);
        assert_eq!(state.beats.len(), 1);
        assert_eq!(state.tenure.ends_at(), Some(572 * second));
    }
}
