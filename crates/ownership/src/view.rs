//! An engine's copy of all holds of the cluster.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::entry::Entry;
use crate::hold::{EngineId, Generation, NameHold, Owner};
use crate::name::Name;

/// An engine of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Engine {
    /// Its name, which its certificate contains.
    pub name: Arc<str>,
    /// The address at which other engines reach it, `host:port`.
    pub address: Arc<str>,
    /// Its zone; empty if it has none.
    pub zone: Arc<str>,
}

/// An engine that has an agent with a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// The engine.
    pub id: EngineId,
    /// Its address and its zone.
    pub engine: Engine,
    /// The identity of the agent.
    pub owner: Owner,
    /// The generation of its hold.
    pub generation: Generation,
    /// The entry of its tunnel, if the engine has written one.
    pub entry: Option<Entry>,
}

/// A change of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// An engine has joined, or has written its record again.
    Engine(EngineId, Engine),
    /// An engine has left, or its lease has ended.
    EngineEnd(EngineId),
    /// A hold was written.
    Hold(Name, NameHold),
    /// A hold was removed, or its lease has ended.
    HoldEnd(Name, EngineId),
    /// The entry of a tunnel was written.
    Entry(Name, EngineId, Entry),
    /// The entry of a tunnel was removed, or its lease has ended.
    EntryEnd(Name, EngineId),
}

/// Numbers of names by their state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NameCounts {
    /// Names with an agent.
    pub online: usize,
    /// Names without an agent that are held against other owners.
    pub held: usize,
}

/// All names of the cluster with their owners and engines, at one revision of the store.
///
/// A name with one engine, the common case, has no allocation except for its text.
#[derive(Clone, Debug, Default)]
pub struct View {
    revision: u64,
    names: HashMap<Name, Holders>,
    /// Few names have entries of several engines.
    entries: HashMap<Name, Vec<(EngineId, Entry)>>,
    engines: HashMap<EngineId, Engine>,
    /// One text for each owner, however many names it has.
    owners: HashSet<Owner>,
}

#[derive(Clone, Debug)]
enum Holders {
    One(NameHold),
    Several(Vec<NameHold>),
}

impl Holders {
    fn all(&self) -> &[NameHold] {
        match self {
            Self::One(hold) => std::slice::from_ref(hold),
            Self::Several(holds) => holds,
        }
    }
}

impl View {
    /// Starts again from all records of the store at one revision.
    pub fn replace(&mut self, records: impl IntoIterator<Item = Change>, revision: u64) {
        *self = Self::default();
        for record in records {
            self.apply(record, revision);
        }
        self.revision = revision;
    }

    /// The last revision whose changes are in the view.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// All changes up to this revision are in the view.
    pub fn advance(&mut self, revision: u64) {
        self.revision = self.revision.max(revision);
    }

    /// Applies a change of this revision. A change that is older than the hold in the view is
    /// ignored: the engine has applied a later one of its own already.
    pub fn apply(&mut self, change: Change, revision: u64) {
        match change {
            Change::Engine(id, engine) => {
                self.engines.insert(id, engine);
            }
            Change::EngineEnd(id) => {
                self.engines.remove(&id);
            }
            Change::Hold(name, hold) => self.insert(name, hold),
            Change::HoldEnd(name, engine) => self.remove(&name, engine, revision),
            Change::Entry(name, engine, entry) => self.insert_entry(name, engine, entry),
            Change::EntryEnd(name, engine) => self.remove_entry(&name, engine, revision),
        }
    }

    /// The record of an engine.
    pub fn engine(&self, id: EngineId) -> Option<&Engine> {
        self.engines.get(&id)
    }

    /// The entry of a tunnel at an engine, whether the engine has an agent with the name or not.
    pub fn entry(&self, name: &Name, engine: EngineId) -> Option<&Entry> {
        let mut entries = self.entries.get(name)?.iter();
        let found = entries.find(|(known, _)| *known == engine);
        found.map(|(_, entry)| entry)
    }

