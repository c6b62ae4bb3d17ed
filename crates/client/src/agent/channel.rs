//! The control channel as frames over TLS: read what arrives, write what is said.

use std::io;

use tokio::io::{AsyncReadExt, AsyncWriteExt, ReadHalf, WriteHalf};
use transport::TlsStream;
use wire::{Decoder, Kind, Message};

use crate::{
    connect::bounded,
    error::{ConnectError, Step},
};

/// The reading side of a connection that speaks the agent protocol.
pub(crate) struct Reader {
    io: ReadHalf<TlsStream>,
    decoder: Decoder,
    buffer: Vec<u8>,
}

/// The writing side.
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
    /// The next message. `None` inside is a kind that this version does not know.
    ///
    /// Cancel safe: what was read stays in the decoder.
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
    /// Not cancel safe: a dropped send may leave half a frame, so the channel goes with it.
    pub(crate) async fn send(&mut self, kind: Kind) -> Result<(), ConnectError> {
        self.buffer.clear();
        encode(kind, &mut self.buffer)?;
        bounded(Step::Exchange, WRITE, async {
            self.io.write_all(&self.buffer).await?;
            self.io.flush().await
        })
        .await
    }

    /// Tells the peer that nothing more comes.
    pub(crate) async fn finish(&mut self) {
        // The channel is over either way.
        drop(bounded(Step::Exchange, WRITE, self.io.shutdown()).await);
    }
}

/// Appends `kind` as one frame.
pub(crate) fn encode(kind: Kind, out: &mut Vec<u8>) -> Result<(), ConnectError> {
    // What is too long for a frame is something the caller put in: labels, a name.
    wire::encode(&Message { kind: Some(kind) }, out).map_err(|error| {
        ConnectError::Refused(crate::Refusal::new(
            crate::RefusalKind::Invalid,
            error.to_string(),
        ))
    })
}

/// Control messages are some hundred bytes.
const READ: usize = 4 * 1024;

/// A peer that takes no byte for so long is gone; liveness would find it out no sooner.
const WRITE: std::time::Duration = std::time::Duration::from_secs(10);
