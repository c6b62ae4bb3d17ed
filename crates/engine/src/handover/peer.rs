//! The connection to the other process while two of them share the listeners.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use daemon::descriptors::{Frame, FrameReader, FrameWriter};
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{debug, warn};
use transport::Socket;

use super::message::HandoverMessage;
use crate::core::Core;
use crate::listen::serve_passed;

/// Connections that wait to be passed on: those of some milliseconds. Each further one waits for a
/// place, within the time limit of its handshake.
const QUEUE: usize = 256;

/// The other process.
#[derive(Debug)]
pub(crate) struct Peer {
    process: Arc<str>,
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

#[derive(Debug)]
enum OutgoingMessage {
    Connection {
        stream: TcpStream,
        unread: Vec<u8>,
        source: SocketAddr,
    },
    /// The receiver waits until it is sent.
    Serve(oneshot::Sender<()>),
}

impl Peer {
    /// Runs the connection to a process until one of both ends.
    pub(super) fn connect(
        core: &Arc<Core>,
        (role, process): (PeerRole, &str),
        (reader, writer): (FrameReader, FrameWriter),
    ) -> Arc<Self> {
        let (queue, outgoing) = mpsc::channel(QUEUE);
        let ended = CancellationToken::new();
        let peer = Arc::new(Self {
            process: process.into(),
            queue,
            ended: ended.clone(),
        });
        core.handover.peer(role).store(Some(Arc::clone(&peer)));
        let (at, process) = (Arc::clone(core), Arc::clone(&peer.process));
        tokio::spawn(async move {
            let closed = at.handover.closed.clone();
            tokio::select! {
                () = write(writer, outgoing) => {}
                () = read(reader, &at) => {}
                () = closed.cancelled() => {}
            }
            ended.cancel();
            let current = at.handover.peer(role).load_full();
            if current.is_some_and(|current| current.process == process) {
                at.handover.peer(role).store(None);
            }
            if role == PeerRole::Old
                && !at.handover.begin().is_cancelled()
                && !at.shutdown.drain().is_cancelled()
            {
                warn!("the old process has ended, or does not hand over; stopping");
                at.shutdown.request();
            }
        });
        peer
    }

    /// Id of the process.
    pub(crate) fn process(&self) -> &str {
        &self.process
    }

    /// Cancelled when the connection has ended.
    pub(super) fn ended(&self) -> &CancellationToken {
        &self.ended
    }

    /// Passes a connection on, with the bytes that were read from it.
    pub(crate) async fn pass(&self, socket: Socket) {
        let Ok((stream, unread, source)) = socket.into_parts() else {
            return;
        };
        let outgoing = OutgoingMessage::Connection {
            stream,
            unread,
            source,
        };
        if self.queue.send(outgoing).await.is_err() {
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

async fn write(mut writer: FrameWriter, mut outgoing: mpsc::Receiver<OutgoingMessage>) {
    while let Some(next) = outgoing.recv().await {
        let sent = match next {
            OutgoingMessage::Serve(notify) => {
                let sent = HandoverMessage::Serve.send(&mut writer, &[]).await;
                if sent.is_ok() {
                    // The waiting task may have been dropped with the engine.
                    notify.send(()).ok();
                }
                sent
            }
            OutgoingMessage::Connection {
                stream,
                unread,
                source,
            } => {
                let unread = hex::encode(unread);
                let message = HandoverMessage::Connection { source, unread };
                message.send(&mut writer, &[stream.as_fd()]).await
            }
        };
        if let Err(error) = sent {
            warn!(%error, "the other process cannot be reached");
            return;
        }
    }
}

async fn read(mut reader: FrameReader, core: &Arc<Core>) {
    let next_worker = AtomicUsize::new(0);
    loop {
        let frame = match reader.next().await {
            Ok(Some(frame)) => frame,
            Ok(None) => return,
            Err(error) => {
                warn!(%error, "the other process cannot be reached");
                return;
            }
        };
        match HandoverMessage::parse(&frame) {
            Ok(HandoverMessage::Serve) => core.handover.start_serving(),
            Ok(HandoverMessage::Connection { source, unread }) => {
                if let Err(error) = deliver(frame, source, &unread, core, &next_worker) {
                    debug!(%error, "a passed connection cannot be used");
                }
            }
            Ok(_) => debug!("an unexpected message of the other process"),
            Err(error) => {
                warn!(%error, "a message of the other process cannot be read");
                return;
            }
        }
    }
}

/// Serves a connection that the other process has accepted.
fn deliver(
    frame: Frame,
    source: SocketAddr,
    unread: &str,
    core: &Arc<Core>,
    next_worker: &AtomicUsize,
) -> io::Result<()> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let unread = hex::decode(unread).map_err(|_| invalid())?;
    let stream = frame.descriptors.into_iter().next().ok_or_else(invalid)?;
    let stream = TcpStream::from(stream);
    stream.set_nonblocking(true)?;
    let workers = core.workers();
    let turn = next_worker.fetch_add(1, Ordering::Relaxed) % workers.len().max(1);
    let worker = workers.get(turn).ok_or_else(invalid)?;
    worker.spawn(serve_passed(stream, source, unread, Arc::clone(worker)));
    Ok(())
}
