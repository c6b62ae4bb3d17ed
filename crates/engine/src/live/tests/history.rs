//! EN-3 with random histories: snapshot and events together always yield the state.

use proptest::prelude::*;

use super::*;

/// One step of a random history.
#[derive(Debug, Clone)]
enum Act {
    Connect {
        user: usize,
    },
    Disconnect {
        client: usize,
    },
    Open {
        client: usize,
        name: Option<usize>,
        hostname: Option<usize>,
        env: usize,
    },
    Close {
        tunnel: usize,
    },
    Relabel {
        tunnel: usize,
        env: usize,
    },
    Rename {
        client: usize,
        os: usize,
    },
    Watch {
        view: usize,
    },
}

fn act() -> impl Strategy<Value = Act> {
    let index = 0..6_usize;
    let choice = || proptest::option::of(0..3_usize);
    prop_oneof![
        index.clone().prop_map(|user| Act::Connect { user }),
        index.clone().prop_map(|client| Act::Disconnect { client }),
        (index.clone(), choice(), choice(), 0..3_usize).prop_map(
            |(client, name, hostname, env)| Act::Open {
                client,
                name,
                hostname,
                env
            }
        ),
        (index.clone(), choice(), choice(), 0..3_usize).prop_map(
            |(client, name, hostname, env)| Act::Open {
                client,
                name,
                hostname,
                env
            }
        ),
        index.clone().prop_map(|tunnel| Act::Close { tunnel }),
        (index.clone(), 0..3_usize).prop_map(|(tunnel, env)| Act::Relabel { tunnel, env }),
        (index.clone(), 0..3_usize).prop_map(|(client, os)| Act::Rename { client, os }),
        index.prop_map(|view| Act::Watch { view }),
    ]
}

const ENVS: [&str; 3] = ["prod", "dev", "test"];

