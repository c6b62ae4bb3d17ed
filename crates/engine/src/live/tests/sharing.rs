//! Names that several agents of one identity share.

use serde_json::json;

use super::*;

fn routed(live: &TunnelRegistry, host: &str) -> &'static str {
    match live.route(host) {
        Route::Online(tunnel) => *tunnel.agent,
        Route::Offline => "offline",
        Route::Unknown => "unknown",
    }
}

fn shared() -> Value {
    json!({"name": "web", "hostname": "web.t.x", "share": true})
}

#[test]
fn tunnels_that_share_a_name_take_turns() {
    let live = live();
    let owners = ["a", "b", "c"].map(|agent| connect(&live, &user("ann"), agent));
    for owner in &owners {
        let opened = open(&live, owner, shared()).unwrap();
        assert!(opened.displaced.is_empty());
    }
    let mut seen: Vec<_> = (0..3).map(|_| routed(&live, "web.t.x")).collect();
    seen.sort_unstable();
    assert_eq!(seen, ["a", "b", "c"]);
    let mut dialled: Vec<_> = (0..3)
        .map(|_| *live.find("default", "web").unwrap().agent)
        .collect();
    dialled.sort_unstable();
    assert_eq!(dialled, ["a", "b", "c"]);

    live.remove_client(&owners[0].client_id);
    live.remove_client(&owners[2].client_id);
    assert_eq!(routed(&live, "web.t.x"), "b");
    live.remove_client(&owners[1].client_id);
    assert_eq!(routed(&live, "web.t.x"), "offline");
    assert!(live.find("default", "web").is_none());
}

#[test]
fn a_tunnel_that_does_not_share_takes_over_from_all() {
    let live = live();
    for agent in ["a", "b"] {
        open(&live, &connect(&live, &user("ann"), agent), shared()).unwrap();
    }
    let alone = connect(&live, &user("ann"), "alone");
    let asked = json!({"name": "web", "hostname": "web.t.x"});
    let opened = open(&live, &alone, asked).unwrap();
    assert_eq!(opened.displaced.len(), 2);
    assert_eq!(routed(&live, "web.t.x"), "alone");
    let sharing = connect(&live, &user("ann"), "sharing");
    let opened = open(&live, &sharing, shared()).unwrap();
    assert_eq!(opened.displaced.len(), 1, "it did not request sharing");
    assert_eq!(live.counts().tunnels, 1);
}

#[test]
fn sharing_requires_the_same_identity_and_rules() {
    let live = live();
    let ann = connect(&live, &user("ann"), "ann");
    open(&live, &ann, shared()).unwrap();
    assert_eq!(
        open(&live, &ann, shared()).unwrap_err(),
        OpenTunnelError::AlreadyHeld
    );
    let bob = connect(&live, &user("bob"), "bob");
    assert_eq!(
        open(&live, &bob, shared()).unwrap_err(),
        OpenTunnelError::NameTaken
    );
    let second = connect(&live, &user("ann"), "second");
    for differs in [
        json!({"token_auth": true}),
        json!({"trusted_ips": ["192.0.2.0/24"]}),
        json!({"tls_min_version": "tls1.3"}),
    ] {
        let mut asked = shared();
        for (name, value) in differs.as_object().unwrap() {
            asked[name] = value.clone();
        }
        assert_eq!(
            open(&live, &second, asked).unwrap_err(),
            OpenTunnelError::GroupMismatch,
            "{differs}"
        );
    }
    assert_eq!(routed(&live, "web.t.x"), "ann");
}

#[test]
fn a_failed_tunnel_is_skipped_until_it_serves_again() {
    let live = live();
    let opened: Vec<_> = ["a", "b"]
        .map(|agent| {
            open(&live, &connect(&live, &user("ann"), agent), shared())
                .unwrap()
                .tunnel
        })
        .into();
    opened[0].health.record_failure();
    for _ in 0..4 {
        assert_eq!(routed(&live, "web.t.x"), "b");
    }
    assert_eq!(
        *live.failover_target(&opened[0], |_| true).unwrap().agent,
        "b"
    );
    opened[1].health.record_failure();
    let mut both: Vec<_> = (0..2).map(|_| routed(&live, "web.t.x")).collect();
    both.sort_unstable();
    assert_eq!(both, ["a", "b"], "if all fail, all are tried");
    opened[0].health.record_success();
    assert_eq!(routed(&live, "web.t.x"), "a");
}

#[test]
fn a_change_of_one_tunnel_keeps_the_others() {
    let live = live();
    let a = connect(&live, &user("ann"), "a");
    let tunnel = open(&live, &a, shared()).unwrap().tunnel;
    open(&live, &connect(&live, &user("ann"), "b"), shared()).unwrap();
    live.update_tunnel(&a.client_id, &tunnel.view.id, |view| {
        view.region = Some("moon".to_owned());
    });
    let mut seen: Vec<_> = (0..2).map(|_| routed(&live, "web.t.x")).collect();
    seen.sort_unstable();
    assert_eq!(seen, ["a", "b"]);
}
