//! Holders of names and host names, and takeovers.

use serde_json::json;

use super::*;

#[test]
fn the_same_channel_asking_twice_is_refused() {
    let live = live();
    let owner = connect(&live, &user("ann"), "a");
    open(&live, &owner, json!({"name": "web", "hostname": "web.t.x"})).unwrap();
    for again in [json!({"name": "web"}), json!({"hostname": "web.t.x"})] {
        assert_eq!(
            open(&live, &owner, again).unwrap_err(),
            OpenTunnelError::AlreadyHeld
        );
    }
    assert_eq!(live.counts().tunnels, 1);
}

#[test]
fn another_channel_of_the_same_identity_takes_over_immediately() {
    let live = live();
    let old = connect(&live, &user("ann"), "old");
    let new = connect(&live, &user("ann"), "new");
    let mut watcher = live.subscribe(everything()).unwrap();
    let first = open(&live, &old, json!({"name": "web", "hostname": "web.t.x"})).unwrap();
    let second = open(&live, &new, json!({"name": "web", "hostname": "web.t.x"})).unwrap();
    let displaced: Vec<_> = second
        .displaced
        .iter()
        .map(|d| (d.tunnel_id, *d.agent))
        .collect();
    assert_eq!(displaced, [(first.tunnel.view.id, "old")]);
    assert_eq!(second.displaced[0].client_id, old.client_id);
    assert!(matches!(live.route("web.t.x"), Route::Online(tunnel) if *tunnel.agent == "new"));
    assert_eq!(*live.find("default", "web").unwrap().agent, "new");
    assert_eq!(
        types_of(&mut watcher),
        ["tunnel.created", "tunnel.deleted", "tunnel.created"]
    );
    // A displaced tunnel is gone: its own end changes nothing any more.
    assert!(
        live.close_tunnel(&old.client_id, &first.tunnel.view.id)
            .is_none()
    );
    assert!(live.remove_client(&old.client_id).is_empty());
    assert!(matches!(live.route("web.t.x"), Route::Online(_)));
}

#[test]
fn name_and_hostname_may_displace_two_tunnels() {
    let live = live();
    let old = connect(&live, &user("ann"), "old");
    let new = connect(&live, &user("ann"), "new");
    open(&live, &old, json!({"name": "web", "hostname": "a.t.x"})).unwrap();
    open(&live, &old, json!({"name": "api", "hostname": "b.t.x"})).unwrap();
    let opened = open(&live, &new, json!({"name": "web", "hostname": "b.t.x"})).unwrap();
    assert_eq!(opened.displaced.len(), 2);
    assert_eq!(live.counts().tunnels, 1);
    assert!(matches!(live.route("a.t.x"), Route::Offline));
    assert!(live.find("default", "api").is_none());
    assert!(matches!(live.route("b.t.x"), Route::Online(tunnel) if *tunnel.agent == "new"));
}

#[test]
fn another_identity_is_refused_and_nothing_changes() {
    let live = live();
    let ann = connect(&live, &user("ann"), "ann");
    open(&live, &ann, json!({"name": "web", "hostname": "web.t.x"})).unwrap();
    let same_id_as_application =
        Identity::new("default", &credentials::Identity::Client("ann".to_owned()));
    for identity in [user("bob"), same_id_as_application] {
        let other = connect(&live, &identity, "other");
        let mut watcher = live.subscribe(everything()).unwrap();
        for (properties, refusal) in [
            (json!({"name": "web"}), OpenTunnelError::NameTaken),
            (
                json!({"hostname": "web.t.x"}),
                OpenTunnelError::HostnameTaken,
            ),
        ] {
            assert_eq!(open(&live, &other, properties).unwrap_err(), refusal);
        }
        assert_eq!(types_of(&mut watcher), [""; 0]);
    }
    assert!(matches!(live.route("web.t.x"), Route::Online(tunnel) if *tunnel.agent == "ann"));
}

#[test]
fn a_name_is_unique_in_its_project_and_a_hostname_globally() {
    let live = live();
    let ann = connect(&live, &user("ann"), "ann");
    let elsewhere = Identity::new("other", &credentials::Identity::User("ann".to_owned()));
    let other = connect(&live, &elsewhere, "other");
    open(&live, &ann, json!({"name": "web", "hostname": "web.t.x"})).unwrap();
    let refused = open(&live, &other, json!({"hostname": "web.t.x"})).unwrap_err();
    assert_eq!(refused, OpenTunnelError::HostnameTaken);
    open(
        &live,
        &other,
        json!({"name": "web", "hostname": "web2.t.x"}),
    )
    .unwrap();
    assert_eq!(*live.find("default", "web").unwrap().agent, "ann");
    assert_eq!(*live.find("other", "web").unwrap().agent, "other");
}

#[test]
fn an_id_of_another_project_finds_nothing() {
    let live = live();
    let ann = connect(&live, &user("ann"), "ann");
    let id = open(&live, &ann, json!({"publish": false}))
        .unwrap()
        .tunnel
        .view
        .id;
    assert!(live.find("default", id.as_str()).is_some());
    assert!(live.find("other", id.as_str()).is_none());
}

#[test]
fn a_tcp_tunnel_is_not_found_by_the_engines_own_hostname() {
    let live = live();
    let ann = connect(&live, &user("ann"), "ann");
    let mut properties = asked(json!({"protocol": "tcp"}));
    properties.hostname = Some("engine.example".parse().unwrap());
    properties.port = Some(4000);
    let policy = TunnelPolicy::compile(&properties);
    let opened = live.open_tunnel(ann, properties, policy).unwrap();
    assert_eq!(
        opened.tunnel.view.host.as_deref(),
        Some("engine.example:4000")
    );
    assert!(matches!(live.route("engine.example"), Route::Unknown));
}

#[test]
fn readers_never_see_a_gap_while_a_name_is_taken_over() {
    let live = live();
    let owners = [
        connect(&live, &user("ann"), "a"),
        connect(&live, &user("ann"), "b"),
    ];
    open(
        &live,
        &owners[0],
        json!({"name": "web", "hostname": "web.t.x"}),
    )
    .unwrap();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for turn in 0..5_000 {
                let taken = json!({"name": "web", "hostname": "web.t.x"});
                open(&live, &owners[(turn + 1) % 2], taken).unwrap();
            }
        });
        while !writer.is_finished() {
            assert!(matches!(live.route("web.t.x"), Route::Online(_)));
            assert!(live.find("default", "web").is_some());
        }
    });
}