fn views() -> [View; 4] {
    [
        everything(),
        view(r#"{"tunnels": {"labels": {"env": "prod"}}}"#, None),
        view(
            r#"{"tunnels": {"labels": {"env": null}, "user_id": "u1"}, "clients": {"os": "prod"}}"#,
            None,
        ),
        view(
            "{}",
            Some(&json!({"tunnels": {"scopes": {"tunnels": {"list": {
            "filters": {"labels": {"env": "dev"}}, "select": {"id": true, "labels": true}}}}}})),
        ),
    ]
}

/// Carries out an act with the objects that the chosen indices refer to now.
fn carry_out(live: &TunnelRegistry, owners: &mut Vec<ClientHandle<&'static str>>, act: &Act) {
    let some = |count: usize, index: usize| index.checked_rem(count);
    let tunnel = |index| {
        let tunnels = live.tunnels(&everything(), usize::MAX);
        some(tunnels.len(), index).map(|place| (tunnels[place].client_id, tunnels[place].id))
    };
    match act {
        Act::Connect { user: number } => {
            owners.push(connect(live, &user(&format!("u{}", number % 2)), "agent"));
        }
        Act::Disconnect { client } => {
            if let Some(place) = some(owners.len(), *client) {
                live.remove_client(&owners.swap_remove(place).client_id);
            }
        }
        Act::Open {
            client,
            name,
            hostname,
            env,
        } => {
            let Some(place) = some(owners.len(), *client) else {
                return;
            };
            let mut properties = json!({"labels": {"env": ENVS[*env]}});
            if let Some(name) = name {
                properties["name"] = json!(format!("n{name}"));
            }
            if let Some(hostname) = hostname {
                properties["hostname"] = json!(format!("h{hostname}.t.x"));
            }
            // A refusal is a valid step: it must not change anything.
            drop(open(live, &owners[place], properties));
        }
        Act::Close { tunnel: index } => {
            if let Some((client, id)) = tunnel(*index) {
                live.close_tunnel(&client, &id);
            }
        }
        Act::Relabel { tunnel: index, env } => {
            if let Some((client, id)) = tunnel(*index) {
                live.update_tunnel(&client, &id, |view| {
                    view.properties
                        .labels
                        .insert("env".to_owned(), ENVS[*env].to_owned());
                });
            }
        }
        Act::Rename { client, os } => {
            if let Some(place) = some(owners.len(), *client) {
                live.update_client(&owners[place].client_id, |view| {
                    view.os = Some(ENVS[*os].to_owned());
                });
            }
        }
        Act::Watch { .. } => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// EN-3: at any time, a watcher's snapshot and events together yield the state, and the routing
    /// maps agree with the lists.
    #[test]
    fn en_3_snapshot_and_events_yield_the_state(acts in proptest::collection::vec(act(), 1..60)) {
        let live = live();
        let views = views();
        let mut owners = Vec::new();
        let mut watchers: Vec<(Subscription, WatcherState)> = Vec::new();
        for act in &acts {
            if let Act::Watch { view } = act {
                let subscription = live.subscribe(views[view % views.len()].clone()).unwrap();
                let known = WatcherState::of(&subscription);
                watchers.push((subscription, known));
            }
            carry_out(&live, &mut owners, act);
        }
        for (subscription, known) in &mut watchers {
            known.apply_all(subscription);
            prop_assert_eq!(&*known, &WatcherState::listed(&live, &subscription.view));
        }
        let online = live.tunnels(&everything(), usize::MAX);
        for tunnel in &online {
            let by_id = live.find("default", tunnel.id.as_str()).unwrap();
            prop_assert_eq!(by_id.view.id, tunnel.id);
            if let Some(name) = &tunnel.properties.name {
                prop_assert_eq!(live.find("default", name.as_str()).unwrap().view.id, tunnel.id);
            }
            if let Some(hostname) = &tunnel.properties.hostname {
                let leads_here = matches!(live.route(hostname.as_str()), Route::Online(t) if t.view.id == tunnel.id);
                prop_assert!(leads_here);
            }
        }
        for number in 0..3 {
            let hostname = format!("h{number}.t.x");
            let held = online.iter().any(|t| t.properties.hostname.as_ref().is_some_and(|h| h.as_str() == hostname));
            prop_assert_eq!(matches!(live.route(&hostname), Route::Online(_)), held);
            let name = format!("n{number}");
            let held = online.iter().any(|t| t.properties.name.as_ref().is_some_and(|n| n.as_str() == name));
            prop_assert_eq!(live.find("default", &name).is_some(), held);
        }
    }
}

/// EN-3 under concurrency: watchers subscribe while other threads change the state.
#[test]
fn en_3_no_event_is_lost_or_duplicated_during_writes() {
    let live = limited(LiveLimits {
        watcher_queue: 100_000,
        ..LiveLimits::default()
    });
    let views = views();
    let watchers = parking_lot::Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for writer in 0..3_usize {
            let live = &live;
            scope.spawn(move || {
                let mut owners = Vec::new();
                for step in 0..300_usize {
                    let number = step * 7 + writer;
                    let act = match step % 6 {
                        0 => Act::Connect { user: number },
                        1 | 2 => Act::Open {
                            client: number,
                            name: (step % 4 == 1).then_some(number % 3),
                            hostname: Some(number % 5),
                            env: number % 3,
                        },
                        3 => Act::Rename {
                            client: number,
                            os: number % 3,
                        },
                        4 => Act::Open {
                            client: number,
                            name: None,
                            hostname: None,
                            env: number % 3,
                        },
                        _ if step % 12 == 11 => Act::Disconnect { client: number },
                        _ => Act::Relabel {
                            tunnel: number,
                            env: (number + 1) % 3,
                        },
                    };
                    carry_out(live, &mut owners, &act);
                }
            });
        }
        scope.spawn(|| {
            for number in 0..100 {
                let subscription = live.subscribe(views[number % views.len()].clone()).unwrap();
                watchers.lock().push(subscription);
                std::thread::yield_now();
            }
        });
    });
    for mut subscription in watchers.into_inner() {
        let mut known = WatcherState::of(&subscription);
        known.apply_all(&mut subscription);
        assert_eq!(known, WatcherState::listed(&live, &subscription.view));
    }
}
