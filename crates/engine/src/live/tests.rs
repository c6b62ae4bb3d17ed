//! Take-over, routing, and the one guarantee of a subscription: snapshot and events together are
//! the state, whatever happens meanwhile.

use std::collections::BTreeMap;
use std::time::Duration;

use credentials::{TokenKind, Verified};
use futures_util::FutureExt;
use jiff::Timestamp;
use proptest::prelude::*;
use serde_json::{Value, json};
use types::boundary::Boundary;
use types::client::Client;
use types::event::Event;
use types::filter::WatchParams;
use types::tunnel::TunnelProperties;

use super::*;
use crate::clock::ManualClock;

type Live = super::Live<&'static str>;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(
        Timestamp::from_second(1_800_000_000).unwrap(),
    ))
}

fn live() -> Arc<Live> {
    Live::new(LiveLimits::default(), clock())
}

fn limited(limits: LiveLimits) -> Arc<Live> {
    Live::new(limits, clock())
}

fn user(name: &str) -> Identity {
    Identity::new("default", &credentials::Identity::User(name.to_owned()))
}

fn connect(live: &Live, identity: &Identity, agent: &'static str) -> Owner<&'static str> {
    let mut view = Client::online(live.new_client_id());
    view.project_id = Some(identity.project.to_string());
    view.user_id = Some(identity.subject.id().to_owned());
    let client_id = live.add_client(view).unwrap().id;
    Owner {
        identity: identity.clone(),
        client_id,
        agent: Arc::new(agent),
    }
}

fn asked(properties: Value) -> TunnelProperties {
    serde_json::from_value::<TunnelProperties>(properties)
        .unwrap()
        .resolve()
        .unwrap()
}

fn open(
    live: &Live,
    owner: &Owner<&'static str>,
    properties: Value,
) -> Result<Opened<&'static str>, OpenRefused> {
    let properties = asked(properties);
    let policy = TunnelPolicy::compile(&properties);
    live.open_tunnel(owner.clone(), properties, policy)
}

fn token(resources: Option<&Value>) -> Arc<Verified> {
    Arc::new(Verified {
        kind: TokenKind::Auth,
        identity: credentials::Identity::User("watcher".to_owned()),
        user_id: Some("watcher".to_owned()),
        client_id: None,
        permissions: None,
        boundary: Boundary::parse(resources, false),
        expires_at: None,
        issued_at: None,
        credential_id: None,
        digest: [0; 32],
    })
}

fn view(params: &str, resources: Option<&Value>) -> View {
    View {
        project: "default".into(),
        workspace: None,
        params: WatchParams::parse(params, false).unwrap(),
        token: token(resources),
        compat: false,
    }
}

fn everything() -> View {
    view("{}", None)
}

fn next(subscription: &mut Subscription) -> Option<Event> {
    subscription
        .events
        .next()
        .now_or_never()
        .map(|delivery| delivery.unwrap().event())
}

fn types_of(subscription: &mut Subscription) -> Vec<String> {
    std::iter::from_fn(|| next(subscription))
        .map(|event| event.event_type.to_string())
        .collect()
}

/// What a watcher knows: objects by id. Applying an event that does not fit is a failure.
#[derive(Debug, PartialEq, Default)]
struct Known {
    objects: BTreeMap<String, Value>,
}

impl Known {
    fn of(subscription: &Subscription) -> Self {
        let first = subscription.initial();
        let first: Value =
            serde_json::from_slice(&first.json()).expect("the first frame is an event");
        let mut known = Self::default();
        for object in ["clients", "tunnels"]
            .iter()
            .flat_map(|list| first["object"][list].as_array().unwrap())
        {
            known.insert(object.clone());
        }
        known
    }

    fn listed(live: &Live, view: &View) -> Self {
        let mut known = Self::default();
        for client in live.clients(view, usize::MAX) {
            known.insert(client.to_json());
        }
        for tunnel in live.tunnels(view, usize::MAX) {
            known.insert(view.tunnel_json(&tunnel).unwrap());
        }
        known
    }

