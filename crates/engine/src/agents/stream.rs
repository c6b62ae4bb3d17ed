//! One stream through a tunnel, over any kind of connection.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use transport::lane::MigratingStream;
use transport::permit::Permit;
use transport::standing::FramedStream;
use transport::{Scratch, TlsStream};
use wire::pool::REPORT_REQUEST;

use super::lanes::MigrateToPool;
use super::pool::IdleConnection;
use super::{Agent, StreamSlot};

/// Time for a connection with an abandoned stream to become reusable: a round trip and the data in
/// flight. Beyond that a new connection is cheaper.
const RECYCLE: Duration = Duration::from_secs(5);

/// Reason of the reset if there is no complete response.
const NO_RESPONSE: &str = "the connection to the service ended without a complete response";

/// A byte stream to the service behind an agent.
///
/// Reading ends at the service's end. [`io::ErrorKind::ConnectionReset`] means that the stream
/// broke or that the agent refused it ([`TunnelStream::refusal`]). Dropping it ends the stream; a
/// standing connection returns to its pool.
#[derive(Debug)]
pub(crate) struct TunnelStream {
    transport: StreamTransport,
    /// Boxed, because streams of raw tunnels have none.
    usage: Option<Box<HttpUsage>>,
    pub(super) slot: StreamSlot,
}

/// The HTTP messages of a stream.
#[derive(Debug, Default)]
struct HttpUsage {
    exchanges: Option<ExchangeState>,
    /// The requests of an HTTP/2 connection.
    shared: Option<Arc<dyn SharedRequests>>,
}

/// The requests on a connection that several use at the same time.
pub(crate) trait SharedRequests: std::fmt::Debug + Send + Sync {
    /// True if no request is in progress, and none has failed.
    fn is_complete(&self) -> bool;
}

/// State of a stream with consecutive HTTP exchanges (extension `exchange/1`).
#[derive(Clone, Copy, Debug, Default)]
struct ExchangeState {
    /// Bytes that were written.
    written: u64,
    /// Bytes that were written before the current exchange.
    before: u64,
    /// No exchange is in progress.
    is_idle: bool,
    /// There was an exchange before the current one.
    is_reused: bool,
    /// The agent's report was requested.
    is_report_requested: bool,
}

#[derive(Debug)]
enum StreamTransport {
    Standing(PooledStream),
    /// A lane first, and a standing connection once the stream is no longer small.
    Lane(Box<MigratingStream<MigrateToPool>>),
    /// A connection that the agent opened only for this stream.
    Dedicated(TlsStream),
}

impl TunnelStream {
    pub(super) fn standing(seated: PooledStream, slot: StreamSlot) -> Self {
        Self {
            transport: StreamTransport::Standing(seated),
            usage: None,
            slot,
        }
    }

    pub(super) fn on_lane(carried: MigratingStream<MigrateToPool>, slot: StreamSlot) -> Self {
        Self {
            transport: StreamTransport::Lane(Box::new(carried)),
            usage: None,
            slot,
        }
    }

    pub(super) fn dedicated(stream: TlsStream, slot: StreamSlot) -> Self {
        Self {
            transport: StreamTransport::Dedicated(stream),
            usage: None,
            slot,
        }
    }

    /// The same stream, for consecutive exchanges.
    pub(super) fn with_exchanges(mut self) -> Self {
        self.usage.get_or_insert_default().exchanges = Some(ExchangeState::default());
        if let StreamTransport::Lane(carried) = &mut self.transport {
            carried.lane().judge_exchanges();
        }
        self
    }

    /// Records the start of an exchange. Returns true if it is not the first one, and the agent
    /// reports the bytes that do not reach the service.
    pub(crate) fn begin_exchange(&mut self) -> bool {
        let Some(exchanges) = self.exchanges_mut() else {
            return false;
        };
        exchanges.before = exchanges.written;
        exchanges.is_idle = false;
        exchanges.is_reused
    }

    /// Records that both messages of the exchange are complete, or that the response is, and no more
    /// of the request is sent. When this is dropped, the agent closes the service's
    /// connection, and does not report a failure, also if that connection has failed since.
    pub(crate) fn end_exchange(&mut self) {
        if let Some(exchanges) = self.exchanges_mut() {
            exchanges.is_idle = true;
            exchanges.is_reused = true;
        }
    }

    /// Several requests use the stream at the same time. It ends as after a complete exchange if all
    /// of them are complete then.
    pub(crate) fn share(&mut self, requests: Arc<dyn SharedRequests>) {
        self.usage.get_or_insert_default().shared = Some(requests);
    }

    /// True if no response is missing.
    fn is_idle(&self) -> bool {
        let Some(usage) = &self.usage else {
            return false;
        };
        match (&usage.shared, &usage.exchanges) {
            (Some(requests), _) => requests.is_complete(),
            (None, Some(exchanges)) => exchanges.is_idle,
            (None, None) => false,
        }
    }

