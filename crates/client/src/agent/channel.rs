//! Frames of the control channel over TLS: reading and writing.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use transport::TlsStream;
use wire::{Decoder, Kind, Message};

use crate::{
    connect::bounded,
    error::{ConnectError, Step},
};

/// The reading half of a connection with the agent protocol.
pub(crate) struct Reader {
    io: ReadHalf<TlsStream>,
    decoder: Decoder,
    buffer: Vec<u8>,
}

/// The writing half.
pub(crate) struct Writer {
    io: WriteHalf<TlsStream>,
    buffer: Vec<u8>,
}

pub(crate) fn split(stream: TlsStream) -> (Reader, Writer) {
    let (read, write) = tokio::io::split(stream);
    (
        Reader {
            io: read,
            decoder: Decoder::new(),
            buffer: Vec::with_capacity(READ),
        },
        Writer {
            io: write,
            buffer: Vec::new(),
        },
    )
}

impl Reader {
    /// Returns the next message. The inner `None` is a message kind that this version does not
    /// support.
    ///
    /// Cancel safe: received bytes stay in the decoder.
    pub(crate) async fn next(&mut self) -> Result<Option<Kind>, ConnectError> {
        loop {
            let next = self
                .decoder
                .next()
                .map_err(|e| ConnectError::Protocol(e.to_string()))?;
            if let Some(message) = next {
                return Ok(message.kind);
            }
            self.buffer.clear();
            let read = self.io.read_buf(&mut self.buffer).await;
            let read = read.map_err(|source| ConnectError::network(Step::Exchange, source))?;
            if read == 0 {
                let ended = io::ErrorKind::UnexpectedEof.into();
                return Err(ConnectError::network(Step::Exchange, ended));
            }
            self.decoder.push(&self.buffer);
        }
    }
}

impl Writer {
    /// Sends one message.
    ///
    /// Not cancel safe: a dropped send may leave half a frame, which makes the channel unusable.
    pub(crate) async fn send(&mut self, kind: Kind) -> Result<(), ConnectError> {
        self.buffer.clear();
        encode(kind, &mut self.buffer)?;
        bounded(Step::Exchange, WRITE, async {
            self.io.write_all(&self.buffer).await?;
            self.io.flush().await
        })
        .await
    }

    /// Signals the end of the stream to the peer.
    pub(crate) async fn finish(&mut self) {
        // The channel has ended either way.
        drop(bounded(Step::Exchange, WRITE, self.io.shutdown()).await);
    }
}

/// Appends `kind` as one frame.
pub(crate) fn encode(kind: Kind, out: &mut Vec<u8>) -> Result<(), ConnectError> {
    // Only values of the caller, such as labels or a name, can be too long for a frame.
    wire::encode(&Message { kind: Some(kind) }, out).map_err(|error| {
        ConnectError::Refused(crate::Refusal::new(
            crate::RefusalKind::Invalid,
            error.to_string(),
        ))
    })
}

/// Size of one read in bytes. Control messages have a few hundred bytes.
const READ: usize = 4 * 1024;

/// A peer that accepts no byte for this time counts as disconnected. The liveness check would not
/// notice it sooner.
const WRITE: std::time::Duration = std::time::Duration::from_secs(10);
