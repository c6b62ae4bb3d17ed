//! The new process: it receives the sockets of the old one, and takes over when that one allows it.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use daemon::descriptors::{FrameReader, FrameWriter, InheritedSockets, frames};
use tokio::time::timeout;

use super::connection::connect;
use super::message::HandoverMessage;
use super::peer::PeerRole;
use crate::core::Core;
use crate::listen::PortRecord;
use crate::start_error::StartError;

/// Time limit for the sockets of the old process, which sends them immediately.
const SOCKETS_LIMIT: Duration = Duration::from_secs(10);

/// Time after the start in which a tunnel can take the port that it had in the old process.
const PORTS_LIMIT: Duration = Duration::from_mins(1);

/// The sockets with which an engine starts.
#[derive(Debug, Default)]
pub struct Origin {
    pub(crate) sockets: InheritedSockets,
    pub(crate) predecessor: Option<Predecessor>,
}

/// The process that this one replaces.
#[derive(Debug)]
pub(crate) struct Predecessor {
    reader: FrameReader,
    writer: FrameWriter,
    /// Its id, and those of the processes before it that it can reach.
    processes: Vec<String>,
    pub(crate) ports: Vec<(PortRecord, Vec<OwnedFd>)>,
    /// Version of the platform's state that it has; 0 without a platform.
    pub(crate) state_version: u64,
}

impl Origin {
    /// An engine that binds its listeners itself.
    pub fn none() -> Self {
        Self::default()
    }

    /// An engine that gets its listeners from its supervisor.
    pub fn of_sockets(sockets: InheritedSockets) -> Self {
        Self {
            sockets,
            predecessor: None,
        }
    }

    /// True if the engine replaces another process.
    pub fn has_predecessor(&self) -> bool {
        self.predecessor.is_some()
    }

    /// An engine that replaces the process at the other end of `stream`. Waits for its sockets.
    ///
    /// # Errors
    /// The other process ends, or does not send its sockets in time.
    pub async fn of_predecessor(stream: UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        let (mut reader, writer) = frames(tokio::net::UnixStream::from_std(stream)?);
        let receiving = receive(&mut reader);
        let ReceivedState {
            sockets,
            ports,
            processes,
            state_version,
        } = timeout(SOCKETS_LIMIT, receiving).await??;
        let predecessor = Predecessor {
            reader,
            writer,
            processes,
            ports,
            state_version,
        };
        Ok(Self {
            sockets,
            predecessor: Some(predecessor),
        })
    }
}

/// The messages of the old process before this one is ready.
struct ReceivedState {
    sockets: InheritedSockets,
    ports: Vec<(PortRecord, Vec<OwnedFd>)>,
    processes: Vec<String>,
    state_version: u64,
}

async fn receive(reader: &mut FrameReader) -> io::Result<ReceivedState> {
    let mut sockets = InheritedSockets::none();
    let mut ports = Vec::new();
    loop {
        let frame = reader.next().await?;
        let frame = frame.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
        match HandoverMessage::parse(&frame)? {
            HandoverMessage::Listener { name } => {
                for socket in frame.descriptors {
                    sockets.add(&name, socket).map_err(io::Error::other)?;
                }
            }
            HandoverMessage::TcpPort(record) => ports.push((record, frame.descriptors)),
            HandoverMessage::Begin {
                process,
                mut earlier,
                state_version,
            } => {
                earlier.insert(0, process);
                return Ok(ReceivedState {
                    sockets,
                    ports,
                    processes: earlier,
                    state_version,
                });
            }
            other => {
                return Err(io::Error::other(format!(
                    "an unexpected message: {other:?}"
                )));
            }
        }
    }
}

impl Predecessor {
    /// Reports that this process is ready, and follows the old one. It serves when the old one
    /// allows it, and stops if that one ends before.
    ///
    /// # Errors
    /// The old process has ended.
    pub(crate) async fn follow(self, core: &Arc<Core>) -> io::Result<()> {
        let Self {
            reader,
            mut writer,
            processes,
            ports: _,
            state_version: _,
        } = self;
        let ready = HandoverMessage::Ready {
            process: core.handover.process().to_owned(),
        };
        ready.send(&mut writer, &[]).await?;
        connect(core, (PeerRole::Old, processes), (reader, writer));
        let at = Arc::clone(core);
        tokio::spawn(async move {
            let drain = at.shutdown.drain();
            let waiting = tokio::time::sleep(PORTS_LIMIT);
            drain.run_until_cancelled(waiting).await;
            at.tcp_ports.forget_inherited();
        });
        Ok(())
    }
}

/// Reports to the old process that this one is ready, and serves when that one allows it. Without an
/// old process it serves immediately. `informed` ends when a managed engine has the state that it
/// serves.
pub(crate) async fn take_over(
    core: &Arc<Core>,
    predecessor: Option<Predecessor>,
    informed: Option<impl Future<Output = ()>>,
) -> Result<(), StartError> {
    let Some(mut predecessor) = predecessor else {
        core.handover.start_serving();
        return Ok(());
    };
    for (record, sockets) in std::mem::take(&mut predecessor.ports) {
        core.tcp_ports.inherit(record, sockets);
    }
    if let Some(informed) = informed {
        // The old process has the state in memory, and ends the wait after a minute.
        let stop = core.shutdown.drain();
        stop.run_until_cancelled(informed).await;
    }
    let following = predecessor.follow(core).await;
    following.map_err(StartError::Predecessor)
}
