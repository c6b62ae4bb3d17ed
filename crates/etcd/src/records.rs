//! Keys and values of the store.
//!
//! | key below the prefix | value | lease |
//! |---|---|---|
//! | `engines/<engine>` | [`EngineValue`] | the engine's |
//! | `names/<name>/<engine>` | [`HoldValue`] | the engine's, or a parking lease |
//! | `entries/<name>/<engine>` | an entry of a tunnel, whose format is that of the engines | the engine's |

use ownership::{
    Change, Claimant, Engine, EngineId, Entry, EntryValue, Generation, Name, NameHold, Owner,
};
use prost::Message;

use crate::proto::{
    COMPARE_EQUAL, COMPARE_LESS, COMPARE_MOD, Compare, DeleteRangeRequest, EVENT_DELETE, Event,
    KeyValue, Operation, PutRequest, RangeRequest, RequestOp,
};

/// The record of an engine.
#[derive(Clone, PartialEq, Message)]
struct EngineValue {
    #[prost(string, tag = "1")]
    address: String,
    #[prost(string, tag = "2")]
    zone: String,
    /// Increases with each write of the record.
    #[prost(uint64, tag = "3")]
    beat: u64,
    #[prost(string, tag = "4")]
    name: String,
}

/// The record of a name at an engine.
#[derive(Clone, PartialEq, Message)]
struct HoldValue {
    #[prost(string, tag = "1")]
    owner: String,
    #[prost(bool, tag = "2")]
    is_online: bool,
    #[prost(bool, tag = "3")]
    is_shared: bool,
}

/// Maximum size of an entry. The settings of a tunnel have some hundred bytes. All entries of a page
/// fit into one response of the store.
pub const MAX_ENTRY_BYTES: usize = 16 * 1024;

/// The layout of the keys of one cluster.
#[derive(Clone, Debug)]
pub(crate) struct Keys {
    prefix: String,
}

/// A change, and the beat of an engine's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StoreChange {
    pub(crate) change: Change,
    pub(crate) beat: Option<u64>,
    pub(crate) revision: u64,
}

impl Keys {
    pub(crate) fn new(prefix: &str) -> Self {
        let prefix = prefix.to_owned();
        Self { prefix }
    }

    /// The range of all keys.
    pub(crate) fn all(&self) -> (Vec<u8>, Vec<u8>) {
        range_of(&self.prefix)
    }

    fn engine(&self, id: EngineId) -> Vec<u8> {
        format!("{}engines/{id}", self.prefix).into_bytes()
    }

    fn hold(&self, name: &Name, engine: EngineId) -> Vec<u8> {
        format!("{}names/{name}/{engine}", self.prefix).into_bytes()
    }

    fn entry(&self, name: &Name, engine: EngineId) -> Vec<u8> {
        format!("{}entries/{name}/{engine}", self.prefix).into_bytes()
    }

    fn holds(&self, name: &Name) -> (Vec<u8>, Vec<u8>) {
        range_of(&format!("{}names/{name}/", self.prefix))
    }

    /// Reads all holds of a name.
    pub(crate) fn read_holds(&self, name: &Name) -> RequestOp {
        let (key, range_end) = self.holds(name);
        let request = RangeRequest {
            key,
            range_end,
            ..RangeRequest::default()
        };
        operation(Operation::Range(request))
    }

    /// The condition that no hold of a name was written after a revision.
    pub(crate) fn is_unchanged(&self, name: &Name, since: u64) -> Compare {
        let (key, range_end) = self.holds(name);
        Compare {
            result: COMPARE_LESS,
            target: COMPARE_MOD,
            key,
            mod_revision: Some(revision(since).saturating_add(1)),
            range_end,
        }
    }

    /// The condition that a hold has this generation.
    pub(crate) fn has_generation(
        &self,
        name: &Name,
        engine: EngineId,
        generation: Generation,
    ) -> Compare {
        Compare {
            result: COMPARE_EQUAL,
            target: COMPARE_MOD,
            key: self.hold(name, engine),
            mod_revision: Some(revision(generation.0)),
            range_end: Vec::new(),
        }
    }

    pub(crate) fn put_engine(
        &self,
        id: EngineId,
        engine: &Engine,
        beat: u64,
        lease: i64,
    ) -> RequestOp {
        let value = EngineValue {
            address: engine.address.to_string(),
            zone: engine.zone.to_string(),
            beat,
            name: engine.name.to_string(),
        };
        put(self.engine(id), value.encode_to_vec(), lease)
    }

