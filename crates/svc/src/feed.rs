//! The live events of an engine, followed again after each loss.

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

/// What is followed.
pub(crate) struct Feed {
    pub(crate) api: Api,
    pub(crate) transport: Transport,
    /// What clients must have; `None`: every client.
    pub(crate) clients: Option<Filters>,
    /// What tunnels must have; `None`: every tunnel.
    pub(crate) tunnels: Option<Filters>,
    /// What managed terminal sessions must have. Their events are told too then, and each
    /// `state.initial` has the list `webtty_sessions`; `None`: no sessions.
    pub(crate) sessions: Option<Filters>,
    /// Whether it goes on after a loss.
    pub(crate) again: bool,
}

/// What a feed says.
#[derive(Debug)]
pub(crate) enum News {
    /// Something happened; after each loss this begins with `state.initial` again.
    Event(Event),
    /// The stream is gone, and is followed again after a wait.
    Lost {
        /// Why, in words.
        reason: String,
        /// How long it waits.
        wait: Duration,
    },
}

impl Feed {
    /// Has it shown by `show`, until either is over. What was said before a refusal is shown first.
    pub(crate) async fn shown_by(
        self,
        show: impl AsyncFnOnce(mpsc::Receiver<News>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let (to, news) = mpsc::channel(WAITING);
        let following = self.run(to);
        let showing = show(news);
        tokio::pin!(following, showing);
        tokio::select! {
            biased;
            followed = &mut following => showing.await.and(followed),
            // Whoever reads has enough, or cannot go on.
            shown = &mut showing => shown,
        }
    }

    /// Hands on what happens until the engine refuses, the stream ends and is not followed again,
    /// or nobody listens any more.
    ///
    /// Whoever reads slowly slows the stream down, until the engine ends it: then the next one
    /// begins with what there is.
    async fn run(self, to: mpsc::Sender<News>) -> Result<(), Failure> {
        let mut backoff = Backoff::default();
        loop {
            let (has_begun, end) = self.once(&to).await;
            let reason = match end {
                End::Unheard => return Ok(()),
                End::Failed(error) if !self.again || !error.is_transient() => {
                    return Err(error.into());
                }
                End::Failed(error) => plain(&chain(&error)),
                End::Closed(_) if !self.again => return Ok(()),
                End::Closed(reason) => reason,
            };
            if has_begun {
                backoff.reset();
            }
            let wait = backoff.next_wait(client::backoff::random());
            if to.send(News::Lost { reason, wait }).await.is_err() {
                return Ok(());
            }
            tokio::time::sleep(wait).await;
        }
    }

    /// Follows one stream to its end; whether it said anything, and why it ended.
    async fn once(&self, to: &mpsc::Sender<News>) -> (bool, End) {
        let opened = self.api.events(self.query()).await;
        let mut events = match opened {
            Ok(events) => events,
            Err(error) => return (false, End::Failed(error)),
        };
        let mut has_begun = false;
        loop {
            match events.next().await {
                Ok(Some(mut event)) => {
                    has_begun = true;
                    if let Err(error) = self.add_sessions(&mut event).await {
                        return (has_begun, End::Failed(error));
                    }
                    if to.send(News::Event(event)).await.is_err() {
                        return (has_begun, End::Unheard);
                    }
                }
                Ok(None) => {
                    let reason = events.reason().map_or_else(
                        || "the engine ended the stream".to_owned(),
                        |reason| format!("the engine ended the stream: {}", plain(reason)),
                    );
                    return (has_begun, End::Closed(reason));
                }
                Err(error) => return (has_begun, End::Failed(error)),
            }
        }
    }
}

impl Feed {
    fn query(&self) -> EventQuery {
        let of = |filters: &Option<Filters>| filters.clone().map(Value::Object);
        let asked = [
            ("clients", of(&self.clients)),
            ("tunnels", of(&self.tunnels)),
            ("webtty", self.sessions.is_some().then_some(true.into())),
        ];
        let query = EventQuery::new().over(self.transport);
        asked
            .into_iter()
            .fold(query, |query, (name, value)| match value {
                Some(value) => query.with_param(name, value),
                None => query,
            })
    }

    /// Puts the sessions into a snapshot. The engine lists them by themselves; what changes
    /// meanwhile waits in the stream.
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

/// Why a stream is over.
enum End {
    /// Nobody listens any more.
    Unheard,
    Failed(ApiError),
    /// The engine ended it, for this reason.
    Closed(String),
}

/// Events that wait for their reader: some bursts of a busy engine, and a few megabytes at most,
/// but for a large snapshot.
const WAITING: usize = 1024;
