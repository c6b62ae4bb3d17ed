//! A process without free descriptors or with little memory: it reports the shortage, waits, keeps
//! open connections, and recovers.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use e2e::{Agent, Call, Curl, Download, Service, Svc, eventually};
use serde_json::json;

/// An engine with an agent, and a download in flight.
struct Scene {
    svc: Svc,
    agent: Agent,
    service: Service,
    call: Call,
    download: Download,
}

impl Scene {
    fn set() -> Result<Self> {
        let svc = Svc::engine_with(&json!({"timeouts": {"stream_request_seconds": 5}}))?;
        let service = Service::start()?;
        let agent = Agent::forward(&svc, &service.address(), &["--http"])?;
        let mut download = Curl::new(&svc).start(&["--http1.1", &agent.url("/slow")])?;
        let mut call = service.next()?;
        call.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegun ")?;
        assert_eq!(download.read(6)?, b"begun ");
        Ok(Self {
            svc,
            agent,
            service,
            call,
            download,
        })
    }

    /// The download continues, and ends normally.
    fn ends_well(mut self) -> Result<()> {
        self.call.write("end")?;
        drop(self.call);
        assert_eq!(self.download.rest()?, b"end");
        Ok(())
    }
}

/// Serves the next visitor, who connects from another address.
fn is_served(svc: &Svc, agent: &Agent, service: &Service) -> Result<()> {
    let url = agent.url("/again");
    let mut asked = Curl::new(svc).start(&["--interface", "127.0.0.2", &url])?;
    let mut call = service.next()?;
    call.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nagain")?;
    assert_eq!(asked.read(5)?, b"again");
    Ok(())
}

/// Connections to the engine that send nothing.
fn silent(svc: &Svc, count: usize) -> Result<Vec<TcpStream>> {
    let (_, port) = svc.address().rsplit_once(':').context("no port")?;
    let port = port.parse()?;
    let connect = || Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port))?);
    (0..count).map(|_| connect()).collect()
}

/// Visitors wait, accepting does not spin, open connections continue, and the engine recovers when
/// descriptors are free.
#[test]
fn an_engine_without_descriptors_keeps_its_connections_and_recovers() -> Result<()> {
    let mut scene = Scene::set()?;
    let svc = &mut scene.svc;
    let open = svc.process().descriptors()?;
    svc.process().allow_descriptors(open + SPARE)?;
    let silent = silent(svc, 10 * SPARE)?;
    eventually("the end of the descriptors", || {
        Ok(svc.process().descriptors()? >= open + SPARE)
    })?;

    // A new visitor waits, and the download does not.
    let mut waiting = Curl::new(svc).start(&[&scene.agent.url("/again")])?;
    scene.call.write("more ")?;
    assert_eq!(scene.download.read(5)?, b"more ");
    let before = svc.process().processor_seconds()?;
    let watched = Duration::from_secs(3);
    pass(watched);
    let used = svc.process().processor_seconds()? - before;
    ensure!(
        used < watched.as_secs_f64() / 4.0,
        "{used} s of {watched:?}"
    );
    assert!(!scene.service.has_call(), "there were descriptors left");

    drop(silent);
    let mut call = scene.service.next()?;
    call.write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nagain")?;
    assert_eq!(waiting.read(5)?, b"again");
    is_served(&scene.svc, &scene.agent, &scene.service)?;
    scene.ends_well()
}

/// A visitor who cannot be connected to the service gets an error, and the agent keeps running.
#[test]
fn an_agent_without_descriptors_answers_502_and_recovers() -> Result<()> {
    let mut scene = Scene::set()?;
    let open = scene.agent.process().descriptors()?;
    // No released descriptor can be used again, because the lowest are in use permanently.
    scene.agent.process().allow_descriptors(3)?;
    let curl = Curl::new(&scene.svc);
    let before = scene.agent.process().processor_seconds()?;
    // Idle connections may carry the first ones to the agent. None gets further.
    for _ in 0..5 {
        let answer = curl.get(&[&scene.agent.url("/late")])?;
        ensure!([502, 503, 504].contains(&answer.status), "{answer:?}");
    }
    let used = scene.agent.process().processor_seconds()? - before;
    ensure!(used < 3.0, "{used} s for five refusals");
    assert!(!scene.service.has_call(), "there were descriptors left");

    scene.agent.process().allow_descriptors(open + 10 * SPARE)?;
    is_served(&scene.svc, &scene.agent, &scene.service)?;
    scene.ends_well()
}

