//! An engine is replaced by a new process, or it and its platform are restarted with the listeners
//! of their supervisor, without a refused or failed request.

use std::fs;
use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use e2e::{Agent, Control, Curl, ManagedPair, Service, Svc, UPGRADED, Visit, Visitor, eventually};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Requests at a constant rate.
struct Load {
    stop: Arc<AtomicBool>,
    visiting: JoinHandle<Result<Vec<Visit>>>,
}

impl Load {
    fn start(visitor: Visitor) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let more = move |_count: usize| !stopping.load(Ordering::Relaxed);
        let visiting = tokio::spawn(visitor.visit_while(PERIOD, more));
        Self { stop, visiting }
    }

    async fn stop(self) -> Result<Vec<Visit>> {
        self.stop.store(true, Ordering::Relaxed);
        self.visiting.await?
    }
}

/// 10,000 requests and more streams are among the tests of `tests/deep`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_request_fails_during_five_reloads() -> Result<()> {
    let mut svc = Svc::engine()?;
    let service = Service::mirror()?.to_string();
    let mut agent = Agent::forward(&svc, &service, &["--http", "--hostname", "web"])?;
    let visitor = Visitor::new(&svc, agent.hostname()?)?;
    let load = Load::start(visitor);
    for _ in 0..5 {
        let id = agent.online()["tunnel_id"].clone();
        svc.reload()?;
        agent.online_again()?;
        assert_ne!(agent.online()["tunnel_id"], id, "it is the old process");
    }
    let visits = load.stop().await?;
    Visit::all_succeeded(&visits).with_context(|| svc.log())?;
    assert!(visits.len() >= 50, "{} requests", visits.len());
    // Each replaced process finishes its requests and ends without a signal. One that is killed
    // resets them.
    let log = svc.directory().join("engine.log");
    eventually("the ends of the replaced processes", || {
        Ok(fs::read_to_string(&log)?.matches(STOPPED).count() == 5)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn streams_continue_in_the_old_process() -> Result<()> {
    let (first, last) = ports::lease_range(4).into_inner();
    let mut svc = Svc::engine_with(&json!({"tcp": {"port_range": format!("{first}-{last}")}}))?;
    let service = Service::start()?;
    let mut web = Agent::forward(&svc, &service.address(), &["--http", "--hostname", "web"])?;
    let mut tcp = Agent::forward(&svc, &service.address(), &["--tcp", "--name", "db"])?;
    let port = u16::try_from(tcp.online()["port"].as_u64().context("no port")?)?;

    let mut download = Curl::new(&svc).start(&["--http1.1", &web.url("/slow")])?;
    let mut downloaded = service.next()?;
    downloaded.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegun ")?;
    assert_eq!(download.read(6)?, b"begun ");
    let visitor = Visitor::new(&svc, web.hostname()?)?;
    let upgrading = visitor.upgrading().await?;
    let mut upgraded = service.next()?;
    upgraded.write(UPGRADED)?;
    let mut socket = Visitor::upgraded(upgrading).await?;
    let mut database = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    database.set_read_timeout(Some(WAIT_LIMIT))?;
    database.write_all(b"LOGIN\r\n\r\n")?;
    let mut session = service.next()?;

    svc.reload()?;
    web.online_again()?;
    tcp.online_again()?;
    assert_eq!(tcp.online()["port"].as_u64(), Some(port.into()));
    assert!(!svc.process().has_exited()?, "streams are open");

    for turn in 0..3_u8 {
        let frame = [0x81, 0x85, 0, 0, 0, 0, b'p', b'i', b'n', b'g', turn];
        socket.write_all(&frame).await?;
        assert_eq!(upgraded.read(frame.len())?, frame);
        let frame = [0x81, 0x05, b'p', b'o', b'n', b'g', turn];
        upgraded.write(frame)?;
        let mut received = [0; 7];
        timeout(WAIT_LIMIT, socket.read_exact(&mut received)).await??;
        assert_eq!(received, frame);
        database.write_all(&[turn; 1000])?;
        assert_eq!(session.read(1000)?, [turn; 1000]);
        session.write([turn])?;
        let mut answer = [9];
        database.read_exact(&mut answer)?;
        assert_eq!(answer, [turn]);
    }
    downloaded.write("end")?;
    drop(downloaded);
    assert_eq!(download.rest()?, b"end");

    // New visitors reach the new process, also at the port.
    let mut next = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    next.write_all(b"LOGIN\r\n\r\n")?;
    drop(service.next()?);
    drop((socket, upgraded, database, session));
    eventually("the end of the old process", || svc.process().has_exited())?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_process_that_does_not_start_leaves_the_old_one_serving() -> Result<()> {
    let mut svc = Svc::engine()?;
    let service = Service::mirror()?.to_string();
    let agent = Agent::forward(&svc, &service, &["--http", "--hostname", "web"])?;
    let visitor = Visitor::new(&svc, agent.hostname()?)?;
    let load = Load::start(visitor);
    let key = svc.directory().join("key.pem");
    let missing = svc.directory().join("missing.pem");
    svc.configure(|config| config["certs"]["static"]["key_file"] = json!(missing))?;
    svc.process().ask_to_reload()?;
    let log = svc.directory().join("engine.log");
    eventually("the reason", || {
        Ok(fs::read_to_string(&log)?.contains("the engine was not replaced"))
    })?;
    assert!(fs::read_to_string(&log)?.contains("missing.pem"));
    assert!(!svc.process().has_exited()?);

    // A later reload succeeds.
    svc.configure(|config| config["certs"]["static"]["key_file"] = json!(key))?;
    svc.reload()?;
    Visit::all_succeeded(&load.stop().await?).with_context(|| svc.log())?;
    Ok(())
}

/// Each process has directories of its own, and follows the platform.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_managed_engine_is_replaced_twice() -> Result<()> {
    let mut managed = ManagedPair::on_sqlite()?;
    let service = Service::mirror()?.to_string();
    let mut agent = managed.forward(&service, &["--http", "--hostname", "web"])?;
    let visitor = Visitor::new(&managed.engine, agent.hostname()?)?;
    let load = Load::start(visitor);
    for _ in 0..2 {
        managed.engine.reload()?;
        agent.online_again()?;
    }
    let (token, _) = managed.issue(&managed.control)?;
    managed.wait_until_accepted(&token)?;
    Visit::all_succeeded(&load.stop().await?).with_context(|| managed.engine.log())?;
    eventually("the end of the old process", || {
        managed.engine.process().has_exited()
    })?;
    Ok(())
}

/// The new process has no state, and the platform cannot be reached. It would refuse the agents,
/// because it has no project. The old one serves until the state has arrived.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_process_takes_over_with_the_state_of_its_platform() -> Result<()> {
    let mut managed = ManagedPair::on_sqlite()?;
    let service = Service::mirror()?.to_string();
    let mut agent = managed.forward(&service, &["--http", "--hostname", "web"])?;
    let visitor = Visitor::new(&managed.engine, agent.hostname()?)?;
    let load = Load::start(visitor);
    let empty = managed.engine.directory().join("empty");
    managed.engine.configure(|config| {
        config["control_plane"]["data_dir"] = json!(empty);
    })?;
    managed.link.interrupt();
    managed.engine.ask_to_reload()?;
    let log = managed.engine.directory().join("engine.log");
    // It waits longer than for changes that a stored state lacks.
    eventually("the wait of the new process", || {
        let late = "the platform has not sent its last changes in time";
        Ok(fs::read_to_string(&log)?.contains(late))
    })?;
    assert!(!fs::read_to_string(&log)?.contains("the new process is ready"));

    managed.link.restore();
    managed.engine.reloaded()?;
    agent.online_again()?;
    Visit::all_succeeded(&load.stop().await?).with_context(|| managed.engine.log())?;
    Ok(())
}

/// It gets the listener by its name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_on_port_0_keeps_its_port() -> Result<()> {
    let any_port = json!({"tls": {"enabled": true, "listen_addr": "127.0.0.1:0"}});
    let mut svc = Svc::engine_with(&any_port)?;
    let address = svc.ready()["engine_url"].clone();
    let service = Service::mirror()?.to_string();
    let mut agent = Agent::forward(&svc, &service, &["--http", "--hostname", "web"])?;
    let load = Load::start(Visitor::new(&svc, agent.hostname()?)?);
    for _ in 0..2 {
        svc.reload()?;
        agent.online_again()?;
        assert_eq!(svc.ready()["engine_url"], address);
    }
    Visit::all_succeeded(&load.stop().await?).with_context(|| svc.log())?;
    Ok(())
}

