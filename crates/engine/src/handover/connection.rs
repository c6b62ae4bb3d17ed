//! The connection to another process while it shares the listeners.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use daemon::descriptors::{Frame, FrameReader, FrameWriter};
use tokio::sync::mpsc;
use tracing::{debug, warn};

use super::message::HandoverMessage;
use super::peer::{OutgoingMessage, Peer, PeerRole};
use crate::core::Core;
use crate::listen::serve_passed;

/// Runs the connection to a process until one of both ends.
pub(super) fn connect(
    core: &Arc<Core>,
    (role, processes): (PeerRole, Vec<String>),
    (reader, writer): (FrameReader, FrameWriter),
) -> Arc<Peer> {
    let (peer, outgoing) = Peer::new(processes);
    core.handover.peer(role).store(Some(Arc::clone(&peer)));
    let (at, connected) = (Arc::clone(core), Arc::clone(&peer));
    tokio::spawn(async move {
        let closed = at.handover.closed.clone();
        tokio::select! {
            () = write(writer, outgoing) => {}
            () = read(reader, &at) => {}
            () = closed.cancelled() => {}
        }
        connected.ended().cancel();
        let current = at.handover.peer(role).load_full();
        if current.is_some_and(|current| Arc::ptr_eq(&current, &connected)) {
            at.handover.peer(role).store(None);
        }
        // Also if this process ended the connection: it stops, and maintains nothing any more.
        if role == PeerRole::Old {
            at.handover.predecessor_ended().cancel();
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

async fn write(mut writer: FrameWriter, mut outgoing: mpsc::Receiver<OutgoingMessage>) {
    while let Some(next) = outgoing.recv().await {
        let (sent, notify) = match next {
            OutgoingMessage::Serve(notify) => {
                let sent = HandoverMessage::Serve.send(&mut writer, &[]).await;
                (sent, notify)
            }
            OutgoingMessage::Connection {
                stream,
                unread,
                source,
                notify,
            } => {
                let unread = hex::encode(unread);
                let message = HandoverMessage::Connection { source, unread };
                let sent = message.send(&mut writer, &[stream.as_fd()]).await;
                (sent, notify)
            }
        };
        if let Err(error) = sent {
            warn!(%error, "the other process cannot be reached");
            return;
        }
        // The waiting task may have been dropped with the engine.
        notify.send(()).ok();
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