/// Thousands of connections that send nothing, or half a head, use limited memory. Other visitors
/// are served, and later connections reuse the memory.
#[test]
fn memory_of_thousands_of_idle_connections_is_limited_and_reused() -> Result<()> {
    // All of them come from one address.
    let limits = json!({"limits": {"max_connections_per_source": 2 * (IDLE + SILENT)}});
    let mut svc = Svc::engine_with(&limits)?;
    let service = Service::start()?;
    let agent = Agent::forward(&svc, &service.address(), &["--http"])?;
    is_served(&svc, &agent, &service)?;
    let empty = svc.process().resident_bytes()?;
    let open = svc.process().descriptors()?;
    let first = wave(&mut svc, &agent, &service)?;
    let each = first.saturating_sub(empty) / IDLE as u64;
    ensure!(each < EACH, "{each} bytes for each");
    eventually("the end of the first ones", || {
        Ok(svc.process().descriptors()? <= open + SPARE)
    })?;
    let second = wave(&mut svc, &agent, &service)?;
    ensure!(second < first + SLACK, "{second} bytes after {first}");
    is_served(&svc, &agent, &service)
}

/// Keeps all of them open together. Returns the memory of the engine at that time.
fn wave(svc: &mut Svc, agent: &Agent, service: &Service) -> Result<u64> {
    let host = agent.hostname()?.to_owned();
    let tls = trusting(svc)?;
    let mut idle = Vec::new();
    for number in 0..IDLE {
        let mut visitor = handshake(svc, &tls, &host)?;
        if number % 2 == 0 {
            let half = format!("GET / HTTP/1.1\r\nHost: {host}\r\nX-Half: ");
            visitor.write_all(half.as_bytes())?;
            visitor.flush()?;
        }
        idle.push(visitor);
    }
    // Up to the handshake limit of one source. Further connections are closed unread.
    let silent = silent(svc, SILENT)?;
    is_served(svc, agent, service)?;
    let full = svc.process().resident_bytes()?;
    eventually("the end of those that are too many", || {
        let gone = silent.iter().filter(|stream| is_closed(stream)).count();
        Ok(gone >= SILENT - HANDSHAKES)
    })?;
    Ok(full)
}

type Tls = rustls::StreamOwned<rustls::ClientConnection, TcpStream>;

fn trusting(svc: &Svc) -> Result<std::sync::Arc<rustls::ClientConfig>> {
    use rustls::pki_types::pem::PemObject as _;
    let mut roots = rustls::RootCertStore::empty();
    let authority = rustls::pki_types::CertificateDer::from_pem_file(svc.ca_file());
    roots.add(authority.ok().context("no authority")?)?;
    let provider = rustls::crypto::aws_lc_rs::default_provider();
    let config = rustls::ClientConfig::builder_with_provider(provider.into())
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(std::sync::Arc::new(config))
}

/// A visitor's connection after its handshake.
fn handshake(svc: &Svc, tls: &std::sync::Arc<rustls::ClientConfig>, host: &str) -> Result<Tls> {
    let stream = silent(svc, 1)?.pop().context("a connection")?;
    let connection =
        rustls::ClientConnection::new(std::sync::Arc::clone(tls), host.to_owned().try_into()?)?;
    let mut visitor = rustls::StreamOwned::new(connection, stream);
    while visitor.conn.is_handshaking() {
        visitor.conn.complete_io(&mut visitor.sock)?;
    }
    Ok(visitor)
}

/// True if the peer has closed it.
fn is_closed(mut stream: &TcpStream) -> bool {
    stream.set_nonblocking(true).ok();
    match stream.read_exact(&mut [0; 1]) {
        Ok(()) => true,
        Err(error) => error.kind() != std::io::ErrorKind::WouldBlock,
    }
}

/// The test checks that nothing happens for this time.
#[expect(
    clippy::disallowed_methods,
    reason = "time itself, not a wait for something"
)]
fn pass(duration: Duration) {
    std::thread::sleep(duration);
}

/// Descriptors in addition to those in use: a few for the engine, and some for visitors.
const SPARE: usize = 20;
/// Visitors after their handshake.
const IDLE: usize = 2000;
/// Connections that never start a handshake.
const SILENT: usize = 1000;
/// `limits.max_handshakes_per_source`.
const HANDSHAKES: usize = 512;
/// Memory limit per connection: a session, a task, and a buffer for half a head.
const EACH: u64 = 48 * 1024;
/// Overhead of the allocator when it reuses memory.
const SLACK: u64 = 16 * 1024 * 1024;
