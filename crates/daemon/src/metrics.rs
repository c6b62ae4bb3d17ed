//! The metrics listener (MX-1 to MX-3) with the health routes.
//!
//! `GET <path>` returns the Prometheus text format, `GET /healthz` reports that the process runs,
//! `GET /readyz` reports if it serves. Only the scrape requires the bearer token: health is for
//! load balancers, and reveals nothing.

mod config;
mod responder;
mod section;
mod table;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder};
use tokio_util::sync::CancellationToken;

pub use metrics_exporter_prometheus::PrometheusHandle;

pub use self::config::{MetricsConfig, MetricsError, MetricsPath};
use self::responder::{MetricsResponder, Scrapes};
pub use self::section::MetricsSection;
pub use self::table::{Kind, Metric, describe, markdown, metric};
use crate::small_http::SmallServer;

/// Installs the recorder for the `metrics` macros of this process, once. Histograms whose name ends
/// in a suffix of `buckets` have those buckets (in seconds or bytes). Without buckets a histogram
/// would be a summary, which cannot be aggregated.
///
/// # Errors
/// A recorder is already installed, or a list of buckets is empty.
pub fn install_recorder(buckets: &[(&str, &[f64])]) -> Result<PrometheusHandle, MetricsError> {
    buckets
        .iter()
        .try_fold(PrometheusBuilder::new(), |builder, (suffix, bounds)| {
            builder.set_buckets_for_metric(Matcher::Suffix((*suffix).to_owned()), bounds)
        })
        .and_then(PrometheusBuilder::install_recorder)
        .map_err(MetricsError::Recorder)
}

/// The recorder of this process, with buckets for times: the first call installs it. Several
/// services in one process share it.
///
/// # Errors
/// Another recorder is already installed.
pub fn recorder() -> Result<PrometheusHandle, MetricsError> {
    static RECORDER: parking_lot::Mutex<Option<PrometheusHandle>> = parking_lot::Mutex::new(None);
    let mut recorder = RECORDER.lock();
    if let Some(handle) = &*recorder {
        return Ok(handle.clone());
    }
    let handle = install_recorder(&[("_seconds", SECONDS)])?;
    *recorder = Some(handle.clone());
    Ok(handle)
}

/// From half a millisecond, a good response time through a tunnel on one machine, to a minute.
const SECONDS: &[f64] = &[
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
];

/// Readiness of the process; clones share it. Initially not ready.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<ReadinessState>);

#[derive(Debug, Default)]
struct ReadinessState {
    serves: AtomicBool,
    disk_full: AtomicBool,
    /// Reason why there is no certificate.
    certificate_problem: parking_lot::Mutex<Option<String>>,
    /// Reason why the last order of a certificate failed, although there is one.
    certificate_warning: parking_lot::Mutex<Option<String>>,
}

impl Readiness {
    /// Sets the readiness: true once all listeners are bound, false once the drain has started.
    pub fn set_ready(&self, ready: bool) {
        self.0.serves.store(ready, Ordering::Release);
    }

    /// Reports that a required disk is full (the process is not ready), or not full any more.
    pub fn set_disk_full(&self, full: bool) {
        self.0.disk_full.store(full, Ordering::Release);
    }

    /// Reports why the process has no certificate (it is not ready), or that it has one.
    pub fn set_certificate_problem(&self, problem: Option<String>) {
        *self.0.certificate_problem.lock() = problem;
    }

    /// Reports why the last order of a certificate failed although there is one (the process stays
    /// ready), or that it did not fail.
    pub fn set_certificate_warning(&self, problem: Option<String>) {
        *self.0.certificate_warning.lock() = problem;
    }

    /// True if the process serves, and has everything that it needs.
    pub fn is_ready(&self) -> bool {
        self.not_ready_reason().is_none()
    }

    /// The text of a ready process.
    pub(super) fn ready_text(&self) -> Cow<'static, str> {
        match &*self.0.certificate_warning.lock() {
            Some(problem) => {
                format!("ok\nthe last order of a certificate failed: {problem}\n").into()
            }
            None => "ok\n".into(),
        }
    }

    /// Reason why the process is not ready.
    pub(super) fn not_ready_reason(&self) -> Option<Cow<'static, str>> {
        if self.0.disk_full.load(Ordering::Acquire) {
            return Some("not ready: a disk is full\n".into());
        }
        if !self.0.serves.load(Ordering::Acquire) {
            return Some("not ready\n".into());
        }
        let problem = self.0.certificate_problem.lock();
        let problem = problem.as_ref()?;
        Some(format!("not ready: there is no certificate: {problem}\n").into())
    }
}

