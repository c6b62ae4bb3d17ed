//! Requests to agents to open a connection for a stream, until the connection arrives.

use std::collections::HashMap;
use std::ops::Add;
use std::sync::{Arc, Weak};

use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::Mutex;
use subtle::ConstantTimeEq;
use tokio::sync::oneshot;
use transport::TlsStream;
use types::id::{ClientId, StreamId};

use super::{Agent, PoolStats};

/// The requests that wait for a connection, and the agents to which standing connections belong.
/// The entry of a request exists until the request ends.
#[derive(Debug, Default)]
pub(crate) struct PendingStreams {
    streams: Mutex<HashMap<StreamId, PendingStream>>,
    /// Agents by the digest of their pool secret. The time of a lookup by digest does not reveal
    /// how much of a guessed secret is right.
    pools: Mutex<HashMap<[u8; 32], Weak<Agent>>>,
}

/// A stream that was requested from an agent. The agent authenticates its connection with the
/// secret, which is valid once.
pub(super) struct PendingStream {
    secret: String,
    client_id: ClientId,
    /// The worker of the request.
    worker: usize,
    arrival: oneshot::Sender<Result<TlsStream, wire::Error>>,
}

impl PendingStream {
    pub(super) fn new(
        secret: String,
        client_id: ClientId,
        worker: usize,
    ) -> (Self, oneshot::Receiver<Result<TlsStream, wire::Error>>) {
        let (arrival, receiver) = oneshot::channel();
        (
            Self {
                secret,
                client_id,
                worker,
                arrival,
            },
            receiver,
        )
    }

    /// Hands the connection, which arrived on `worker`, to the request that waits for it. If the
    /// request is gone, the connection is closed.
    pub(super) fn deliver(self, mut stream: TlsStream, worker: usize) {
        // The runtime of the request's worker registers the socket with the next read or write.
        if worker != self.worker && stream.get_mut().0.detach().is_err() {
            return;
        }
        self.arrival.send(Ok(stream)).ok();
    }
}

impl std::fmt::Debug for PendingStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PendingStream")
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

impl PendingStreams {
    /// Expects a stream until the returned guard is dropped.
    pub(super) fn expect_stream(&self, id: StreamId, pending: PendingStream) -> PendingGuard<'_> {
        self.streams.lock().insert(id, pending);
        PendingGuard { requests: self, id }
    }

    /// Removes and returns the request for this stream, if the secret is right. A wrong secret
    /// changes nothing: the agent with the right one may still connect.
    pub(super) fn claim_stream(&self, id: StreamId, secret: &str) -> Option<PendingStream> {
        let mut streams = self.streams.lock();
        let pending = streams.get(&id)?;
        let right = bool::from(pending.secret.as_bytes().ct_eq(secret.as_bytes()));
        right.then(|| streams.remove(&id)).flatten()
    }

    /// Handles an agent's refusal to open the stream. An agent can only refuse its own streams.
    pub(super) fn refuse_stream(&self, id: StreamId, client: ClientId, error: wire::Error) {
        let mut streams = self.streams.lock();
        if streams
            .get(&id)
            .is_some_and(|pending| pending.client_id == client)
            && let Some(pending) = streams.remove(&id)
        {
            pending.arrival.send(Err(error)).ok();
        }
    }

    /// Assigns later standing connections with this pool secret to this agent.
    pub(super) fn expect_pool(&self, secret: &str, agent: &Arc<Agent>) {
        self.pools
            .lock()
            .insert(pool_key(secret), Arc::downgrade(agent));
    }

    /// Returns the agent with this pool secret.
    pub(super) fn claim_pool(&self, secret: &str) -> Option<Arc<Agent>> {
        self.pools.lock().get(&pool_key(secret))?.upgrade()
    }

    /// Numbers of standing connections of all agents.
    pub(crate) fn pool_stats(&self) -> PoolStats {
        // An agent whose last reference is in this list is dropped after the lock is released.
        let agents: Vec<_> = self
            .pools
            .lock()
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        let pooled = agents.iter().map(|agent| agent.pool_stats());
        pooled.fold(PoolStats::default(), PoolStats::add)
    }

    /// Assigns no more standing connections with this pool secret.
    pub(super) fn forget_pool(&self, secret: &str) {
        self.pools.lock().remove(&pool_key(secret));
    }
}

/// Removes a pending stream when its request is dropped.
#[derive(Debug)]
pub(super) struct PendingGuard<'a> {
    requests: &'a PendingStreams,
    id: StreamId,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        self.requests.streams.lock().remove(&self.id);
    }
}

fn pool_key(secret: &str) -> [u8; 32] {
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    key
}