    fn insert(&mut self, object: Value) {
        let id = object["id"].as_str().unwrap().to_owned();
        assert!(self.objects.insert(id, object).is_none(), "told of twice");
    }

    fn apply(&mut self, event: Event) {
        let id = event.object["id"].as_str().unwrap().to_owned();
        let verb = event.event_type.as_str().split('.').nth(1).unwrap();
        let known = self.objects.remove(&id);
        assert_eq!(known.is_some(), verb != "created", "{verb} of {id}");
        if verb != "deleted" {
            self.objects.insert(id, event.object);
        }
    }

    fn apply_all(&mut self, subscription: &mut Subscription) {
        while let Some(event) = next(subscription) {
            self.apply(event);
        }
    }
}

// Names and take-over ("Identity, names, take-over").

#[test]
fn the_same_channel_asking_twice_is_refused() {
    let live = live();
    let owner = connect(&live, &user("ann"), "a");
    open(&live, &owner, json!({"name": "web", "hostname": "web.t.x"})).unwrap();
    for again in [json!({"name": "web"}), json!({"hostname": "web.t.x"})] {
        assert_eq!(
            open(&live, &owner, again).unwrap_err(),
            OpenRefused::AlreadyYours
        );
    }
    assert_eq!(live.counts().tunnels, 1);
}

#[test]
fn another_channel_of_the_same_identity_takes_over_at_once() {
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
    // What was displaced is gone: its own end changes nothing any more.
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
            (json!({"name": "web"}), OpenRefused::NameTaken),
            (json!({"hostname": "web.t.x"}), OpenRefused::HostnameTaken),
        ] {
            assert_eq!(open(&live, &other, properties).unwrap_err(), refusal);
        }
        assert_eq!(types_of(&mut watcher), [""; 0]);
    }
    assert!(matches!(live.route("web.t.x"), Route::Online(tunnel) if *tunnel.agent == "ann"));
}

#[test]
fn a_name_is_unique_in_its_project_and_a_hostname_everywhere() {
    let live = live();
    let ann = connect(&live, &user("ann"), "ann");
    let elsewhere = Identity::new("other", &credentials::Identity::User("ann".to_owned()));
    let other = connect(&live, &elsewhere, "other");
    open(&live, &ann, json!({"name": "web", "hostname": "web.t.x"})).unwrap();
    let refused = open(&live, &other, json!({"hostname": "web.t.x"})).unwrap_err();
    assert_eq!(refused, OpenRefused::HostnameTaken);
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
    live.open_tunnel(ann, properties, policy).unwrap();
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
        let reader = scope.spawn(|| {
            for _ in 0..20_000 {
                assert!(matches!(live.route("web.t.x"), Route::Online(_)));
                assert!(live.find("default", "web").is_some());
            }
        });
        let mut turn = 0;
        while !reader.is_finished() {
            turn += 1;
            open(
                &live,
                &owners[turn % 2],
                json!({"name": "web", "hostname": "web.t.x"}),
            )
            .unwrap();
        }
    });
}

// Ends.

#[test]
fn a_clients_tunnels_go_with_it_in_order() {
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
        OpenRefused::NotConnected
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
    let live: Arc<Live> = Live::new(LiveLimits::default(), Arc::<ManualClock>::clone(&clock));
    assert!(matches!(live.route("web.t.x"), Route::Unknown));
    let ann = connect(&live, &user("ann"), "ann");
    open(&live, &ann, json!({"hostname": "web.t.x"})).unwrap();
    clock.advance(3600);
    live.remove_client(&ann.client_id);
    assert!(matches!(live.route("web.t.x"), Route::Offline));
    assert!(live.is_spoken_for(&"web.t.x".parse().unwrap()));
    clock.advance(599);
    assert!(matches!(live.route("web.t.x"), Route::Offline));
    clock.advance(1);
    assert!(matches!(live.route("web.t.x"), Route::Unknown));
}

