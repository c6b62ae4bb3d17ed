//! Lanes (`lane/2`): many small streams on one connection, and where they go that are no longer
//! small.

use std::{
    collections::HashMap,
    future::poll_fn,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tracing::debug;
use transport::{
    TlsStream,
    lane::{Carried, Connecting, Lane, LaneStream, Mover},
};
use wire::{lane::StreamOpen, message::IpAddress};

use super::{
    forward::{Visit, serve_carried},
    pool::Lent,
    shared::{Handler, Shared},
};
use crate::Stream;

/// A stream that a lane brought.
pub(crate) type OnLane = Carried<ToConnection>;

/// Serves a lane until it ends; where its channel is `over`, with its last stream.
pub(crate) async fn serve(
    shared: Arc<Shared>,
    moves: Arc<Moves>,
    over: CancellationToken,
    io: TlsStream,
) {
    io.get_ref().0.limit_stall(Some(STALL));
    let (lane, mut driver) = Lane::agent(io);
    let mut ending = false;
    loop {
        let accepted = tokio::select! {
            accepted = poll_fn(|cx| driver.poll_accept(cx)) => accepted,
            () = over.cancelled(), if !ending => {
                lane.retire();
                ending = true;
                continue;
            }
        };
        match accepted {
            Ok(Some((open, stream))) => {
                let taken = take(Arc::clone(&shared), Arc::clone(&moves), open, stream);
                // Beside its lane: they wake each other with every exchange.
                shared.spawn_here(taken);
            }
            Ok(None) => return,
            Err(error) => {
                debug!(%error, "a lane broke");
                return;
            }
        }
    }
}

/// Serves one stream.
async fn take(shared: Arc<Shared>, moves: Arc<Moves>, open: StreamOpen, mut stream: LaneStream) {
    let visit = Visit {
        stream_id: open.stream_id.clone(),
        source_ip: open.source_ip.as_ref().and_then(IpAddress::to_ip),
    };
    let Some(entry) = shared.route(&open.tunnel_id).await else {
        let unknown = wire::Error::tunnel_not_found("the agent has no such tunnel");
        return stream.reset(Some(&unknown));
    };
    let to = ToConnection {
        moves,
        stream_id: open.stream_id,
    };
    let mut carried = Carried::new(stream, to, entry.budget());
    match entry.handler() {
        Handler::Forward(forward) => {
            serve_carried(&forward, &visit, carried).await;
        }
        Handler::Queue(queue) => {
            let Ok(slot) = queue.try_reserve_owned() else {
                let full = wire::Error::capacity_exhausted("too many visitors wait");
                return carried.lane().reset(Some(&full));
            };
            let stream = Stream::new(Box::new(carried), visit.stream_id, visit.source_ip)
                .counted(shared.streams.token());
            drop(slot.send(Box::new(stream)));
        }
    }
}

/// Takes a stream from its lane to the standing connection that the engine chooses for it.
pub(crate) struct ToConnection {
    moves: Arc<Moves>,
    stream_id: String,
}

impl Mover for ToConnection {
    type Connection = Lent;

    fn connect(&self) -> Connecting<Lent> {
        self.moves.expect(&self.stream_id)
    }
}

/// Where the streams of a channel that leave their lanes meet the connections that the engine
/// chose for them. Either may come first: they come on different connections. There are no more
/// meetings than streams and connections.
#[derive(Default)]
pub(crate) struct Moves(Mutex<HashMap<String, Meeting>>);

enum Meeting {
    Stream(oneshot::Sender<Lent>),
    Connection(Box<Lent>),
}

impl Moves {
    /// Waits for the connection of a stream.
    fn expect(self: &Arc<Self>, stream_id: &str) -> Connecting<Lent> {
        let (sender, arrival) = oneshot::channel();
        let mut meetings = self.0.lock();
        if let Some(Meeting::Connection(lent)) = meetings.remove(stream_id) {
            return Box::pin(async { Ok(*lent) });
        }
        meetings.insert(stream_id.to_owned(), Meeting::Stream(sender));
        drop(meetings);
        let expected = Expected {
            moves: Arc::clone(self),
            stream_id: stream_id.to_owned(),
        };
        Box::pin(async move {
            let arrived = tokio::time::timeout(MEETING, arrival).await;
            drop(expected);
            match arrived {
                Ok(Ok(lent)) => Ok(lent),
                Ok(Err(_)) => Err(io::ErrorKind::NotConnected.into()),
                Err(_elapsed) => Err(io::ErrorKind::TimedOut.into()),
            }
        })
    }

    /// Brings the connection of a stream to it, or lets it wait there.
    pub(super) fn bring(&self, stream_id: &str, lent: Lent) {
        let mut meetings = self.0.lock();
        let lent = match meetings.remove(stream_id) {
            Some(Meeting::Stream(waiting)) => match waiting.send(lent) {
                Ok(()) => return,
                Err(lent) => lent,
            },
            _ => lent,
        };
        let waits = Meeting::Connection(Box::new(lent));
        let replaced = meetings.insert(stream_id.to_owned(), waits);
        drop(meetings);
        // Two of one id; what is dropped gives itself back.
        drop(replaced);
    }

    /// Takes back a connection that has waited for long enough.
    pub(super) fn give_up(&self, stream_id: &str) {
        let mut meetings = self.0.lock();
        let waiting = match meetings.get(stream_id) {
            Some(Meeting::Connection(_)) => meetings.remove(stream_id),
            _ => None,
        };
        drop(meetings);
        // What is dropped gives itself back; not under the lock.
        drop(waiting);
    }
}

/// Withdraws a stream that does not wait any more.
struct Expected {
    moves: Arc<Moves>,
    stream_id: String,
}

impl Drop for Expected {
    fn drop(&mut self) {
        let mut meetings = self.moves.0.lock();
        if let Some(Meeting::Stream(_)) = meetings.get(&self.stream_id) {
            meetings.remove(&self.stream_id);
        }
    }
}

/// Counts the lanes of a runtime.
pub(crate) struct OnRuntime(Arc<AtomicUsize>);

impl OnRuntime {
    pub(crate) fn count(lanes: &Arc<AtomicUsize>) -> Self {
        lanes.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(lanes))
    }
}

impl Drop for OnRuntime {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Lanes of one agent: the largest engines have about so many cores. Each brings up to 1,024
/// connections to services.
pub(super) const MAX_LANES: usize = 64;

/// How long a stream and its connection may miss each other: as long as an engine may take to
/// find a connection.
pub(super) const MEETING: Duration = Duration::from_secs(10);

/// As at the engine: how long its system may confirm nothing of what is under way.
const STALL: Duration = Duration::from_secs(30);
