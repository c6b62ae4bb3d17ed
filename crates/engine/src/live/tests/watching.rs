//! EN-3: filters, boundaries, and the events of a watcher.

use super::*;

/// EN-3.
#[test]
fn en_3_the_same_filter_applies_to_list_snapshot_and_events() {
    let live = live();
    let ann = connect(&live, &user("ann"), "ann");
    open(
        &live,
        &ann,
        json!({"name": "web", "labels": {"env": "prod"}}),
    )
    .unwrap();
    open(
        &live,
        &ann,
        json!({"name": "dev", "labels": {"env": "dev"}}),
    )
    .unwrap();
    let cut = view(
        r#"{"tunnels": {"labels": {"env": "prod"}}, "clients": {"user_id": "nobody"}}"#,
        None,
    );
    let mut watcher = live.subscribe(cut.clone()).unwrap();
    let mut known = WatcherState::of(&watcher);
    assert_eq!(known, WatcherState::listed(&live, &cut));
    assert_eq!(known.objects.len(), 1);
    open(
        &live,
        &ann,
        json!({"name": "dev2", "labels": {"env": "dev"}}),
    )
    .unwrap();
    open(
        &live,
        &ann,
        json!({"name": "web2", "labels": {"env": "prod"}}),
    )
    .unwrap();
    known.apply_all(&mut watcher);
    assert_eq!(known, WatcherState::listed(&live, &cut));
    assert_eq!(known.objects.len(), 2);
}

/// EN-3.
#[test]
fn en_3_entering_and_leaving_a_filter_are_created_and_deleted_events() {
    let live = live();
    let ann = connect(&live, &user("ann"), "ann");
    let id = open(&live, &ann, json!({"name": "web"}))
        .unwrap()
        .tunnel
        .view
        .id;
    let mut prod = live
        .subscribe(view(r#"{"tunnels": {"labels": {"env": "prod"}}}"#, None))
        .unwrap();
    let mut all = live.subscribe(everything()).unwrap();
    let set = |env: &str| {
        live.update_tunnel(&ann.client_id, &id, |view| {
            view.properties
                .labels
                .insert("env".to_owned(), env.to_owned());
        })
        .unwrap();
    };
    set("prod");
    set("prod");
    set("dev");
    assert_eq!(
        types_of(&mut all),
        ["tunnel.updated", "tunnel.updated", "tunnel.updated"]
    );
    let seen: Vec<_> = std::iter::from_fn(|| next(&mut prod)).collect();
    let told: Vec<_> = seen.iter().map(|event| event.event_type.as_str()).collect();
    assert_eq!(told, ["tunnel.created", "tunnel.updated", "tunnel.deleted"]);
    assert_eq!(
        seen[2].object["labels"]["env"], "prod",
        "this watcher must not see the new state"
    );
}

#[test]
fn an_update_cannot_change_the_keys_of_an_object() {
    let live = live();
    let ann = connect(&live, &user("ann"), "ann");
    let id = open(&live, &ann, json!({"name": "web", "hostname": "web.t.x"}))
        .unwrap()
        .tunnel
        .view
        .id;
    let updated = live.update_tunnel(&ann.client_id, &id, |view| {
        view.properties.name = Some("other".parse().unwrap());
        view.properties.hostname = None;
        view.properties.publish = Some(false);
        view.project_id = None;
        view.region = Some("here".to_owned());
    });
    let updated = updated.unwrap();
    assert_eq!(updated.view.region.as_deref(), Some("here"));
    assert!(matches!(live.route("web.t.x"), Route::Online(t) if t.view.region.is_some()));
    assert!(
        live.find("default", "web")
            .is_some_and(|t| t.view.region.is_some())
    );
    let client = live.update_client(&ann.client_id, |client| {
        client.os = Some("linux".to_owned());
    });
    assert_eq!(client.unwrap().os.as_deref(), Some("linux"));
}

#[test]
fn a_boundary_that_shows_some_tunnels_shows_no_client_and_only_selected_fields() {
    let live = live();
    let ann = connect(&live, &user("ann"), "ann");
    let resources = json!({"tunnels": {"scopes": {"tunnels": {"list": {
        "filters": {"name": "web"}, "select": {"id": true, "name": true}}}}}});
    let mut watcher = live.subscribe(view("{}", Some(&resources))).unwrap();
    open(&live, &ann, json!({"name": "web"})).unwrap();
    open(&live, &ann, json!({"name": "other"})).unwrap();
    connect(&live, &user("bob"), "bob");
    let event = next(&mut watcher).unwrap();
    let fields: Vec<_> = event.object.as_object().unwrap().keys().cloned().collect();
    assert_eq!(fields, ["id", "name"]);
    assert_eq!((event.user_id, event.project_id), (None, None));
    assert_eq!(types_of(&mut watcher), [""; 0]);
}

#[test]
fn watchers_with_the_same_view_share_the_bytes() {
    let live = live();
    let mut watchers = [(); 2].map(|()| live.subscribe(everything()).unwrap());
    connect(&live, &user("ann"), "ann");
    let [one, two] = watchers.each_mut().map(|watcher| {
        watcher
            .events
            .next()
            .now_or_never()
            .unwrap()
            .unwrap()
            .frame()
            .sse()
    });
    assert_eq!(one.as_ptr(), two.as_ptr());
    assert!(one.starts_with(b"data: {") && one.ends_with(b"}\n\n"));
    let text = std::str::from_utf8(&one).unwrap();
    assert_eq!(
        text.lines().count(),
        2,
        "one line of data, and an empty one"
    );
}

#[test]
fn lists_are_oldest_first_and_limited() {
    let live = live();
    let ann = connect(&live, &user("ann"), "ann");
    for name in ["z", "a", "m"] {
        open(&live, &ann, json!({"name": name})).unwrap();
    }
    let names = |limit| -> Vec<_> {
        let tunnels = live.tunnels(&everything(), limit);
        tunnels
            .iter()
            .map(|t| t.properties.name.clone().unwrap().to_string())
            .collect()
    };
    assert_eq!(names(usize::MAX), ["z", "a", "m"]);
    assert_eq!(names(2), ["z", "a"]);
}
