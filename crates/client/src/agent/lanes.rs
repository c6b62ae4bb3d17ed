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
    lane::{ConnectFuture, Lane, LaneStream, MigratingStream, MigrationTarget},
};
use wire::{lane::StreamOpen, message::IpAddress};

use super::{
    forward::{Visit, serve_carried},
    pool::StreamLease,
    shared::{AgentState, Handler},
};
use crate::Stream;

/// A stream that a lane brought.
pub(crate) type OnLane = MigratingStream<MigrateToConnection>;

/// Serves a lane until it ends; where its channel is `over`, with its last stream.
pub(crate) async fn serve(
    shared: Arc<AgentState>,
    moves: Arc<MigrationRendezvous>,
    over: CancellationToken,
    io: TlsStream,
) {
    io.get_ref().0.limit_stall(Some(STALL));
    let (lane, mut driver) = Lane::agent(io);
    let (mut stopping, mut ending) = (false, false);
    loop {
        let accepted = tokio::select! {
            accepted = poll_fn(|cx| driver.poll_accept(cx)) => accepted,
            // The engine will bring no connections when it hears of that.
            () = shared.stop.cancelled(), if !stopping => {
                lane.stay();
                stopping = true;
                continue;
            }
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
async fn take(
    shared: Arc<AgentState>,
    moves: Arc<MigrationRendezvous>,
    open: StreamOpen,
    mut stream: LaneStream,
) {
    let visit = Visit {
        stream_id: open.stream_id.clone(),
        source_ip: open.source_ip.as_ref().and_then(IpAddress::to_ip),
    };
    let Some(entry) = shared.route(&open.tunnel_id).await else {
        let unknown = wire::Error::tunnel_not_found("the agent has no such tunnel");
        return stream.reset(Some(&unknown));
    };
    let to = MigrateToConnection(MigrationRendezvous::register(moves, open.stream_id));
    let mut carried = MigratingStream::new(stream, to, entry.budget());
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
pub(crate) struct MigrateToConnection(RendezvousGuard<StreamLease>);

impl MigrationTarget for MigrateToConnection {
    type Connection = StreamLease;

    const CHOOSES: bool = false;

    fn connect(&self) -> ConnectFuture<StreamLease> {
        self.0.expect()
    }
}

/// Where the streams of a channel that leave their lanes meet the connections that the engine
/// chose for them. Either may come first: they come on different connections. There are no more
/// meetings than streams and connections.
pub(crate) struct MigrationRendezvous<C = StreamLease>(
    Mutex<HashMap<Arc<str>, RendezvousState<C>>>,
);

enum RendezvousState<C> {
    /// The stream is on its lane, and nothing has come for it.
    OnLane,
    /// The stream waits.
    Stream(oneshot::Sender<C>),
    /// The connection waits until the stream has read what is on its lane, however long that takes.
    Connection(Box<C>),
    /// The connection waits for a stream of which nothing is known yet.
    Early(Box<C>),
}

/// What becomes of a connection that was brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// Its stream is there, and has it or will take it.
    Met,
    /// Its stream is not there yet.
    Early,
}

/// A stream that connections may come for, as long as this is held.
pub(crate) struct RendezvousGuard<C> {
    moves: Arc<MigrationRendezvous<C>>,
    stream_id: Arc<str>,
}

impl<C> Default for MigrationRendezvous<C> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<C: Send + 'static> MigrationRendezvous<C> {
    /// A lane brought this stream.
    fn register(moves: Arc<Self>, stream_id: String) -> RendezvousGuard<C> {
        let stream_id: Arc<str> = stream_id.into();
        let mut meetings = moves.0.lock();
        let meeting = match meetings.remove(&stream_id) {
            Some(RendezvousState::Early(connection)) => RendezvousState::Connection(connection),
            _ => RendezvousState::OnLane,
        };
        meetings.insert(Arc::clone(&stream_id), meeting);
        drop(meetings);
        RendezvousGuard { moves, stream_id }
    }

    /// Brings the connection of a stream to it, or lets it wait there.
    pub(super) fn bring(&self, stream_id: &str, connection: C) -> Delivery {
        let mut meetings = self.0.lock();
        let (brought, meeting, replaced) = match meetings.remove(stream_id) {
            None => (
                Delivery::Early,
                RendezvousState::Early(connection.into()),
                None,
            ),
            // Two of one id; what is dropped gives itself back.
            Some(RendezvousState::Early(before)) => {
                let early = RendezvousState::Early(connection.into());
                (Delivery::Early, early, Some(before))
            }
            Some(RendezvousState::Connection(before)) => {
                let waits = RendezvousState::Connection(connection.into());
                (Delivery::Met, waits, Some(before))
            }
            Some(RendezvousState::OnLane) => (
                Delivery::Met,
                RendezvousState::Connection(connection.into()),
                None,
            ),
            Some(RendezvousState::Stream(waiting)) => {
                let sent = waiting.send(connection);
                let waits = |connection: C| RendezvousState::Connection(connection.into());
                (
                    Delivery::Met,
                    sent.map_or_else(waits, |()| RendezvousState::OnLane),
                    None,
                )
            }
        };
        meetings.insert(stream_id.into(), meeting);
        drop(meetings);
        drop(replaced);
        brought
    }

    /// Takes back a connection that has waited for long enough for a stream that did not come.
    pub(super) fn give_up(&self, stream_id: &str) {
        let mut meetings = self.0.lock();
        let waiting = match meetings.get(stream_id) {
            Some(RendezvousState::Early(_)) => meetings.remove(stream_id),
            _ => None,
        };
        drop(meetings);
        // What is dropped gives itself back; not under the lock.
        drop(waiting);
    }
}

impl<C: Send + 'static> RendezvousGuard<C> {
    /// Waits for the connection. There is no deadline: the engine brings it when it has read what is
    /// on the lane, as slowly as the visitor takes it. Whoever waits looks whether the lane is there.
    fn expect(&self) -> ConnectFuture<C> {
        let (sender, arrival) = oneshot::channel();
        let mut meetings = self.moves.0.lock();
        let meeting = meetings
            .entry(Arc::clone(&self.stream_id))
            .or_insert(RendezvousState::OnLane);
        if let RendezvousState::Connection(connection) =
            std::mem::replace(meeting, RendezvousState::OnLane)
        {
            return Box::pin(async { Ok(*connection) });
        }
        *meeting = RendezvousState::Stream(sender);
        Box::pin(async move {
            let arrived = arrival.await;
            arrived.map_err(|_| io::ErrorKind::NotConnected.into())
        })
    }
}

impl<C> Drop for RendezvousGuard<C> {
    fn drop(&mut self) {
        let gone = self.moves.0.lock().remove(&self.stream_id);
        // What is dropped gives itself back; not under the lock.
        drop(gone);
    }
}

/// Counts the lanes of a runtime.
pub(crate) struct LaneCountGuard(Arc<AtomicUsize>);

impl LaneCountGuard {
    pub(crate) fn count(lanes: &Arc<AtomicUsize>) -> Self {
        lanes.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(lanes))
    }
}

