//! MX-1 to MX-3 over real sockets.

use std::io;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use daemon::config::SecretString;
use daemon::metrics::{
    MetricsConfig, MetricsError, MetricsPath, MetricsServer, Readiness, serve, serve_health,
};
use metrics_exporter_prometheus::{PrometheusBuilder, PrometheusRecorder};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

fn recorder() -> PrometheusRecorder {
    let recorder = PrometheusBuilder::new().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        metrics::counter!("svc_test_total").increment(7);
    });
    recorder
}

fn config(address: &str) -> MetricsConfig {
    MetricsConfig {
        enabled: true,
        listen_addr: Some(address.parse().unwrap()),
        ..MetricsConfig::default()
    }
}

async fn start(config: &MetricsConfig) -> (MetricsServer, Readiness) {
    let readiness = Readiness::default();
    let server = serve(config, recorder().handle(), readiness.clone())
        .await
        .unwrap()
        .unwrap();
    (server, readiness)
}

/// Sends one request and reads the whole answer.
async fn ask(address: SocketAddr, request: &str, headers: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("{request} HTTP/1.1\r\nHost: metrics\r\n{headers}\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer
}

fn status(answer: &str) -> u16 {
    answer.split(' ').nth(1).unwrap().parse().unwrap()
}

/// MX-1.
#[tokio::test]
async fn mx_1_no_listener_unless_enabled_with_an_address() {
    for config in [
        MetricsConfig {
            enabled: false,
            ..config("127.0.0.1:0")
        },
        MetricsConfig {
            listen_addr: None,
            ..config("127.0.0.1:0")
        },
    ] {
        let served = serve(&config, recorder().handle(), Readiness::default())
            .await
            .unwrap();
        assert!(served.is_none());
    }
}

/// MX-2.
#[tokio::test]
async fn mx_2_the_path_is_configurable() {
    let path = MetricsPath::new("internal/prometheus").unwrap();
    let (server, _) = start(&MetricsConfig {
        path,
        ..config("127.0.0.1:0")
    })
    .await;
    let answer = ask(server.local_addr(), "GET /internal/prometheus", "").await;
    assert_eq!(status(&answer), 200);
    assert!(answer.contains("content-type: text/plain; version=0.0.4"));
    assert!(answer.contains("svc_test_total 7\n"));
    assert_eq!(
        status(&ask(server.local_addr(), "GET /metrics", "").await),
        404
    );
    server.stop().await;
}

/// MX-3.
#[tokio::test]
async fn mx_3_an_open_listener_without_a_token_is_refused_before_it_binds() {
    let error = serve(
        &config("0.0.0.0:0"),
        recorder().handle(),
        Readiness::default(),
    )
    .await;
    assert!(matches!(error, Err(MetricsError::BearerRequired { .. })));
}

/// MX-3.
#[tokio::test]
async fn mx_3_a_scrape_presents_the_token_as_a_bearer() {
    let bearer_token = Some(SecretString::new("s3cret"));
    let (server, _) = start(&MetricsConfig {
        bearer_token,
        ..config("0.0.0.0:0")
    })
    .await;
    let address = SocketAddr::from(([127, 0, 0, 1], server.local_addr().port()));
    let scrape = async |headers: &str| ask(address, "GET /metrics", headers).await;
    assert_eq!(
        status(&scrape("Authorization: Bearer s3cret\r\n").await),
        200
    );
    assert_eq!(
        status(&scrape("authorization: bearer s3cret\r\n").await),
        200
    );
    let missing = scrape("").await;
    assert_eq!(status(&missing), 401);
    assert!(
        missing.contains("www-authenticate: Bearer\r\n"),
        "{missing}"
    );
    for wrong in [
        "Bearer s3cres",
        "Bearer s3cret2",
        "Bearer ",
        "Basic s3cret",
        "s3cret",
        "Be",
    ] {
        let refused = scrape(&format!("Authorization: {wrong}\r\n")).await;
        assert_eq!(status(&refused), 401, "{wrong}");
        assert!(refused.contains("error=\"invalid_token\""));
        assert!(!refused.contains("svc_test_total"));
    }
    let twice = "Authorization: Bearer s3cret\r\nAuthorization: Bearer s3cret\r\n";
    assert_eq!(status(&scrape(twice).await), 401);
    assert_eq!(
        status(&ask(address, "GET /healthz", "").await),
        200,
        "health needs no token"
    );
    server.stop().await;
}

#[tokio::test]
async fn health_and_readiness_are_different() {
    let (server, readiness) = start(&config("127.0.0.1:0")).await;
    let ask = async |request: &str| status(&ask(server.local_addr(), request, "").await);
    assert_eq!(ask("GET /healthz").await, 200);
    assert_eq!(ask("GET /readyz").await, 503);
    readiness.set_ready(true);
    assert_eq!(ask("GET /readyz").await, 200);
    readiness.set_disk_full(true);
    assert_eq!(ask("GET /readyz").await, 503);
    readiness.set_disk_full(false);
    assert_eq!(ask("GET /readyz").await, 200);
    readiness.set_ready(false);
    assert_eq!(ask("GET /readyz").await, 503);
    assert_eq!(ask("HEAD /healthz").await, 200);
    assert_eq!(ask("POST /metrics").await, 405);
    assert_eq!(ask("GET /other").await, 404);
    server.stop().await;
}

#[tokio::test]
async fn readiness_has_the_reason_for_a_missing_certificate() {
    let (server, readiness) = start(&config("127.0.0.1:0")).await;
    readiness.set_ready(true);
    readiness.set_certificate_problem(Some("too many orders".to_owned()));
    let answer = ask(server.local_addr(), "GET /readyz", "").await;
    assert_eq!(status(&answer), 503);
    let reason = "not ready: there is no certificate: too many orders";
    assert!(answer.contains(reason), "{answer}");
    readiness.set_certificate_problem(None);
    let answer = ask(server.local_addr(), "GET /readyz", "").await;
    assert_eq!(status(&answer), 200);
    server.stop().await;
}

#[tokio::test]
async fn readiness_has_the_reason_for_a_renewal_that_failed() {
    let (server, readiness) = start(&config("127.0.0.1:0")).await;
    let ready = || ask(server.local_addr(), "GET /readyz", "");
    readiness.set_ready(true);
    readiness.set_certificate_warning(Some("too many orders".to_owned()));
    let answer = ready().await;
    assert_eq!(status(&answer), 200, "the certificate is in use");
    assert!(answer.contains("failed: too many orders"), "{answer}");
    readiness.set_certificate_warning(None);
    let answer = ready().await;
    assert!(answer.ends_with("\r\n\r\nok\n"), "{answer}");
    server.stop().await;
}

#[tokio::test]
async fn a_health_listener_has_no_metrics() {
    let readiness = Readiness::default();
    let any = "0.0.0.0:0".parse().unwrap();
    let server = serve_health(any, readiness.clone()).await.unwrap();
    let address = ([127, 0, 0, 1], server.local_addr().port()).into();
    let ask = async |request: &str| status(&ask(address, request, "").await);
    assert_eq!(ask("GET /healthz").await, 200);
    assert_eq!(ask("GET /readyz").await, 503);
    readiness.set_ready(true);
    assert_eq!(ask("GET /readyz").await, 200);
    assert_eq!(ask("GET /metrics").await, 404);
    server.stop().await;
}

#[tokio::test]
async fn a_taken_address_is_an_error_that_names_it() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let error = serve(&config(&address), recorder().handle(), Readiness::default()).await;
    let error = error.unwrap_err();
    assert!(error.to_string().contains(&address), "{error}");
}

