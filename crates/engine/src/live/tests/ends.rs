//! Ends of tunnels and clients, and the state of host names after them.

use super::*;

#[test]
fn a_clients_tunnels_are_removed_with_it_in_order() {
    let live = live();
    let ann = connect(&live, &user("ann"), "ann");
    for name in ["one", "two", "three"] {
        open(
            &live,
            &ann,
            json!({"name": name, "hostname": format!("{name}.t.x")}),
        )
        .unwrap();
    }
    let mut watcher = live.subscribe(everything()).unwrap();
    let closed = live.remove_client(&ann.client_id);
    let names: Vec<_> = closed
        .iter()
        .map(|t| t.view.properties.name.clone().unwrap().to_string())
        .collect();
    assert_eq!(names, ["one", "two", "three"]);
    assert_eq!(
        types_of(&mut watcher),
        [
            "tunnel.deleted",
            "tunnel.deleted",
            "tunnel.deleted",
            "client.deleted"
        ]
    );
    assert!(live.find("default", "one").is_none());
    assert_eq!(
        open(&live, &ann, json!({})).unwrap_err(),
        OpenTunnelError::NotConnected
    );
}

#[test]
fn a_client_closes_only_its_own() {
    let live = live();
    let ann = connect(&live, &user("ann"), "ann");
    let other = connect(&live, &user("ann"), "other");
    let id = open(&live, &ann, json!({})).unwrap().tunnel.view.id;
    assert!(live.close_tunnel(&other.client_id, &id).is_none());
    assert!(live.close_tunnel(&ann.client_id, &id).is_some());
    assert!(live.close_tunnel(&ann.client_id, &id).is_none());
}

#[test]
fn a_hostname_is_offline_for_ten_minutes_and_then_unknown() {
    let clock = clock();
    let live: Arc<TunnelRegistry> =
        TunnelRegistry::new(LiveLimits::default(), Arc::<ManualClock>::clone(&clock));
    assert!(matches!(live.route("web.t.x"), Route::Unknown));
    let ann = connect(&live, &user("ann"), "ann");
    open(&live, &ann, json!({"hostname": "web.t.x"})).unwrap();
    clock.advance(3600);
    live.remove_client(&ann.client_id);
    assert!(matches!(live.route("web.t.x"), Route::Offline));
    assert!(live.is_reserved_name(&"web.t.x".parse().unwrap()));
    clock.advance(599);
    assert!(matches!(live.route("web.t.x"), Route::Offline));
    clock.advance(1);
    assert!(matches!(live.route("web.t.x"), Route::Unknown));
}
