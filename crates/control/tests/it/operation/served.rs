//! A listening platform: health, metrics, TLS and shutdown.

use std::sync::Arc;
use std::time::Duration;

use control::StartError;
use control::config::Config;
use daemon::clock::SystemClock;
use daemon::shutdown::Shutdown;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, RootCertStore};
use tempfile::TempDir;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use types::proxy_protocol::write_v2;

struct PlatformServer {
    app: Arc<control::app::App>,
    running: control::RunningPlatform,
    shutdown: Shutdown,
    directory: TempDir,
}

async fn serve(sections: &str, directory: TempDir) -> PlatformServer {
    serve_with(sections, directory, 0).await
}

async fn serve_with(sections: &str, directory: TempDir, drain_seconds: u16) -> PlatformServer {
    serve_as("", sections, directory, drain_seconds).await
}

async fn serve_as(
    platform: &str,
    sections: &str,
    directory: TempDir,
    drain_seconds: u16,
) -> PlatformServer {
    let sections = (platform, sections);
    serve_at("127.0.0.1:0", sections, directory, drain_seconds).await
}

async fn serve_at(
    address: &str,
    (platform, sections): (&str, &str),
    directory: TempDir,
    drain_seconds: u16,
) -> PlatformServer {
    let file = directory.path().join("platform.yaml");
    let yaml = format!(
        "platform: {{base_url: 'https://svc.example', {platform}data_dir: '{}', \
         drain_seconds: {drain_seconds}}}\n{sections}\n",
        directory.path().join("data").display(),
    );
    std::fs::write(&file, yaml).unwrap();
    let config = Config::load(Some(&file), []).unwrap();
    let app = control::open(config, Arc::new(SystemClock)).await.unwrap();
    let listener = TcpListener::bind(address).await.unwrap();
    let shutdown = Shutdown::new(Duration::from_secs(5));
    let running = control::start_on(Arc::clone(&app), listener, shutdown.clone())
        .await
        .unwrap();
    PlatformServer {
        app,
        running,
        shutdown,
        directory,
    }
}

impl PlatformServer {
    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.running.address()).await.unwrap()
    }

    async fn scrape(&self, path: &str, token: Option<&str>) -> String {
        let address = self.running.metrics_address().unwrap();
        ask(TcpStream::connect(address).await.unwrap(), path, token).await
    }

    async fn stop(self) {
        self.shutdown.request();
        self.running.wait_until_stopped().await;
    }
}

/// Sends one HTTP/1.1 request. Returns the whole answer.
async fn ask(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    path: &str,
    token: Option<&str>,
) -> String {
    let authorization = token.map_or(String::new(), |token| {
        format!("Authorization: Bearer {token}\r\n")
    });
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: svc.example\r\nConnection: close\r\n{authorization}\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    // A peer that closes without a TLS close_notify has still sent everything.
    stream.read_to_end(&mut answer).await.ok();
    String::from_utf8_lossy(&answer).into_owned()
}

fn new_directory() -> TempDir {
    tempfile::tempdir().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn health_is_public_and_readiness_ends_with_the_drain() {
    let sections = "metrics: {prometheus: {enabled: true, listen_addr: '127.0.0.1:0'}}";
    let served = serve(sections, new_directory()).await;
    for path in ["/healthz", "/readyz"] {
        let answer = ask(served.connect().await, path, None).await;
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(answer.ends_with(r#"{"status":"ok"}"#), "{answer}");
    }
    assert!(served.app.health.is_ready(&served.app.store).await);
    served.shutdown.request();
    assert!(!served.app.health.is_ready(&served.app.store).await);
    served.running.wait_until_stopped().await;
}

/// A client of HTTP/1.1 whose body is late learns that its connection ends, and loses no request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_request_whose_body_does_not_arrive_ends_its_connection_with_notice() {
    let served = serve("", new_directory()).await;
    let mut stream = served.connect().await;
    let head = "POST /api/workspaces HTTP/1.1\r\nHost: svc.example\r\nContent-Length: 4\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 401 "), "{answer}");
    let answer = answer.to_lowercase();
    assert!(answer.contains("connection: close"), "{answer}");
    served.stop().await;
}