impl Drop for LaneCountGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How long a connection may come before its stream, which was begun first, on another one.
pub(super) const RENDEZVOUS_TIMEOUT: Duration = Duration::from_secs(10);

/// As at the engine: how long its system may confirm nothing of what is under way.
const STALL: Duration = Duration::from_secs(30);

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn moves() -> Arc<MigrationRendezvous<u8>> {
        Arc::default()
    }

    fn registered(moves: &Arc<MigrationRendezvous<u8>>) -> RendezvousGuard<u8> {
        MigrationRendezvous::register(Arc::clone(moves), "s".to_owned())
    }

    #[tokio::test]
    async fn a_stream_waits_for_its_connection_as_long_as_the_engine_reads() {
        tokio::time::pause();
        let moves = moves();
        let stream = registered(&moves);
        let mut expected = stream.expect();
        tokio::time::advance(Duration::from_hours(1)).await;
        assert!((&mut expected).now_or_never().is_none());
        assert_eq!(moves.bring("s", 7), Delivery::Met);
        assert_eq!(expected.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_connection_waits_as_long_as_its_stream_lives() {
        let moves = moves();
        let stream = registered(&moves);
        assert_eq!(moves.bring("s", 7), Delivery::Met);
        moves.give_up("s");
        assert_eq!(stream.expect().await.unwrap(), 7);
        assert_eq!(moves.bring("s", 8), Delivery::Met);
        drop(stream);
        assert!(moves.0.lock().is_empty(), "and goes with it");
    }

    #[tokio::test]
    async fn a_connection_may_come_first_and_waits_for_a_while() {
        let moves = moves();
        assert_eq!(moves.bring("s", 7), Delivery::Early);
        assert_eq!(registered(&moves).expect().await.unwrap(), 7);
        assert_eq!(moves.bring("s", 8), Delivery::Early);
        moves.give_up("s");
        assert!(moves.0.lock().is_empty());
    }
}