    pub(crate) fn put_hold(
        &self,
        name: &Name,
        claimant: &Claimant,
        is_online: bool,
        lease: i64,
    ) -> RequestOp {
        let value = HoldValue {
            owner: claimant.owner.as_str().to_owned(),
            is_online,
            is_shared: claimant.shares,
        };
        let key = self.hold(name, claimant.engine);
        put(key, value.encode_to_vec(), lease)
    }

    pub(crate) fn remove_hold(&self, name: &Name, engine: EngineId) -> RequestOp {
        let key = self.hold(name, engine);
        operation(Operation::Delete(DeleteRangeRequest { key }))
    }

    pub(crate) fn put_entry(
        &self,
        name: &Name,
        engine: EngineId,
        value: &[u8],
        lease: i64,
    ) -> RequestOp {
        put(self.entry(name, engine), value.to_vec(), lease)
    }

    pub(crate) fn remove_entry(&self, name: &Name, engine: EngineId) -> RequestOp {
        let key = self.entry(name, engine);
        operation(Operation::Delete(DeleteRangeRequest { key }))
    }

    /// The change that a record stands for; `None` for other keys.
    pub(crate) fn record(&self, kv: &KeyValue) -> Option<StoreChange> {
        let revision = u64::try_from(kv.mod_revision).ok()?;
        let (change, beat) = match self.key(&kv.key)? {
            Key::Engine(id) => {
                let value = EngineValue::decode(kv.value.as_slice()).ok()?;
                let engine = Engine {
                    name: value.name.into(),
                    address: value.address.into(),
                    zone: value.zone.into(),
                };
                (Change::Engine(id, engine), Some(value.beat))
            }
            Key::Hold(name, engine) => {
                // A record that this version cannot read belongs to an owner that no agent is.
                let value = HoldValue::decode(kv.value.as_slice()).unwrap_or_default();
                let hold = NameHold {
                    engine,
                    owner: Owner::new(value.owner),
                    generation: Generation(revision),
                    is_online: value.is_online,
                    is_shared: value.is_shared,
                };
                (Change::Hold(name, hold), None)
            }
            // No engine of this version writes a larger one.
            Key::Entry(name, engine) if kv.value.len() > MAX_ENTRY_BYTES => {
                (Change::EntryEnd(name, engine), None)
            }
            Key::Entry(name, engine) => {
                let entry = Entry {
                    revision: Generation(revision),
                    value: EntryValue::new(kv.value.as_slice()),
                };
                (Change::Entry(name, engine, entry), None)
            }
        };
        Some(StoreChange {
            change,
            beat,
            revision,
        })
    }

    /// The change of an event; `None` for other keys.
    pub(crate) fn event(&self, event: &Event) -> Option<StoreChange> {
        let kv = event.kv.as_ref()?;
        if event.kind != EVENT_DELETE {
            return self.record(kv);
        }
        let change = match self.key(&kv.key)? {
            Key::Engine(id) => Change::EngineEnd(id),
            Key::Hold(name, engine) => Change::HoldEnd(name, engine),
            Key::Entry(name, engine) => Change::EntryEnd(name, engine),
        };
        Some(StoreChange {
            change,
            beat: None,
            revision: u64::try_from(kv.mod_revision).ok()?,
        })
    }

    fn key(&self, key: &[u8]) -> Option<Key> {
        let key = std::str::from_utf8(key).ok()?;
        let (kind, rest) = key.strip_prefix(&self.prefix)?.split_once('/')?;
        match kind {
            "engines" => Some(Key::Engine(rest.parse().ok()?)),
            "names" => {
                let (name, engine) = rest.rsplit_once('/')?;
                Some(Key::Hold(Name::parse(name)?, engine.parse().ok()?))
            }
            "entries" => {
                let (name, engine) = rest.rsplit_once('/')?;
                Some(Key::Entry(Name::parse(name)?, engine.parse().ok()?))
            }
            _ => None,
        }
    }
}

enum Key {
    Engine(EngineId),
    Hold(Name, EngineId),
    Entry(Name, EngineId),
}

fn operation(operation: Operation) -> RequestOp {
    RequestOp {
        operation: Some(operation),
    }
}

fn put(key: Vec<u8>, value: Vec<u8>, lease: i64) -> RequestOp {
    operation(Operation::Put(PutRequest { key, value, lease }))
}

