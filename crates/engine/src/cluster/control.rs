//! Frames on a connection between engines.

use std::io;
use std::time::Duration;

use socket2::{SockRef, TcpKeepalive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use transport::TlsStream;
use wire::cluster::{PeerDecoder, PeerFrame, PeerFrameError, encode_frame};

/// Interval of signs of life.
pub(super) const PING_INTERVAL: Duration = Duration::from_secs(3);

/// Time without a sign of life after which an engine counts as lost: three pings.
pub(super) const SILENCE: Duration = Duration::from_secs(10);

/// Time for a connection with its handshake and its hello: some round trips on a bad line.
pub(super) const HELLO_DEADLINE: Duration = Duration::from_secs(5);

/// Time limit of a write: an engine that does not read for this time is lost.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);

/// Bytes of one read. Frames are small.
const READ: usize = 1024;

/// A connection that carries frames, at least its first one.
pub(super) struct ControlStream {
    stream: TlsStream,
    decoder: PeerDecoder,
}

impl ControlStream {
    pub(super) fn new(stream: TlsStream) -> Self {
        Self {
            stream,
            decoder: PeerDecoder::default(),
        }
    }

    /// Reads one frame and no byte beyond it. Not cancel safe.
    ///
    /// # Errors
    /// The connection fails or ends, or the bytes are not a frame.
    pub(super) async fn read_first(&mut self) -> io::Result<PeerFrame> {
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(invalid)? {
                return Ok(frame);
            }
            let mut bytes = vec![0; self.decoder.missing().map_err(invalid)?];
            self.stream.read_exact(&mut bytes).await?;
            self.decoder.push(&bytes);
        }
    }

    /// The next frame; `None` at the end of the connection. Cancel safe.
    ///
    /// # Errors
    /// The connection fails, or the bytes are not a frame.
    pub(super) async fn next(&mut self) -> io::Result<Option<PeerFrame>> {
        loop {
            if let Some(frame) = self.decoder.next_frame().map_err(invalid)? {
                return Ok(Some(frame));
            }
            let mut bytes = [0; READ];
            match self.stream.read(&mut bytes).await? {
                0 => return Ok(None),
                count => self.decoder.push(bytes.get(..count).unwrap_or_default()),
            }
        }
    }

    /// Sends a frame.
    ///
    /// # Errors
    /// The connection fails, or the other engine does not read.
    pub(super) async fn send(&mut self, frame: &PeerFrame) -> io::Result<()> {
        let mut bytes = Vec::new();
        encode_frame(frame, &mut bytes).map_err(invalid)?;
        let sending = async {
            self.stream.write_all(&bytes).await?;
            self.stream.flush().await
        };
        timeout(WRITE_DEADLINE, sending)
            .await
            .map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
    }

    /// Sends a last frame and closes.
    pub(super) async fn refuse(mut self, reason: wire::Error) {
        // An engine that does not read the reason sees the close.
        if self.send(&PeerFrame::Refusal(reason)).await.is_ok() {
            timeout(WRITE_DEADLINE, self.stream.shutdown()).await.ok();
        }
    }

    /// The TLS session.
    pub(super) fn stream(&self) -> &TlsStream {
        &self.stream
    }

    /// The connection after its first frame.
    pub(super) fn into_stream(self) -> TlsStream {
        self.stream
    }
}

/// Lets the connection to an engine fail half a minute after its machine is lost, also a data
/// connection with a visitor who waits.
///
/// # Errors
/// The system refuses the option.
pub(super) fn keep_alive(stream: &TcpStream) -> io::Result<()> {
    let keepalive = TcpKeepalive::new()
        .with_time(Duration::from_secs(15))
        .with_interval(Duration::from_secs(5))
        .with_retries(3);
    SockRef::from(stream).set_tcp_keepalive(&keepalive)
}

fn invalid(error: PeerFrameError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
