//! A forwarded stream, joined with a stream to the agent.
//!
//! The bytes are copied unparsed, and each end of one stream becomes the same end of the other: the
//! end of a direction, or a reset with its reason. So the engine that received the visitor learns from
//! the agent what it would learn directly, including the bytes of a request that reached the service.

use std::future::{pending, poll_fn};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::timeout;
use tracing::debug;
use transport::lane::MigratingStream;
use transport::permit::Permit;
use transport::rendezvous::MigrateToConnection;
use transport::standing::FramedStream;
use transport::{BidirectionalCopy, Stream, TlsStream};
use types::id::TunnelId;
use wire::cluster::{ForwardedVisitor, StreamProtocol};
use wire::pool::StreamOpen;

use super::peers::InboundPeer;
use crate::agents::{Agent, Purpose, StreamOrigin, TunnelStream};
use crate::core::{Core, Worker};
use crate::live::LiveTunnel;

/// Streams of one process of another engine at the same time: as many as it may open.
const MAX_STREAMS: usize = 65_536;

/// Limit of the wait for the end of a stream that was reset, with which the other engine tells if the
/// last exchange was complete. It reads a reset at once.
const VERDICT_TIMEOUT: Duration = Duration::from_mins(1);

/// The end of a forwarded stream at the engine that has the agent.
pub(super) trait ForwardedStream: Stream {
    /// Aborts both directions.
    fn abort(&mut self, reason: &wire::Error);

    /// Completes this engine's direction.
    fn complete(&mut self);

    /// The reason why the other engine aborted the stream, if it sent one.
    fn reason(&self) -> Option<wire::Error>;

    /// Waits for the other engine's end after an abort. Returns true if its direction is complete.
    fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<bool>;
}

impl ForwardedStream for FramedStream<TlsStream> {
    fn abort(&mut self, reason: &wire::Error) {
        self.reset(Some(reason.clone()));
    }

    fn complete(&mut self) {
        self.finish();
    }

    fn reason(&self) -> Option<wire::Error> {
        self.refusal().cloned()
    }

    fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.poll_peer_end(cx)
    }
}

impl ForwardedStream for MigratingStream<MigrateToConnection> {
    fn abort(&mut self, reason: &wire::Error) {
        match self.connection_mut() {
            Some(connection) => connection.reset(reason.clone()),
            None => self.lane().reset(Some(reason)),
        }
    }

    fn complete(&mut self) {
        match self.connection_mut() {
            Some(connection) => connection.finish(),
            None => self.lane().finish(),
        }
    }

    fn reason(&self) -> Option<wire::Error> {
        self.lane_refusal().or_else(|| self.connection()?.refusal())
    }

    fn poll_verdict(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        match self.connection_mut() {
            Some(connection) => connection.poll_peer_end(cx),
            None => self.lane().poll_peer_end(cx),
        }
    }
}

/// Serves one forwarded stream until it ends.
pub(super) async fn serve<S: ForwardedStream>(
    open: &StreamOpen,
    forwarding: &ForwardedVisitor,
    stream: &mut S,
    peer: &Arc<InboundPeer>,
    worker: &Arc<Worker>,
) {
    let Some(_permit) = Permit::try_take(&peer.streams, MAX_STREAMS) else {
        let full = wire::Error::capacity_exhausted("too many streams are forwarded");
        return stream.abort(&full);
    };
    let Some(tunnel) = held_tunnel(open, forwarding, &worker.core) else {
        let gone = wire::Error::tunnel_not_found("the engine does not hold the tunnel");
        return stream.abort(&gone);
    };
    let origin = StreamOrigin {
        source: forwarding.source,
        reference: None,
        is_terminated: forwarding.is_terminated,
    };
    let purpose = match forwarding.protocol {
        StreamProtocol::Bytes => Purpose::Bytes,
        StreamProtocol::Exchanges => Purpose::Exchanges,
        StreamProtocol::TlsExchanges => Purpose::TlsExchanges,
        StreamProtocol::Shared => Purpose::Shared,
    };
    // Boxed and dropped after use, because the copy that follows may run for days.
    let opening = Box::pin(
        tunnel
            .agent
            .open_stream(worker.index, &tunnel, origin, purpose),
    );
    let mut service = match opening.await {
        Ok((service, id)) => {
            debug!(
                engine = peer.engine,
                stream = %id,
                visitor = %forwarding.source,
                reference = forwarding.reference.as_deref().unwrap_or_default(),
                "a forwarded stream"
            );
            service
        }
        Err(error) => return stream.abort(&error.into()),
    };
    peer.forwards.increment(1);
    let end = tokio::select! {
        biased;
        end = copy(open, forwarding, stream, &mut service) => end,
        () = revoked(&tunnel, &worker.core) => StreamEnd::Revoked,
    };
    finish(end, open.exchanges, stream, service).await;
}

