//! The old process: it passes its sockets to the new one, moves the agents, and drains.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use acme::DnsProvider;
use daemon::descriptors::{FrameReader, FrameWriter, MAX_DESCRIPTORS, frames};
use daemon::supervisor::STORE_PREFIX;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::connection::connect;
use super::message::HandoverMessage;
use super::peer::{Peer, PeerRole};
use crate::core::Core;

/// Time limit until the new process is ready. It reads certificates, keys and a file of countries.
const READY_LIMIT: Duration = Duration::from_mins(1);

/// Time limit until the agents have moved: a reconnect over a slow line. An agent that is slower is
/// disconnected, and reconnects automatically.
const MOVE_LIMIT: Duration = Duration::from_secs(10);

/// Limit of earlier processes for which connections are passed on. With more, the drain time is far
/// longer than the time between two reloads.
const MAX_EARLIER: usize = 8;

/// Time limit until this process has given up what the new one needs. Scrapes in progress have two
/// seconds.
const RELEASE_LIMIT: Duration = Duration::from_secs(3);

/// Replaces a running engine.
#[derive(Clone, Debug)]
pub struct Replacement {
    core: Arc<Core>,
}

/// Reasons why an engine was not replaced.
#[derive(Debug, thiserror::Error)]
pub enum HandoverError {
    /// The engine stops, or is replaced already.
    #[error("the engine is stopping")]
    Stopping,
    /// The engine waits for the process that it replaces.
    #[error("the engine does not serve yet")]
    NotServing,
    /// The configuration needs something that two processes cannot share.
    #[error("{0}: restart it instead")]
    Unsupported(&'static str),
    /// The new process ended before it took over.
    #[error("the new process ended; its own messages state the reason")]
    Ended,
    /// The new process was not ready in time.
    #[error("the new process was not ready within {} s", .0.as_secs())]
    NotReady(Duration),
    /// The new process cannot be reached.
    #[error("the new process cannot be reached")]
    Io(#[from] io::Error),
}

impl Replacement {
    pub(crate) fn new(core: Arc<Core>) -> Self {
        Self { core }
    }

    /// Cancelled when another process has taken over.
    pub fn replaced(&self) -> &CancellationToken {
        self.core.handover.replaced()
    }

    /// Passes everything to a new process at the other end of `stream`, and starts the drain of
    /// this one. `announce` is called just before the new process serves. After an error this
    /// process serves as before, unless [`Replacement::replaced`] is cancelled.
    ///
    /// # Errors
    /// [`HandoverError`].
    pub async fn hand_over(
        &self,
        stream: UnixStream,
        announce: impl FnOnce() + Send,
    ) -> Result<(), HandoverError> {
        let core = &self.core;
        if core.shutdown.drain().is_cancelled() {
            return Err(HandoverError::Stopping);
        }
        if !core.handover.begin().is_cancelled() {
            return Err(HandoverError::NotServing);
        }
        if let Some(reason) = unsupported(core) {
            return Err(HandoverError::Unsupported(reason));
        }
        core.handover.is_preparing.store(true, Ordering::Release);
        let peer = match self.prepare_and_move(stream).await {
            Ok(peer) => peer,
            Err(error) => {
                self.resume();
                return Err(error);
            }
        };
        if core.shutdown.drain().is_cancelled() {
            self.resume();
            return Err(HandoverError::Stopping);
        }
        core.handover.replaced.cancel();
        let since = Instant::now();
        // From now on the new process may record.
        core.terminals.recorder.stop_maintenance();
        core.shutdown.request();
        let released = core.handover.released.cancelled();
        if timeout(RELEASE_LIMIT, released).await.is_err() {
            warn!("the drain has not started in time");
        }
        // A signal to stop, before the new process serves, means both: it stops without its old
        // one.
        let is_hard = core.shutdown.hard().is_cancelled();
        if is_hard && since.elapsed() < core.shutdown.deadline() {
            core.handover.handed_over.cancel();
            return Err(HandoverError::Stopping);
        }
        announce();
        let is_serving = peer.serve().await;
        core.handover.handed_over.cancel();
        if !is_serving {
            return Err(HandoverError::Ended);
        }
        info!("a new process serves; finishing the open requests");
        Ok(())
    }

    async fn prepare_and_move(&self, stream: UnixStream) -> Result<Arc<Peer>, HandoverError> {
        let core = &self.core;
        stream.set_nonblocking(true)?;
        let (mut reader, mut writer) = frames(tokio::net::UnixStream::from_std(stream)?);
        let preparing = prepare(core, &mut reader, &mut writer);
        let process = tokio::select! {
            prepared = timeout(READY_LIMIT, preparing) => match prepared {
                Ok(process) => process?,
                Err(_) => return Err(HandoverError::NotReady(READY_LIMIT)),
            },
            () = core.shutdown.drain().cancelled() => return Err(HandoverError::Stopping),
        };
        info!("the new process is ready; the agents move to it");
        let peer = connect(
            core,
            (PeerRole::New, vec![process.clone()]),
            (reader, writer),
        );
        core.handover.successor.send_replace(Some(process.into()));
        core.handover.unmoved.close();
        tokio::select! {
            () = core.handover.unmoved.wait() => {}
            () = peer.ended().cancelled() => return Err(HandoverError::Ended),
            () = core.shutdown.drain().cancelled() => return Err(HandoverError::Stopping),
            () = sleep(MOVE_LIMIT) => {
                let agents = core.handover.unmoved.len();
                warn!(agents, "some agents have not moved in time and will reconnect");
            }
        }
        Ok(peer)
    }

    /// Serves as before.
    fn resume(&self) {
        let handover = &self.core.handover;
        handover.new_peer.store(None);
        handover.successor.send_replace(None);
        handover.unmoved.reopen();
        handover.is_preparing.store(false, Ordering::Release);
    }
}

/// Sends the sockets, and waits until the new process is ready. Returns its id.
async fn prepare(
    core: &Core,
    reader: &mut FrameReader,
    writer: &mut FrameWriter,
) -> Result<String, HandoverError> {
    for (name, socket) in core.handover.listeners()? {
        let name = format!("{STORE_PREFIX}{name}");
        let message = HandoverMessage::Listener { name };
        message.send(writer, &[socket.as_fd()]).await?;
    }
    for (record, sockets) in core.tcp_ports.export() {
        let sockets: Vec<_> = sockets.iter().map(AsFd::as_fd).collect();
        let sockets = sockets.get(..MAX_DESCRIPTORS).unwrap_or(&sockets);
        let message = HandoverMessage::TcpPort(record);
        message.send(writer, sockets).await?;
    }
    let process = core.handover.process().to_owned();
    let mut earlier = core.handover.earlier();
    earlier.truncate(MAX_EARLIER);
    let begin = HandoverMessage::Begin {
        process,
        earlier,
        state_version: core.link.as_ref().map_or(0, |link| link.version()),
    };
    begin.send(writer, &[]).await?;
    let frame = reader.next().await?.ok_or(HandoverError::Ended)?;
    match HandoverMessage::parse(&frame)? {
        HandoverMessage::Ready { process } => Ok(process),
        other => Err(io::Error::other(format!("an unexpected message: {other:?}")).into()),
    }
}

/// The reason why this engine cannot be replaced while it runs.
fn unsupported(core: &Core) -> Option<&'static str> {
    let config = &core.config;
    let provider = config.acme.as_ref().and_then(|acme| acme.dns.as_ref());
    let responds = matches!(provider, Some(DnsProvider::Responder(_)));
    responds.then_some("the DNS responder for certificates has one owner")
}
