//! A change of the live state, and the events that it causes for each watcher.

use std::cell::OnceCell;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use jiff::Timestamp;
use serde_json::Value;
use types::boundary::ListScope;
use types::client::Client;
use types::event::{Event, EventType};
use types::id::{EventId, unix_millis};
use types::tunnel::Tunnel;

use super::view::View;
use crate::random::random_bytes;

/// One change, with the object before and after it. If the object enters or leaves a watcher's
/// filter, that watcher sees it created or deleted, so one change can be three different events.
#[derive(Debug)]
pub(super) struct Change {
    id: EventId,
    at: Timestamp,
    before: Option<Object>,
    after: Option<Object>,
    created: OnceCell<Arc<SharedEvent>>,
    updated: OnceCell<Arc<SharedEvent>>,
    deleted: OnceCell<Arc<SharedEvent>>,
}

#[derive(Debug, Clone)]
enum Object {
    Client(Arc<Client>),
    Tunnel(Arc<Tunnel>),
    Webtty(Arc<WebttyChange>),
}

/// A change of a managed terminal session. It is sent to watchers that requested such events, and
/// never to the platform (WT-5).
#[derive(Debug)]
pub struct WebttyChange {
    pub event_type: EventType,
    /// The tunnel of the session's server: callers that may not see it see nothing of the session.
    pub tunnel: Arc<Tunnel>,
    /// Id of the user who opened the session.
    pub user_id: Option<String>,
    /// The session, participant or request, as the Engine API shows it.
    pub object: Value,
}

impl Change {
    pub(super) fn client(
        at: Timestamp,
        before: Option<&Arc<Client>>,
        after: Option<&Arc<Client>>,
    ) -> Self {
        let object = |client: &Arc<Client>| Object::Client(Arc::clone(client));
        Self::new(at, before.map(object), after.map(object))
    }

    pub(super) fn tunnel(
        at: Timestamp,
        before: Option<&Arc<Tunnel>>,
        after: Option<&Arc<Tunnel>>,
    ) -> Self {
        let object = |tunnel: &Arc<Tunnel>| Object::Tunnel(Arc::clone(tunnel));
        Self::new(at, before.map(object), after.map(object))
    }

    pub(super) fn webtty(at: Timestamp, change: WebttyChange) -> Self {
        Self::new(at, None, Some(Object::Webtty(Arc::new(change))))
    }

    fn new(at: Timestamp, before: Option<Object>, after: Option<Object>) -> Self {
        Self {
            id: EventId::new(unix_millis(at), random_bytes()),
            at,
            before,
            after,
            created: OnceCell::new(),
            updated: OnceCell::new(),
            deleted: OnceCell::new(),
        }
    }

    /// The event for a watcher with this view; `None` if the view does not show it.
    ///
    /// An object that leaves a view is shown in its old state: the watcher may not see the new one.
    pub(super) fn event_for(&self, view: &View) -> Option<Arc<SharedEvent>> {
        let before = self.before.as_ref().filter(|object| object.is_shown(view));
        let after = self.after.as_ref().filter(|object| object.is_shown(view));
        self.between(before, after)
    }

    /// The event for a watcher of all clients and tunnels.
    pub(super) fn full_event(&self) -> Option<Arc<SharedEvent>> {
        if matches!(self.after, Some(Object::Webtty(_))) {
            return None;
        }
        self.between(self.before.as_ref(), self.after.as_ref())
    }

    fn between(&self, before: Option<&Object>, after: Option<&Object>) -> Option<Arc<SharedEvent>> {
        let (cell, verb, object) = match (before, after) {
            (None, None) => return None,
            (None, Some(after)) => (&self.created, Verb::Created, after),
            (Some(_), Some(after)) => (&self.updated, Verb::Updated, after),
            (Some(before), None) => (&self.deleted, Verb::Deleted, before),
        };
        let event = cell.get_or_init(|| {
            Arc::new(SharedEvent {
                id: self.id,
                at: self.at,
                verb,
                object: object.clone(),
                frames: Default::default(),
            })
        });
        Some(Arc::clone(event))
    }
}

#[derive(Debug, Clone, Copy)]
enum Verb {
    Created,
    Updated,
    Deleted,
}

impl Object {
    fn is_shown(&self, view: &View) -> bool {
        match self {
            Self::Client(client) => view.shows_client(client),
            Self::Tunnel(tunnel) => view.shows_tunnel(tunnel),
            Self::Webtty(change) => view.shows_webtty(&change.tunnel),
        }
    }
}

/// An event that many watchers share. It is serialized once, except for watchers whose token
/// selects fields, which get their own serialization.
#[derive(Debug)]
pub(super) struct SharedEvent {
    id: EventId,
    at: Timestamp,
    verb: Verb,
    object: Object,
    /// The frames without and with rstream's field names.
    frames: [OnceLock<Frame>; 2],
}

