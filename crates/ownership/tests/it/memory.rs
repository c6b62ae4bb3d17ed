//! The memory of a view of many names.

use ownership::{Change, Engine, EngineId, Generation, Name, NameHold, Owner, View};

const NAMES: u64 = 100_000;

/// The limit of issue 26 for 100,000 names.
const LIMIT: u64 = 150 * 1024 * 1024;

#[test]
fn a_view_of_100_000_names_takes_at_most_150_mib() {
    let before = resident_bytes();
    let mut view = View::default();
    view.replace(records(), NAMES);
    let used = resident_bytes().saturating_sub(before);
    assert_eq!(view.counts().online as u64, 2 * NAMES);
    assert!(used <= LIMIT, "{used} bytes");
}

/// Each tunnel has a host name and a name in its project, which are two names of the view, and
/// each is at two engines. Every tunnel has another owner.
fn records() -> impl Iterator<Item = Change> {
    let engines = (0..3).map(|number| {
        let engine = Engine {
            name: format!("engine-{number}").into(),
            address: format!("engine-{number}.internal:7443").into(),
            zone: "zone".into(),
        };
        Change::Engine(EngineId(number), engine)
    });
    let holds = (0..NAMES).flat_map(|number| {
        let project = format!("prj_{number:020}");
        let owner = Owner::new(format!("{project}/user/usr_{number:020}"));
        let names = [
            Name::of_host(&format!("service-{number}-0123abcd.t.engine.example")),
            Name::of_tunnel(&project, "service"),
        ];
        names.into_iter().flat_map(move |name| {
            let owner = owner.clone();
            let engines = [number % 3, (number + 1) % 3];
            engines.map(|engine| {
                let hold = NameHold {
                    engine: EngineId(u128::from(engine)),
                    owner: owner.clone(),
                    generation: Generation(number),
                    is_online: true,
                    is_shared: true,
                };
                Change::Hold(name.clone(), hold)
            })
        })
    });
    engines.chain(holds)
}

fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    kib.unwrap().parse::<u64>().unwrap() * 1024
}
