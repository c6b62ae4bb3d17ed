//! A listener for short answers over plain HTTP, such as metrics and health. It does without the
//! router of a service: few clients use it, one request per connection.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Response;
use http::request::Parts;
use http_body_util::Full;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::connections::Connections;

/// The answers of a listener.
pub trait Responder: Send + Sync + 'static {
    /// The answer to a request, whose body is not read.
    fn respond(&self, request: &Parts) -> Response<Bytes>;

    /// Work that is due every few seconds.
    fn run_upkeep(&self) {}

    /// Maximum number of connections of one source. A listener for the internet has a low one, so
    /// that one source cannot have all of them.
    fn max_per_source(&self) -> usize {
        MAX_CONNECTIONS
    }

    /// Time limit of a request's head.
    fn head_timeout(&self) -> Duration {
        HEAD_TIMEOUT
    }
}

/// A running listener. Dropping it also stops it, without waiting.
#[derive(Debug)]
pub struct SmallServer {
    local_addr: SocketAddr,
    task: JoinHandle<()>,
    stop: DropGuard,
}

impl SmallServer {
    /// Listens on an address. `name` is the purpose, for the log.
    ///
    /// # Errors
    /// The address cannot be bound.
    pub async fn start(
        name: &'static str,
        address: SocketAddr,
        respond: Arc<impl Responder>,
    ) -> std::io::Result<Self> {
        let listener = TcpListener::bind(address).await?;
        let begin = CancellationToken::new();
        begin.cancel();
        Self::start_on(name, listener, respond, begin)
    }

    /// Serves a bound listener from the cancellation of `begin` on. Until then another process may
    /// serve it.
    ///
    /// # Errors
    /// The listener cannot be used.
    pub fn start_on(
        name: &'static str,
        listener: TcpListener,
        respond: Arc<impl Responder>,
        begin: CancellationToken,
    ) -> std::io::Result<Self> {
        let local_addr = listener.local_addr()?;
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let task = tokio::spawn(async move {
            let started = stopped.run_until_cancelled(begin.cancelled()).await;
            if started.is_some() {
                run(name, listener, respond, stopped).await;
            }
        });
        Ok(Self {
            local_addr,
            task,
            stop: stop.drop_guard(),
        })
    }

    /// The bound address, with the port that the system chose for port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Stops listening and waits for responses in progress, at most [`STOP_GRACE`].
    pub async fn stop(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            tracing::error!(%error, "a listener ended in a panic");
        }
    }
}

/// The main task: accepts connections, runs the upkeep, and owns every connection.
async fn run(
    name: &'static str,
    listener: TcpListener,
    respond: Arc<impl Responder>,
    stop: CancellationToken,
) {
    let mut connections = JoinSet::new();
    let limit = Connections::new(MAX_CONNECTIONS, respond.max_per_source());
    let mut upkeep = interval(UPKEEP_INTERVAL);
    upkeep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            () = stop.cancelled() => break,
            _ = upkeep.tick() => respond.run_upkeep(),
            Some(_) = connections.join_next() => {}
            accepted = listener.accept(), if connections.len() < MAX_CONNECTIONS => {
                match accepted {
                    Ok((stream, peer)) => {
                        // A client beyond the limit sees a closed connection.
                        let Ok(permit) = limit.acquire(Some(peer.ip())) else {
                            continue;
                        };
                        let serving = connection(stream, Arc::clone(&respond), stop.clone());
                        connections.spawn(async move {
                            serving.await;
                            drop(permit);
                        });
                    }
                    Err(error) => {
                        tracing::warn!(
                            %error,
                            listener = name,
                            "a connection could not be accepted"
                        );
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        }
    }
    drop(listener);
    let finished = timeout(STOP_GRACE, async {
        while connections.join_next().await.is_some() {}
    });
    if finished.await.is_err() {
        tracing::warn!(
            left = connections.len(),
            listener = name,
            "connections were closed at the deadline"
        );
    }
}

/// One request per connection: a scraper connects every few seconds, and no client can occupy a
/// connection.
pub(crate) async fn connection(
    stream: TcpStream,
    respond: Arc<impl Responder>,
    stop: CancellationToken,
) {
    let head_timeout = respond.head_timeout();
    let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
        let (head, _) = request.into_parts();
        let response = respond.respond(&head).map(Full::new);
        async move { Ok::<_, std::convert::Infallible>(response) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(head_timeout)
        .max_buf_size(MAX_HEAD_BYTES)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    let served = async {
        tokio::pin!(connection);
        tokio::select! {
            served = &mut connection => return served,
            () = stop.cancelled() => connection.as_mut().graceful_shutdown(),
        }
        connection.await
    };
    match timeout(CONNECTION_TIMEOUT, served).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "a connection ended unexpectedly"),
        Err(_) => tracing::debug!("a connection took too long"),
    }
}

/// Maximum number of connections: a few scrapers and probes; more wait in the listen queue.
const MAX_CONNECTIONS: usize = 64;
/// A head is one packet, so a slower client is not a scraper.
const HEAD_TIMEOUT: Duration = Duration::from_secs(5);
/// Enough for a bearer token and a scraper's headers; the minimum of the library is 8 KiB.
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Longer than any scrape timeout in use (Prometheus: 10 s).
const CONNECTION_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum time that a stop waits for responses in progress.
pub const STOP_GRACE: Duration = Duration::from_secs(2);
/// Retrying faster does not help against a lack of descriptors; it ends when connections end.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// The interval that the exporter of metrics recommends: histograms keep raw samples until then.
const UPKEEP_INTERVAL: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpSocket;

    use super::*;

    struct Answers;

    impl Responder for Answers {
        fn respond(&self, _: &Parts) -> Response<Bytes> {
            Response::new(Bytes::new())
        }

        fn max_per_source(&self) -> usize {
            2
        }

        /// A silent connection stays open for longer than the test takes.
        fn head_timeout(&self) -> Duration {
            Duration::from_mins(10)
        }
    }

    #[tokio::test]
    async fn one_source_does_not_have_all_connections() {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        let server = SmallServer::start("test", address, Arc::new(Answers)).await;
        let server = server.unwrap();
        let mut silent = Vec::new();
        for _ in 0..2 {
            silent.push(TcpStream::connect(server.local_addr()).await.unwrap());
        }
        let mut third = TcpStream::connect(server.local_addr()).await.unwrap();
        assert_eq!(third.read(&mut [0]).await.unwrap_or_default(), 0);
        let other = TcpSocket::new_v4().unwrap();
        other.bind(SocketAddr::from(([127, 0, 0, 2], 0))).unwrap();
        let mut other = other.connect(server.local_addr()).await.unwrap();
        let request = b"GET / HTTP/1.1\r\nHost: h.example\r\n\r\n";
        other.write_all(request).await.unwrap();
        let mut answer = Vec::new();
        other.read_to_end(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{answer:?}");
        drop(silent);
        server.stop().await;
    }
}