impl SharedEvent {
    fn event(&self, view: &View) -> Event {
        self.to_event(view.compat, |tunnel| view.scope(tunnel))
    }

    /// The event with all fields.
    pub(super) fn full_event(&self) -> Event {
        self.to_event(false, |_| ListScope::Visible { select: None })
    }

    fn to_event(&self, compat: bool, scope: impl Fn(&Tunnel) -> ListScope) -> Event {
        let kind = self.kind();
        match &self.object {
            Object::Client(client) => {
                let mut event = Event::new(self.id, kind, self.at, client.to_json());
                event.user_id.clone_from(&client.user_id);
                event.workspace_id.clone_from(&client.workspace_id);
                event.project_id.clone_from(&client.project_id);
                event.cluster_id.clone_from(&client.cluster_id);
                event
            }
            Object::Tunnel(tunnel) => {
                let scope = scope(tunnel);
                let selected = |field: &str| match &scope {
                    ListScope::Hidden => false,
                    ListScope::Visible { select } => {
                        select.as_ref().is_none_or(|fields| fields.contains(field))
                    }
                };
                let owner = |field: &str, value: &Option<String>| {
                    value.as_ref().filter(|_| selected(field)).cloned()
                };
                let object = scope.apply(tunnel.to_json(compat)).unwrap_or_default();
                let mut event = Event::new(self.id, kind, self.at, object);
                event.user_id = owner("user_id", &tunnel.user_id);
                event.workspace_id = owner("workspace_id", &tunnel.workspace_id);
                event.project_id = owner("project_id", &tunnel.project_id);
                event.cluster_id = owner("cluster_id", &tunnel.cluster_id);
                event
            }
            Object::Webtty(change) => {
                let mut event = Event::new(self.id, kind, self.at, change.object.clone());
                event.user_id.clone_from(&change.user_id);
                event.workspace_id.clone_from(&change.tunnel.workspace_id);
                event.project_id.clone_from(&change.tunnel.project_id);
                event.cluster_id.clone_from(&change.tunnel.cluster_id);
                event
            }
        }
    }

    fn kind(&self) -> EventType {
        match (&self.object, self.verb) {
            (Object::Client(_), Verb::Created) => EventType::ClientCreated,
            (Object::Client(_), Verb::Updated) => EventType::ClientUpdated,
            (Object::Client(_), Verb::Deleted) => EventType::ClientDeleted,
            (Object::Tunnel(_), Verb::Created) => EventType::TunnelCreated,
            (Object::Tunnel(_), Verb::Updated) => EventType::TunnelUpdated,
            (Object::Tunnel(_), Verb::Deleted) => EventType::TunnelDeleted,
            (Object::Webtty(change), _) => change.event_type,
        }
    }

    /// Returns true if this view gets the shared frame.
    fn is_whole(&self, view: &View) -> bool {
        match &self.object {
            Object::Client(_) | Object::Webtty(_) => true,
            Object::Tunnel(tunnel) => view.scope(tunnel) == ListScope::Visible { select: None },
        }
    }
}

/// One event for one watcher.
#[derive(Debug)]
pub struct Delivery {
    event: Arc<SharedEvent>,
    view: Arc<View>,
}

impl Delivery {
    pub(super) fn new(event: Arc<SharedEvent>, view: Arc<View>) -> Self {
        Self { event, view }
    }

    /// The event as a value, as this watcher sees it.
    pub fn event(&self) -> Event {
        self.event.event(&self.view)
    }

    /// The event as bytes, serialized once for all watchers with the same view.
    pub fn frame(&self) -> Frame {
        if !self.event.is_whole(&self.view) {
            return Frame::of(&self.event());
        }
        let [plain, compat] = &self.event.frames;
        let cell = if self.view.compat { compat } else { plain };
        cell.get_or_init(|| Frame::of(&self.event())).clone()
    }
}

/// A serialized event: one buffer, of which SSE sends all and WebSocket the middle.
#[derive(Debug, Clone)]
pub struct Frame(Bytes);

impl Frame {
    pub fn of(event: &Event) -> Self {
        Self(format!("{PREFIX}{}{SUFFIX}", event.to_line()).into())
    }

    /// One `data:` line and the empty line that ends the event.
    pub fn sse(&self) -> Bytes {
        self.0.clone()
    }

    /// Only the JSON text.
    pub fn json(&self) -> Bytes {
        self.0.slice(PREFIX.len()..self.0.len() - SUFFIX.len())
    }
}

/// The bytes before and after the JSON of an event in a stream of SSE.
pub(crate) const PREFIX: &str = "data: ";
pub(crate) const SUFFIX: &str = "\n\n";
