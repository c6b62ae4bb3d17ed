//! Limits of the state that a peer can create.

use std::time::Duration;

use super::*;

#[test]
fn every_limit_is_enforced() {
    let live = limited(LiveLimits {
        clients: 2,
        tunnels: 3,
        tunnels_per_client: 2,
        watchers: 1,
        ..LiveLimits::default()
    });
    let ann = connect(&live, &user("ann"), "ann");
    let bob = connect(&live, &user("bob"), "bob");
    assert_eq!(
        live.add_client(Client::online(live.new_client_id()), &Project::community())
            .unwrap_err(),
        ClientLimitError::Engine
    );
    open(&live, &ann, json!({"name": "a"})).unwrap();
    open(&live, &ann, json!({"name": "b"})).unwrap();
    assert_eq!(
        open(&live, &ann, json!({"name": "c"})).unwrap_err(),
        OpenTunnelError::Full
    );
    open(&live, &bob, json!({"name": "d"})).unwrap();
    assert_eq!(
        open(&live, &bob, json!({"name": "e"})).unwrap_err(),
        OpenTunnelError::Full
    );
    let watcher = live.subscribe(everything()).unwrap();
    assert_eq!(
        live.subscribe(everything()).unwrap_err(),
        TooManyWatchersError
    );
    drop(watcher);
    live.subscribe(everything()).unwrap();
}

/// One of several projects has its share, regardless of its plan; a single project has everything.
#[test]
fn one_of_several_projects_has_a_share() {
    let live = limited(LiveLimits {
        clients: 4,
        tunnels: 6,
        watchers: 4,
        project_share: crate::config::QuotaPercent(50),
        ..LiveLimits::default()
    });
    let directory = crate::directory::Directory::default();
    let project = |endpoint: &str| {
        let told = json!({
            "id": format!("prj_{endpoint}"), "endpoint": endpoint, "workspace_id": "wks_1",
            "plan": "basic", "provider": "other",
        });
        let told = serde_json::from_value(told).unwrap();
        directory.apply(vec![api::link::Item::Project(Box::new(told))]);
        directory.project_at(endpoint).unwrap()
    };
    let (one, other) = (project("aaaaaaaa"), project("bbbbbbbb"));
    let connect = |project: &Arc<Project>| -> Result<ClientHandle<&'static str>, ClientLimitError> {
        let client = Client::online(live.new_client_id());
        let client_id = live.add_client(client, project)?.id;
        Ok(ClientHandle {
            identity: Identity::new(&project.id, &credentials::Identity::User("ann".to_owned())),
            project: Arc::clone(project),
            client_id,
            agent: Arc::new("an agent"),
        })
    };
    let agents = [connect(&one).unwrap(), connect(&one).unwrap()];
    assert_eq!(
        connect(&one).unwrap_err(),
        ClientLimitError::ProjectShare(2)
    );
    let others = connect(&other).unwrap();
    for name in ["a", "b", "c"] {
        open(&live, &agents[0], json!({"name": name})).unwrap();
    }
    let fourth = open(&live, &agents[1], json!({"name": "d"}));
    assert_eq!(fourth.unwrap_err(), OpenTunnelError::ProjectShareFull(3));
    open(&live, &agents[1], json!({"name": "a"})).unwrap();
    open(&live, &others, json!({"name": "d"})).unwrap();
    let watch = |project: &Arc<Project>| {
        live.subscribe(View {
            project: Arc::clone(&project.id),
            ..everything()
        })
    };
    let _watchers = [watch(&one).unwrap(), watch(&one).unwrap()];
    assert_eq!(watch(&one).unwrap_err(), TooManyWatchersError);
    watch(&other).unwrap();
}

