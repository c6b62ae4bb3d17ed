//! The reading half of the link: it reconnects to the platform for the lifetime of the process.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use api::link::{CHANGES, Item, Platform};
use reqwest::{Method, Response, StatusCode};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use types::causes::chain;

use crate::endpoint::Endpoint;
use crate::folder::Folder;
use crate::reader::{LinkEvent, Reader, StreamError};
use crate::state::State;
use crate::status::Status;
use crate::storage::Storage;
use crate::times::{LinkTimes, random, spread};

/// Receiver of the platform's updates. Called from one task, in order; it must not block.
pub trait Handler: Send + Sync + 'static {
    /// Applies a full snapshot. Items missing from it no longer exist.
    ///
    /// # Errors
    /// A sentence for the operator: the snapshot contradicts the configuration of the process. The
    /// previous state stays effective, and the snapshot is requested again later.
    fn snapshot(&self, platform: Platform, items: Vec<Item>) -> Result<(), String>;

    /// Applies changes, in their order.
    fn change(&self, items: Vec<Item>);
}

/// The reading half of the link.
#[derive(Debug)]
pub struct Link {
    endpoint: Endpoint,
    pace: LinkTimes,
    status: Arc<Status>,
    storage: Arc<Storage>,
}

/// Reason why a connection ended, or could not be opened.
#[derive(Debug, thiserror::Error)]
enum Disconnect {
    #[error("{0}")]
    Token(String),
    #[error("the platform refuses the enrolment secret ({0})")]
    Refused(StatusCode),
    #[error("the platform responded with {0}")]
    Status(StatusCode),
    #[error("the connection failed")]
    Failed(#[source] reqwest::Error),
    #[error("the platform did not respond in time")]
    TimedOut,
    #[error("the platform sent nothing for too long")]
    Silent,
    #[error("the platform closed the connection")]
    Ended,
    #[error(transparent)]
    InvalidStream(#[from] StreamError),
    /// The error of the [`Handler`].
    #[error("{0}")]
    SnapshotRejected(String),
}

impl Link {
    /// Opens `folder` for the replicated state, without reading it.
    ///
    /// # Errors
    /// The folder cannot be used, or another process uses it.
    pub fn open(endpoint: Endpoint, folder: &Path, pace: LinkTimes) -> std::io::Result<Self> {
        let status = Arc::new(Status::new());
        let known = Storage::new(
            Folder::open(folder)?,
            endpoint.address().to_owned(),
            Arc::clone(&status),
        );
        Ok(Self {
            endpoint,
            pace,
            status,
            storage: Arc::new(known),
        })
    }

    /// Status of the link.
    pub fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status)
    }

    /// Applies the state of an earlier process, if its file is intact and belongs to this platform.
    /// The process can then serve before the platform responds. Reads a file.
    pub fn restore(&self, handler: &impl Handler) {
        let Some(saved_state) = self.storage.load().transpose() else {
            return;
        };
        let restored = saved_state.and_then(|state| {
            handler.snapshot(state.platform().clone(), state.items())?;
            Ok(state)
        });
        match restored {
            Ok(state) => {
                if let Some(cursor) = state.cursor() {
                    self.status.set_version(cursor);
                }
                info!("serving with the state from the last run");
                self.storage.set_state(state);
            }
            Err(reason) => warn!(%reason, "the stored state cannot be used"),
        }
    }

    /// Copies the state from the folder of another process, which still uses it. Blocks.
    pub(crate) fn adopt_state(&self, folder: &Path) -> std::io::Result<()> {
        self.storage.adopt(folder)
    }

    /// Deletes the stored state. Blocks.
    pub(crate) fn forget_state(&self) -> std::io::Result<()> {
        self.storage.delete()
    }

    /// Follows the platform until `stop`, and then saves the state once more.
    pub async fn run<H: Handler>(self, handler: Arc<H>, stop: CancellationToken) {
        let saving = Arc::clone(&self.storage).keep_saved(&self.pace, &stop);
        tokio::join!(self.follow(&*handler, &stop), saving);
    }

