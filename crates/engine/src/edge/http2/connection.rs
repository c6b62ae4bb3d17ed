//! The connection of an HTTP/2 visitor.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use h2::Reason;
use h2::server::Connection;
use hyper::rt::Executor as _;
use transport::TlsStream;

use super::Visitor;
use super::keep_alive::{KeepAlive, LastReceived};
use super::slow_reader_timeout::StreamExecutor;
use super::stream;

/// Accepts the requests of a visitor and drives their streams, until the connection ends.
pub(super) struct VisitorConnection {
    connection: Connection<TlsStream, Bytes>,
    visitor: Arc<Visitor>,
    last_received: Arc<LastReceived>,
    /// `None` if pings are not available.
    keep_alive: Option<KeepAlive>,
    streams: StreamExecutor,
}

impl VisitorConnection {
    /// Starts after the handshake.
    pub(super) fn new(
        mut connection: Connection<TlsStream, Bytes>,
        visitor: Arc<Visitor>,
        streams: StreamExecutor,
    ) -> Self {
        let last_received = LastReceived::new();
        let pings = connection.ping_pong();
        let keep_alive = pings.map(|pings| KeepAlive::new(pings, Arc::clone(&last_received)));
        Self {
            connection,
            visitor,
            last_received,
            keep_alive,
            streams,
        }
    }

    /// Ends the connection after its requests in flight, which the visitor is notified of.
    pub(super) fn graceful_shutdown(&mut self) {
        self.connection.graceful_shutdown();
    }
}

impl Future for VisitorConnection {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            if let Some(keep_alive) = &mut this.keep_alive
                && keep_alive.poll(cx).is_ready()
            {
                this.connection.abrupt_shutdown(Reason::NO_ERROR);
                // Sends it if there is room: the visitor may not read either.
                drop(this.connection.poll_accept(cx));
                return Poll::Ready(());
            }
            match ready!(this.connection.poll_accept(cx)) {
                Some(Ok((request, responses))) => {
                    this.last_received.update();
                    let visitor = Arc::clone(&this.visitor);
                    let last_received = Arc::clone(&this.last_received);
                    let stream = stream::serve(visitor, request, responses, last_received);
                    this.streams.execute(stream);
                }
                // An error needs no handling: the visitor has been informed, or is gone.
                Some(Err(_)) | None => return Poll::Ready(()),
            }
        }
    }
}
