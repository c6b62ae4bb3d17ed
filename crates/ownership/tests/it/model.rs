//! A store with leases and compare-and-swap, and engines on it that follow the rules of the crate.

use std::collections::BTreeMap;
use std::time::Duration;

use ownership::{
    Change, Claimant, Decision, EngineId, Generation, Name, NameHold, Owner, Tenure, View, decide,
};

/// The hold time in seconds.
pub(crate) const HOLD: u64 = 600;

pub(crate) const ENGINES: usize = 3;

fn name(number: u8) -> Name {
    Name::of_host(&format!("name-{number}"))
}

fn owner(number: u8) -> Owner {
    Owner::new(format!("owner-{number}"))
}

/// A step of a schedule. Engines, owners and names are numbers.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Seconds pass.
    Wait(u64),
    /// The engine renews its lease.
    Renew(usize),
    /// The engine writes its own record, whose arrival in the stream of changes is its observation.
    Beat(usize),
    /// The stream of changes brings some changes to the engine.
    Deliver(usize, usize),
    /// An agent opens a tunnel.
    Open(usize, u8, u8),
    /// The agent with a name leaves. The store is reachable or not.
    Close(usize, u8, bool),
    /// The process ends and starts again.
    Restart(usize),
}

/// The cluster.
pub(crate) struct Cluster {
    now: u64,
    store: Store,
    engines: Vec<ModelEngine>,
    processes: u128,
}

#[derive(Default)]
struct Store {
    revision: u64,
    holds: BTreeMap<(Name, EngineId), (NameHold, u64)>,
    /// Time at which each lease ends.
    leases: BTreeMap<u64, u64>,
    log: Vec<(u64, Record)>,
}

#[derive(Clone)]
enum Record {
    Change(Change),
    Beat(EngineId),
}

struct ModelEngine {
    id: EngineId,
    /// Thousandths by which its clock is too fast or too slow.
    clock_error: i64,
    view: View,
    tenure: Tenure,
    lease: Option<u64>,
    /// Number of records of the log that have arrived.
    position: usize,
    /// Times at which beats were sent that have not arrived.
    beats: Vec<Duration>,
    agents: BTreeMap<Name, Owner>,
}

impl ModelEngine {
    fn new(id: EngineId, clock_error: i64) -> Self {
        Self {
            id,
            clock_error,
            view: View::default(),
            tenure: Tenure::new(Duration::from_secs(HOLD)),
            lease: None,
            position: 0,
            beats: Vec::new(),
            agents: BTreeMap::new(),
        }
    }

    /// The engine's own clock.
    fn clock(&self, now: u64) -> Duration {
        Duration::from_millis(now * 1000u64.saturating_add_signed(self.clock_error))
    }
}

impl Cluster {
    pub(crate) fn new(clock_errors: [i64; ENGINES]) -> Self {
        let engines = (0..).zip(clock_errors);
        Self {
            now: 1000,
            store: Store::default(),
            engines: engines
                .map(|(number, error)| ModelEngine::new(EngineId(number), error))
                .collect(),
            processes: ENGINES as u128,
        }
    }

    pub(crate) fn step(&mut self, step: Step) {
        match step {
            Step::Wait(seconds) => {
                self.now += seconds;
                self.store.expire(self.now);
            }
            Step::Renew(engine) => self.renew(engine),
            Step::Beat(engine) => {
                let engine = &mut self.engines[engine];
                engine.beats.push(engine.clock(self.now));
                self.store.write(Record::Beat(engine.id));
            }
            Step::Deliver(engine, count) => self.deliver(engine, count),
            Step::Open(engine, owned_by, named) => {
                self.open(engine, &owner(owned_by), &name(named));
            }
            Step::Close(engine, named, is_reachable) => {
                self.close(engine, &name(named), is_reachable);
            }
            Step::Restart(engine) => {
                let clock_error = self.engines[engine].clock_error;
                self.engines[engine] = ModelEngine::new(EngineId(self.processes), clock_error);
                self.processes += 1;
            }
        }
    }

    /// The owners whose agents get visitors of a name.
    pub(crate) fn served_owners(&self, named: u8) -> Vec<&Owner> {
        let serving = self
            .engines
            .iter()
            .filter(|engine| engine.tenure.may_serve(engine.clock(self.now)));
        serving
            .filter_map(|engine| engine.agents.get(&name(named)))
            .collect()
    }

    pub(crate) fn has_agent(&self, engine: usize, named: u8) -> bool {
        self.engines[engine].agents.contains_key(&name(named))
    }

    fn renew(&mut self, engine: usize) {
        let sent = self.engines[engine].clock(self.now);
        let lease = self.engines[engine].lease;
        match lease.and_then(|lease| self.store.leases.get_mut(&lease)) {
            Some(end) => {
                *end = self.now + HOLD;
                self.engines[engine].tenure.renew(sent);
            }
            None => self.join(engine, sent),
        }
    }

    /// Gets a lease, reads the whole store, and claims the names of its agents again.
    fn join(&mut self, engine: usize, sent: Duration) {
        let lease = self.store.grant(self.now + HOLD);
        let joining = &mut self.engines[engine];
        joining.tenure.end();
        joining.beats.clear();
        joining.lease = Some(lease);
        let records = self.store.holds.iter();
        let records =
            records.map(|((name, _), (hold, _))| Change::Hold(name.clone(), hold.clone()));
        joining.view.replace(records, self.store.revision);
        joining.position = self.store.log.len();
        for (name, owner) in std::mem::take(&mut joining.agents) {
            self.claim(engine, &owner, &name);
        }
        let tenure = &mut self.engines[engine].tenure;
        tenure.renew(sent);
        tenure.observe(sent);
    }

