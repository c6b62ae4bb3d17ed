//! Three engines whose agents come and go at random, with a hold time of seconds.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use etcd::{Claim, Cluster};
use fastrand::Rng;
use ownership::{Name, Owner};
use testing::{EtcdServers, within};

use crate::support::join;

/// Short, so that names change their owners during the test.
const HOLD: Duration = Duration::from_secs(2);

/// Several turns of owners.
const RUN: Duration = Duration::from_secs(12);

/// Seconds after which another owner opens the tunnels: twice the hold time.
const TURN: u64 = 4;

const ENGINES: usize = 3;
const AGENTS: u64 = 9;
const NAMES: [&str; 3] = ["a", "b", "c"];
const OWNERS: [&str; 3] = ["x", "y", "z"];

/// The agents that an engine admits visitors for.
#[derive(Clone, Default)]
struct Admissions(Arc<Mutex<Table>>);

#[derive(Default)]
struct Table {
    next: u64,
    online: HashMap<u64, Admission>,
    /// Names that were assigned to another owner than before.
    moves: usize,
    last_owners: HashMap<&'static str, &'static str>,
}

struct Admission {
    name: &'static str,
    owner: &'static str,
    engine: Arc<Cluster>,
}

impl Admissions {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a claim that has succeeded. No engine may serve the name for another owner now.
    fn add(&self, admission: Admission, claim: &Claim) -> u64 {
        let mut table = self.table();
        let Admission { name, owner, .. } = admission;
        let others = table.online.values();
        let mut others = others.filter(|other| other.name == name && other.owner != owner);
        assert!(
            others.all(|other| !other.engine.serves()),
            "{name} is served for {owner} and another owner"
        );
        if table.last_owners.insert(name, owner) != Some(owner) {
            table.moves += 1;
        }
        table.next += 1;
        let id = table.next;
        table.online.insert(id, admission);
        drop(table);
        let (admissions, lost) = (self.clone(), id);
        claim.on_loss(move || admissions.remove(lost));
        id
    }

    fn remove(&self, id: u64) {
        self.table().online.remove(&id);
    }
}

/// Waits for the next contact of an engine with the store.
async fn next_contact(engine: &Cluster) {
    let is_waiting = AtomicBool::new(false);
    let is_met = |_: &Cluster| is_waiting.swap(true, Ordering::Relaxed);
    engine.wait_until(is_met).await;
}

/// The engines, and one that is never cut off, whose contacts set the pace.
#[derive(Clone)]
struct World {
    engines: Arc<Mutex<Vec<Arc<Cluster>>>>,
    pace: Arc<Cluster>,
    admissions: Admissions,
    start: Instant,
}

impl World {
    fn engine(&self, place: usize) -> Arc<Cluster> {
        let engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&engines[place])
    }

    fn replace(&self, place: usize, engine: Arc<Cluster>) -> Arc<Cluster> {
        let mut engines = self.engines.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut engines[place], engine)
    }

    /// The owner whose turn it is, or the next one, which is refused until the hold ends.
    fn owner(&self, random: &mut Rng) -> &'static str {
        let turn = usize::try_from(self.start.elapsed().as_secs() / TURN).unwrap();
        OWNERS[(turn + usize::from(random.u8(..5) == 0)) % OWNERS.len()]
    }

    /// True after several turns, when one name at least has had a second owner.
    fn is_over(&self) -> bool {
        self.start.elapsed() >= RUN && self.admissions.table().moves > NAMES.len()
    }

    /// Agents that open tunnels at random engines, and leave after a while.
    async fn open_and_close(self, mut random: Rng) {
        while !self.is_over() {
            let engine = self.engine(random.usize(..ENGINES));
            let name = NAMES[random.usize(..NAMES.len())];
            let owner = self.owner(&mut random);
            let names = vec![Name::of_host(name)];
            let claimed = engine.claim(names, Owner::new(owner), false).await;
            let Ok(held) = claimed else {
                next_contact(&self.pace).await;
                continue;
            };
            let admission = Admission {
                name,
                owner,
                engine,
            };
            let id = self.admissions.add(admission, &held);
            for _ in 0..random.usize(..20) {
                next_contact(&self.pace).await;
            }
            // Admission ends before the name is parked.
            self.admissions.remove(id);
            drop(held);
            next_contact(&self.pace).await;
        }
    }
}

#[tokio::test]
async fn no_name_is_served_for_two_owners() {
    let servers = EtcdServers::start(1).await;
    let endpoints = servers.endpoints();
    let mut engines = Vec::new();
    for place in 0..ENGINES {
        let address = format!("engine-{place}:1");
        engines.push(Arc::new(join(&endpoints, &address, HOLD).await));
    }
    let world = World {
        engines: Arc::new(Mutex::new(engines)),
        pace: Arc::new(join(&endpoints, "pace:1", HOLD).await),
        admissions: Admissions::default(),
        start: Instant::now(),
    };
    let agents = (0..AGENTS).map(|seed| {
        let agent = world.clone().open_and_close(Rng::with_seed(seed));
        tokio::spawn(agent)
    });
    let agents: Vec<_> = agents.collect();
    // Engines lose the store, and processes replace them. The old ones serve until their tenure ends.
    for place in 0..ENGINES {
        let address = format!("engine-{place}:2");
        let joined = join(&endpoints, &address, HOLD).await;
        world.replace(place, Arc::new(joined)).cut_off();
        for _ in 0..50 {
            next_contact(&world.pace).await;
        }
    }
    for agent in agents {
        within("changes of owners", agent).await.unwrap();
    }
}
