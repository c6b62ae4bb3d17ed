//! Test fixtures: agents that are strings, tokens with a given boundary, and the state of a
//! watcher.

mod ends;
mod history;
mod limits;
mod names;
mod sharing;
mod watching;

use std::collections::BTreeMap;

use credentials::{TokenKind, VerifiedToken};
use futures_util::FutureExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use types::boundary::Boundary;
use types::client::Client;
use types::event::Event;
use types::filter::WatchParams;
use types::tunnel::TunnelProperties;

use super::*;
use crate::clock::ManualClock;

type TunnelRegistry = super::TunnelRegistry<&'static str>;

fn clock() -> Arc<ManualClock> {
    Arc::new(ManualClock::at(
        Timestamp::from_second(1_800_000_000).unwrap(),
    ))
}

fn live() -> Arc<TunnelRegistry> {
    TunnelRegistry::new(LiveLimits::default(), clock())
}

fn limited(limits: LiveLimits) -> Arc<TunnelRegistry> {
    TunnelRegistry::new(limits, clock())
}

fn user(name: &str) -> Identity {
    Identity::new("default", &credentials::Identity::User(name.to_owned()))
}

fn connect(
    live: &TunnelRegistry,
    identity: &Identity,
    agent: &'static str,
) -> ClientHandle<&'static str> {
    let project = Arc::new(Project::community());
    let mut view = Client::online(live.new_client_id());
    view.project_id = Some(identity.project.to_string());
    view.user_id = Some(identity.subject.id().to_owned());
    let client_id = live.add_client(view, &project).unwrap().id;
    ClientHandle {
        identity: identity.clone(),
        project,
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
    live: &TunnelRegistry,
    owner: &ClientHandle<&'static str>,
    properties: Value,
) -> Result<OpenedTunnel<&'static str>, OpenTunnelError> {
    let properties = asked(properties);
    let policy = TunnelPolicy::compile(&properties);
    live.open_tunnel(owner.clone(), properties, policy)
}

fn token(resources: Option<&Value>) -> Arc<VerifiedToken> {
    Arc::new(VerifiedToken {
        kind: TokenKind::Auth,
        identity: credentials::Identity::User("watcher".to_owned()),
        user_id: Some("watcher".to_owned()),
        client_id: None,
        limits: credentials::Limits::new(None, Boundary::parse(resources, false), None),
        issued_at: None,
        credential_id: None,
        id: None,
        root: types::root::Root::Token([0; 32]),
        digest: [0; 32],
    })
}

fn view(params: &str, resources: Option<&Value>) -> View {
    View {
        project: "default".into(),
        workspace: None,
        params: WatchParams::parse(params, false).unwrap(),
        token: token(resources),
        webtty: false,
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

/// State of a watcher: objects by id. An event that does not fit is a test failure.
#[derive(Debug, PartialEq, Default)]
struct WatcherState {
    objects: BTreeMap<String, Value>,
}

impl WatcherState {
    fn of(subscription: &Subscription) -> Self {
        let mut first = Vec::new();
        subscription.write_initial(&mut first).unwrap();
        let event: Event = serde_json::from_slice(&first).expect("the first frame is an event");
        assert_eq!(event.project_id.as_deref(), Some(Project::COMMUNITY));
        let first: Value = serde_json::to_value(event).unwrap();
        let mut known = Self::default();
        for object in ["clients", "tunnels"]
            .iter()
            .flat_map(|list| first["object"][list].as_array().unwrap())
        {
            known.insert(object.clone());
        }
        known
    }

    fn listed(live: &TunnelRegistry, view: &View) -> Self {
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
        assert!(self.objects.insert(id, object).is_none(), "created twice");
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