    fn deliver(&mut self, engine: usize, count: usize) {
        let engine = &mut self.engines[engine];
        let arrived = self.store.log.iter().skip(engine.position).take(count);
        for (revision, record) in arrived {
            engine.position += 1;
            match record {
                Record::Change(change) => engine.view.apply(change.clone(), *revision),
                Record::Beat(id) if *id == engine.id && !engine.beats.is_empty() => {
                    let sent = engine.beats.remove(0);
                    engine.tenure.observe(sent);
                }
                Record::Beat(_) => {}
            }
            engine.view.advance(*revision);
        }
        let (view, id) = (&engine.view, engine.id);
        engine
            .agents
            .retain(|name, _| view.holds(name).iter().any(|hold| hold.engine == id));
    }

    fn open(&mut self, engine: usize, owner: &Owner, name: &Name) {
        let opening = &self.engines[engine];
        if opening.tenure.may_claim(opening.clock(self.now)) {
            self.claim(engine, owner, name);
        }
    }

    fn claim(&mut self, engine: usize, owner: &Owner, name: &Name) {
        let claimant = Claimant {
            engine: self.engines[engine].id,
            owner: owner.clone(),
            shares: false,
        };
        let view = &self.engines[engine].view;
        let known = view.holds(name).to_vec();
        let since = view.revision();
        let (current, changed) = self.store.holds_of(name);
        // The compare-and-swap fails, so the engine decides again with the current holds.
        let holds = if changed > since { current } else { known };
        match decide(&claimant, holds.iter()) {
            Decision::Keep => {}
            Decision::Refuse(_) => return,
            Decision::Write { displaced } => {
                let lease = self.engines[engine].lease.unwrap();
                if !self.store.leases.contains_key(&lease) {
                    return;
                }
                let revision = self.store.put(name, &claimant, true, lease);
                for other in displaced {
                    self.store.remove(name, other, revision);
                }
                let hold = self.store.holds[&(name.clone(), claimant.engine)].0.clone();
                let view = &mut self.engines[engine].view;
                view.apply(Change::Hold(name.clone(), hold), revision);
            }
        }
        let agents = &mut self.engines[engine].agents;
        agents.insert(name.clone(), owner.clone());
    }

    fn close(&mut self, engine: usize, name: &Name, is_reachable: bool) {
        let closing = &mut self.engines[engine];
        let Some(owner) = closing.agents.remove(name) else {
            return;
        };
        let claimant = Claimant {
            engine: closing.id,
            owner,
            shares: false,
        };
        let key = (name.clone(), closing.id);
        let known = closing.view.holds(name).iter();
        let known = known.filter(|hold| hold.engine == closing.id);
        let known: Vec<Generation> = known.map(|hold| hold.generation).collect();
        let stored = self.store.holds.get(&key).map(|(hold, _)| hold.generation);
        if is_reachable && stored.is_some_and(|stored| known == [stored]) {
            let lease = self.store.grant(self.now + HOLD);
            let revision = self.store.put(name, &claimant, false, lease);
            let hold = self.store.holds[&key].0.clone();
            let view = &mut self.engines[engine].view;
            view.apply(Change::Hold(name.clone(), hold), revision);
        }
    }
}

impl Store {
    fn grant(&mut self, end: u64) -> u64 {
        let lease = self.leases.keys().next_back().map_or(1, |last| last + 1);
        self.leases.insert(lease, end);
        lease
    }

    fn write(&mut self, record: Record) -> u64 {
        self.revision += 1;
        self.log.push((self.revision, record));
        self.revision
    }

    fn put(&mut self, name: &Name, claimant: &Claimant, is_online: bool, lease: u64) -> u64 {
        let hold = NameHold {
            engine: claimant.engine,
            owner: claimant.owner.clone(),
            generation: Generation(self.revision + 1),
            is_online,
            is_shared: claimant.shares,
        };
        let key = (name.clone(), claimant.engine);
        self.holds.insert(key, (hold.clone(), lease));
        self.write(Record::Change(Change::Hold(name.clone(), hold)))
    }

    fn remove(&mut self, name: &Name, engine: EngineId, revision: u64) {
        if self.holds.remove(&(name.clone(), engine)).is_some() {
            let change = Change::HoldEnd(name.clone(), engine);
            self.log.push((revision, Record::Change(change)));
        }
    }

    /// The holds of a name, and the revision of its last write.
    fn holds_of(&self, name: &Name) -> (Vec<NameHold>, u64) {
        let holds = self.holds.iter().filter(|((of, _), _)| of == name);
        let holds: Vec<NameHold> = holds.map(|(_, (hold, _))| hold.clone()).collect();
        let changed = holds.iter().map(|hold| hold.generation.0).max();
        (holds, changed.unwrap_or_default())
    }

    fn expire(&mut self, now: u64) {
        let ended = self.leases.iter().filter(|(_, end)| **end <= now);
        let ended: Vec<u64> = ended.map(|(lease, _)| *lease).collect();
        for lease in ended {
            self.leases.remove(&lease);
            let attached = self.holds.iter().filter(|(_, (_, of))| *of == lease);
            let attached: Vec<_> = attached.map(|(key, _)| key.clone()).collect();
            self.revision += 1;
            for (name, engine) in attached {
                self.remove(&name, engine, self.revision);
            }
        }
    }
}
