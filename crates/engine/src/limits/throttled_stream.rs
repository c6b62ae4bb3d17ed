//! A stream to a service that is no faster than the plan allows.
//!
//! Any protocol on top of it (requests, WebSocket, HTTP/2, bytes) only sees a slow service. Each
//! read and write reserves its bytes in the buckets of its tunnel and its project, in small shares,
//! and waits if they are empty. Reservations are served in order, so streams take turns. Unused
//! bytes are returned immediately, so an idle stream reserves nothing.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

use super::Meters;
use super::bucket::{Bucket, Nanos, Rate};
use crate::directory::Project;
use crate::live::LiveTunnel;

/// A stream of a tunnel.
#[derive(Debug)]
pub(crate) struct ThrottledStream<S> {
    io: S,
    /// `None` on a community engine, which has no limits.
    directions: Option<Box<Directions>>,
    /// True while the limits apply.
    throttled: bool,
}

#[derive(Debug)]
struct Directions {
    tunnel: Arc<Meters>,
    project: Arc<Project>,
    up: Direction,
    down: Direction,
}

/// One direction.
#[derive(Debug, Default)]
struct Direction {
    /// Reused for all waits.
    sleep: Option<Pin<Box<Sleep>>>,
    sleeping: bool,
    reservation: Option<Reservation>,
}

/// Reserved bytes, and the rates of their buckets.
#[derive(Clone, Copy, Debug)]
struct Reservation {
    bytes: u64,
    /// Of the tunnel and the project.
    rates: [Option<Rate>; 2],
}

/// Burst after a pause: long enough to compensate for the resolution of timers.
const BURST: Duration = Duration::from_millis(250);

/// Largest part of a second's bytes that one stream reserves at a time, so that other streams get
/// their turn.
const SHARES: u64 = 20;
/// Largest share: not much more is moved at a time.
const SHARE: u64 = 64 * 1024;

impl<S> ThrottledStream<S> {
    /// A stream with the speed limits of the tunnel.
    pub(crate) fn new<A>(io: S, tunnel: &LiveTunnel<A>) -> Self {
        Self::with(io, &tunnel.meters, &tunnel.project)
    }

    fn with(io: S, tunnel: &Arc<Meters>, project: &Arc<Project>) -> Self {
        let managed = project.endpoint.is_some();
        let directions = managed.then(|| {
            Box::new(Directions {
                tunnel: Arc::clone(tunnel),
                project: Arc::clone(project),
                up: Direction::default(),
                down: Direction::default(),
            })
        });
        Self {
            io,
            directions,
            throttled: true,
        }
    }

    /// Turns the limits on or off; they are on initially. A poll that only checks for data must not
    /// wait for bandwidth.
    pub(crate) fn set_throttled(&mut self, throttled: bool) {
        self.throttled = throttled;
    }

    /// The stream itself.
    pub(crate) fn get_ref(&self) -> &S {
        &self.io
    }

    /// The stream itself, without the limits.
    pub(crate) fn get_mut(&mut self) -> &mut S {
        &mut self.io
    }
}

impl Directions {
    fn poll_up(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<usize>> {
        let buckets = [&self.tunnel.up, &self.project.meters.up];
        self.up.poll(cx, most, buckets, self.project.speed.get())
    }

    fn poll_down(&mut self, cx: &mut Context<'_>, most: usize) -> Poll<io::Result<usize>> {
        let buckets = [&self.tunnel.down, &self.project.meters.down];
        self.down.poll(cx, most, buckets, self.project.speed.get())
    }

    fn moved_up(&mut self, bytes: usize) {
        self.up
            .settle(bytes, [&self.tunnel.up, &self.project.meters.up]);
    }

    fn moved_down(&mut self, bytes: usize) {
        self.down
            .settle(bytes, [&self.tunnel.down, &self.project.meters.down]);
    }
}

impl Drop for Directions {
    fn drop(&mut self) {
        self.moved_up(0);
        self.moved_down(0);
    }
}

impl Direction {
    /// Returns the number of bytes that may be moved now, at most `most`. The caller reports
    /// the bytes that it has moved afterwards.
    fn poll(
        &mut self,
        cx: &mut Context<'_>,
        most: usize,
        buckets: [&Bucket; 2],
        speed: [Option<u64>; 2],
    ) -> Poll<io::Result<usize>> {
        if self.reservation.is_none() {
            let rates = speed.map(|speed| speed.map(|speed| Rate::new(speed, BURST)));
            let Some(slowest) = speed.into_iter().flatten().min() else {
                return Poll::Ready(Ok(most));
            };
            let bytes = (slowest / SHARES).clamp(1, SHARE).min(most as u64);
            let mut wait = Duration::ZERO;
            for (bucket, rate) in buckets.into_iter().zip(rates) {
                let Some(rate) = rate else { continue };
                // At a speed of zero nothing can ever be moved.
                let Some(drawn) = bucket.reserve(bytes, rate, now()) else {
                    return Poll::Ready(Err(io::ErrorKind::QuotaExceeded.into()));
                };
                wait = wait.max(drawn);
            }
            self.reservation = Some(Reservation { bytes, rates });
            if !wait.is_zero() {
                self.sleep_for(wait);
            }
        }
        if self.sleeping
            && let Some(sleep) = &mut self.sleep
        {
            ready!(sleep.as_mut().poll(cx));
            self.sleeping = false;
        }
        let share = self.reservation.map_or(0, |share| share.bytes);
        Poll::Ready(Ok(usize::try_from(share).unwrap_or(most).min(most)))
    }