    fn exchanges(&self) -> Option<&ExchangeState> {
        self.usage.as_ref()?.exchanges.as_ref()
    }

    fn exchanges_mut(&mut self) -> Option<&mut ExchangeState> {
        self.usage.as_mut()?.exchanges.as_mut()
    }

    /// Waits until the agent has reported how much of the stream reached the service, or cannot do
    /// so any more. Returns true if nothing of the current exchange did, so that the request can be
    /// sent again.
    pub(crate) fn poll_undelivered(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        let Some(exchanges) = self.exchanges() else {
            return Poll::Ready(false);
        };
        let before = exchanges.before;
        if exchanges.written == before {
            // The agent has nothing of it.
            return Poll::Ready(true);
        }
        let delivered = ready!(self.poll_delivered(cx));
        Poll::Ready(delivered.is_some_and(|delivered| delivered <= before))
    }

    /// Bytes that were written, if the agent reports those that reach the service, or 0.
    pub(crate) fn written(&self) -> u64 {
        self.exchanges().map_or(0, |exchanges| exchanges.written)
    }

    /// Waits for the agent's report on the bytes of the stream that reached the service; `None` if
    /// there will be none.
    pub(crate) fn poll_delivered(&mut self, cx: &mut Context<'_>) -> Poll<Option<u64>> {
        if self.exchanges().is_none() {
            return Poll::Ready(None);
        }
        ready!(self.poll_end(cx));
        let Poll::Ready(report) = self.poll_report(cx) else {
            // The agent cannot detect that there was no response: it parses neither HTTP nor TLS.
            // It reports late bytes of a request without being asked.
            self.request_report(cx);
            return Poll::Pending;
        };
        Poll::Ready(report.and_then(|report| report.delivered))
    }

    /// Discards the rest of the service's bytes. After their end, the agent sends no more bytes to
    /// the service. Ready also if the stream is broken.
    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let mut bytes = Scratch::take(Scratch::SMALL);
        loop {
            let mut buf = ReadBuf::new(&mut bytes);
            let read = ready!(self.io().poll_read(cx, &mut buf));
            if read.is_err() || buf.filled().is_empty() {
                return Poll::Ready(());
            }
        }
    }

    /// Waits for the agent's report; `None` if there will be none.
    fn poll_report(&mut self, cx: &mut Context<'_>) -> Poll<Option<wire::Error>> {
        match &mut self.transport {
            StreamTransport::Standing(pooled) => {
                ready!(pooled.poll_reset(cx));
                Poll::Ready(pooled.refusal())
            }
            StreamTransport::Lane(carried) => {
                let on_lane = carried.lane().poll_reset(cx).is_ready();
                let error = carried.lane_refusal();
                match carried.connection_mut() {
                    _ if error.is_some() => Poll::Ready(error),
                    Some(connection) => {
                        ready!(connection.poll_reset(cx));
                        Poll::Ready(connection.refusal())
                    }
                    None if on_lane => Poll::Ready(None),
                    None => Poll::Pending,
                }
            }
            StreamTransport::Dedicated(_) => Poll::Ready(None),
        }
    }

    /// Requests the report of an agent that waits for the engine. An error also ends the wait for
    /// the report.
    fn request_report(&mut self, cx: &mut Context<'_>) {
        let exchanges = self.exchanges();
        if !exchanges.is_some_and(|exchanges| exchanges.is_report_requested) {
            if self.io().poll_write(cx, &[REPORT_REQUEST]).is_pending() {
                return;
            }
            if let Some(exchanges) = self.exchanges_mut() {
                exchanges.is_report_requested = true;
            }
        }
        drop(self.io().poll_flush(cx));
    }

    /// Aborts an exchange without a complete response, with this reason for the service's owner.
    /// Agents without the extension report nothing in that case.
    pub(crate) fn report_no_response(&mut self) {
        if self.exchanges().is_some() {
            self.reset(&wire::Error::stream_broke(NO_RESPONSE));
        }
    }

    /// Aborts the stream with a reason for the agent.
    pub(crate) fn reset(&mut self, reason: &wire::Error) {
        match &mut self.transport {
            StreamTransport::Standing(pooled) => pooled.reset(reason),
            StreamTransport::Lane(carried) => match carried.connection_mut() {
                Some(connection) => connection.reset(reason),
                None => carried.lane().reset(Some(reason)),
            },
            StreamTransport::Dedicated(_) => {}
        }
    }

    fn count_written(&mut self, written: &Poll<io::Result<usize>>) {
        if let (Some(exchanges), Poll::Ready(Ok(written))) = (self.exchanges_mut(), written) {
            exchanges.written += *written as u64;
        }
    }

    /// Returns true if it has left its lane. Another exchange is cheaper on a new stream.
    pub(crate) fn has_moved(&self) -> bool {
        matches!(&self.transport, StreamTransport::Lane(carried) if carried.is_moved())
    }

    /// The reason why the agent refused the stream, if it gave one; not set for a stream that was
    /// accepted and then broke.
    pub(crate) fn refusal(&self) -> Option<wire::Error> {
        self.reset_reason().filter(wire::Error::is_refusal)
    }

    /// Returns true if the agent reports the bytes of exchanges that reached the service.
    pub(crate) fn reports_delivery(&self) -> bool {
        self.exchanges().is_some()
    }

    /// The reason why the agent reset the stream, if it sent one, whether it had accepted the stream
    /// or not.
    pub(crate) fn reset_reason(&self) -> Option<wire::Error> {
        match &self.transport {
            StreamTransport::Standing(pooled) => pooled.refusal(),
            StreamTransport::Lane(carried) => carried
                .lane_refusal()
                .or_else(|| carried.connection().and_then(PooledStream::refusal)),
            StreamTransport::Dedicated(_) => None,
        }
    }

    /// Waits for the agent's reset after its end. `None`: there will be none.
    pub(crate) fn poll_late_reset(&mut self, cx: &mut Context<'_>) -> Poll<Option<wire::Error>> {
        self.poll_report(cx)
    }

    fn io(&mut self) -> Pin<&mut dyn transport::Stream> {
        match &mut self.transport {
            StreamTransport::Standing(seated) => Pin::new(seated),
            StreamTransport::Lane(carried) => Pin::new(&mut **carried),
            StreamTransport::Dedicated(stream) => Pin::new(stream),
        }
    }
}