/// A load balancer can detect the drain. Its later requests are still served, with
/// `Connection: close`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_is_seen_before_the_listener_closes() {
    // The second shutdown request below ends the drain delay of 300 s. The port is leased, so that
    // no server of another test has it afterwards.
    let address = ports::lease_address();
    let served = serve_at(&address, ("", ""), new_directory(), 300).await;
    let kept = "GET /healthz HTTP/1.1\r\nHost: svc.example\r\n\r\n";
    let mut before = served.connect().await;
    before.write_all(kept.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"}") {
        assert_ne!(before.read_buf(&mut answer).await.unwrap(), 0);
    }
    let answer = String::from_utf8_lossy(&answer).to_lowercase();
    assert!(!answer.contains("connection: close"), "{answer}");
    served.shutdown.request();
    before.write_all(kept.as_bytes()).await.unwrap();
    let mut answer = String::new();
    before.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    assert!(
        answer.to_lowercase().contains("connection: close"),
        "{answer}"
    );
    for (path, status) in [
        ("/readyz", 503),
        ("/healthz", 200),
        ("/api/openapi.json", 200),
    ] {
        let answer = ask(served.connect().await, path, None).await;
        assert!(
            answer.starts_with(&format!("HTTP/1.1 {status} ")),
            "{answer}"
        );
        assert!(
            answer.to_lowercase().contains("connection: close"),
            "{answer}"
        );
    }
    served.shutdown.request();
    served.running.wait_until_stopped().await;
    TcpStream::connect(&address).await.unwrap_err();
}

/// True if the platform answers on a new connection.
async fn is_served(served: &PlatformServer) -> bool {
    let mut stream = served.connect().await;
    let request = "GET /healthz HTTP/1.1\r\nHost: svc.example\r\nConnection: close\r\n\r\n";
    // A connection that is closed unread fails the write or the read.
    stream.write_all(request.as_bytes()).await.ok();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok();
    answer.starts_with(b"HTTP/1.1 200 ")
}

/// Connections that were answered and remain open.
async fn kept(served: &PlatformServer, count: usize) -> Vec<TcpStream> {
    let mut kept = Vec::new();
    for _ in 0..count {
        let mut stream = served.connect().await;
        let request = "GET /healthz HTTP/1.1\r\nHost: svc.example\r\n\r\n";
        stream.write_all(request.as_bytes()).await.unwrap();
        assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
        kept.push(stream);
    }
    kept
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_limited_in_total_and_per_source() {
    let cases = [
        ("", "{max_connections: 3, max_connections_per_source: 100}"),
        ("", "{max_connections: 100, max_connections_per_source: 3}"),
        // A proxy has only the total limit.
        (
            "trusted_proxies: [127.0.0.1], ",
            "{max_connections: 3, max_connections_per_source: 1}",
        ),
    ];
    for (platform, limits) in cases {
        let served = serve_as(platform, &format!("limits: {limits}"), new_directory(), 0).await;
        let mut open = kept(&served, 3).await;
        assert!(!is_served(&served).await, "{limits}");
        // The slot of a closed connection is free once the platform has noticed its end.
        open.pop();
        let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
        while !is_served(&served).await {
            assert!(tokio::time::Instant::now() < deadline, "{limits}");
        }
        drop(open);
        served.stop().await;
    }
}

/// With a database that does not answer, the platform is alive and not ready.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_database_nothing_is_ready() {
    let served = serve("", new_directory()).await;
    served.app.store.close().await;
    // The last database check is cached for a second.
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    let answer = loop {
        let answer = ask(served.connect().await, "/readyz", None).await;
        if !answer.starts_with("HTTP/1.1 200 ") {
            break answer;
        }
        assert!(tokio::time::Instant::now() < deadline, "always ready");
    };
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    assert!(answer.contains("retry-after: "), "{answer}");
    let answer = ask(served.connect().await, "/healthz", None).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    served.stop().await;
}

