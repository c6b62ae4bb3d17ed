//! Streams that have to leave their lane, and those that cannot.

use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Wake};

use tokio::sync::oneshot;

use super::*;

/// The end that chooses the connection, and has none.
struct NoTarget;

impl MigrationTarget for NoTarget {
    type Connection = DuplexStream;

    const PROVIDES_CONNECTION: bool = true;

    fn connect(&self) -> ConnectFuture<DuplexStream> {
        Box::pin(async { Err(io::ErrorKind::NotConnected.into()) })
    }
}

/// The end that waits for a connection that never arrives.
struct PendingTarget;

impl MigrationTarget for PendingTarget {
    type Connection = DuplexStream;

    const PROVIDES_CONNECTION: bool = false;

    fn connect(&self) -> ConnectFuture<DuplexStream> {
        Box::pin(std::future::pending())
    }
}

/// An end without a connection to move to stays on the lane, however much data it has. Both ends
/// stay after the end of the control channel that provides connections.
#[tokio::test]
async fn a_stream_stays_without_a_connection_to_move_to() {
    for (down, ends) in [(false, false), (false, true), (true, true)] {
        let mut pair = pair(64 * 1024).await;
        let near = pair.lane.open(&opening("s")).unwrap();
        let mut near = MigratingStream::new(near, NoTarget, Budget::exchanges(UP_LIMIT));
        let far = pair.agent.recv().await.unwrap();
        let mut far = MigratingStream::new(far, PendingTarget, Budget::exchanges(DOWN_LIMIT));
        if ends {
            near.lane().lane().stay();
            far.lane().lane().stay();
        }
        let sent = body(10 * DOWN_LIMIT, 8);
        let mut got = Vec::new();
        let sending = async |from: &mut (dyn tokio::io::AsyncWrite + Unpin + Send)| {
            from.write_all(&sent).await.unwrap();
            from.shutdown().await.unwrap();
        };
        if down {
            tokio::join!(sending(&mut far), near.read_to_end(&mut got))
                .1
                .unwrap();
        } else {
            tokio::join!(sending(&mut near), far.read_to_end(&mut got))
                .1
                .unwrap();
        }
        assert!(got == sent);
        assert!(!near.is_moved() && !far.is_moved());
    }
}

/// A move that failed has failed for both halves, whenever they poll.
#[tokio::test]
async fn a_failed_move_fails_on_every_poll() {
    let mut pair = pair(64 * 1024).await;
    let near = pair.lane.open(&opening("s")).unwrap();
    let mut near = MigratingStream::new(near, NoTarget, Budget::exchanges(UP_LIMIT));
    near.write_all(b"!").await.unwrap();
    let far = pair.agent.recv().await.unwrap();
    let mut far = MigratingStream::new(far, PendingTarget, Budget::exchanges(1));
    let leaving = tokio::spawn(async move { far.write_all(b"too much").await });
    assert_eq!(near.read_u8().await.unwrap(), b't');
    for _ in 0..3 {
        assert_eq!(
            near.read_u8().await.unwrap_err().kind(),
            io::ErrorKind::NotConnected
        );
        let writing = near.write_all(b"x").await;
        assert_eq!(writing.unwrap_err().kind(), io::ErrorKind::NotConnected);
        assert!(near.shutdown().await.is_err());
    }
    drop(near);
    // The other end does not wait for a connection that will not arrive.
    let gave_up = leaving.await.unwrap().unwrap_err();
    assert_eq!(gave_up.kind(), io::ErrorKind::ConnectionReset);
}

/// The same if the visitor has no more data: both directions on the lane are finished.
#[tokio::test]
async fn an_end_that_waits_to_move_notices_that_its_peer_has_gone() {
    let mut pair = pair(64 * 1024).await;
    let mut near = carried(pair.lane.open(&opening("s")).unwrap()).0;
    near.shutdown().await.unwrap();
    let far = pair.agent.recv().await.unwrap();
    let mut far = MigratingStream::new(far, PendingTarget, Budget::exchanges(1));
    assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
    let leaving = tokio::spawn(async move { far.write_all(b"too much").await });
    assert_eq!(near.read_u8().await.unwrap(), b't');
    drop(near);
    let gave_up = leaving.await.unwrap().unwrap_err();
    assert_eq!(gave_up.kind(), io::ErrorKind::ConnectionReset);
}

/// The end whose connection arrives when the test allows it.
struct DelayedTarget(Mutex<Option<oneshot::Receiver<DuplexStream>>>);

impl MigrationTarget for DelayedTarget {
    type Connection = DuplexStream;

    const PROVIDES_CONNECTION: bool = false;

    fn connect(&self) -> ConnectFuture<DuplexStream> {
        let later = self.0.lock().take().unwrap();
        Box::pin(async { Ok(later.await.unwrap()) })
    }
}

#[derive(Default)]
struct WakeFlag(AtomicBool);

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Two tasks may have a stream's halves; both continue when it has arrived.
#[tokio::test]
async fn a_move_wakes_both_halves() {
    let mut pair = pair(64 * 1024).await;
    let (mut near, _near_moved) = carrying(pair.lane.open(&opening("s")).unwrap(), 1);
    near.write_all(b"!?").await.unwrap();
    let far = pair.agent.recv().await.unwrap();
    let (arrival, later) = oneshot::channel();
    let to = DelayedTarget(Mutex::new(Some(later)));
    let mut far = MigratingStream::new(far, to, Budget::exchanges(DOWN_LIMIT));
    assert_eq!(far.read_u8().await.unwrap(), b'!');
    let halves = [(); 2].map(|()| Arc::new(WakeFlag::default()));
    let [reader, writer] = [0, 1].map(|half: usize| Waker::from(Arc::clone(&halves[half])));
    let mut bytes = [0; 1];
    // Waits until the mark has arrived, and then until the connection has.
    while !far.is_moved() {
        let mut cx = Context::from_waker(&reader);
        let reading = Pin::new(&mut far).poll_read(&mut cx, &mut ReadBuf::new(&mut bytes));
        assert!(reading.is_pending());
        tokio::task::yield_now().await;
    }
    let mut cx = Context::from_waker(&writer);
    assert!(Pin::new(&mut far).poll_write(&mut cx, b"x").is_pending());
    halves[0].0.store(false, Ordering::Relaxed);
    arrival.send(duplex(64).0).unwrap();
    for half in halves {
        assert!(half.0.load(Ordering::Relaxed));
    }
}