/// The tunnel of a forwarded stream, if this engine holds it now. The other engine made its decision
/// with the settings of this tunnel, so another one with the same name does not replace it.
fn held_tunnel(
    open: &StreamOpen,
    forwarding: &ForwardedVisitor,
    core: &Core,
) -> Option<Arc<LiveTunnel<Agent>>> {
    // Never by a name, which another tunnel may have by now.
    open.tunnel_id.parse::<TunnelId>().ok()?;
    let tunnel = core.live.find(&forwarding.project, &open.tunnel_id)?;
    let is_published = tunnel.view.properties.publish != Some(false);
    let is_held = is_published && !tunnel.agent.is_revoked() && !core.has_lost_name(&tunnel);
    // Without contact with the store, another owner may have the name.
    (is_held && core.serves_names()).then_some(tunnel)
}

/// Ready when the agent or the tunnel may not have visitors any more.
async fn revoked(tunnel: &LiveTunnel<Agent>, core: &Core) {
    let mut changes = core.tokens.changes();
    let is_denied =
        || tunnel.agent.is_revoked() || tunnel.is_closed_by_caller() || core.has_lost_name(tunnel);
    while !is_denied() {
        if changes.changed().await.is_err() {
            return pending().await;
        }
    }
}

/// The end of a copy.
enum StreamEnd {
    /// Both directions are complete.
    Complete,
    /// The other engine closed the stream after a complete exchange.
    Closed,
    /// The other engine aborted the stream, or its connection broke.
    Visitor(Option<wire::Error>),
    /// The agent aborted the stream, or its connection broke.
    Service(wire::Error),
    /// The agent or the tunnel may not have visitors any more.
    Revoked,
}

async fn copy<S: ForwardedStream>(
    open: &StreamOpen,
    forwarding: &ForwardedVisitor,
    stream: &mut S,
    service: &mut TunnelStream,
) -> StreamEnd {
    let mut near = NearEnd {
        stream,
        rules: if open.exchanges && !service.reports_delivery() {
            EndRules::Exchanges
        } else {
            EndRules::Bytes
        },
        is_service_over: false,
        is_closed: false,
        is_late: false,
    };
    let mut copy = BidirectionalCopy::new(forwarding.source.ip().into());
    let mut late_reset = None;
    let copied = poll_fn(|cx| {
        let copied = copy.poll(cx, &mut near, service);
        if copied.is_pending()
            && near.is_service_over
            && let Poll::Ready(Some(reset)) = service.poll_late_reset(cx)
        {
            late_reset = Some(reset);
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
        copied
    })
    .await;
    if let Some(reset) = late_reset {
        return StreamEnd::Service(reset);
    }
    match copied {
        Ok(()) if near.is_late => StreamEnd::Service(wire::Error::stream_broke(
            "the service closed the connection without a complete response",
        )),
        Ok(()) => StreamEnd::Complete,
        Err(_) if near.is_closed => StreamEnd::Closed,
        Err(_) if copy.is_broken_by_first() => StreamEnd::Visitor(near.stream.reason()),
        Err(error) => StreamEnd::Service(service.reset_reason().unwrap_or_else(|| {
            wire::Error::stream_broke(format!("the stream to the agent broke: {}", error.kind()))
        })),
    }
}

/// Ends both streams as one of them has ended.
async fn finish<S: ForwardedStream>(
    end: StreamEnd,
    exchanges: bool,
    stream: &mut S,
    mut service: TunnelStream,
) {
    match end {
        StreamEnd::Complete | StreamEnd::Closed => stream.complete(),
        StreamEnd::Visitor(reason) => {
            if let Some(reason) = reason {
                service.reset(&reason);
            }
        }
        StreamEnd::Service(reason) => {
            stream.abort(&reason);
            // Boxed like all short futures of a stream.
            let verdict = Box::pin(timeout(
                VERDICT_TIMEOUT,
                poll_fn(|cx| stream.poll_verdict(cx)),
            ));
            if exchanges && verdict.await == Ok(true) {
                service.end_exchange();
            }
        }
        // Without a wait: the stream to the agent ends immediately.
        StreamEnd::Revoked => {
            let reason = wire::Error::stream_broke("the tunnel was closed");
            service.reset(&reason);
            stream.abort(&reason);
        }
    }
}

/// Rules about the ends of a stream, for the stream to the other engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EndRules {
    /// Each direction ends on its own.
    Bytes,
    /// The stream carries HTTP exchanges, and the agent does not know their rules (extension
    /// `exchange/1`). This engine applies them in its place: the end of the other engine ends both
    /// directions, and nothing of a later request is sent into a closed connection.
    Exchanges,
}

