//! A client of all members: it uses one at a time, and the next one after a failure.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use prost::Message;
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout, timeout_at};

use crate::connection::{Connection, Responses};
use crate::error::StoreError;
use crate::proto::{
    EmptyMessage, LEASE_GRANT, LEASE_KEEP_ALIVE, LEASE_REVOKE, LeaseGrantRequest,
    LeaseGrantResponse, LeaseKeepAliveResponse, LeaseRequest, RANGE, RangeRequest, RangeResponse,
    STATUS, StatusResponse, TXN, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest,
    WatchResponse,
};
use crate::settings::{Endpoint, Login, Settings};
use crate::tls::TlsFiles;

/// The client.
pub(crate) struct Client {
    endpoints: Vec<Endpoint>,
    tls: Option<TlsFiles>,
    login: Option<Login>,
    current: Mutex<CurrentMember>,
    /// Microseconds that the last successful request took; 0 before the first one.
    latency: AtomicU64,
}

/// The connection in use.
#[derive(Default)]
struct CurrentMember {
    connection: Option<Connection>,
    /// Counts the connections, so that a failure ends only the one that it happened on.
    number: usize,
}

impl Client {
    pub(crate) fn new(settings: &Settings) -> Self {
        Self {
            endpoints: settings.endpoints.clone(),
            tls: settings.tls.clone(),
            login: settings.login.clone(),
            current: Mutex::default(),
            latency: AtomicU64::new(0),
        }
    }

    /// The time that the last successful request took.
    pub(crate) fn latency(&self) -> Option<Duration> {
        let micros = self.latency.load(Ordering::Relaxed);
        (micros > 0).then(|| Duration::from_micros(micros))
    }

    pub(crate) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, StoreError> {
        self.unary(RANGE, request).await
    }

    pub(crate) async fn transaction(&self, request: TxnRequest) -> Result<TxnResponse, StoreError> {
        self.unary(TXN, request).await
    }

    /// Creates a lease, and returns its id.
    pub(crate) async fn grant_lease(&self, ttl: Duration) -> Result<i64, StoreError> {
        let seconds = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
        let request = LeaseGrantRequest { ttl: seconds };
        let granted: LeaseGrantResponse = self.unary(LEASE_GRANT, request).await?;
        if !granted.error.is_empty() || granted.ttl < seconds {
            return Err(StoreError::Unexpected(format!(
                "a lease of {} s instead of {seconds} s: {}",
                granted.ttl, granted.error
            )));
        }
        Ok(granted.id)
    }

    /// Renews a lease.
    pub(crate) async fn renew_lease(&self, id: i64) -> Result<(), StoreError> {
        let renewing = move |connection: Connection| async move {
            let request = LeaseRequest { id };
            let renewed: Result<LeaseKeepAliveResponse, StoreError> =
                connection.first_of_stream(LEASE_KEEP_ALIVE, request).await;
            renewed
        };
        let renewed = self.with_retries(renewing).await?;
        if renewed.ttl <= 0 {
            return Err(StoreError::LeaseEnded);
        }
        Ok(())
    }

    pub(crate) async fn revoke_lease(&self, id: i64) -> Result<(), StoreError> {
        let _revoked: EmptyMessage = self.unary(LEASE_REVOKE, LeaseRequest { id }).await?;
        Ok(())
    }

    /// Opens a stream of changes, and returns it with its first response. There is one attempt.
    pub(crate) async fn watch(
        &self,
        create: WatchCreateRequest,
    ) -> Result<(Responses<WatchResponse>, WatchResponse), StoreError> {
        let opening = async {
            let (connection, number) = self.connection().await?;
            let request = WatchRequest {
                create: Some(create),
            };
            let attempt = async {
                let mut responses = connection.watch(request).await?;
                let first = responses.next().await?;
                Ok::<_, StoreError>((responses, first))
            };
            let opened = timeout(ATTEMPT_TIME, attempt).await;
            let opened = opened.unwrap_or(Err(StoreError::Slow));
            if opened.is_err() {
                self.discard(number).await;
            }
            opened
        };
        timeout(REQUEST_TIME, opening)
            .await
            .unwrap_or(Err(StoreError::Slow))
    }

    /// Ends the use of the current member, whose stream of changes has stalled.
    pub(crate) async fn leave_member(&self) {
        let number = self.current.lock().await.number;
        self.discard(number).await;
    }

