//! The live events of an engine, with automatic reconnection.

use std::time::Duration;

use api::webtty::SESSIONS;
use client::{
    api::{Api, ApiError, Call, Event, EventQuery, Filters, Transport},
    backoff::Backoff,
};
use serde_json::Value;
use tokio::sync::mpsc;

use crate::{
    failure::{Failure, chain},
    output::plain,
};

/// A subscription to events.
pub(crate) struct Feed {
    pub(crate) api: Api,
    pub(crate) transport: Transport,
    /// Filters of clients. `None`: every client.
    pub(crate) clients: Option<Filters>,
    /// Filters of tunnels. `None`: every tunnel.
    pub(crate) tunnels: Option<Filters>,
    /// Filters of managed terminal sessions. If set, their events are included, and each
    /// `state.initial` contains the list `webtty_sessions`. `None`: no sessions.
    pub(crate) sessions: Option<Filters>,
    /// Reconnect after a loss.
    pub(crate) reconnect: bool,
}

/// An item of the feed.
#[derive(Debug)]
pub(crate) enum FeedItem {
    /// An event. After each loss the first event is `state.initial` again.
    Event(Event),
    /// The connection is lost. It is restored after a wait.
    Lost {
        /// The reason as text.
        reason: String,
        /// Time until the next attempt.
        wait: Duration,
    },
}

impl Feed {
    /// Runs the feed and its consumer `show` until either ends. Events before a refusal are shown
    /// first.
    pub(crate) async fn run_with(
        self,
        show: impl AsyncFnOnce(mpsc::Receiver<FeedItem>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (to, news) = mpsc::channel(MAX_QUEUED_EVENTS);
        let following = self.run(to);
        let showing = show(news);
        tokio::pin!(following, showing);
        tokio::select! {
            biased;
            followed = &mut following => showing.await.and(followed),
            // The consumer has ended or failed.
            shown = &mut showing => shown,
        }
    }

    /// Sends events until the engine refuses, the stream ends without a reconnection, or the
    /// receiver is dropped.
    ///
    /// A slow receiver slows the stream down until the engine closes it. The next stream starts
    /// with the current state.
    async fn run(self, to: mpsc::Sender<FeedItem>) -> Result<(), Failure> {
        let mut backoff = Backoff::default();
        loop {
            let (has_begun, end) = self.follow_stream(&to).await;
            let reason = match end {
                StreamEnd::ReceiverDropped => return Ok(()),
                StreamEnd::Failed(error) if !self.reconnect || !error.is_transient() => {
                    return Err(error.into());
                }
                StreamEnd::Failed(error) => plain(&chain(&error)),
                StreamEnd::Closed(_) if !self.reconnect => return Ok(()),
                StreamEnd::Closed(reason) => reason,
            };
            if has_begun {
                backoff.reset();
            }
            let wait = backoff.next_wait(client::backoff::random());
            if to.send(FeedItem::Lost { reason, wait }).await.is_err() {
                return Ok(());
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Follows one stream to its end. Returns true if it delivered an event, and the reason of the
    /// end.
    async fn follow_stream(&self, to: &mpsc::Sender<FeedItem>) -> (bool, StreamEnd) {
        let opened = self.api.events(self.query()).await;
        let mut events = match opened {
            Ok(events) => events,
            Err(error) => return (false, StreamEnd::Failed(error)),
        };
        let mut has_begun = false;
        loop {
            match events.next().await {
                Ok(Some(mut event)) => {
                    has_begun = true;
                    if let Err(error) = self.add_sessions(&mut event).await {
                        return (has_begun, StreamEnd::Failed(error));
                    }
                    if to.send(FeedItem::Event(event)).await.is_err() {
                        return (has_begun, StreamEnd::ReceiverDropped);
                    }
                }
                Ok(None) => {
                    let reason = events.reason().map_or_else(
                        || "the engine ended the stream".to_owned(),
                        |reason| format!("the engine ended the stream: {}", plain(reason)),
                    );
                    return (has_begun, StreamEnd::Closed(reason));
                }
                Err(error) => return (has_begun, StreamEnd::Failed(error)),
            }
        }
    }
}

impl Feed {
    fn query(&self) -> EventQuery {
        let of = |filters: &Option<Filters>| filters.clone().map(Value::Object);
        let requested = [
            ("clients", of(&self.clients)),
            ("tunnels", of(&self.tunnels)),
            ("webtty", self.sessions.is_some().then_some(true.into())),
        ];
        let query = EventQuery::new().over(self.transport);
        requested
            .into_iter()
            .fold(query, |query, (name, value)| match value {
                Some(value) => query.with_param(name, value),
                None => query,
            })
    }

    /// Adds the sessions to a snapshot, because the engine lists them separately. Changes during
    /// that call arrive later in the stream.
    async fn add_sessions(&self, event: &mut Event) -> Result<(), ApiError> {
        let is_snapshot = event.value.get("type").and_then(Value::as_str) == Some("state.initial");
        let Some(filters) = self.sessions.as_ref().filter(|_| is_snapshot) else {
            return Ok(());
        };
        let mut params = Filters::new();
        if !filters.is_empty() {
            params.insert("filters".to_owned(), filters.clone().into());
        }
        let sessions = self
            .api
            .call(Call::get(SESSIONS).with_params(params))
            .await?;
        if let Some(Value::Object(members)) = event.value.get_mut("object") {
            members.insert("webtty_sessions".to_owned(), sessions);
        }
        Ok(())
    }
}

/// Reason for the end of a stream.
enum StreamEnd {
    /// The receiver was dropped.
    ReceiverDropped,
    Failed(ApiError),
    /// The engine closed it with this reason.
    Closed(String),
}

/// Limit of queued events: some bursts of a busy engine, and a few megabytes unless a snapshot is
/// large.
const MAX_QUEUED_EVENTS: usize = 1024;
