//! Standing connections (`pool/1`): dialled before they are needed, used for one stream after
//! another.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use transport::{
    TlsStream,
    standing::{AcceptedStream, FramedStream, StandingConnection},
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
    lanes::{self, Delivery, MigrationRendezvous, RENDEZVOUS_TIMEOUT},
    shared::{AgentState, Handler},
};
use crate::{ConnectError, Stream, error::Step};

/// The standing connections of one control channel. When the channel is over, those that carry
/// no stream end; the others end after theirs.
pub(crate) struct Pool {
    shared: Arc<AgentState>,
    path: Arc<DataPath>,
    over: CancellationToken,
    open: Arc<AtomicUsize>,
    /// How many of them are lanes.
    lanes: Arc<AtomicUsize>,
    /// Where the streams of lanes go on, where the engine speaks `lane/2`.
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

    /// Dials as many more as the engine asks for, within [`MAX_POOL`].
    pub(crate) fn grow(&self, request: &PoolReq) {
        for _ in 0..request.count {
            let Some(place) = CapacityPermit::take(&self.open, MAX_POOL) else {
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
                        let Some(lane) = CapacityPermit::take(&lanes, MAX_LANES) else {
                            debug!(
                                max = MAX_LANES,
                                "the engine makes more lanes than there may be"
                            );
                            return;
                        };
                        let serving = lanes::serve(Arc::clone(&shared), moves, over, io);
                        shared.spawn_lane(async move {
                            serving.await;
                            drop((place, lane));
                        });
                    }
                    Err(error) => debug!(error = chain(&error), "a standing connection ended"),
                }
            });
        }
    }
}

/// One of so many places, given back when dropped.
struct CapacityPermit(Arc<AtomicUsize>);

impl CapacityPermit {
    fn take(open: &Arc<AtomicUsize>, most: usize) -> Option<Self> {
        let more = |now: usize| (now < most).then_some(now + 1);
        open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        Some(Self(Arc::clone(open)))
    }
}