#[tokio::test]
async fn a_stop_closes_the_listener() {
    // Leased, so that no server of another test has the port afterwards.
    let (server, _) = start(&config(&ports::lease_address())).await;
    let address = server.local_addr();
    server.stop().await;
    let error = TcpStream::connect(address).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused);
}

#[tokio::test]
async fn silent_connections_do_not_delay_a_stop() {
    let (server, _) = start(&config("127.0.0.1:0")).await;
    let mut silent = TcpStream::connect(server.local_addr()).await.unwrap();
    // A later request is answered, so the silent connection has been accepted.
    ask(server.local_addr(), "GET /healthz", "").await;
    server.stop().await;
    let left = silent.read(&mut [0; 1]).await;
    assert!(matches!(left, Ok(0)) || left.is_err());
}

/// The listener closes connections that send nothing, or half of a head.
#[tokio::test]
async fn a_head_has_a_time_limit_and_a_maximum_size() {
    let (server, _) = start(&config("127.0.0.1:0")).await;
    let mut silent = Vec::new();
    let started_at = Instant::now();
    for sent in ["", "GET /metrics HTTP/1.1\r\nX: "] {
        let mut stream = TcpStream::connect(server.local_addr()).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        silent.push(stream);
    }
    for mut stream in silent {
        let mut answer = String::new();
        let read = timeout(WAIT_LIMIT, stream.read_to_string(&mut answer)).await;
        read.expect("it is closed").unwrap();
    }
    assert!(started_at.elapsed() >= HEAD_TIME);
    for (bytes, expected) in [(15 * 1024, 200), (17 * 1024, 431)] {
        let field = format!("X: {}\r\n", "x".repeat(bytes));
        let answer = ask(server.local_addr(), "GET /metrics", &field).await;
        assert_eq!(status(&answer), expected, "{bytes}");
    }
}

/// 64 silent connections take all slots. The next one is accepted when the listener closes them.
#[tokio::test]
async fn connections_beyond_the_limit_wait_to_be_accepted() {
    let (server, _) = start(&config("127.0.0.1:0")).await;
    let started_at = Instant::now();
    let mut silent = Vec::new();
    while silent.len() < 64 {
        silent.push(TcpStream::connect(server.local_addr()).await.unwrap());
    }
    let answer = timeout(WAIT_LIMIT, ask(server.local_addr(), "GET /metrics", "")).await;
    assert_eq!(status(&answer.expect("it is accepted")), 200);
    assert!(started_at.elapsed() >= HEAD_TIME);
}

/// The time that the listener gives a head.
const HEAD_TIME: Duration = Duration::from_secs(5);
/// Longer than any limit on a silent client.
const WAIT_LIMIT: Duration = Duration::from_mins(5);
