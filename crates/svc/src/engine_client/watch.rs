//! A live list: the current objects, and every change.
//!
//! At a terminal the table is redrawn after each change. When piped, each change is a line. The
//! list is built from the engine's event stream. After a reconnection the stream starts with the
//! current state, and only differences from the displayed list are changes.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use client::api::{Api, Event, Filters, Transport};
use daemon::signals::{Signal, Signals};
use serde_json::{Value, json};
use tokio::{
    sync::mpsc,
    time::{Instant, sleep_until},
};

use crate::engine_client::feed::{Feed, FeedItem};
use crate::failure::Failure;
use crate::names::Names;
use crate::output;
use crate::output::{Format, Screen};
use crate::process::signals;

/// The kind of objects in the list.
pub(crate) struct ListKind {
    /// Field of the list in a snapshot: `tunnels`.
    pub(crate) list: &'static str,
    /// Prefix of its events: `tunnel.`.
    pub(crate) event_prefix: &'static str,
    /// Returns true if an object matches these filters, for filters that the engine does not apply
    /// to events.
    pub(crate) matches: fn(&Value, &Filters) -> bool,
    pub(crate) heading: &'static [&'static str],
    /// The cells of one object.
    pub(crate) row: fn(&Value, &Names) -> Vec<String>,
}

/// Shows the list until a signal or a refusal.
pub(crate) async fn watch(
    api: Api,
    kind: &ListKind,
    filters: Filters,
    format: Format,
    names: &Names,
) -> Result<(), Failure> {
    let shutdown = signals::listen(Duration::ZERO)?;
    let given = (!filters.is_empty()).then(|| filters.clone());
    let of = |list| given.clone().filter(|_| kind.list == list);
    let feed = Feed {
        api,
        transport: Transport::Sse,
        clients: of("clients"),
        tunnels: of("tunnels"),
        sessions: (kind.list == SESSIONS).then(|| filters.clone()),
        reconnect: true,
    };
    let list = List {
        objects: BTreeMap::new(),
        filters,
    };
    let showing = feed.run_with(async |news| {
        if format == Format::Text && output::is_terminal() {
            draw(kind, list, news, names).await
        } else {
            write_changes(kind, list, news, format, names).await
        }
    });
    tokio::select! {
        shown = showing => shown,
        () = shutdown.drain().cancelled() => Ok(()),
    }
}

/// Writes a line for each change.
async fn write_changes(
    kind: &ListKind,
    mut list: List,
    mut news: mpsc::Receiver<FeedItem>,
    format: Format,
    names: &Names,
) -> Result<(), Failure> {
    while let Some(item) = news.recv().await {
        match item {
            FeedItem::Event(event) => {
                for (change, object) in list.apply(kind, &event) {
                    match format {
                        Format::Json => {
                            output::json(&json!({ "change": change.word(), "object": object }))?;
                        }
                        Format::Text => {
                            let cells = output::join_with_tabs(&(kind.row)(&object, names));
                            output::line(&format!("{}\t{cells}", change.word()))?;
                        }
                    }
                }
            }
            FeedItem::Lost { reason, wait } => {
                output::message(&format!("{reason}; reconnecting in {wait:.1?}"));
            }
        }
    }
    Ok(())
}

/// Keeps the table on the screen up to date.
async fn draw(
    kind: &ListKind,
    mut list: List,
    mut news: mpsc::Receiver<FeedItem>,
    names: &Names,
) -> Result<(), Failure> {
    let mut state = "connecting".to_owned();
    let listen = |signal| {
        Signals::new(signal)
            .map_err(|error| Failure::from_error("signal handlers cannot be installed", error))
    };
    let mut resized = listen(Signal::WindowChange)?;
    // A program that is stopped gets no SIGWINCH, and another one may use the terminal.
    let mut continued = listen(Signal::Continue)?;
    let mut screen = Screen::enter()?;
    let mut next = Instant::now();
    let mut is_stale = true;
    loop {
        tokio::select! {
            item = news.recv() => match item {
                Some(FeedItem::Event(event)) => {
                    list.apply(kind, &event);
                    "live".clone_into(&mut state);
                    is_stale = true;
                }
                Some(FeedItem::Lost { reason, wait }) => {
                    state = format!("{reason}; reconnecting in {wait:.1?}");
                    is_stale = true;
                }
                None => return Ok(()),
            },
            () = resized.recv() => is_stale = true,
            () = continued.recv() => is_stale = true,
            () = sleep_until(next), if is_stale => {
                let rows: Vec<_> = list
                    .objects()
                    .map(|object| (kind.row)(object, names))
                    .collect();
                let lines = output::format_table(kind.heading, &rows, output::width());
                let of = kind.list.trim_start_matches("webtty_");
                let last = format!("{} {of} · {state} · Ctrl-C stops", rows.len());
                screen.draw(&lines, &last)?;
                is_stale = false;
                next = Instant::now() + FRAME;
            }
        }
    }
}