// Limits.

#[test]
fn every_limit_is_kept() {
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
        live.add_client(Client::online(live.new_client_id()))
            .unwrap_err(),
        ClientsFull
    );
    open(&live, &ann, json!({"name": "a"})).unwrap();
    open(&live, &ann, json!({"name": "b"})).unwrap();
    assert_eq!(
        open(&live, &ann, json!({"name": "c"})).unwrap_err(),
        OpenRefused::Full
    );
    open(&live, &bob, json!({"name": "d"})).unwrap();
    assert_eq!(
        open(&live, &bob, json!({"name": "e"})).unwrap_err(),
        OpenRefused::Full
    );
    let watcher = live.subscribe(everything()).unwrap();
    assert_eq!(live.subscribe(everything()).unwrap_err(), WatchersFull);
    drop(watcher);
    live.subscribe(everything()).unwrap();
}

#[test]
fn a_full_engine_still_lets_a_name_be_taken_over() {
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
fn a_slow_watcher_is_ended_with_a_reason_and_only_it() {
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
    assert_eq!((seen, end), (2, Ended::TooSlow));
    assert!(next(&mut quick).is_some());
    assert_eq!(
        (live.counts().watchers, live.counts().dropped_watchers),
        (1, 1)
    );
    live.end_subscriptions();
    assert_eq!(
        quick.events.next().now_or_never().unwrap().unwrap_err(),
        Ended::Stopped
    );
    // Who comes later has the snapshot, and hears it at once.
    let mut late = live.subscribe(everything()).unwrap();
    assert_eq!(late.snapshot.tunnels.len(), 4);
    assert_eq!(
        late.events.next().now_or_never().unwrap().unwrap_err(),
        Ended::Stopped
    );
    assert_eq!(live.counts().watchers, 0);
}

// Watching (EN-3).

/// EN-3.
#[test]
fn en_3_the_same_filter_cuts_list_snapshot_and_events() {
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
    let mut known = Known::of(&watcher);
    assert_eq!(known, Known::listed(&live, &cut));
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
    assert_eq!(known, Known::listed(&live, &cut));
    assert_eq!(known.objects.len(), 2);
}

/// EN-3.
#[test]
fn en_3_entering_and_leaving_a_filter_is_being_created_and_deleted() {
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
        "how it left is not for this watcher"
    );
}

#[test]
fn an_update_cannot_change_what_an_object_is_found_by() {
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
fn watchers_who_see_the_same_share_the_bytes() {
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

/// Carries an act out on whatever the chosen indices mean now.
fn carry_out(live: &Live, owners: &mut Vec<Owner<&'static str>>, act: &Act) {
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
            // A refusal is as good a step as any: nothing may change then.
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

    /// EN-3: whenever a watcher comes, its snapshot and events together are the state; and the
    /// maps that route say the same as the lists.
    #[test]
    fn en_3_snapshot_and_events_are_the_state(acts in proptest::collection::vec(act(), 1..60)) {
        let live = live();
        let views = views();
        let mut owners = Vec::new();
        let mut watchers: Vec<(Subscription, Known)> = Vec::new();
        for act in &acts {
            if let Act::Watch { view } = act {
                let subscription = live.subscribe(views[view % views.len()].clone()).unwrap();
                let known = Known::of(&subscription);
                watchers.push((subscription, known));
            }
            carry_out(&live, &mut owners, act);
        }
        for (subscription, known) in &mut watchers {
            known.apply_all(subscription);
            prop_assert_eq!(&*known, &Known::listed(&live, &subscription.view));
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

/// EN-3 under concurrency: watchers come while others change the state.
#[test]
fn en_3_nothing_is_lost_or_doubled_while_others_write() {
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
        let mut known = Known::of(&subscription);
        known.apply_all(&mut subscription);
        assert_eq!(known, Known::listed(&live, &subscription.view));
    }
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
        "the youngest stay"
    );
}
