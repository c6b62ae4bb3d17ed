//! Messages between the old and the new process. They may be of different versions: an unknown
//! message fails the replacement, and an unknown field is ignored.

use std::io;
use std::net::SocketAddr;
use std::os::fd::BorrowedFd;

use daemon::descriptors::{Frame, FrameWriter};
use serde::{Deserialize, Serialize};

use crate::listen::PortRecord;

/// A message of one process to the other.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "message")]
pub(super) enum HandoverMessage {
    /// Old: a listening socket.
    Listener {
        /// Its name in the supervisor's store.
        name: String,
    },
    /// Old: the listening sockets of a TCP tunnel.
    TcpPort(PortRecord),
    /// Old: all sockets have been sent.
    Begin {
        /// Id of the old process.
        process: String,
        /// Ids of the processes before it that still have streams.
        #[serde(default)]
        earlier: Vec<String>,
        /// Version of the platform's state that the old process has; 0 without a platform.
        #[serde(default)]
        state_version: u64,
    },
    /// New: it can serve.
    Ready {
        /// Id of the new process.
        process: String,
    },
    /// Old: the new process serves from now on.
    Serve,
    /// Both: a connection that selects the other process.
    Connection {
        /// Address of the peer, behind a trusted proxy the one that it reports.
        source: SocketAddr,
        /// Bytes that were read from it, in hexadecimal digits.
        unread: String,
    },
}

impl HandoverMessage {
    pub(super) fn parse(frame: &Frame) -> io::Result<Self> {
        serde_json::from_slice(&frame.payload).map_err(io::Error::from)
    }

    pub(super) async fn send(
        &self,
        writer: &mut FrameWriter,
        descriptors: &[BorrowedFd<'_>],
    ) -> io::Result<()> {
        let payload = serde_json::to_vec(self).map_err(io::Error::from)?;
        writer.send(&payload, descriptors).await
    }
}
