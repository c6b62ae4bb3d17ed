//! Reads of a control channel, and the end of one whose agent is silent.

use std::io;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;
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
        read_sign_of_life(stream, bytes, |read, bytes| {
            self.take_bytes(read, bytes, decoder)?;
            Ok(self.liveness.deadline() > Instant::now())
        })
        .await
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

/// Reads for a short time. `take` gets the result of each read into `bytes`, and returns true after a
/// sign of life, which is a complete message.
async fn read_sign_of_life<S: AsyncRead + Unpin>(
    stream: &mut S,
    bytes: &mut [u8],
    mut take: impl FnMut(io::Result<usize>, &[u8]) -> Result<bool, SessionEnd>,
) -> Result<(), SessionEnd> {
    let reading = async {
        loop {
            let read = stream.read(bytes).await;
            if take(read, bytes)? {
                return Ok::<(), SessionEnd>(());
            }
        }
    };
    let read = timeout(LAST_READ, reading).await;
    read.unwrap_or(Err(SessionEnd::Silent))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::io::{AsyncWriteExt, duplex};
    use tokio::time::{Instant, interval};

    use super::{LAST_READ, SessionEnd, read_sign_of_life};

    #[tokio::test(start_paused = true)]
    async fn unread_bytes_are_a_sign_of_life() {
        let (mut near, mut far) = duplex(64);
        far.write_all(b"message").await.unwrap();
        let (mut received, mut buffer) = (Vec::new(), [0; 4]);
        let end = read_sign_of_life(&mut near, &mut buffer, |read, bytes| {
            received.extend_from_slice(&bytes[..read.unwrap()]);
            Ok(received.len() == 7)
        });
        assert!(end.await.is_ok());
        assert_eq!(received, b"message");
    }

    /// An agent that sends a message byte by byte does not extend its deadline.
    #[tokio::test(start_paused = true)]
    async fn bytes_without_a_message_are_no_sign_of_life() {
        let (mut near, mut far) = duplex(64);
        let began = Instant::now();
        let trickling = async {
            let mut pace = interval(LAST_READ / 10);
            while far.write_all(b"x").await.is_ok() {
                pace.tick().await;
            }
            pending().await
        };
        let mut bytes = [0; 4];
        let end = tokio::select! {
            end = read_sign_of_life(&mut near, &mut bytes, |_, _| Ok(false)) => end,
            end = trickling => end,
        };
        assert!(matches!(end, Err(SessionEnd::Silent)), "{end:?}");
        let lasted = began.elapsed();
        assert!((LAST_READ..LAST_READ * 2).contains(&lasted), "{lasted:?}");
    }
}
