//! The engine as a service of a real systemd, with the unit of the packages (`docs/restarts.md`). A machine
//! that cannot run a second systemd fails these tests.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use e2e::{Agent, Curl, Service, SystemdEngine, Visit, Visitor, eventually, program, provided};
use tokio::task::JoinHandle;

use crate::ALONE;

/// A service with an agent and visitors.
struct VisitedEngine {
    systemd: SystemdEngine,
    agent: Agent,
    visitor: Visitor,
    stop: Arc<AtomicBool>,
    visiting: JoinHandle<Result<Vec<Visit>>>,
}

impl VisitedEngine {
    fn start(period: Duration) -> Result<Self> {
        let systemd = SystemdEngine::start()?;
        let service = Service::mirror()?.to_string();
        let agent = Agent::forward(systemd.svc(), &service, &["--http", "--hostname", "web"])?;
        let visitor = Visitor::new(systemd.svc(), agent.hostname()?)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let more = move |_count: usize| !stopping.load(Ordering::Relaxed);
        let visiting = tokio::spawn(visitor.clone().visit_while(period, more));
        Ok(Self {
            systemd,
            agent,
            visitor,
            stop,
            visiting,
        })
    }

    /// Waits until the agent is online at the next process, and for one more visit. Returns all visits.
    async fn finish(mut self) -> Result<(Vec<Visit>, SystemdEngine)> {
        self.agent.online_again()?;
        let last = self.visitor.visit_while(STEADY, |count| count == 0).await?;
        Visit::all_succeeded(&last).with_context(|| self.systemd.state())?;
        self.stop.store(true, Ordering::Relaxed);
        let mut visits = self.visiting.await??;
        visits.extend(last);
        Ok((visits, self.systemd))
    }
}

/// Checks that no visit was refused or broken, and that none got 404.
fn check_answers<'v>(visits: impl IntoIterator<Item = &'v Visit>) -> Result<()> {
    for visit in visits {
        let status = visit.status.as_ref().ok();
        ensure!(matches!(status, Some(200 | 503)), "{visit:?}");
    }
    Ok(())
}

/// The build without optimisation replaces the other one, and is replaced by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_reloads_of_the_service_fail_none_of_10_000_requests() -> Result<()> {
    let _alone = ALONE.lock().await;
    let (tested, other): (PathBuf, PathBuf) = (program()?, provided("SVC_TEST_OTHER_BUILD")?);
    let systemd = SystemdEngine::start()?;
    let service = Service::mirror()?.to_string();
    let flags = ["--http", "--hostname", "web"];
    let mut agent = Agent::forward(systemd.svc(), &service, &flags)?;
    let visitor = Visitor::new(systemd.svc(), agent.hostname()?)?;
    let mut visits = Vec::new();
    for program in [&tested, &other, &tested, &tested, &tested] {
        let more = |count: usize| count < REQUESTS_PER_RELOAD;
        let visiting = tokio::spawn(visitor.clone().visit_while(BUSY, more));
        systemd.install(program)?;
        systemd.reload()?;
        agent.online_again()?;
        visits.extend(visiting.await??);
    }
    Visit::all_succeeded(&visits).with_context(|| systemd.state())?;
    assert_eq!(visits.len(), 10_000);
    eventually("the ends of the replaced processes", || {
        Ok(systemd.log()?.matches(STOPPED).count() == 5)
    })
}

/// OP-1: systemd keeps the listeners in its descriptor store.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_restart_of_the_service_delays_visitors_for_half_a_second() -> Result<()> {
    let _alone = ALONE.lock().await;
    let engine = VisitedEngine::start(BUSY)?;
    engine.systemd.restart()?;
    let (visits, systemd) = engine.finish().await?;
    check_answers(&visits).with_context(|| systemd.state())?;
    let slowest = visits.iter().map(Visit::duration).max();
    let slowest = slowest.context("no visit")?;
    assert!(slowest <= RESTART_LIMIT, "{slowest:?}");
    Ok(())
}

/// The process of a reload is not a child of systemd, which would kill it immediately without the
/// command `ExecStop=` of the unit.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_restart_after_a_reload_waits_for_open_requests() -> Result<()> {
    let _alone = ALONE.lock().await;
    let systemd = SystemdEngine::start()?;
    let service = Service::start()?;
    let flags = ["--http", "--hostname", "web"];
    let mut agent = Agent::forward(systemd.svc(), &service.address(), &flags)?;
    systemd.reload()?;
    agent.online_again()?;
    let drains = systemd.log()?.matches(DRAINING).count();
    let mut download = Curl::new(systemd.svc()).start(&["--http1.1", &agent.url("/slow")])?;
    let mut downloaded = service.next()?;
    downloaded.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegun ")?;
    assert_eq!(download.read(6)?, b"begun ");

    systemd.begin_restart()?;
    eventually("the start of the drain", || {
        Ok(systemd.log()?.matches(DRAINING).count() > drains)
    })?;
    downloaded.write("end")?;
    drop(downloaded);
    assert_eq!(download.rest()?, b"end");
    agent.online_again()?;
    Ok(())
}

/// EN-9: systemd starts the service again, and the agent reconnects.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_a_crash_of_the_service_no_visitor_is_refused() -> Result<()> {
    let _alone = ALONE.lock().await;
    let engine = VisitedEngine::start(STEADY)?;
    let before = engine.systemd.main_process()?;
    engine.systemd.crash()?;
    let killed = Instant::now();
    let (visits, systemd) = engine.finish().await?;
    assert_ne!(systemd.main_process()?, before);
    // Requests that were open at the crash are broken.
    let later = visits.iter().filter(|visit| visit.began > killed);
    check_answers(later).with_context(|| systemd.state())
}

/// EN-9: the replaced process is the parent of the new one, so that systemd does not get to know how that
/// ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_service_that_crashes_during_the_drain_of_a_reload_is_started_again() -> Result<()> {
    let _alone = ALONE.lock().await;
    let systemd = SystemdEngine::start()?;
    let service = Service::start()?;
    let flags = ["--http", "--hostname", "web"];
    let mut agent = Agent::forward(systemd.svc(), &service.address(), &flags)?;
    // The replaced process does not end before this request.
    let mut download = Curl::new(systemd.svc()).start(&["--http1.1", &agent.url("/slow")])?;
    let mut downloaded = service.next()?;
    downloaded.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegun ")?;
    assert_eq!(download.read(6)?, b"begun ");
    systemd.reload()?;
    agent.online_again()?;

    let before = systemd.main_process()?;
    systemd.crash()?;
    agent.disconnected()?;
    downloaded.write("end")?;
    drop(downloaded);
    assert_eq!(download.rest()?, b"end");
    agent.online_again()?;
    assert_ne!(systemd.main_process()?, before);
    Ok(())
}

/// A fifth of 10,000.
const REQUESTS_PER_RELOAD: usize = 2_000;

/// 222 requests per second.
const BUSY: Duration = Duration::from_micros(4_500);

/// 50 requests per second. After a crash they wait for some seconds, and all of them have to fit into the
/// queues of the listeners.
const STEADY: Duration = Duration::from_millis(20);

/// Maximum duration of a request during a restart without long streams.
const RESTART_LIMIT: Duration = Duration::from_millis(500);

/// The first message of a process that drains.
const DRAINING: &str = r#""message":"draining""#;

/// The last message of a process that has drained.
const STOPPED: &str = r#""message":"stopped""#;
