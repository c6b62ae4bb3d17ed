//! Lanes (`lane/2`): many small streams on one connection, and the migration of streams that grow.

use std::{collections::HashMap, future::poll_fn, io, sync::Arc, time::Duration};

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

/// A stream that arrived on a lane.
pub(crate) type MigratingLaneStream = MigratingStream<MigrateToConnection>;

/// Serves a lane until it ends. Once its channel is `over`, the lane ends with its last stream.
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
            // The engine is notified and then opens no new connections.
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
                let serving = serve_stream(Arc::clone(&shared), Arc::clone(&moves), open, stream);
                // Spawned on the runtime of the lane, because both wake each other with every
                // exchange.
                shared.spawn_here(serving);
            }
            Ok(None) => return,
            Err(error) => {
                debug!(%error, "a lane failed");
                return;
            }
        }
    }
}

/// Serves one stream.
async fn serve_stream(
    shared: Arc<AgentState>,
    moves: Arc<MigrationRendezvous>,
    open: StreamOpen,
    mut stream: LaneStream,
) {
    let visit = Visit {
        stream_id: open.stream_id.clone(),
        source_ip: open.source_ip.as_ref().and_then(IpAddress::to_ip),
    };
    let exchanges = open.exchanges;
    let Some(entry) = shared.route(&open.tunnel_id).await else {
        let unknown = wire::Error::tunnel_not_found("the agent has no such tunnel");
        return stream.reset(Some(&unknown));
    };
    let to = MigrateToConnection(MigrationRendezvous::register(moves, open.stream_id));
    let mut carried = MigratingStream::new(stream, to, entry.budget());
    match entry.handler() {
        Handler::Forward(forward) => {
            serve_carried(&forward, &visit, carried, exchanges).await;
        }
        Handler::Queue(queue) => {
            let Ok(slot) = queue.try_reserve_owned() else {
                let full = wire::Error::capacity_exhausted("too many visitors are waiting");
                return carried.lane().reset(Some(&full));
            };
            let stream = Stream::new(Box::new(carried), visit.stream_id, visit.source_ip)
                .counted(shared.streams.token());
            drop(slot.send(Box::new(stream)));
        }
    }
}

/// Migrates a stream from its lane to the standing connection that the engine chooses.
pub(crate) struct MigrateToConnection(RendezvousGuard<StreamLease>);

impl MigrationTarget for MigrateToConnection {
    type Connection = StreamLease;

    const PROVIDES_CONNECTION: bool = false;

    fn connect(&self) -> ConnectFuture<StreamLease> {
        self.0.expect()
    }
}

/// Matches the streams of a channel that leave their lanes with the connections that the engine
/// chose for them. Either may arrive first, because they use different connections. There are at
/// most as many entries as streams and connections.
pub(crate) struct MigrationRendezvous<C = StreamLease>(
    Mutex<HashMap<Arc<str>, RendezvousState<C>>>,
);

enum RendezvousState<C> {
    /// The stream is on its lane, and no connection has arrived.
    OnLane,
    /// The stream waits for its connection.
    Stream(oneshot::Sender<C>),
    /// The connection waits until the stream has read the bytes on its lane, without a time limit.
    Connection(Box<C>),
    /// The connection waits for a stream that has not arrived yet.
    Early(Box<C>),
}

/// Result of delivering a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Delivery {
    /// The stream is present, and has taken the connection or will take it.
    Delivered,
    /// The stream has not arrived yet.
    Early,
}

/// Registration of a stream. Connections can be delivered to the stream while it exists.
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
    /// Registers a stream that arrived on a lane.
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

    /// Delivers the connection to its stream, or stores it until the stream arrives.
    pub(super) fn deliver(&self, stream_id: &str, connection: C) -> Delivery {
        let mut meetings = self.0.lock();
        let (brought, meeting, replaced) = match meetings.remove(stream_id) {
            None => (
                Delivery::Early,
                RendezvousState::Early(connection.into()),
                None,
            ),
            // A second connection for the same id. A dropped lease returns its connection.
            Some(RendezvousState::Early(before)) => {
                let early = RendezvousState::Early(connection.into());
                (Delivery::Early, early, Some(before))
            }
            Some(RendezvousState::Connection(before)) => {
                let waits = RendezvousState::Connection(connection.into());
                (Delivery::Delivered, waits, Some(before))
            }
            Some(RendezvousState::OnLane) => (
                Delivery::Delivered,
                RendezvousState::Connection(connection.into()),
                None,
            ),
            Some(RendezvousState::Stream(waiting)) => {
                let sent = waiting.send(connection);
                let waits = |connection: C| RendezvousState::Connection(connection.into());
                (
                    Delivery::Delivered,
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

    /// Removes a connection whose stream did not arrive in time.
    pub(super) fn discard_early(&self, stream_id: &str) {
        let mut meetings = self.0.lock();
        let waiting = match meetings.get(stream_id) {
            Some(RendezvousState::Early(_)) => meetings.remove(stream_id),
            _ => None,
        };
        drop(meetings);
        // A dropped lease returns its connection; not under the lock.
        drop(waiting);
    }
}

impl<C: Send + 'static> RendezvousGuard<C> {
    /// Waits for the connection. There is no deadline: the engine sends the connection after it has
    /// read the rest of the lane, at the pace of the visitor. The caller checks that the lane still
    /// exists.
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
        let removed = self.moves.0.lock().remove(&self.stream_id);
        // A dropped lease returns its connection; not under the lock.
        drop(removed);
    }
}

/// Maximum time that a connection may arrive before its stream, which was started first but on
/// another connection.
pub(super) const RENDEZVOUS_TIMEOUT: Duration = Duration::from_secs(10);

/// As in the engine: maximum time without an acknowledgement for bytes in flight.
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
    async fn a_stream_waits_for_its_connection_without_a_deadline() {
        tokio::time::pause();
        let moves = moves();
        let stream = registered(&moves);
        let mut expected = stream.expect();
        tokio::time::advance(Duration::from_hours(1)).await;
        assert!((&mut expected).now_or_never().is_none());
        assert_eq!(moves.deliver("s", 7), Delivery::Delivered);
        assert_eq!(expected.await.unwrap(), 7);
    }

    #[tokio::test]
    async fn a_connection_waits_for_the_lifetime_of_its_stream() {
        let moves = moves();
        let stream = registered(&moves);
        assert_eq!(moves.deliver("s", 7), Delivery::Delivered);
        moves.discard_early("s");
        assert_eq!(stream.expect().await.unwrap(), 7);
        assert_eq!(moves.deliver("s", 8), Delivery::Delivered);
        drop(stream);
        assert!(moves.0.lock().is_empty(), "and is removed with it");
    }

    #[tokio::test]
    async fn an_early_connection_waits_for_its_stream() {
        let moves = moves();
        assert_eq!(moves.deliver("s", 7), Delivery::Early);
        assert_eq!(registered(&moves).expect().await.unwrap(), 7);
        assert_eq!(moves.deliver("s", 8), Delivery::Early);
        moves.discard_early("s");
        assert!(moves.0.lock().is_empty());
    }
}
