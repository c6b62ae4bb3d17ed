//! Requests to agents for connections that have not arrived yet.

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

/// The requests that wait for a connection. An entry exists until its request ends.
#[derive(Debug, Default)]
pub(crate) struct PendingStreams {
    streams: Mutex<HashMap<StreamId, PendingStream>>,
    /// Agents by the digest of their pool secret. Looking up a digest does not reveal how much of a
    /// guess was right.
    pools: Mutex<HashMap<[u8; 32], Weak<Agent>>>,
}

/// A stream that was requested: the agent authenticates with the secret, which is valid once.
pub(super) struct PendingStream {
    secret: String,
    client_id: ClientId,
    worker: usize,
    arrival: oneshot::Sender<Result<TlsStream, wire::Error>>,
}

impl PendingStream {
    pub(super) fn new(
        secret: String,
        client_id: ClientId,
        worker: usize,
    ) -> (Self, oneshot::Receiver<Result<TlsStream, wire::Error>>) {
        let (arrival, arrived) = oneshot::channel();
        (
            Self {
                secret,
                client_id,
                worker,
                arrival,
            },
            arrived,
        )
    }

    /// Hands the connection, which arrived on `worker`, to the request that waits for it. If the
    /// request is gone, the connection is closed.
    pub(super) fn deliver(self, mut stream: TlsStream, worker: usize) {
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
        PendingGuard { arrivals: self, id }
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
    pub(super) fn refuse_stream(&self, id: StreamId, client: ClientId, why: wire::Error) {
        let mut streams = self.streams.lock();
        if streams
            .get(&id)
            .is_some_and(|pending| pending.client_id == client)
            && let Some(pending) = streams.remove(&id)
        {
            pending.arrival.send(Err(why)).ok();
        }
    }

    /// Assigns standing connections with this secret to this agent.
    pub(super) fn expect_pool(&self, secret: &str, agent: &Arc<Agent>) {
        self.pools.lock().insert(key(secret), Arc::downgrade(agent));
    }

    /// Returns the agent with this pool secret.
    pub(super) fn claim_pool(&self, secret: &str) -> Option<Arc<Agent>> {
        self.pools.lock().get(&key(secret))?.upgrade()
    }

    /// Numbers of standing connections of all agents.
    pub(crate) fn pool_stats(&self) -> PoolStats {
        // Agents are dropped outside the lock, if this is their last reference.
        let agents: Vec<_> = self
            .pools
            .lock()
            .values()
            .filter_map(Weak::upgrade)
            .collect();
        let pooled = agents.iter().map(|agent| agent.pool_stats());
        pooled.fold(PoolStats::default(), PoolStats::add)
    }

    pub(super) fn forget_pool(&self, secret: &str) {
        self.pools.lock().remove(&key(secret));
    }
}

/// Removes a pending stream when its request is dropped.
#[derive(Debug)]
pub(super) struct PendingGuard<'a> {
    arrivals: &'a PendingStreams,
    id: StreamId,
}

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        self.arrivals.streams.lock().remove(&self.id);
    }
}

fn key(secret: &str) -> [u8; 32] {
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, secret.as_bytes()).as_ref());
    key
}
