//! Standing connections (`pool/1`): dialled in advance, and reused for many streams.

use std::{sync::Arc, time::Duration};

use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use transport::{
    TlsStream,
    permit::{Counter, Permit},
    rendezvous::MigrationRendezvous,
    standing::{AcceptedStream, FramedStream, StandingConnection, StreamLease},
};
use types::causes::chain;
use wire::{
    lane::MAX_LANES,
    message::{IpAddress, PoolReq, Secret},
    pool::{Side, StreamOpen},
};

use super::{
    data_path::DataPath,
    forward::{Visit, serve_framed},
    inbound::open_data,
    lanes,
    shared::{AgentState, Handler},
};
use crate::{ConnectError, Stream, error::Step};

/// The standing connections of one control channel. When the channel is over, idle ones close
/// immediately and the others after their stream.
pub(crate) struct Pool {
    shared: Arc<AgentState>,
    path: Arc<DataPath>,
    over: CancellationToken,
    open: Arc<Counter>,
    /// Number of lanes among them.
    lanes: Arc<Counter>,
    /// Migration targets for streams of lanes, if the engine supports `lane/2`.
    moves: Option<Arc<MigrationRendezvous>>,
}

impl Pool {
    pub(crate) fn new(
        shared: Arc<AgentState>,
        path: Arc<DataPath>,
        over: CancellationToken,
        lanes: bool,
    ) -> Self {
        Self {
            shared,
            path,
            over,
            open: Arc::default(),
            lanes: Arc::default(),
            moves: lanes.then(Arc::default),
        }
    }

    /// Dials the requested number of further connections, within [`MAX_POOL`].
    pub(crate) fn grow(&self, request: &PoolReq) {
        for _ in 0..request.count {
            let Some(permit) = Permit::try_take(&self.open, MAX_POOL) else {
                debug!(
                    max = MAX_POOL,
                    "the engine asks for more standing connections"
                );
                return;
            };
            let shared = Arc::clone(&self.shared);
            let path = Arc::clone(&self.path);
            let over = self.over.clone();
            let moves = self.moves.clone();
            let lanes = Arc::clone(&self.lanes);
            let secret = Secret {
                value: request.secret.clone(),
            };
            self.shared.spawn(async move {
                match run_pooled_connection(&shared, &path, &over, moves.as_ref(), secret).await {
                    Ok(None) => {}
                    Ok(Some((io, moves))) => {
                        let Some(lane) = Permit::try_take(&lanes, MAX_LANES) else {
                            debug!(max = MAX_LANES, "the engine opens more lanes than allowed");
                            return;
                        };
                        let serving = lanes::serve(Arc::clone(&shared), moves, over, io);
                        shared.spawn_lane(async move {
                            serving.await;
                            drop((permit, lane));
                        });
                    }
                    Err(error) => debug!(error = chain(&error), "a standing connection ended"),
                }
            });
        }
    }
}

/// Dials one standing connection and serves its streams until it is retired or broken. If it
/// becomes a lane, it is returned for the runtime with the fewest lanes.
///
/// The engine decides how many idle connections are too many, and closes them. If the agent closed
/// spare ones, the next visitor would have to wait for a dial. The agent therefore does not use
/// `idle_timeout_ms`, after which it may close one.
async fn run_pooled_connection(
    shared: &AgentState,
    path: &DataPath,
    over: &CancellationToken,
    moves: Option<&Arc<MigrationRendezvous>>,
    secret: Secret,
) -> Result<Option<(TlsStream, Arc<MigrationRendezvous>)>, ConnectError> {
    // Boxed for its duration: thousands of connections are idle, few are dialling.
    let connector = path.connector().unwrap_or_else(|| shared.connector());
    let dialling = open_data(shared, connector, path, String::new(), secret);
    let Some(stream) = over.run_until_cancelled(Box::pin(dialling)).await else {
        return Ok(None);
    };
    let broken = |source| ConnectError::network(Step::Exchange, source);
    let mut standing = StandingConnection::new(stream?, Side::Agent);
    loop {
        // Cancelling the wait drops the connection, as intended.
        let last = async {
            over.cancelled().await;
            sleep(LAST).await;
        };
        let next = tokio::select! {
            next = standing.accept() => next,
            () = last => return Ok(None),
        };
        let (open, framed) = match next.map_err(broken)? {
            None => return Ok(None),
            Some(AcceptedStream::Stream(open, framed)) => (*open, framed),
            Some(AcceptedStream::Lane(mut io)) => {
                let Some(moves) = moves else {
                    return Err(ConnectError::Protocol("lanes were not negotiated".into()));
                };
                io.get_mut().0.detach().map_err(broken)?;
                return Ok(Some((io, Arc::clone(moves))));
            }
        };
        let Some(framed) = serve(shared, moves, open, framed).await else {
            return Ok(None);
        };
        standing = match timeout(RECYCLE, framed.recycle()).await {
            Ok(Some(standing)) => standing,
            Ok(None) | Err(_) => return Ok(None),
        };
    }
}

