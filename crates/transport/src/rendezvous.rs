//! Connections for streams that leave their lanes, at the end that waits for them.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::TlsStream;
use crate::lane::{ConnectFuture, MigrationTarget};
use crate::standing::{FramedStream, StreamLease};

/// Matches the streams of a channel that leave their lanes with the connections that the engine
/// chose for them. Either may arrive first, because they use different connections. There are at
/// most as many entries as streams and connections.
pub struct MigrationRendezvous<C = StreamLease>(Mutex<HashMap<Arc<str>, RendezvousState<C>>>);

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
pub enum Delivery {
    /// The stream is present, and has taken the connection or will take it.
    Delivered,
    /// The stream has not arrived yet.
    Early,
}

/// Registration of a stream. Connections can be delivered to the stream while it exists.
pub struct RendezvousGuard<C> {
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
    pub fn register(moves: Arc<Self>, stream_id: String) -> RendezvousGuard<C> {
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
    pub fn deliver(&self, stream_id: &str, connection: C) -> Delivery {
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
    pub fn discard_early(&self, stream_id: &str) {
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
    pub fn expect(&self) -> ConnectFuture<C> {
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

impl MigrationRendezvous {
    /// Delivers a standing connection to the stream that leaves its lane, and waits for the return
    /// of the connection. `None` if the connection was lost with the stream.
    pub async fn lend(
        &self,
        stream_id: &str,
        mut framed: FramedStream<TlsStream>,
    ) -> Option<FramedStream<TlsStream>> {
        // The stream may be served on another runtime.
        framed.get_mut().get_mut().0.detach().ok()?;
        let (lent, mut given_back) = StreamLease::new(framed);
        let mut early = None;
        if self.deliver(stream_id, lent) == Delivery::Early {
            early = timeout(RENDEZVOUS_TIMEOUT, &mut given_back).await.ok();
            self.discard_early(stream_id);
        }
        let given_back = match early {
            Some(given_back) => given_back,
            None => given_back.await,
        };
        let mut framed = given_back.ok()?;
        framed.get_mut().get_mut().0.detach().ok()?;
        Some(framed)
    }
}

/// Migrates a stream from its lane to the standing connection that the other end chooses.
pub struct MigrateToConnection(RendezvousGuard<StreamLease>);

impl MigrateToConnection {
    /// Registers the stream with this id.
    pub fn new(moves: Arc<MigrationRendezvous>, stream_id: String) -> Self {
        Self(MigrationRendezvous::register(moves, stream_id))
    }
}

impl MigrationTarget for MigrateToConnection {
    type Connection = StreamLease;

    const PROVIDES_CONNECTION: bool = false;

    fn connect(&self) -> ConnectFuture<StreamLease> {
        self.0.expect()
    }
}

/// Maximum time that a connection may arrive before its stream, which was started first but on
/// another connection.
const RENDEZVOUS_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

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
        let mut cx = Context::from_waker(Waker::noop());
        assert!(matches!(expected.as_mut().poll(&mut cx), Poll::Pending));
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