/// A stream on a standing connection, which returns to its pool when this is dropped.
#[derive(Debug)]
pub(super) struct PooledStream {
    /// Empty only while it is being dropped.
    opened: Option<(FramedStream<TlsStream>, Permit)>,
    agent: Arc<Agent>,
    worker: usize,
}

impl PooledStream {
    pub(super) fn new(
        opened: (FramedStream<TlsStream>, Permit),
        agent: Arc<Agent>,
        worker: usize,
    ) -> Self {
        Self {
            opened: Some(opened),
            agent,
            worker,
        }
    }

    fn refusal(&self) -> Option<wire::Error> {
        self.opened.as_ref()?.0.refusal().cloned()
    }

    fn poll_reset(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut self.opened {
            Some((framed, _)) => framed.poll_reset(cx),
            None => Poll::Ready(()),
        }
    }

    fn reset(&mut self, reason: &wire::Error) {
        if let Some((framed, _)) = &mut self.opened {
            framed.reset(Some(reason.clone()));
        }
    }

    fn finish(&mut self) {
        if let Some((framed, _)) = &mut self.opened {
            framed.finish();
        }
    }

    fn framed(self: Pin<&mut Self>) -> io::Result<Pin<&mut FramedStream<TlsStream>>> {
        let opened = self.get_mut().opened.as_mut();
        opened
            .map(|(framed, _)| Pin::new(framed))
            .ok_or(io::ErrorKind::NotConnected.into())
    }
}

impl AsyncRead for TunnelStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.io().poll_read(cx, buf)
    }
}

impl AsyncWrite for TunnelStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = self.io().poll_write(cx, buf);
        self.count_written(&written);
        written
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.io().poll_write_vectored(cx, bufs);
        self.count_written(&written);
        written
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.io().poll_shutdown(cx)
    }
}

impl AsyncRead for PooledStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.framed()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for PooledStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.framed()?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.framed()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.framed()?.poll_shutdown(cx)
    }
}

impl Drop for TunnelStream {
    fn drop(&mut self) {
        if !self.is_idle() {
            return;
        }
        match &mut self.transport {
            StreamTransport::Standing(pooled) => pooled.finish(),
            StreamTransport::Lane(carried) => match carried.connection_mut() {
                Some(connection) => connection.finish(),
                None => carried.lane().finish(),
            },
            StreamTransport::Dedicated(_) => {}
        }
    }
}

impl Drop for PooledStream {
    fn drop(&mut self) {
        let Some((framed, seat)) = self.opened.take() else {
            return;
        };
        let (agent, worker) = (Arc::clone(&self.agent), self.worker);
        let recycle = async move {
            let recycled = tokio::time::timeout(RECYCLE, framed.recycle());
            let standing = recycled.await.ok().flatten();
            if let Some((standing, pool)) = standing.zip(agent.pool(worker)) {
                pool.put(IdleConnection::recycled(standing, seat), Instant::now());
            }
        };
        // Outside a runtime (when a worker stops) there is no pool to return to.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(recycle);
        }
    }
}
