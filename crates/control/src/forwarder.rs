//! Forwarding of Engine API requests of the platform's pages (`/engine/{project_id}/api/…`).
//!
//! The dashboard shows live data, which only engines have. A browser cannot always reach an engine:
//! its certificate may be from a private authority. So the platform forwards the requests, and the
//! pages need no other origin. It authenticates the user by the session cookie and the engine by
//! its certificate, and mints a token for each request ([`token`]). The token never reaches the
//! browser.
//!
//! A response is forwarded as it arrives, without being collected. It ends when the session or the
//! user's access to the project ends ([`access`]).

mod access;
mod client;
mod operation;
mod request;
mod response;
mod routes;
mod token;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use types::id::SessionId;
use types::problem::Problem;

pub use self::client::EngineClientError;
use self::client::EngineClients;
pub use self::routes::routes;
use crate::config::Config;
use crate::http_api::problem::HandlerResult;

/// State of forwarded requests of one process; a part of [`crate::app::App`].
#[derive(Debug)]
pub struct Forwarder {
    clients: EngineClients,
    permits: Arc<Semaphore>,
    open_requests: Arc<Mutex<HashMap<SessionId, usize>>>,
    stop: CancellationToken,
}

/// The right to one open request. It returns on drop.
#[derive(Debug)]
struct RequestPermit {
    _permit: OwnedSemaphorePermit,
    session: SessionId,
    open_requests: Arc<Mutex<HashMap<SessionId, usize>>>,
}

impl Forwarder {
    /// Reads the authorities of the engines.
    ///
    /// # Errors
    /// A file of authorities cannot be used.
    pub(crate) fn open(config: &Config) -> Result<Self, EngineClientError> {
        Ok(Self {
            clients: EngineClients::open(config)?,
            permits: Arc::new(Semaphore::new(MAX_REQUESTS)),
            open_requests: Arc::default(),
            stop: CancellationToken::new(),
        })
    }

    /// Ends every response.
    pub(crate) fn close(&self) {
        self.stop.cancel();
    }

    /// A permit for one more request of a session.
    ///
    /// # Errors
    /// 429 if the session has too many, 503 if the process has too many or is about to stop.
    fn acquire(&self, session: SessionId) -> HandlerResult<RequestPermit> {
        let permit = Arc::clone(&self.permits).try_acquire_owned();
        let permit = match permit {
            Ok(permit) if !self.stop.is_cancelled() => permit,
            _ => {
                return Err(Problem::unavailable()
                    .with_retry_after(RETRY_AFTER_SECONDS)
                    .into());
            }
        };
        let mut open_requests = self.open_requests.lock();
        let count = open_requests.entry(session).or_default();
        if *count >= MAX_SESSION_REQUESTS {
            let detail = "This session has too many open requests for live data: close a tab.";
            return Err(Problem::new(429, "too_many_streams", detail)
                .with_retry_after(RETRY_AFTER_SECONDS)
                .into());
        }
        *count += 1;
        drop(open_requests);
        Ok(RequestPermit {
            _permit: permit,
            session,
            open_requests: Arc::clone(&self.open_requests),
        })
    }
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        if let Entry::Occupied(mut entry) = self.open_requests.lock().entry(self.session) {
            *entry.get_mut() = entry.get().saturating_sub(1);
            if *entry.get() == 0 {
                entry.remove();
            }
        }
    }
}

/// Open requests of one process. Each takes a connection to an engine, a task, and some hundred
/// kilobytes at worst.
const MAX_REQUESTS: usize = 2_000;
/// Open requests of one session: a stream and a few lists for each of several tabs.
const MAX_SESSION_REQUESTS: usize = 16;
/// A slot becomes free when a tab is closed, which cannot be predicted.
const RETRY_AFTER_SECONDS: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarder() -> Forwarder {
        Forwarder {
            clients: EngineClients::default(),
            permits: Arc::new(Semaphore::new(MAX_REQUESTS)),
            open_requests: Arc::default(),
            stop: CancellationToken::new(),
        }
    }

    #[test]
    fn a_session_has_a_limited_number_of_open_requests() {
        let forwarder = forwarder();
        let (one, other) = (SessionId::new(1, [1; 10]), SessionId::new(1, [2; 10]));
        let mut held: Vec<_> = (0..MAX_SESSION_REQUESTS)
            .map(|_| forwarder.acquire(one).unwrap())
            .collect();
        let refusal = forwarder.acquire(one).unwrap_err();
        assert_eq!(refusal.problem().code, "too_many_streams");
        forwarder.acquire(other).unwrap();
        held.pop();
        held.push(forwarder.acquire(one).unwrap());
        drop(held);
        assert!(forwarder.open_requests.lock().is_empty());
    }

    #[test]
    fn a_process_that_stops_opens_no_request() {
        let forwarder = forwarder();
        forwarder.close();
        let refusal = forwarder.acquire(SessionId::new(1, [1; 10])).unwrap_err();
        assert_eq!(refusal.problem().status, 503);
    }
}