/// Starts the listener of `config`, or none if it configures none (MX-1).
///
/// # Errors
/// A non-loopback address without a bearer token (MX-3), or an address that cannot be bound.
pub async fn serve(
    config: &MetricsConfig,
    recorder: PrometheusHandle,
    readiness: Readiness,
) -> Result<Option<MetricsServer>, MetricsError> {
    config.check()?;
    let Some(address) = config.listener() else {
        return Ok(None);
    };
    let listener = tokio::net::TcpListener::bind(address).await;
    let listener = listener.map_err(|source| MetricsError::Bind { address, source })?;
    let begin = CancellationToken::new();
    begin.cancel();
    serve_on(config, listener, recorder, readiness, begin).map(Some)
}

/// Serves a bound listener with the settings of `config` from the cancellation of `begin` on. Until
/// then another process may serve it.
///
/// # Errors
/// As [`serve`].
pub fn serve_on(
    config: &MetricsConfig,
    listener: tokio::net::TcpListener,
    recorder: PrometheusHandle,
    readiness: Readiness,
    begin: CancellationToken,
) -> Result<MetricsServer, MetricsError> {
    config.check()?;
    let scrapes = Scrapes {
        path: config.path.clone(),
        bearer_token: config.bearer_token.clone(),
        recorder,
    };
    let respond = Arc::new(MetricsResponder {
        scrapes: Some(scrapes),
        readiness,
    });
    let server = SmallServer::start_on("metrics", listener, respond, begin);
    let server = server.map_err(|source| MetricsError::Listener { source })?;
    let path = config.path.as_str();
    tracing::info!(address = %server.local_addr(), path, "metrics are served");
    Ok(MetricsServer(server))
}

/// Starts a listener with the health routes only. They reveal nothing, so the address may be that
/// of any interface.
///
/// # Errors
/// The address cannot be bound.
pub async fn serve_health(
    address: SocketAddr,
    readiness: Readiness,
) -> Result<MetricsServer, MetricsError> {
    let respond = Arc::new(MetricsResponder {
        scrapes: None,
        readiness,
    });
    let server = SmallServer::start("metrics", address, respond).await;
    let server = server.map_err(|source| MetricsError::Bind { address, source })?;
    Ok(MetricsServer(server))
}

/// A running metrics listener with the recorder's upkeep. Dropping it also stops it, without
/// waiting.
#[derive(Debug)]
pub struct MetricsServer(SmallServer);

impl MetricsServer {
    /// The bound address, with the port that the system chose for port 0.
    pub fn local_addr(&self) -> SocketAddr {
        self.0.local_addr()
    }

    /// Stops listening and waits for scrapes in progress, at most
    /// [`STOP_GRACE`](crate::small_http::STOP_GRACE).
    pub async fn stop(self) {
        self.0.stop().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::time::Instant;

    use super::*;
    use crate::small_http::connection;

    /// A scraper whose response exceeds the kernel's buffers, and that does not read it.
    #[tokio::test(start_paused = true)]
    async fn a_connection_times_out() {
        let recorder = PrometheusBuilder::new().build_recorder();
        ::metrics::with_local_recorder(&recorder, || {
            for number in 0..100_000 {
                ::metrics::counter!("svc_test_total", "number" => number.to_string()).increment(1);
            }
        });
        let respond = MetricsResponder {
            scrapes: Some(Scrapes {
                path: MetricsPath::default(),
                bearer_token: None,
                recorder: recorder.handle(),
            }),
            readiness: Readiness::default(),
        };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        // The clock advances automatically only while nothing blocks: after the response has
        // started.
        let (clock, dropped) = std::sync::mpsc::channel::<()>();
        tokio::task::spawn_blocking(move || dropped.recv());
        let began = Instant::now();
        let scraper = async {
            let socket = tokio::net::TcpSocket::new_v4().unwrap();
            socket.set_recv_buffer_size(4096).unwrap();
            let mut stream = socket
                .connect(listener.local_addr().unwrap())
                .await
                .unwrap();
            let request = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";
            stream.write_all(request).await.unwrap();
            stream.read_u8().await.unwrap();
            drop(clock);
            stream
        };
        let server = async {
            let (stream, _) = listener.accept().await.unwrap();
            let stop = CancellationToken::new();
            connection(stream, Arc::new(respond), stop).await;
            began.elapsed().as_secs()
        };
        let (_stream, seconds) = tokio::join!(scraper, server);
        assert_eq!(seconds, 30);
    }
}