/// MX-1, MX-2, MX-3: a separate listener, under the configured path, with its token.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mx_1_mx_2_mx_3_metrics_are_scraped() {
    let sections = "metrics: {prometheus: {enabled: true, listen_addr: '0.0.0.0:0', \
                    path: numbers, bearer_token: a-random-text}}";
    let served = serve(sections, new_directory()).await;
    ask(served.connect().await, "/api/workspaces/wks_x", None).await;
    ask(served.connect().await, "/no/such/path-of-a-stranger", None).await;
    let body = "email=a%40example.com&password=wrong+password+here";
    let mut stream = served.connect().await;
    let head = format!(
        "POST /login HTTP/1.1\r\nHost: svc.example\r\nConnection: close\r\n\
         Sec-Fetch-Site: same-origin\r\nOrigin: https://svc.example\r\n\
         Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.read_to_end(&mut Vec::new()).await.unwrap();

    let refused = served.scrape("/numbers", None).await;
    assert!(refused.starts_with("HTTP/1.1 401 "), "{refused}");
    let elsewhere = served.scrape("/metrics", Some("a-random-text")).await;
    assert!(elsewhere.starts_with("HTTP/1.1 404 "), "{elsewhere}");
    let text = served.scrape("/numbers", Some("a-random-text")).await;
    for part in [
        r#"svc_platform_requests_total{route="/api/workspaces/{workspace_id}",method="GET",status="4xx"}"#,
        r#"svc_platform_requests_total{route="none",method="GET",status="4xx"}"#,
        r#"svc_platform_request_seconds_bucket{route="/login""#,
        r#"svc_platform_sign_ins_total{outcome="wrong"}"#,
        r#"svc_platform_database_query_seconds_count{kind="read"}"#,
        r#"svc_platform_tokens_minted_total{kind="auth"}"#,
        "svc_build_info{version=",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    for secret in ["stranger", "wks_x", "example.com"] {
        assert!(!text.contains(secret), "{secret}");
    }
    served.stop().await;
}

/// MX-1, MX-3.
#[tokio::test]
async fn mx_1_mx_3_metrics_need_an_address_and_off_loopback_a_token() {
    let served = serve("metrics: {prometheus: {enabled: true}}", new_directory()).await;
    assert_eq!(served.running.metrics_address(), None);
    served.stop().await;
    let directory = new_directory();
    let file = directory.path().join("platform.yaml");
    let yaml = "platform: {base_url: 'https://svc.example'}\n\
                metrics: {prometheus: {enabled: true, listen_addr: '0.0.0.0:0'}}\n";
    std::fs::write(&file, yaml).unwrap();
    let errors = Config::load(Some(&file), []).unwrap_err();
    let keys: Vec<_> = errors.iter().map(|error| error.key.as_str()).collect();
    assert_eq!(keys, ["metrics.prometheus.listen_addr"]);
}

/// Creates a new key pair and certificate. Returns the certificate that a client trusts for it.
fn write_pair(directory: &std::path::Path) -> rustls::pki_types::CertificateDer<'static> {
    let made = rcgen::generate_simple_self_signed(["svc.example".to_owned()]).unwrap();
    std::fs::write(directory.join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(directory.join("key.pem"), made.signing_key.serialize_pem()).unwrap();
    made.cert.der().clone()
}

fn client(
    trusted: rustls::pki_types::CertificateDer<'static>,
    version: &'static rustls::SupportedProtocolVersion,
) -> tokio_rustls::TlsConnector {
    let mut roots = RootCertStore::empty();
    roots.add(trusted).unwrap();
    let config = ClientConfig::builder_with_provider(daemon::tls::provider())
        .with_protocol_versions(&[version])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    Arc::new(config).into()
}

/// The platform's own TLS: versions 1.2 and 1.3, never unencrypted, and the certificate follows its
/// files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listener_uses_tls_with_its_files() {
    let directory = new_directory();
    let first = write_pair(directory.path());
    let file = |name: &str| directory.path().join(name).display().to_string();
    let sections = format!(
        "tls: {{cert_file: '{}', key_file: '{}'}}",
        file("cert.pem"),
        file("key.pem")
    );
    let served = serve(&sections, directory).await;
    let name = ServerName::try_from("svc.example").unwrap();
    let get = async |trusted, version| {
        let stream = client(trusted, version)
            .connect(name.clone(), served.connect().await)
            .await?;
        Ok::<_, std::io::Error>(ask(stream, "/healthz", None).await)
    };
    for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
        let answer = get(first.clone(), version).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
    let clear = ask(served.connect().await, "/healthz", None).await;
    assert!(!clear.contains("200"), "{clear}");
    let second = write_pair(served.directory.path());
    // The files are checked at most once a second, during a handshake.
    let deadline = tokio::time::Instant::now() + Duration::from_mins(1);
    while get(second.clone(), &rustls::version::TLS13).await.is_err() {
        assert!(
            tokio::time::Instant::now() < deadline,
            "the new certificate is never used"
        );
    }
    assert!(get(first, &rustls::version::TLS13).await.is_err());
    served.stop().await;
}

/// Behind an engine that shares its port, the header of each connection has its source.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_listener_behind_a_proxy_counts_the_source_of_the_header() {
    let directory = new_directory();
    let trusted = write_pair(directory.path());
    let file = |name: &str| directory.path().join(name).display().to_string();
    let sections = format!(
        "tls: {{proxy_protocol: true, cert_file: '{}', key_file: '{}'}}\n\
         limits: {{max_connections_per_source: 1}}",
        file("cert.pem"),
        file("key.pem")
    );
    let served = serve(&sections, directory).await;
    let name = ServerName::try_from("svc.example").unwrap();
    let connect = async |source: Option<&str>| {
        let mut stream = served.connect().await;
        let source = source.map(|source| source.parse().unwrap());
        let mut header = Vec::new();
        write_v2(source, served.running.address(), &mut header);
        stream.write_all(&header).await?;
        let client = client(trusted.clone(), &rustls::version::TLS13);
        client.connect(name.clone(), stream).await
    };
    let kept = connect(Some("203.0.113.7:40000")).await.unwrap();
    let same = connect(Some("203.0.113.7:40001")).await;
    assert!(same.is_err(), "the source has its only connection");
    let other = connect(Some("203.0.113.8:40000")).await.unwrap();
    let answer = ask(other, "/healthz", None).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    let check = connect(None).await.unwrap();
    let answer = ask(check, "/healthz", None).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    drop(kept);
    let client = client(trusted, &rustls::version::TLS13);
    let without = client.connect(name, served.connect().await).await;
    assert!(without.is_err(), "a connection without a header is closed");
    served.stop().await;
}