    async fn follow<H: Handler>(&self, handler: &H, stop: &CancellationToken) {
        let mut retry = self.pace.retry.clone();
        // Only the first of several failures is logged as a warning, so that a long outage does not
        // fill the log.
        let mut warned = false;
        loop {
            let started_at = Instant::now();
            let disconnect = tokio::select! {
                () = stop.cancelled() => return,
                lost = self.connection(handler) => lost,
            };
            let was_connected = self.status.is_connected();
            self.status.set_connected(false);
            if was_connected && started_at.elapsed() >= self.pace.stable_after {
                retry.reset();
            }
            let mut wait = retry.next_wait(random());
            match &disconnect {
                Disconnect::Token(_) | Disconnect::Refused(_) | Disconnect::SnapshotRejected(_) => {
                    error!(
                        reason = chain(&disconnect),
                        "cannot connect to the platform until this is fixed"
                    );
                    wait = self.pace.refused.mul_f64(spread());
                }
                _ if was_connected || !warned => {
                    // Only the innermost cause differs between a closed port, an unknown name
                    // and an unknown authority.
                    warn!(
                        reason = chain(&disconnect),
                        "the connection to the platform is lost"
                    );
                    warned = true;
                }
                _ => {}
            }
            // Invalid data is not requested again from the same cursor.
            if matches!(disconnect, Disconnect::InvalidStream(_)) {
                self.storage.forget_cursor();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Opens a connection and reads it until its end.
    async fn connection<H: Handler>(&self, handler: &H) -> Disconnect {
        match self.read(handler).await {
            Ok(never) => match never {},
            Err(disconnect) => disconnect,
        }
    }

    async fn read<H: Handler>(&self, handler: &H) -> Result<std::convert::Infallible, Disconnect> {
        let opening = timeout(self.pace.first_contact, self.open_stream());
        let (mut response, has_cursor) = opening.await.map_err(|_| Disconnect::TimedOut)??;
        let mut reader = Reader::new(has_cursor);
        let mut time_limit = self.pace.first_contact;
        loop {
            let piece = match timeout(time_limit, response.chunk()).await {
                Err(_) => return Err(Disconnect::Silent),
                Ok(Err(error)) => return Err(Disconnect::Failed(error.without_url())),
                Ok(Ok(None)) => return Err(Disconnect::Ended),
                Ok(Ok(Some(piece))) => piece,
            };
            time_limit = self.pace.idle_timeout;
            reader.push(&piece);
            while let Some(event) = reader.next()? {
                self.status.message_received();
                self.take(event, handler)?;
                // If the request had a cursor, the link has caught up after the first message.
                // Without a cursor, it has caught up after the end of the snapshot.
                if reader.has_caught_up() && !self.status.is_connected() {
                    info!("connected to the platform");
                    self.status.set_connected(true);
                }
            }
        }
    }

    async fn open_stream(&self) -> Result<(Response, bool), Disconnect> {
        let mut request = self
            .endpoint
            .request(Method::GET, CHANGES)
            .map_err(Disconnect::Token)?;
        let cursor = self.storage.cursor();
        let has_cursor = cursor.is_some();
        if let Some(cursor) = cursor {
            request = request.query(&[("since", cursor.0)]);
        }
        let response = request.send().await;
        let response = response.map_err(|error| Disconnect::Failed(error.without_url()))?;
        match response.status() {
            StatusCode::OK => Ok((response, has_cursor)),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(Disconnect::Refused(status))
            }
            status => Err(Disconnect::Status(status)),
        }
    }

    fn take<H: Handler>(&self, event: LinkEvent, handler: &H) -> Result<(), Disconnect> {
        match event {
            LinkEvent::Ignored => return Ok(()),
            LinkEvent::Snapshot {
                platform,
                items,
                cursor,
            } => {
                let state = State::new(platform.clone(), &items, cursor.clone());
                handler
                    .snapshot(platform, items)
                    .map_err(Disconnect::SnapshotRejected)?;
                self.status.snapshot(&cursor);
                self.storage.replace(state);
            }
            LinkEvent::Change { items, cursor } => {
                self.storage.apply(&items, &cursor);
                handler.change(items);
                self.status.change(&cursor);
            }
        }
        Ok(())
    }
}