impl Drop for CapacityPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Dials one standing connection and serves its streams until it is retired or broken, or until it
/// becomes a lane: then it is handed back, for the runtime that has the fewest.
///
/// How many idle ones are too many is the engine's to judge: it closes those, and the next visitor
/// of an engine whose spare ones we had closed would pay for it. So `idle_timeout_ms`, after which
/// an agent may close one, is not used.
async fn run_pooled_connection(
    shared: &AgentState,
    path: &DataPath,
    over: &CancellationToken,
    moves: Option<&Arc<MigrationRendezvous>>,
    secret: Secret,
) -> Result<Option<(TlsStream, Arc<MigrationRendezvous>)>, ConnectError> {
    // On the heap while it lasts: thousands stand, few dial.
    let dialling = open_data(shared, shared.connector(), path, String::new(), secret);
    let Some(stream) = over.run_until_cancelled(Box::pin(dialling)).await else {
        return Ok(None);
    };
    let broken = |source| ConnectError::network(Step::Exchange, source);
    let mut standing = StandingConnection::new(stream?, Side::Agent);
    loop {
        // A wait that is cut short takes the connection with it, which is what is wanted.
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
            Some(AcceptedStream::Stream(open, framed)) => (open, framed),
            Some(AcceptedStream::Lane(mut io)) => {
                let Some(moves) = moves else {
                    return Err(ConnectError::Protocol("lanes were not agreed on".into()));
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

/// Serves one stream; `None` when its connection is gone with it.
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
        return bring(moves, &visit.stream_id, framed).await;
    }
    let Some(entry) = shared.route(&open.tunnel_id).await else {
        framed.reset(Some(wire::Error::tunnel_not_found(
            "the agent has no such tunnel",
        )));
        return Some(framed);
    };
    match entry.handler() {
        Handler::Forward(forward) => Some(serve_framed(&forward, &visit, framed).await),
        Handler::Queue(queue) => {
            let Ok(slot) = queue.try_reserve_owned() else {
                framed.reset(Some(wire::Error::capacity_exhausted(
                    "too many visitors wait",
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

/// Brings a connection to the stream that leaves its lane for it, and waits for its return.
async fn bring(
    moves: Option<&Arc<MigrationRendezvous>>,
    stream_id: &str,
    mut framed: FramedStream<TlsStream>,
) -> Option<FramedStream<TlsStream>> {
    let Some(moves) = moves else {
        framed.reset(Some(wire::Error::invalid_stream("no stream moves here")));
        return Some(framed);
    };
    // The stream may be served on another runtime.
    framed.get_mut().get_mut().0.detach().ok()?;
    let (lent, mut given_back) = StreamLease::new(framed);
    let mut early = None;
    if moves.bring(stream_id, lent) == Delivery::Early {
        early = timeout(RENDEZVOUS_TIMEOUT, &mut given_back).await.ok();
        moves.give_up(stream_id);
    }
    let given_back = match early {
        Some(given_back) => given_back,
        None => given_back.await,
    };
    let mut framed = given_back.ok()?;
    framed.get_mut().get_mut().0.detach().ok()?;
    Some(framed)
}

/// A stream in the hands of the program, or one that has left its lane. Its connection comes back
/// when it is dropped.
pub(crate) struct StreamLease {
    framed: Option<FramedStream<TlsStream>>,
    back: Option<oneshot::Sender<FramedStream<TlsStream>>>,
}

impl StreamLease {
    fn new(framed: FramedStream<TlsStream>) -> (Self, oneshot::Receiver<FramedStream<TlsStream>>) {
        let (back, given_back) = oneshot::channel();
        let lent = Self {
            framed: Some(framed),
            back: Some(back),
        };
        (lent, given_back)
    }

    /// Gives the stream up, with a reason.
    pub(crate) fn reset(&mut self, reason: wire::Error) {
        if let Some(framed) = &mut self.framed {
            framed.reset(Some(reason));
        }
    }

    fn framed(self: Pin<&mut Self>) -> io::Result<Pin<&mut FramedStream<TlsStream>>> {
        // Empty only within `drop`.
        self.get_mut()
            .framed
            .as_mut()
            .map(Pin::new)
            .ok_or(io::ErrorKind::NotConnected.into())
    }
}

impl Drop for StreamLease {
    fn drop(&mut self) {
        if let (Some(framed), Some(back)) = (self.framed.take(), self.back.take()) {
            // Without a taker the agent was killed; the connection closes with the stream.
            drop(back.send(framed));
        }
    }
}

impl AsyncRead for StreamLease {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.framed()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for StreamLease {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.framed()?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.framed()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.framed()?.poll_shutdown(cx)
    }
}

/// Standing connections of one agent. It bounds what an engine can make an agent hold (about
/// 20 KiB each), above what one process may commonly have open.
pub const MAX_POOL: usize = 16 * 1024;

/// How long a connection without a stream outlives its channel. The engine closes it when it hears of
/// that end, and may have begun a stream before.
const LAST: Duration = Duration::from_secs(1);

/// How long the rest of a stream may take to pass before its connection is given up.
const RECYCLE: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Token, Trust, connect::Connector};

    /// Nothing is dialled before the test has ended.
    #[tokio::test]
    async fn there_are_so_many_standing_connections() {
        let config = Config::new("127.0.0.1:1".parse().unwrap(), Token::new("a.b.c"));
        let trust = Trust::Roots(Vec::new());
        let connector = Connector::new(config.engine.clone(), &trust, &[b"x"]).unwrap();
        let shared = Arc::new(AgentState::new(config, connector));
        let pool = Pool::new(shared, Arc::default(), CancellationToken::new(), false);
        pool.open.store(16_383, Ordering::Relaxed);
        let request = PoolReq {
            secret: String::new(),
            count: 2,
            idle_timeout_ms: 0,
        };
        pool.grow(&request);
        assert_eq!(pool.open.load(Ordering::Relaxed), 16_384);
    }

    /// The size of the future that a function makes.
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

    /// Exact, not timed: thousands of these wait. The TLS session comes on top.
    #[test]
    fn a_standing_connection_holds_no_room_for_dialling() {
        let size = of(|(shared, path, over, moves, secret): Parts| {
            run_pooled_connection(shared, path, over, moves, secret)
        });
        assert!(size <= 3072, "{size}");
    }
}
