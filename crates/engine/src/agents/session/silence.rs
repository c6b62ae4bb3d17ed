//! Reads of a control channel, and the end of one whose agent is silent.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::AsyncReadExt;
use transport::TlsStream;
use wire::Decoder;

use super::{Session, SessionEnd};

/// Time for reading the messages that arrived before the deadline of a silent agent. After a
/// suspension of this process all deadlines have passed, and the runtime reports the connections
/// with data in several rounds.
const LAST_READ: Duration = Duration::from_millis(250);

impl Session {
    /// Ends the session of an agent that was silent until its deadline. If this process was
    /// suspended, the messages of the agent are still unread at that time, so they are read first.
    pub(super) async fn check_silence(
        &mut self,
        stream: &mut TlsStream,
        bytes: &mut [u8],
        decoder: &mut Decoder,
    ) -> Result<(), SessionEnd> {
        let reading = async {
            loop {
                let read = stream.read(bytes).await;
                self.take_bytes(read, bytes, decoder)?;
                // Only a complete message is a sign of life.
                if self.liveness.deadline() > Instant::now() {
                    return Ok::<(), SessionEnd>(());
                }
            }
        };
        let read = tokio::time::timeout(LAST_READ, reading).await;
        read.unwrap_or(Err(SessionEnd::Silent))
    }

    /// Handles the result of a read into `bytes`.
    pub(super) fn take_bytes(
        &mut self,
        read: io::Result<usize>,
        bytes: &[u8],
        decoder: &mut Decoder,
    ) -> Result<(), SessionEnd> {
        let count = read?;
        if count == 0 {
            return Err(SessionEnd::Closed);
        }
        decoder.push(bytes.get(..count).unwrap_or_default());
        self.take_messages(decoder)
    }
}
