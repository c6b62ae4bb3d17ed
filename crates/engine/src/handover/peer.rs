//! Another process that shares the listeners, and the connections for it.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use transport::Socket;

/// Connections that wait to be passed on: those of some milliseconds. Each further one waits for a
/// place, within the time limit of its handshake.
const QUEUE: usize = 256;

/// The other process.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Its id, and those of the processes before it that it can reach.
    processes: Vec<String>,
    queue: mpsc::Sender<OutgoingMessage>,
    /// Cancelled when the connection has ended.
    ended: CancellationToken,
}

/// The part of another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PeerRole {
    /// This process replaces it.
    Old,
    /// It replaces this process.
    New,
}

/// A message for another process.
#[derive(Debug)]
pub(super) enum OutgoingMessage {
    /// A connection that selects it, with the bytes that were read from it. The receiver waits until it
    /// is sent.
    Connection {
        stream: TcpStream,
        unread: Vec<u8>,
        source: SocketAddr,
        notify: oneshot::Sender<()>,
    },
    /// The receiver waits until it is sent.
    Serve(oneshot::Sender<()>),
}

impl Peer {
    /// The process with the first of these ids, and the messages for it.
    pub(super) fn new(processes: Vec<String>) -> (Arc<Self>, mpsc::Receiver<OutgoingMessage>) {
        let (queue, outgoing) = mpsc::channel(QUEUE);
        let peer = Self {
            processes,
            queue,
            ended: CancellationToken::new(),
        };
        (Arc::new(peer), outgoing)
    }

    /// Its id, and those of the processes before it that it can reach.
    pub(super) fn processes(&self) -> &[String] {
        &self.processes
    }

    /// Cancelled when the connection has ended.
    pub(super) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Passes a connection on, with the bytes that were read from it. Waits until it is sent, because
    /// this process ends without the connections that wait in the queue.
    pub(crate) async fn pass(&self, socket: Socket) {
        let Ok((stream, unread, source)) = socket.into_parts() else {
            return;
        };
        let (notify, is_sent) = oneshot::channel();
        let outgoing = OutgoingMessage::Connection {
            stream,
            unread,
            source,
            notify,
        };
        if self.queue.send(outgoing).await.is_err() || is_sent.await.is_err() {
            debug!("a connection for a process that has ended");
        }
    }

    /// Tells the process to serve. Returns false if it has ended.
    pub(super) async fn serve(&self) -> bool {
        let (sent, is_sent) = oneshot::channel();
        let queued = self.queue.send(OutgoingMessage::Serve(sent)).await;
        queued.is_ok() && is_sent.await.is_ok()
    }
}
