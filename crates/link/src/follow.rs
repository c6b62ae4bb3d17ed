//! Following the platform: one connection after the other, for as long as the process runs.

use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use api::link::{CHANGES, Cursor, Item, Platform};
use parking_lot::Mutex;
use reqwest::{Method, Response, StatusCode};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use crate::endpoint::Endpoint;
use crate::folder::Folder;
use crate::pace::{Pace, random, spread};
use crate::reader::{Garbled, MAX_SNAPSHOT_BYTES, Reader, Step};
use crate::state::{MAX_FILE_BYTES, State};
use crate::status::Status;

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
    folder: Arc<Folder>,
    pace: Pace,
    status: Arc<Status>,
    known: Arc<Known>,
}

/// What is known, shared with the one who writes it to disk.
#[derive(Debug, Default)]
struct Known {
    state: Mutex<Option<State>>,
    changed: Notify,
}

impl Known {
    fn cursor(&self) -> Option<Cursor> {
        let state = self.state.lock();
        state.as_ref().and_then(|state| state.cursor().cloned())
    }
}

/// Why a connection ended, or was not made.
#[derive(Debug, thiserror::Error)]
enum Lost {
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
    Garbled(#[from] Garbled),
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
        Ok(Self {
            endpoint,
            folder: Arc::new(Folder::open(folder)?),
            pace,
            status: Arc::new(Status::new()),
            known: Arc::default(),
        })
    }

    /// How the link does.
    pub fn status(&self) -> Arc<Status> {
        Arc::clone(&self.status)
    }

    /// Puts in force what an earlier process knew, where its file is whole and of this platform:
    /// then there is something to serve with before the platform answers. Reads a file.
    pub fn restore(&self, handler: &impl Handler) {
        let read = match self.folder.read(STATE, MAX_FILE_BYTES) {
            Ok(None) => return,
            Ok(Some(file)) => {
                State::from_file(&file, self.endpoint.address()).map_err(|error| error.to_string())
            }
            Err(error) => Err(error.to_string()),
        };
        let restored = read.and_then(|mut state| {
            state.forget_ended(unix_seconds());
            handler.snapshot(state.platform().clone(), state.items())?;
            Ok(state)
        });
        match restored {
            Ok(state) => {
                if let Some(cursor) = state.cursor() {
                    self.status.reached(cursor);
                }
                info!("serving with what was known when this engine ran last");
                *self.known.state.lock() = Some(state);
            }
            Err(reason) => warn!(%reason, "what was known is not used"),
        }
    }

    /// Follows the platform until `stop`; then what is known is written once more.
    pub async fn run<H: Handler>(self, handler: Arc<H>, stop: CancellationToken) {
        tokio::join!(self.follow(&*handler, &stop), self.keep(&stop));
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
                Lost::Token(_) | Lost::Refused(_) | Lost::Unfit(_) => {
                    error!(reason = %lost, "the platform cannot be followed until this is changed");
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
            if matches!(lost, Lost::Garbled(_))
                && let Some(state) = &mut *self.known.state.lock()
            {
                state.forget_cursor();
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    /// Makes a connection and reads it to its end.
    async fn connection<H: Handler>(&self, handler: &H) -> Lost {
        match self.read(handler).await {
            Ok(never) => match never {},
            Err(lost) => lost,
        }
    }

    async fn read<H: Handler>(&self, handler: &H) -> Result<std::convert::Infallible, Lost> {
        let opening = timeout(self.pace.first_contact, self.open_stream());
        let (mut response, grounded) = opening.await.map_err(|_| Lost::Late)??;
        let mut reader = Reader::new(grounded);
        let mut patience = self.pace.first_contact;
        loop {
            let piece = match timeout(patience, response.chunk()).await {
                Err(_) => return Err(Lost::Silent),
                Ok(Err(error)) => return Err(Lost::Failed(error.without_url())),
                Ok(Ok(None)) => return Err(Lost::Ended),
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
                    info!("the link to the platform stands");
                    self.status.set_connected(true);
                }
            }
        }
    }

    async fn open_stream(&self) -> Result<(Response, bool), Lost> {
        let mut request = self
            .endpoint
            .request(Method::GET, CHANGES)
            .map_err(Lost::Token)?;
        let cursor = self.known.cursor();
        let grounded = cursor.is_some();
        if let Some(cursor) = cursor {
            request = request.query(&[("since", cursor.0)]);
        }
        let response = request.send().await;
        let response = response.map_err(|error| Lost::Failed(error.without_url()))?;
        match response.status() {
            StatusCode::OK => Ok((response, grounded)),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(Lost::Refused(status))
            }
            status => Err(Lost::Status(status)),
        }
    }

    fn take<H: Handler>(&self, step: Step, handler: &H) -> Result<(), Lost> {
        match step {
            Step::Nothing => return Ok(()),
            Step::Snapshot {
                platform,
                items,
                cursor,
            } => {
                let state = State::new(platform.clone(), &items, cursor.clone());
                handler.snapshot(platform, items).map_err(Lost::Unfit)?;
                self.status.snapshot(&cursor);
                *self.known.state.lock() = Some(state);
            }
            Step::Change { items, cursor } => {
                if let Some(state) = &mut *self.known.state.lock() {
                    state.fold(&items, cursor.clone());
                }
                handler.change(items);
                self.status.change(&cursor);
            }
        }
        self.known.changed.notify_one();
        Ok(())
    }

    /// Writes what is known, soon after it changed, and at the end.
    async fn keep(&self, stop: &CancellationToken) {
        loop {
            let stopped = tokio::select! {
                // What changed is written first: the end waits for it.
                biased;
                () = self.known.changed.notified() => false,
                () = stop.cancelled() => true,
            };
            if stopped {
                return;
            }
            let begun = Instant::now();
            let (known, folder) = (Arc::clone(&self.known), Arc::clone(&self.folder));
            let address = self.endpoint.address().to_owned();
            let saving = tokio::task::spawn_blocking(move || save(&known, &folder, &address));
            match saving.await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => warn!(%error, "what is known is not written"),
                Err(error) => warn!(%error, "what is known is not written"),
            }
            // A large state that changes all the time must not keep the disk busy.
            let rest = self.pace.save.max(begun.elapsed() * WRITING_SHARE);
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(rest) => {}
            }
        }
    }
}

/// Name of the file with the state.
const STATE: &str = "state";
/// Writing takes one part of time in so many.
const WRITING_SHARE: u32 = 20;

/// Writes the state of this moment. Blocks.
fn save(known: &Known, folder: &Folder, address: &str) -> std::io::Result<()> {
    let state = {
        let mut state = known.state.lock();
        if let Some(state) = &mut *state {
            state.forget_ended(unix_seconds());
        }
        // A copy of references: nobody waits while it is written.
        state.clone()
    };
    let Some(state) = state else {
        return Ok(());
    };
    if state.bytes() > MAX_SNAPSHOT_BYTES {
        return Err(std::io::ErrorKind::FileTooLarge.into());
    }
    folder.write(STATE, &state.to_file(address))
}

fn unix_seconds() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}