/// The objects by id. Ids sort in the order of creation.
#[derive(Default)]
struct List {
    objects: BTreeMap<String, Value>,
    filters: Filters,
}

/// The change of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ObjectChange {
    Added,
    Changed,
    Removed,
}

impl ObjectChange {
    fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
        }
    }
}

impl List {
    fn objects(&self) -> impl Iterator<Item = &Value> {
        self.objects.values()
    }

    /// Applies an event, and returns the changes.
    fn apply(&mut self, kind: &ListKind, event: &Event) -> Vec<(ObjectChange, Value)> {
        let name = event.value.get("type").and_then(Value::as_str);
        let object = event.value.get("object").unwrap_or(&Value::Null);
        match name {
            Some("state.initial") => {
                let now = object.get(kind.list).and_then(Value::as_array);
                let now = now.into_iter().flatten();
                let now = now.filter(|object| (kind.matches)(object, &self.filters));
                let now: Vec<_> = now.cloned().collect();
                self.replace(&now)
            }
            Some(name) => match name.strip_prefix(kind.event_prefix) {
                Some("deleted") => self.remove(id(object)).into_iter().collect(),
                Some(_) if !(kind.matches)(object, &self.filters) => {
                    self.remove(id(object)).into_iter().collect()
                }
                Some(_) => self.upsert(object).into_iter().collect(),
                None => Vec::new(),
            },
            None => Vec::new(),
        }
    }

    fn replace(&mut self, now: &[Value]) -> Vec<(ObjectChange, Value)> {
        let current_ids: HashSet<&str> = now.iter().map(id).collect();
        let is_gone = |known: &&String| !current_ids.contains(known.as_str());
        let gone: Vec<_> = self.objects.keys().filter(is_gone).cloned().collect();
        let mut changes: Vec<_> = gone.iter().filter_map(|known| self.remove(known)).collect();
        changes.extend(now.iter().filter_map(|object| self.upsert(object)));
        changes
    }

    fn upsert(&mut self, object: &Value) -> Option<(ObjectChange, Value)> {
        let change = match self.objects.insert(id(object).to_owned(), object.clone()) {
            Some(before) if before == *object => return None,
            Some(_) => ObjectChange::Changed,
            None => ObjectChange::Added,
        };
        Some((change, object.clone()))
    }

    fn remove(&mut self, gone: &str) -> Option<(ObjectChange, Value)> {
        self.objects
            .remove(gone)
            .map(|object| (ObjectChange::Removed, object))
    }
}

fn id(object: &Value) -> &str {
    object.get("id").and_then(Value::as_str).unwrap_or_default()
}

/// The list of managed terminal sessions.
pub(crate) const SESSIONS: &str = "webtty_sessions";

/// Interval between frames. A shorter one is not visible.
const FRAME: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: ListKind = ListKind {
        list: "tunnels",
        event_prefix: "tunnel.",
        matches: |object, _| object.get("hidden").is_none(),
        heading: &["ID"],
        row: |object, _names| vec![id(object).to_owned()],
    };

    fn words(list: &mut List, event: Value) -> Vec<String> {
        let event = Event::from(event);
        let changes = list.apply(&KIND, &event);
        let word =
            |(change, object): &(ObjectChange, Value)| format!("{} {}", change.word(), id(object));
        changes.iter().map(word).collect()
    }

    #[test]
    fn a_list_is_built_from_the_stream() {
        let mut list = List::default();
        let state = |tunnels: Value| json!({"type": "state.initial", "object": {"clients": [{"id": "c"}], "tunnels": tunnels}});
        let event = |name: &str, object: Value| json!({"type": name, "object": object});
        let began = words(&mut list, state(json!([{"id": "a"}, {"id": "b"}])));
        assert_eq!(began, ["added a", "added b"]);
        let same = words(&mut list, event("tunnel.updated", json!({"id": "a"})));
        assert_eq!(same, [""; 0]);
        let other = words(
            &mut list,
            event("tunnel.updated", json!({"id": "a", "x": 1})),
        );
        assert_eq!(other, ["changed a"]);
        let hidden = json!({"id": "a", "hidden": true});
        let narrowed = words(&mut list, event("tunnel.updated", hidden));
        assert_eq!(narrowed, ["removed a"]);
        words(
            &mut list,
            event("tunnel.updated", json!({"id": "a", "x": 1})),
        );
        let client = words(&mut list, event("client.created", json!({"id": "d"})));
        assert_eq!(client, [""; 0]);
        let gone = words(&mut list, event("tunnel.deleted", json!({"id": "b"})));
        assert_eq!(gone, ["removed b"]);
        // After a reconnection only differences are reported.
        let again = words(&mut list, state(json!([{"id": "e"}, {"id": "a", "x": 1}])));
        assert_eq!(again, ["added e"]);
        let none = words(&mut list, state(json!([])));
        assert_eq!(none, ["removed a", "removed e"]);
    }
}
