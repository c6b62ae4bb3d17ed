use super::*;
use crate::entry::EntryValue;

const HERE: EngineId = EngineId(1);
const THERE: EngineId = EngineId(2);

fn engine(address: &str) -> Engine {
    Engine {
        name: "engine".into(),
        address: address.into(),
        zone: "".into(),
    }
}

fn hold(engine: EngineId, generation: u64) -> NameHold {
    NameHold {
        engine,
        owner: Owner::new("a"),
        generation: Generation(generation),
        is_online: true,
        is_shared: true,
    }
}

fn addresses(view: &View, name: &Name) -> Vec<String> {
    let servers = view.servers(name).into_iter();
    let mut addresses: Vec<_> = servers
        .map(|server| server.engine.address.to_string())
        .collect();
    addresses.sort();
    addresses
}

#[test]
fn the_servers_of_a_name_are_the_engines_with_its_agents() {
    let (mut view, name) = (View::default(), Name::of_host("a"));
    let start = [
        Change::Engine(HERE, engine("here:1")),
        Change::Engine(THERE, engine("there:1")),
        Change::Hold(name.clone(), hold(HERE, 1)),
    ];
    view.replace(start, 5);
    assert_eq!(view.revision(), 5);
    assert_eq!(addresses(&view, &name), ["here:1"]);
    view.apply(Change::Hold(name.clone(), hold(THERE, 6)), 6);
    assert_eq!(addresses(&view, &name), ["here:1", "there:1"]);
    let parked = NameHold {
        is_online: false,
        ..hold(THERE, 7)
    };
    view.apply(Change::Hold(name.clone(), parked), 7);
    assert_eq!(addresses(&view, &name), ["here:1"]);
    view.apply(Change::HoldEnd(name.clone(), HERE), 8);
    assert_eq!(addresses(&view, &name), [""; 0]);
    assert_eq!(view.counts(), NameCounts { online: 0, held: 1 });
    view.apply(Change::HoldEnd(name.clone(), THERE), 9);
    assert_eq!(view.counts(), NameCounts::default());
}

#[test]
fn an_engine_that_has_left_serves_nothing() {
    let (mut view, name) = (View::default(), Name::of_host("a"));
    view.apply(Change::Engine(THERE, engine("there:1")), 1);
    view.apply(Change::Hold(name.clone(), hold(THERE, 2)), 2);
    view.apply(Change::EngineEnd(THERE), 3);
    assert_eq!(addresses(&view, &name), [""; 0]);
    assert_eq!(view.engines().count(), 0);
}

/// An engine applies its own writes before the stream of changes has reached them.
#[test]
fn changes_that_are_older_than_a_hold_are_ignored() {
    let (mut view, name) = (View::default(), Name::of_host("a"));
    for other in [None, Some(Change::Hold(name.clone(), hold(THERE, 1)))] {
        if let Some(other) = other {
            view.apply(other, 1);
        }
        view.apply(Change::Hold(name.clone(), hold(HERE, 10)), 10);
        view.apply(Change::Hold(name.clone(), hold(HERE, 8)), 8);
        view.apply(Change::HoldEnd(name.clone(), HERE), 9);
        let own = view.holds(&name).iter().find(|hold| hold.engine == HERE);
        assert_eq!(own, Some(&hold(HERE, 10)));
    }
}

#[test]
fn texts_of_owners_without_names_are_dropped() {
    let mut view = View::default();
    for number in 0..10 * MIN_OWNERS as u64 {
        let name = Name::of_host("a");
        let owner = Owner::new(number.to_string());
        let hold = NameHold {
            owner,
            ..hold(HERE, number)
        };
        view.apply(Change::Hold(name.clone(), hold), number);
        view.apply(Change::HoldEnd(name, HERE), number);
    }
    assert!(view.owners.len() <= MIN_OWNERS, "{}", view.owners.len());
}

#[test]
fn a_server_has_the_newest_entry_of_its_engine() {
    let (mut view, name) = (View::default(), Name::of_host("a"));
    let entry = |revision: u64| Entry {
        revision: Generation(revision),
        value: EntryValue::new(revision.to_be_bytes()),
    };
    let values = |view: &View| -> Vec<Option<u64>> {
        let servers = view.servers(&name).into_iter();
        let revision = |entry: Entry| entry.revision.0;
        servers.map(|server| server.entry.map(revision)).collect()
    };
    view.apply(Change::Engine(HERE, engine("here:1")), 1);
    view.apply(Change::Engine(THERE, engine("there:1")), 1);
    view.apply(Change::Entry(name.clone(), HERE, entry(2)), 2);
    assert!(values(&view).is_empty(), "the engine has no agent");
    view.apply(Change::Hold(name.clone(), hold(HERE, 3)), 3);
    view.apply(Change::Hold(name.clone(), hold(THERE, 3)), 3);
    assert_eq!(values(&view), [Some(2), None]);
    view.apply(Change::Entry(name.clone(), THERE, entry(5)), 5);
    view.apply(Change::Entry(name.clone(), THERE, entry(4)), 4);
    assert_eq!(values(&view), [Some(2), Some(5)], "an older change");
    view.apply(Change::EntryEnd(name.clone(), THERE), 4);
    assert_eq!(values(&view), [Some(2), Some(5)], "an older change");
    view.apply(Change::EntryEnd(name.clone(), HERE), 6);
    view.apply(Change::EntryEnd(name.clone(), THERE), 6);
    assert_eq!(values(&view), [None, None]);
    assert!(view.entry(&name, HERE).is_none());
}

/// The value may contain hashes of passwords.
#[test]
fn the_value_of_an_entry_is_not_printed() {
    let entry = Entry {
        revision: Generation(1),
        value: EntryValue::new(*b"hidden"),
    };
    // `h` is 104.
    for text in ["hidden", "104"] {
        assert!(!format!("{entry:?}").contains(text), "{entry:?}");
    }
}