    fn sleep_for(&mut self, wait: Duration) {
        let until = Instant::now() + wait;
        match &mut self.sleep {
            Some(sleep) => sleep.as_mut().reset(until),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(until))),
        }
        self.sleeping = true;
    }

    /// Records that `bytes` of the reserved bytes were moved.
    fn settle(&mut self, bytes: usize, buckets: [&Bucket; 2]) {
        let Some(share) = self.reservation.take() else {
            return;
        };
        self.sleeping = false;
        let rest = share.bytes.saturating_sub(bytes as u64);
        if rest > 0 {
            for (bucket, rate) in buckets.into_iter().zip(share.rates) {
                if let Some(rate) = rate {
                    bucket.refund(rest, rate);
                }
            }
        }
    }
}

/// The current time of a clock that is never set back. It starts in the past, because the paused
/// clock of a test may be behind that of the first call.
fn now() -> Nanos {
    static START: LazyLock<Instant> = LazyLock::new(|| {
        let now = Instant::now();
        now.checked_sub(Duration::from_hours(1)).unwrap_or(now)
    });
    Nanos::try_from(START.elapsed().as_nanos()).unwrap_or(Nanos::MAX)
}

impl<S: AsyncRead + Unpin> AsyncRead for ThrottledStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self {
            io,
            directions,
            throttled,
        } = self.get_mut();
        let Some(lanes) = directions.as_mut().filter(|_| *throttled) else {
            return Pin::new(io).poll_read(cx, buf);
        };
        let most = buf.remaining();
        let allowed = ready!(lanes.poll_down(cx, most))?;
        if allowed == most {
            let before = buf.filled().len();
            let polled = Pin::new(io).poll_read(cx, buf);
            lanes.moved_down(buf.filled().len() - before);
            return polled;
        }
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(allowed));
        let polled = Pin::new(io).poll_read(cx, &mut part);
        let read = part.filled().len();
        buf.advance(read);
        lanes.moved_down(read);
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ThrottledStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Self {
            io,
            directions,
            throttled,
        } = self.get_mut();
        let Some(lanes) = directions.as_mut().filter(|_| *throttled) else {
            return Pin::new(io).poll_write(cx, buf);
        };
        if buf.is_empty() {
            return Pin::new(io).poll_write(cx, buf);
        }
        let allowed = ready!(lanes.poll_up(cx, buf.len()))?;
        let polled = Pin::new(io).poll_write(cx, buf.get(..allowed).unwrap_or(buf));
        let written = match &polled {
            Poll::Ready(Ok(written)) => *written,
            _ => 0,
        };
        lanes.moved_up(written);
        polled
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use api::link::Limits;
    use serde_json::json;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};

    use super::*;
    use crate::directory::Directory;
    use crate::edge::BufferedStream;

    const RATE: u64 = 100_000;

    fn project(limits: Limits) -> Arc<Project> {
        let told = json!({"id": "prj_1", "endpoint": "e7e8a732", "workspace_id": "wks_1",
            "plan": "basic", "provider": "other", "limits": limits});
        let directory = Directory::default();
        let told = serde_json::from_value(told).unwrap();
        directory.apply(vec![api::link::Item::Project(Box::new(told))]);
        directory.project("prj_1").unwrap()
    }

    fn limits(tunnel: Option<u64>, project: Option<u64>) -> Limits {
        Limits {
            tunnel_bytes_per_second: tunnel,
            bytes_per_second: project,
            ..Limits::default()
        }
    }

    /// A stream with endless data in both directions.
    fn endless(project: &Arc<Project>, tunnel: &Arc<Meters>) -> ThrottledStream<DuplexStream> {
        let (near, mut far) = duplex(256 * 1024);
        tokio::spawn(async move {
            let (mut reader, mut writer) = tokio::io::split(&mut far);
            let mut sink = tokio::io::sink();
            let taking = tokio::io::copy(&mut reader, &mut sink);
            let saying = async { while writer.write_all(&[7; 8192]).await.is_ok() {} };
            tokio::join!(taking, saying).0.ok();
        });
        ThrottledStream::with(near, tunnel, project)
    }

    /// Time to read so many bytes; the test's clock only advances during waits.
    async fn time_to_read(stream: &mut ThrottledStream<DuplexStream>, bytes: usize) -> Duration {
        let started = Instant::now();
        stream.read_exact(&mut vec![0; bytes]).await.unwrap();
        started.elapsed()
    }

    /// Time that `bytes` may take at [`RATE`]: the content of a full bucket takes none.
    fn expected(bytes: usize) -> Duration {
        let millis = bytes as u64 * 1000 / RATE;
        Duration::from_millis(millis).saturating_sub(BURST)
    }

    fn is_about(time: Duration, expected: Duration) -> bool {
        (expected..expected + Duration::from_millis(60)).contains(&time)
    }

    #[tokio::test(start_paused = true)]
    async fn reads_and_writes_are_throttled_separately() {
        for limits in [limits(Some(RATE), None), limits(None, Some(RATE))] {
            let project = project(limits);
            let mut stream = endless(&project, &Arc::default());
            let reading = time_to_read(&mut stream, 500_000).await;
            assert!(is_about(reading, expected(500_000)), "{reading:?}");
            let started = Instant::now();
            stream.write_all(&vec![1; 500_000]).await.unwrap();
            let writing = started.elapsed();
            assert!(is_about(writing, expected(500_000)), "{writing:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_limit_applies_immediately() {
        let project = project(Limits::default());
        let mut stream = endless(&project, &Arc::default());
        assert_eq!(time_to_read(&mut stream, 1_000_000).await, Duration::ZERO);
        project.speed.set(&limits(Some(RATE), None));
        let slow = time_to_read(&mut stream, 300_000).await;
        assert!(is_about(slow, expected(300_000)), "{slow:?}");
        project.speed.set(&Limits::default());
        assert_eq!(time_to_read(&mut stream, 1_000_000).await, Duration::ZERO);
        project.speed.set(&limits(Some(0), None));
        let error = stream.read(&mut [0; 10]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::QuotaExceeded);
    }

    /// Streams of one tunnel take turns, and so do tunnels of one project. Together they keep to
    /// the speed.
    #[tokio::test(start_paused = true)]
    async fn streams_share_the_bandwidth() {
        let project = project(limits(None, Some(RATE)));
        let one = Arc::default();
        let other = Arc::default();
        let streams = [&one, &one, &other, &other].map(|tunnel| endless(&project, tunnel));
        let started = Instant::now();
        let reading = streams.map(|mut stream| {
            tokio::spawn(async move {
                time_to_read(&mut stream, 100_000).await;
                Instant::now()
            })
        });
        for read in reading {
            let took = read.await.unwrap() - started;
            // No stream finishes long before the others. One of them is ahead by at most its part
            // of the full bucket. Without turns the first would finish after a second.
            let all = expected(400_000);
            assert!(took <= all + Duration::from_millis(100), "{took:?}");
            assert!(took + Duration::from_millis(1100) >= all, "{took:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn idle_and_closed_streams_reserve_nothing() {
        let project = project(limits(Some(RATE), None));
        let tunnel = Arc::default();
        let mut silent = vec![];
        for _ in 0..100 {
            let (near, far) = duplex(64);
            let mut stream = ThrottledStream::with(near, &tunnel, &project);
            let mut byte = [0];
            let reading = stream.read(&mut byte);
            tokio::time::timeout(Duration::from_millis(1), reading)
                .await
                .unwrap_err();
            silent.push((stream, far));
        }
        let mut stream = endless(&project, &tunnel);
        let time = time_to_read(&mut stream, 100_000).await;
        assert!(is_about(time, expected(100_000)), "{time:?}");
        // Waiting streams return their reservations.
        let mut waiting: Vec<_> = (0..100).map(|_| endless(&project, &tunnel)).collect();
        for stream in &mut waiting {
            let mut bytes = [0; 5000];
            let reading = stream.read(&mut bytes);
            tokio::time::timeout(Duration::ZERO, reading).await.ok();
        }
        drop(waiting);
        let time = time_to_read(&mut stream, 100_000).await;
        assert!(time < Duration::from_millis(1500), "{time:?}");
    }

    /// Data that waits on a stream is noticed while throttled. Otherwise a connection that has
    /// ended would be used again.
    #[tokio::test(start_paused = true)]
    async fn polling_an_unthrottled_stream_sees_waiting_data() {
        let project = project(limits(Some(RATE), None));
        let tunnel = Arc::default();
        let mut busy = endless(&project, &tunnel);
        busy.read_exact(&mut vec![0; 100_000]).await.unwrap();
        let look = |stream: ThrottledStream<DuplexStream>| {
            let mut stream = BufferedStream::new(stream);
            let shaped = stream.is_quiet();
            stream.io.set_throttled(false);
            let free = stream.is_quiet();
            stream.io.set_throttled(true);
            (shaped, free)
        };
        let (near, far) = duplex(64);
        assert_eq!(
            look(ThrottledStream::with(near, &tunnel, &project)),
            (true, true)
        );
        drop(far);
        let (near, far) = duplex(64);
        drop(far);
        assert_eq!(
            look(ThrottledStream::with(near, &tunnel, &project)),
            (true, false)
        );
        let (near, mut far) = duplex(64);
        far.write_all(b"unasked").await.unwrap();
        assert_eq!(
            look(ThrottledStream::with(near, &tunnel, &project)),
            (true, false)
        );
    }
}