    /// All holds of a name.
    pub fn holds(&self, name: &Name) -> &[NameHold] {
        self.names.get(name).map(Holders::all).unwrap_or_default()
    }

    /// The engines that have agents with a name.
    pub fn servers(&self, name: &Name) -> Vec<Server> {
        let online = self.holds(name).iter().filter(|hold| hold.is_online);
        online
            .filter_map(|hold| {
                let engine = self.engines.get(&hold.engine)?.clone();
                Some(Server {
                    id: hold.engine,
                    engine,
                    owner: hold.owner.clone(),
                    generation: hold.generation,
                    entry: self.entry(name, hold.engine).cloned(),
                })
            })
            .collect()
    }

    /// The engines of the cluster.
    pub fn engines(&self) -> impl Iterator<Item = (&EngineId, &Engine)> {
        self.engines.iter()
    }

    /// Numbers of names. It reads all of them.
    pub fn counts(&self) -> NameCounts {
        let is_online = |holders: &&Holders| holders.all().iter().any(|hold| hold.is_online);
        let online = self.names.values().filter(is_online).count();
        NameCounts {
            online,
            held: self.names.len() - online,
        }
    }

    fn insert(&mut self, name: Name, mut hold: NameHold) {
        hold.owner = self.shared_owner(hold.owner);
        let Some(holders) = self.names.get_mut(&name) else {
            self.names.insert(name, Holders::One(hold));
            return;
        };
        match holders {
            Holders::One(old) if old.engine == hold.engine => {
                if old.generation < hold.generation {
                    *old = hold;
                }
            }
            Holders::One(old) => *holders = Holders::Several(vec![old.clone(), hold]),
            Holders::Several(holds) => {
                match holds.iter_mut().find(|old| old.engine == hold.engine) {
                    Some(old) if old.generation < hold.generation => *old = hold,
                    Some(_) => {}
                    None => holds.push(hold),
                }
            }
        }
    }

    fn remove(&mut self, name: &Name, engine: EngineId, revision: u64) {
        let is_removed =
            |hold: &NameHold| hold.engine == engine && hold.generation <= Generation(revision);
        let Some(holders) = self.names.get_mut(name) else {
            return;
        };
        let is_empty = match holders {
            Holders::One(hold) => is_removed(hold),
            Holders::Several(holds) => {
                holds.retain(|hold| !is_removed(hold));
                holds.is_empty()
            }
        };
        if is_empty {
            self.names.remove(name);
        }
    }

    fn insert_entry(&mut self, name: Name, engine: EngineId, entry: Entry) {
        let entries = self.entries.entry(name).or_default();
        match entries.iter_mut().find(|(known, _)| *known == engine) {
            Some((_, old)) if old.revision < entry.revision => *old = entry,
            Some(_) => {}
            None => {
                entries.reserve_exact(1);
                entries.push((engine, entry));
            }
        }
    }

    fn remove_entry(&mut self, name: &Name, engine: EngineId, revision: u64) {
        let Some(entries) = self.entries.get_mut(name) else {
            return;
        };
        entries.retain(|(known, entry)| *known != engine || entry.revision > Generation(revision));
        if entries.is_empty() {
            self.entries.remove(name);
        }
    }

    /// The owner with a text that its other names have, too.
    fn shared_owner(&mut self, owner: Owner) -> Owner {
        if let Some(known) = self.owners.get(owner.as_str()) {
            return known.clone();
        }
        // Texts of owners without a name are dropped from time to time: at most half are unused.
        if self.owners.len() >= MIN_OWNERS.max(2 * self.names.len()) {
            self.owners.clear();
            let holds = self.names.values().flat_map(Holders::all);
            self.owners.extend(holds.map(|hold| hold.owner.clone()));
        }
        self.owners.insert(owner.clone());
        owner
    }
}

/// Below this number unused texts are not worth a search.
const MIN_OWNERS: usize = 1024;

#[cfg(test)]
mod tests;
