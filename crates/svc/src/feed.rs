//! The live events of an engine, followed again after each loss.

use std::time::Duration;

use client::{
    api::{Api, ApiError, Event, Filters, Transport},
    backoff::Backoff,
};
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
                End::Failed(error) => chain(&error),
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
        let (clients, tunnels) = (self.clients.as_ref(), self.tunnels.as_ref());
        let opened = self.api.events_over(self.transport, clients, tunnels).await;
        let mut events = match opened {
            Ok(events) => events,
            Err(error) => return (false, End::Failed(error)),
        };
        let mut has_begun = false;
        loop {
            match events.next().await {
                Ok(Some(event)) => {
                    has_begun = true;
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