/// All keys that start with this text, which ends with `/`.
fn range_of(prefix: &str) -> (Vec<u8>, Vec<u8>) {
    let key = prefix.as_bytes().to_vec();
    let mut end = key.clone();
    if let Some(last) = end.last_mut() {
        *last = last.saturating_add(1);
    }
    (key, end)
}

/// Revisions of etcd are positive.
fn revision(revision: u64) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kv(key: Vec<u8>, value: Vec<u8>) -> KeyValue {
        KeyValue {
            key,
            mod_revision: 7,
            value,
        }
    }

    fn put_of(op: RequestOp) -> KeyValue {
        match op.operation {
            Some(Operation::Put(put)) => kv(put.key, put.value),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn records_are_read_as_they_were_written() {
        let keys = Keys::new("/svc/");
        let name = Name::of_host("a.t.b");
        let claimant = Claimant {
            engine: EngineId(5),
            owner: Owner::new("p/user/u"),
            shares: true,
        };
        let written = put_of(keys.put_hold(&name, &claimant, true, 1));
        let hold = NameHold {
            engine: EngineId(5),
            owner: Owner::new("p/user/u"),
            generation: Generation(7),
            is_online: true,
            is_shared: true,
        };
        let read = keys.record(&written).unwrap();
        assert_eq!(read.change, Change::Hold(name.clone(), hold));
        assert_eq!((read.beat, read.revision), (None, 7));

        let removed = Event {
            kind: EVENT_DELETE,
            kv: Some(kv(written.key, Vec::new())),
        };
        let read = keys.event(&removed).unwrap();
        assert_eq!(read.change, Change::HoldEnd(name, EngineId(5)));

        let engine = Engine {
            name: "engine".into(),
            address: "a:1".into(),
            zone: "z".into(),
        };
        let written = put_of(keys.put_engine(EngineId(6), &engine, 9, 1));
        let read = keys.record(&written).unwrap();
        assert_eq!(read.change, Change::Engine(EngineId(6), engine));
        assert_eq!(read.beat, Some(9));
    }

    #[test]
    fn entries_are_read_as_they_were_written_up_to_their_limit() {
        let keys = Keys::new("/svc/");
        let name = Name::of_host("a.t.b");
        let value = vec![7; MAX_ENTRY_BYTES];
        let written = put_of(keys.put_entry(&name, EngineId(5), &value, 1));
        let entry = Entry {
            revision: Generation(7),
            value: EntryValue::new(value),
        };
        let read = keys.record(&written).unwrap().change;
        assert_eq!(read, Change::Entry(name.clone(), EngineId(5), entry));
        let end = Change::EntryEnd(name, EngineId(5));
        let larger = kv(written.key.clone(), vec![7; MAX_ENTRY_BYTES + 1]);
        assert_eq!(keys.record(&larger).unwrap().change, end);
        let removed = Event {
            kind: EVENT_DELETE,
            kv: Some(kv(written.key, Vec::new())),
        };
        assert_eq!(keys.event(&removed).unwrap().change, end);
    }

    #[test]
    fn an_unreadable_hold_belongs_to_no_agent() {
        let keys = Keys::new("/svc/");
        let key = format!("/svc/names/host/a/{}", EngineId(1)).into_bytes();
        let read = keys.record(&kv(key, vec![0xFF])).unwrap();
        let Change::Hold(_, hold) = read.change else {
            panic!("no hold");
        };
        assert_eq!(hold.owner, Owner::new(""));
        for other in [
            "/other/engines/1",
            "/svc/engines/1",
            "/svc/else/a",
            "/svc/names/host/a",
        ] {
            assert_eq!(keys.record(&kv(other.into(), Vec::new())), None, "{other}");
        }
    }

    #[test]
    fn a_range_has_the_keys_of_one_name() {
        let keys = Keys::new("/svc/");
        let (start, end) = keys.holds(&Name::of_host("a"));
        let is_in = |key: Vec<u8>| start <= key && key < end;
        assert!(is_in(keys.hold(&Name::of_host("a"), EngineId(0))));
        assert!(is_in(keys.hold(&Name::of_host("a"), EngineId(u128::MAX))));
        assert!(!is_in(keys.hold(&Name::of_host("a.b"), EngineId(0))));
        assert!(!is_in(keys.hold(&Name::of_host("a-b"), EngineId(0))));
    }
}