/// OP-1: the listener is held by the test, as systemd holds it in its descriptor store.
#[test]
fn a_restart_with_inherited_listeners_refuses_no_connection() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let mut svc = Svc::engine_on(listener, &json!({}))?;
    let service = Service::mirror()?.to_string();
    let mut agent = Agent::forward(&svc, &service, &["--http", "--hostname", "web"])?;
    assert_eq!(Curl::new(&svc).get(&[&agent.url("/")])?.status, 200);

    svc.process().terminate()?;
    assert_eq!(svc.process().wait_for_exit()?, Some(0), "{}", svc.log());
    // It waits in the queue of the listener.
    let mut early = TcpStream::connect(address)?;
    early.set_read_timeout(Some(WAIT_LIMIT))?;
    early.write_all(b"not TLS\r\n\r\n")?;
    svc.start_again()?;
    // It is accepted: the engine answers with an alert, or closes.
    if let Err(error) = early.read(&mut [0; 16]) {
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
    }
    agent.online_again()?;
    assert_eq!(Curl::new(&svc).get(&[&agent.url("/")])?.status, 200);
    Ok(())
}

/// The last message of a process that has drained.
const STOPPED: &str = r#""message":"stopped""#;

/// EN-9: a crash, after which the supervisor starts the engine again. Open requests are broken.
/// Later ones wait, and are answered with 503 until the agent has reconnected. The listener is held
/// by the test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_crash_with_inherited_listeners_nothing_is_refused_or_not_found() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let grace = json!({"timeouts": {"startup_grace_seconds": 3600}});
    let mut svc = Svc::engine_on(listener, &grace)?;
    let service = Service::mirror()?.to_string();
    let mut agent = Agent::forward(&svc, &service, &["--http", "--hostname", "web"])?;
    let load = Load::start(Visitor::new(&svc, agent.hostname()?)?);
    svc.process().kill();
    let killed = Instant::now();
    svc.start_again()?;
    agent.online_again()?;
    let online = Instant::now();
    let visits = load.stop().await?;
    let later = visits.iter().filter(|visit| visit.began > killed);
    for visit in later {
        let status = visit.status.as_ref().ok();
        assert!(
            matches!(status, Some(200 | 503)),
            "{visit:?}: {}",
            svc.log()
        );
    }
    let last = Visitor::new(&svc, agent.hostname()?)?;
    let last = last.visit_while(PERIOD, |count| count == 0).await?;
    assert!(last.iter().all(|visit| visit.began > online));
    Visit::all_succeeded(&last).with_context(|| svc.log())
}