#[test]
fn a_project_has_the_limits_of_its_plan() {
    let live = limited(LiveLimits::default());
    let directory = crate::directory::Directory::default();
    let told = json!({
        "id": "prj_aaaaaaaa", "endpoint": "aaaaaaaa", "workspace_id": "wks_1", "plan": "basic",
        "provider": "other", "limits": {"clients": 2, "tunnels": 3},
    });
    let told = serde_json::from_value(told).unwrap();
    directory.apply(vec![api::link::Item::Project(Box::new(told))]);
    let project = directory.project_at("aaaaaaaa").unwrap();
    let connect = || live.add_client(Client::online(live.new_client_id()), &project);
    let agents = [connect().unwrap(), connect().unwrap()];
    assert_eq!(connect().unwrap_err(), ClientLimitError::Plan(2));
    let owner = |agent: &Client| ClientHandle {
        identity: Identity::new(&project.id, &credentials::Identity::User("ann".to_owned())),
        project: Arc::clone(&project),
        client_id: agent.id,
        agent: Arc::new("an agent"),
    };
    let [first, second] = agents.each_ref().map(|agent| owner(agent));
    for name in ["a", "b", "c"] {
        open(&live, &first, json!({"name": name})).unwrap();
    }
    let fourth = open(&live, &second, json!({"name": "d"}));
    assert_eq!(fourth.unwrap_err(), OpenTunnelError::PlanFull(3));
    // A tunnel that is taken over does not count as a further one.
    open(&live, &second, json!({"name": "a"})).unwrap();
}

#[test]
fn a_full_engine_still_allows_takeovers() {
    let live = limited(LiveLimits {
        tunnels: 1,
        ..LiveLimits::default()
    });
    let old = connect(&live, &user("ann"), "old");
    let new = connect(&live, &user("ann"), "new");
    open(&live, &old, json!({"name": "web"})).unwrap();
    assert_eq!(
        open(&live, &new, json!({"name": "web"}))
            .unwrap()
            .displaced
            .len(),
        1
    );
}

#[test]
fn only_a_slow_watcher_is_ended_and_it_gets_a_reason() {
    let live = limited(LiveLimits {
        watcher_queue: 2,
        ..LiveLimits::default()
    });
    let mut slow = live.subscribe(everything()).unwrap();
    let mut quick = live.subscribe(everything()).unwrap();
    let ann = connect(&live, &user("ann"), "ann");
    for _ in 0..4 {
        while next(&mut quick).is_some() {}
        open(&live, &ann, json!({})).unwrap();
    }
    let mut seen = 0;
    let end = loop {
        match slow.events.next().now_or_never().unwrap() {
            Ok(_) => seen += 1,
            Err(end) => break end,
        }
    };
    assert_eq!((seen, end), (2, SubscriptionEnd::TooSlow));
    assert!(next(&mut quick).is_some());
    assert_eq!(
        (live.counts().watchers, live.counts().dropped_watchers),
        (1, 1)
    );
    live.end_subscriptions();
    assert_eq!(
        quick.events.next().now_or_never().unwrap().unwrap_err(),
        SubscriptionEnd::Stopped
    );
    // A late subscriber gets the snapshot, and the reason immediately after it.
    let mut late = live.subscribe(everything()).unwrap();
    assert_eq!(late.snapshot.tunnels.len(), 4);
    assert_eq!(
        late.events.next().now_or_never().unwrap().unwrap_err(),
        SubscriptionEnd::Stopped
    );
    assert_eq!(live.counts().watchers, 0);
}

#[test]
fn memory_of_hostnames_is_bounded() {
    let limits = LiveLimits {
        remembered_hostnames: 10,
        hostname_memory: Duration::from_mins(10),
        ..LiveLimits::default()
    };
    let live = limited(limits);
    let ann = connect(&live, &user("ann"), "ann");
    for number in 0..20 {
        let id = open(&live, &ann, json!({"hostname": format!("h{number}.t.x")}))
            .unwrap()
            .tunnel
            .view
            .id;
        live.close_tunnel(&ann.client_id, &id);
    }
    let remembered = (0..20)
        .filter(|n| matches!(live.route(&format!("h{n}.t.x")), Route::Offline))
        .count();
    assert_eq!(remembered, 10);
    assert!(
        matches!(live.route("h19.t.x"), Route::Offline),
        "the newest stay"
    );
}