/// Serves one stream; `None` if its connection was lost with it.
async fn serve(
    shared: &AgentState,
    moves: Option<&Arc<MigrationRendezvous>>,
    open: StreamOpen,
    mut framed: FramedStream<TlsStream>,
) -> Option<FramedStream<TlsStream>> {
    let visit = Visit {
        stream_id: open.stream_id,
        source_ip: open.source_ip.as_ref().and_then(IpAddress::to_ip),
    };
    if open.moved {
        return deliver_connection(moves, &visit.stream_id, framed).await;
    }
    let Some(entry) = shared.route(&open.tunnel_id).await else {
        framed.reset(Some(wire::Error::tunnel_not_found(
            "the agent has no such tunnel",
        )));
        return Some(framed);
    };
    match entry.handler() {
        Handler::Forward(forward) => {
            Some(serve_framed(&forward, &visit, framed, open.exchanges).await)
        }
        Handler::Queue(queue) => {
            let Ok(slot) = queue.try_reserve_owned() else {
                framed.reset(Some(wire::Error::capacity_exhausted(
                    "too many visitors are waiting",
                )));
                return Some(framed);
            };
            let (lent, given_back) = StreamLease::new(framed);
            let stream = Stream::new(Box::new(lent), visit.stream_id, visit.source_ip);
            drop(slot.send(Box::new(stream)));
            given_back.await.ok()
        }
    }
}

/// Delivers a connection to the stream that leaves its lane, and waits for its return.
async fn deliver_connection(
    moves: Option<&Arc<MigrationRendezvous>>,
    stream_id: &str,
    mut framed: FramedStream<TlsStream>,
) -> Option<FramedStream<TlsStream>> {
    let Some(moves) = moves else {
        framed.reset(Some(wire::Error::invalid_stream("no stream moves here")));
        return Some(framed);
    };
    moves.lend(stream_id, framed).await
}

/// Maximum number of standing connections of one agent. It limits the memory that an engine can
/// make an agent use (about 20 KiB per connection), and is above the usual limit of open files of a
/// process.
pub const MAX_POOL: usize = 16 * 1024;

/// Maximum time that an idle connection outlives its channel. The engine closes it when it notices
/// that end, but may have started a stream before.
const LAST: Duration = Duration::from_secs(1);

/// Maximum time to discard the rest of a stream before its connection is closed.
const RECYCLE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Token, Trust, connect::Connector};

    /// Nothing is dialled before the test has ended.
    #[tokio::test]
    async fn standing_connections_are_limited() {
        let config = Config::new("127.0.0.1:1".parse().unwrap(), Token::new("a.b.c"));
        let trust = Trust::Roots(Vec::new());
        let connector =
            Connector::new(config.engine.clone(), &trust, &config.proxies, &[b"x"]).unwrap();
        let shared = Arc::new(AgentState::new(config, connector));
        let pool = Pool::new(shared, Arc::default(), CancellationToken::new(), false);
        let open: Vec<_> = (0..16_383).map(|_| Permit::take(&pool.open)).collect();
        let request = PoolReq {
            secret: String::new(),
            count: 2,
            idle_timeout_ms: 0,
        };
        pool.grow(&request);
        assert_eq!(pool.open.count(), 16_384);
        drop(open);
    }

    /// Size of the future that a function returns.
    fn of<A, F: Future>(_function: impl FnOnce(A) -> F) -> usize {
        size_of::<F>()
    }

    type Parts = (
        &'static AgentState,
        &'static DataPath,
        &'static CancellationToken,
        Option<&'static Arc<MigrationRendezvous>>,
        Secret,
    );

    /// Compares exact sizes: thousands of these futures wait. The TLS session comes in addition.
    #[test]
    fn an_idle_connection_has_no_memory_for_dialling() {
        let size = of(|(shared, path, over, moves, secret): Parts| {
            run_pooled_connection(shared, path, over, moves, secret)
        });
        assert!(size <= 3072, "{size}");
    }
}