/// Programs on the same machine need neither TLS nor a header there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_local_listener_needs_neither_tls_nor_a_header() {
    let directory = new_directory();
    write_pair(directory.path());
    let file = directory.path().join("platform.yaml");
    let yaml = format!(
        "platform: {{base_url: 'https://svc.example', local_listen_addr: '127.0.0.1:0', \
         data_dir: '{0}/data', drain_seconds: 0}}\n\
         tls: {{proxy_protocol: true, cert_file: '{0}/cert.pem', key_file: '{0}/key.pem'}}\n",
        directory.path().display()
    );
    std::fs::write(&file, yaml).unwrap();
    let config = Config::load(Some(&file), []).unwrap();
    let app = control::open(config, Arc::new(SystemClock)).await.unwrap();
    let local = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = local.local_addr().unwrap();
    let listeners = control::BoundListeners {
        public: vec![TcpListener::bind("127.0.0.1:0").await.unwrap()],
        local: Some(local),
    };
    let shutdown = Shutdown::new(Duration::from_secs(5));
    let routes = control::router::router(Arc::clone(&app));
    let running = control::start_routes(app, routes, listeners, shutdown.clone());
    let running = running.await.unwrap();
    let answer = ask(TcpStream::connect(address).await.unwrap(), "/healthz", None);
    let answer = answer.await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    shutdown.request();
    running.wait_until_stopped().await;
}

/// The second listener has neither TLS nor a check of the proxy, so callers cannot expose it.
#[tokio::test]
async fn a_bound_local_listener_stays_on_this_machine() {
    let directory = new_directory();
    let file = directory.path().join("platform.yaml");
    let yaml = format!(
        "platform: {{base_url: 'http://localhost:8080', data_dir: '{}/data'}}\n",
        directory.path().display()
    );
    std::fs::write(&file, yaml).unwrap();
    let config = Config::load(Some(&file), []).unwrap();
    let app = control::open(config, Arc::new(SystemClock)).await.unwrap();
    let listeners = control::BoundListeners {
        public: vec![TcpListener::bind("127.0.0.1:0").await.unwrap()],
        local: Some(TcpListener::bind("0.0.0.0:0").await.unwrap()),
    };
    let routes = control::router::router(Arc::clone(&app));
    let shutdown = Shutdown::new(Duration::from_secs(5));
    let started = control::start_routes(app, routes, listeners, shutdown).await;
    let error = started.unwrap_err();
    assert!(matches!(error, StartError::LocalListener { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("`platform.local_listen_addr`"), "{text}");
}

#[test]
fn tls_files_need_each_other_and_https() {
    let refused = |yaml: &str| {
        let directory = new_directory();
        let file = directory.path().join("platform.yaml");
        std::fs::write(&file, yaml).unwrap();
        let errors = Config::load(Some(&file), []).unwrap_err();
        errors.into_iter().next().unwrap().key
    };
    let https = "platform: {base_url: 'https://svc.example'}\n";
    let http = "platform: {base_url: 'http://localhost:8080'}\n";
    assert_eq!(
        refused(&format!("{https}tls: {{cert_file: a}}")),
        "tls.key_file"
    );
    assert_eq!(
        refused(&format!("{https}tls: {{key_file: a}}")),
        "tls.cert_file"
    );
    let both = "tls: {cert_file: a, key_file: b}";
    assert_eq!(refused(&format!("{http}{both}")), "tls.cert_file");
    assert_eq!(
        refused(&format!("{https}retention: {{audit_days: 36501}}")),
        "retention.audit_days"
    );
}

/// The sockets of a supervisor. Another socket could not be bound to the address.
#[tokio::test]
async fn a_listener_takes_the_inherited_socket_of_its_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut inherited = daemon::descriptors::InheritedSockets::none();
    let copy = listener.try_clone().unwrap();
    inherited.add("svc-platform", copy.into()).unwrap();
    let taken = control::listen_at(&mut inherited, address).await.unwrap();
    assert_eq!(taken.local_addr().unwrap(), address);
    assert!(inherited.finish().unwrap().is_empty());
}