/// The stream to the other engine, as one end of a copy.
struct NearEnd<'s, S> {
    stream: &'s mut S,
    rules: EndRules,
    /// The service's direction is complete.
    is_service_over: bool,
    /// The other engine has closed the stream.
    is_closed: bool,
    /// Bytes arrived after the service's end, and are discarded.
    is_late: bool,
}

impl<S: ForwardedStream> AsyncRead for NearEnd<'_, S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.rules == EndRules::Bytes {
            return Pin::new(&mut *this.stream).poll_read(cx, buf);
        }
        if this.is_service_over {
            let mut bytes = [0; 64];
            let mut late = ReadBuf::new(&mut bytes);
            ready!(Pin::new(&mut *this.stream).poll_read(cx, &mut late))?;
            this.is_late = !late.filled().is_empty();
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut *this.stream).poll_read(cx, buf))?;
        if buf.filled().len() == before && buf.remaining() > 0 {
            this.is_closed = true;
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: ForwardedStream> AsyncWrite for NearEnd<'_, S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut *self.get_mut().stream).poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.is_service_over = true;
        Pin::new(&mut *this.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, duplex};

    use super::*;

    impl ForwardedStream for DuplexStream {
        fn abort(&mut self, _: &wire::Error) {}

        fn complete(&mut self) {}

        fn reason(&self) -> Option<wire::Error> {
            None
        }

        fn poll_verdict(&mut self, _: &mut Context<'_>) -> Poll<bool> {
            Poll::Ready(false)
        }
    }

    fn near_end(stream: &mut DuplexStream, rules: EndRules) -> NearEnd<'_, DuplexStream> {
        NearEnd {
            stream,
            rules,
            is_service_over: false,
            is_closed: false,
            is_late: false,
        }
    }

    /// An agent without the rules of exchanges would leave the service's connection half open.
    #[tokio::test]
    async fn the_end_of_exchanges_ends_both_directions() {
        let (mut engine, mut stream) = duplex(64);
        let mut near = near_end(&mut stream, EndRules::Exchanges);
        engine.write_all(b"request").await.unwrap();
        drop(engine);
        let mut request = [0; 7];
        near.read_exact(&mut request).await.unwrap();
        assert!(near.read(&mut request).await.is_err());
        assert!(near.is_closed && !near.is_late);
    }

    /// Such an agent would send a request of the report to the service.
    #[tokio::test]
    async fn bytes_after_the_services_end_are_not_sent_to_it() {
        for (late, is_late) in [(&b"\x05"[..], true), (b"", false)] {
            let (mut engine, mut stream) = duplex(64);
            let mut near = near_end(&mut stream, EndRules::Exchanges);
            near.shutdown().await.unwrap();
            engine.write_all(late).await.unwrap();
            drop(engine);
            assert_eq!(near.read(&mut [0; 8]).await.unwrap(), 0, "{late:?}");
            assert_eq!(near.is_late, is_late, "{late:?}");
        }
    }

    #[tokio::test]
    async fn other_streams_may_end_in_one_direction() {
        let (mut engine, mut stream) = duplex(64);
        let mut near = near_end(&mut stream, EndRules::Bytes);
        near.shutdown().await.unwrap();
        engine.write_all(b"later").await.unwrap();
        drop(engine);
        let mut later = Vec::new();
        near.read_to_end(&mut later).await.unwrap();
        assert_eq!(later, b"later");
    }
}
