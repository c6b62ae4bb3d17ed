//! Following the platform: one connection after the other, for as long as the process runs.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use api::link::{CHANGES, Item, Platform};
use reqwest::{Method, Response, StatusCode};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::endpoint::Endpoint;
use crate::folder::Folder;
use crate::pace::{Pace, random, spread};
use crate::reader::{LinkEvent, Reader, StreamError};
use crate::state::State;
use crate::status::Status;
use crate::storage::Storage;

/// What is done with what the platform says. Called from one task, in order; it must not block.
pub trait Handler: Send + Sync + 'static {
    /// Puts everything in force. What is not in it is no more.
    ///
    /// # Errors
    /// A sentence for the operator: this is not what the process was configured for. What was in
    /// force stays, and the platform is asked again later.
    fn snapshot(&self, platform: Platform, items: Vec<Item>) -> Result<(), String>;

    /// Puts changes in force, in their order.
    fn change(&self, items: Vec<Item>);
}

/// The reading half of the link.
#[derive(Debug)]
pub struct Link {
    endpoint: Endpoint,
    pace: Pace,
    status: Arc<Status>,
    known: Arc<Storage>,
}

/// Why a connection ended, or was not made.
#[derive(Debug, thiserror::Error)]
enum Disconnect {
    #[error("{0}")]
    Token(String),
    #[error("the platform refuses the enrolment secret ({0})")]
    Refused(StatusCode),
    #[error("the platform answered {0}")]
    Status(StatusCode),
    #[error("the connection failed")]
    Failed(#[source] reqwest::Error),
    #[error("the platform did not answer in time")]
    Late,
    #[error("the platform said nothing for too long")]
    Silent,
    #[error("the platform ended the connection")]
    Ended,
    #[error(transparent)]
    Garbled(#[from] StreamError),
    /// What the [`Handler`] said.
    #[error("{0}")]
    Unfit(String),
}

impl Link {
    /// Takes `folder` for what is known. Reads nothing of it yet.
    ///
    /// # Errors
    /// The folder cannot be used, or another process uses it.
    pub fn open(endpoint: Endpoint, folder: &Path, pace: Pace) -> std::io::Result<Self> {
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
            known: Arc::new(known),
        })
    }

    /// How the link does.
    pub fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status)
    }

    /// Puts in force what an earlier process knew, where its file is whole and of this platform:
    /// then there is something to serve with before the platform answers. Reads a file.
    pub fn restore(&self, handler: &impl Handler) {
        let Some(read) = self.known.load().transpose() else {
            return;
        };
        let restored = read.and_then(|state| {
            handler.snapshot(state.platform().clone(), state.items())?;
            Ok(state)
        });
        match restored {
            Ok(state) => {
                if let Some(cursor) = state.cursor() {
                    self.status.reached(cursor);
                }
                info!("serving with what was known when this engine ran last");
                self.known.restored(state);
            }
            Err(reason) => warn!(%reason, "what was known is not used"),
        }
    }

    /// Follows the platform until `stop`; then what is known is written once more.
    pub async fn run<H: Handler>(self, handler: Arc<H>, stop: CancellationToken) {
        let saving = Arc::clone(&self.known).keep_saved(&self.pace, &stop);
        tokio::join!(self.follow(&*handler, &stop), saving);
    }

    async fn follow<H: Handler>(&self, handler: &H, stop: &CancellationToken) {
        let mut retry = self.pace.retry.clone();
        // The first failure of several is a warning; a platform that is away fills no log.
        let mut told = false;
        loop {
            let begun = Instant::now();
            let lost = tokio::select! {
                () = stop.cancelled() => return,
                lost = self.connection(handler) => lost,
            };
            let stood = self.status.is_connected();
            self.status.set_connected(false);
            if stood && begun.elapsed() >= self.pace.proven {
                retry.reset();
            }
            let mut wait = retry.next_wait(random());
            match &lost {
                Disconnect::Token(_) | Disconnect::Refused(_) | Disconnect::Unfit(_) => {
                    error!(reason = %lost, "cannot connect to the platform until this is fixed");
                    wait = self.pace.refused.mul_f64(spread());
                }
                _ if stood || !told => {
                    let cause = std::error::Error::source(&lost).map(ToString::to_string);
                    warn!(reason = %lost, cause, "the link to the platform is lost");
                    told = true;
                }
                _ => {}
            }
            // What cannot be read on is not asked for again.
            if matches!(lost, Disconnect::Garbled(_)) {
                self.known.forget_cursor();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Makes a connection and reads it to its end.
    async fn connection<H: Handler>(&self, handler: &H) -> Disconnect {
        match self.read(handler).await {
            Ok(never) => match never {},
            Err(lost) => lost,
        }
    }

    async fn read<H: Handler>(&self, handler: &H) -> Result<std::convert::Infallible, Disconnect> {
        let opening = timeout(self.pace.first_contact, self.open_stream());
        let (mut response, grounded) = opening.await.map_err(|_| Disconnect::Late)??;
        let mut reader = Reader::new(grounded);
        let mut patience = self.pace.first_contact;
        loop {
            let piece = match timeout(patience, response.chunk()).await {
                Err(_) => return Err(Disconnect::Silent),
                Ok(Err(error)) => return Err(Disconnect::Failed(error.without_url())),
                Ok(Ok(None)) => return Err(Disconnect::Ended),
                Ok(Ok(Some(piece))) => piece,
            };
            patience = self.pace.silence;
            reader.push(&piece);
            while let Some(step) = reader.next()? {
                self.status.hear();
                self.take(step, handler)?;
                // What was asked for after a cursor is whole with the first thing that is said;
                // what is told from the beginning, with the end of the snapshot.
                if reader.is_grounded() && !self.status.is_connected() {
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
        let cursor = self.known.cursor();
        let grounded = cursor.is_some();
        if let Some(cursor) = cursor {
            request = request.query(&[("since", cursor.0)]);
        }
        let response = request.send().await;
        let response = response.map_err(|error| Disconnect::Failed(error.without_url()))?;
        match response.status() {
            StatusCode::OK => Ok((response, grounded)),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(Disconnect::Refused(status))
            }
            status => Err(Disconnect::Status(status)),
        }
    }

    fn take<H: Handler>(&self, step: LinkEvent, handler: &H) -> Result<(), Disconnect> {
        match step {
            LinkEvent::Nothing => return Ok(()),
            LinkEvent::Snapshot {
                platform,
                items,
                cursor,
            } => {
                let state = State::new(platform.clone(), &items, cursor.clone());
                handler
                    .snapshot(platform, items)
                    .map_err(Disconnect::Unfit)?;
                self.status.snapshot(&cursor);
                self.known.replace(state);
            }
            LinkEvent::Change { items, cursor } => {
                self.known.fold(&items, &cursor);
                handler.change(items);
                self.status.change(&cursor);
            }
        }
        Ok(())
    }
}