    async fn unary<Q, A>(&self, method: &'static str, request: Q) -> Result<A, StoreError>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let calling = |connection: Connection| {
            let request = request.clone();
            async move { connection.unary::<Q, A>(method, request).await }
        };
        self.with_retries(calling).await
    }

    /// Makes a request at one member after another, until one responds or the time is over. A
    /// request may be executed twice: each one is a condition and a write, or has the same effect.
    async fn with_retries<A, F>(
        &self,
        attempt: impl Fn(Connection) -> F + Send + Sync,
    ) -> Result<A, StoreError>
    where
        F: Future<Output = Result<A, StoreError>> + Send,
    {
        let deadline = Instant::now() + REQUEST_TIME;
        let mut failure = StoreError::Slow;
        let mut attempts = 0;
        while Instant::now() < deadline {
            attempts += 1;
            let trying = self.try_once(&attempt, deadline);
            match timeout_at(deadline, trying).await {
                Ok(Ok(answer)) => return Ok(answer),
                Ok(Err(error)) if error.tries_next_member() => failure = error,
                Ok(Err(error)) => return Err(error),
                Err(_elapsed) => break,
            }
            // All members have refused: a leader may be elected at this moment.
            if attempts % self.endpoints.len().max(1) == 0 {
                tokio::time::sleep(ROUND_PAUSE).await;
            }
        }
        Err(self.diagnose(failure).await)
    }

    async fn try_once<A, F>(
        &self,
        attempt: &(impl Fn(Connection) -> F + Send + Sync),
        deadline: Instant,
    ) -> Result<A, StoreError>
    where
        F: Future<Output = Result<A, StoreError>> + Send,
    {
        let (connection, number) = self.connection().await?;
        let start = Instant::now();
        let limit = deadline.min(start + ATTEMPT_TIME);
        let answer = timeout_at(limit, attempt(connection)).await;
        let answer = answer.unwrap_or(Err(StoreError::Slow));
        match &answer {
            Ok(_) => self.note_latency(start.elapsed()),
            Err(error) if error.tries_next_member() => self.discard(number).await,
            Err(_) => {}
        }
        answer
    }

    fn note_latency(&self, took: Duration) {
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.latency.store(micros.max(1), Ordering::Relaxed);
    }

    /// A member that responds but has no leader is the reason why others are slow.
    async fn diagnose(&self, failure: StoreError) -> StoreError {
        for _ in 0..self.endpoints.len() {
            let asking = async {
                let (connection, number) = self.connection().await?;
                let asked: Result<StatusResponse, StoreError> =
                    connection.unary(STATUS, EmptyMessage::default()).await;
                if asked.is_err() {
                    self.discard(number).await;
                }
                asked
            };
            let status = timeout(DIAGNOSIS_TIME, asking).await;
            match status.unwrap_or(Err(StoreError::Slow)) {
                Ok(status) if status.leader == 0 => return StoreError::QuorumLost,
                Ok(_) => return failure,
                Err(StoreError::QuorumLost) => return StoreError::QuorumLost,
                Err(_) => {}
            }
        }
        failure
    }

    /// The current connection, or a new one to the next member.
    async fn connection(&self) -> Result<(Connection, usize), StoreError> {
        let mut current = self.current.lock().await;
        if let Some(connection) = &current.connection {
            return Ok((connection.clone(), current.number));
        }
        let place = current.number % self.endpoints.len().max(1);
        current.number += 1;
        let Some(endpoint) = self.endpoints.get(place) else {
            return Err(StoreError::Unreachable(
                "no endpoint is configured".to_owned(),
            ));
        };
        let opening = Connection::open(endpoint, self.tls.as_ref(), self.login.as_ref());
        let opened = timeout(CONNECT_TIME, opening).await;
        let opened = opened.unwrap_or_else(|_| {
            let reason = format!("{endpoint}: the connection took too long");
            Err(StoreError::Unreachable(reason))
        })?;
        current.connection = Some(opened.clone());
        Ok((opened, current.number))
    }

    /// Ends the use of a connection. The next one leads to the next member.
    async fn discard(&self, number: usize) {
        let mut current = self.current.lock().await;
        if current.number == number {
            current.connection = None;
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client")
            .field("endpoints", &self.endpoints)
            .finish_non_exhaustive()
    }
}

/// Time limit of a request at all members together. Agents wait for it before they try again.
pub(crate) const REQUEST_TIME: Duration = Duration::from_secs(5);
/// Time limit at one member. A leader is elected within about a second.
const ATTEMPT_TIME: Duration = Duration::from_secs(2);
/// The pause after all members were tried.
const ROUND_PAUSE: Duration = Duration::from_millis(200);
/// Time limit of TCP, TLS and authentication.
const CONNECT_TIME: Duration = Duration::from_secs(2);
/// Time limit at one member when the reason of a failure is searched.
const DIAGNOSIS_TIME: Duration = Duration::from_millis(500);
