//! Keep-alive pings on the connection of an HTTP/2 visitor.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use h2::{Ping, PingPong};
use tokio::time::{Instant, Sleep, sleep_until};

/// Interval of pings on a silent connection, and time limit of the response.
const PING: Duration = Duration::from_secs(30);
pub(super) const PONG: Duration = Duration::from_secs(15);

/// Time at which a visitor last sent a part of a request. A visitor that uploads is not pinged: its
/// response to a ping would be sent after the data that is already in its buffers.
#[derive(Debug)]
pub(super) struct LastReceived {
    connected: Instant,
    /// Milliseconds from `connected`.
    received: AtomicU64,
}

impl LastReceived {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            connected: Instant::now(),
            received: AtomicU64::new(0),
        })
    }

    /// The visitor has sent a part of a request.
    pub(super) fn update(&self) {
        let millis = u64::try_from(self.connected.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.received.store(millis, Ordering::Relaxed);
    }

    fn time(&self) -> Instant {
        self.connected + Duration::from_millis(self.received.load(Ordering::Relaxed))
    }
}

/// Pings a silent visitor, and detects one that does not respond.
pub(super) struct KeepAlive {
    pings: PingPong,
    last_received: Arc<LastReceived>,
    /// Time of the ping that the visitor has not responded to.
    pinged: Option<Instant>,
    timer: Pin<Box<Sleep>>,
}

impl KeepAlive {
    pub(super) fn new(pings: PingPong, last_received: Arc<LastReceived>) -> Self {
        let timer = Box::pin(sleep_until(last_received.time() + PING));
        Self {
            pings,
            last_received,
            pinged: None,
            timer,
        }
    }

    /// Ready if the visitor has not responded in time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.pinged.is_some() && self.pings.poll_pong(cx).is_ready() {
                // An error means that the connection has ended, which its own poll returns.
                self.last_received.update();
                self.pinged = None;
            }
            let last = self.last_received.time();
            // Data that arrives after the ping is a sign of life as well.
            let deadline = match self.pinged {
                Some(pinged) => pinged.max(last) + PONG,
                None => last + PING,
            };
            // The timer may have an earlier deadline, because received data does not move it.
            ready!(self.timer.as_mut().poll(cx));
            if deadline > Instant::now() {
                self.timer.as_mut().reset(deadline);
                continue;
            }
            if self.pinged.is_some() {
                return Poll::Ready(());
            }
            // An error means that the connection has ended.
            if self.pings.send_ping(Ping::opaque()).is_err() {
                return Poll::Pending;
            }
            let now = Instant::now();
            self.pinged = Some(now);
            self.timer.as_mut().reset(now + PONG);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use bytes::Bytes;
    use h2::{client, server};
    use tokio::io::{DuplexStream, duplex};
    use tokio::time::{sleep, timeout};

    use super::*;

    type Server = server::Connection<DuplexStream, Bytes>;
    type Client = client::Connection<DuplexStream, Bytes>;

    async fn connect() -> (Server, client::SendRequest<Bytes>, Client) {
        let (near, far) = duplex(64 * 1024);
        let (server, client) = tokio::join!(server::handshake(near), client::handshake(far));
        let (requests, client) = client.unwrap();
        (server.unwrap(), requests, client)
    }

    /// Drives the connection until the visitor does not respond. Returns the time until then.
    async fn detect(mut server: Server, last_received: &Arc<LastReceived>) -> Duration {
        let started = Instant::now();
        let pings = server.ping_pong().unwrap();
        let mut keep_alive = KeepAlive::new(pings, Arc::clone(last_received));
        tokio::select! {
            () = poll_fn(|cx| keep_alive.poll(cx)) => started.elapsed(),
            _ = server.accept() => panic!("a request, or the end of the connection"),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_visitor_that_does_not_respond_to_a_ping_is_detected() {
        let (server, _requests, _client) = connect().await;
        assert_eq!(detect(server, &LastReceived::new()).await, PING + PONG);
    }

    #[tokio::test(start_paused = true)]
    async fn a_visitor_that_responds_stays_connected() {
        let (server, _requests, client) = connect().await;
        let last_received = LastReceived::new();
        let detecting = detect(server, &last_received);
        tokio::select! {
            detected = timeout(PING * 20, detecting) => assert!(detected.is_err()),
            _ = client => panic!("the end of the connection"),
        }
    }

    /// Also if its response to a ping is delayed by the data.
    #[tokio::test(start_paused = true)]
    async fn a_visitor_that_sends_data_stays_connected() {
        let (server, _requests, _client) = connect().await;
        let last_received = LastReceived::new();
        let uploading = async {
            sleep(PING).await;
            for _ in 0..20 {
                sleep(PONG / 2).await;
                last_received.update();
            }
        };
        let (detected, ()) = tokio::join!(detect(server, &last_received), uploading);
        assert_eq!(detected, PING + PONG / 2 * 20 + PONG);
    }
}