/// The listener is held by the test. The platform serves while `/readyz` returns 503, so that a
/// balancer can choose another process; later requests wait for the next process.
#[test]
fn a_platform_with_an_inherited_listener_restarts_without_a_failed_request() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut control = Control::on_listener(directory.path(), listener, 10)?;
    let port = control.port();
    let stop = Arc::new(AtomicBool::new(false));
    let stopping = Arc::clone(&stop);
    let asking = thread::spawn(move || -> Result<usize> {
        let mut count = 0;
        while !stopping.load(Ordering::Relaxed) {
            let answer = ask(port, "/healthz")?;
            ensure!(answer.starts_with("HTTP/1.1 200 "), "{answer:?}");
            count += 1;
        }
        Ok(count)
    });
    control.process().terminate()?;
    eventually("the notice for balancers", || {
        Ok(ask(port, "/readyz")?.starts_with("HTTP/1.1 503 "))
    })?;
    assert_eq!(
        control.process().wait_for_exit()?,
        Some(0),
        "{}",
        control.log()
    );
    control.start_again()?;
    let answer = ask(port, "/readyz")?;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    stop.store(true, Ordering::Relaxed);
    let count = asking
        .join()
        .map_err(|_panic| anyhow!("the visitor panicked"))?;
    assert!(count.with_context(|| control.log())? > 10);
    Ok(())
}

/// One request of a platform. Returns the whole answer.
fn ask(port: u16, path: &str) -> Result<String> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
    stream.set_read_timeout(Some(WAIT_LIMIT))?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}

/// Fifty requests per second, with an engine without optimisation.
const PERIOD: Duration = Duration::from_millis(20);

/// Longer than any step of these tests takes.
const WAIT_LIMIT: Duration = Duration::from_mins(1);
