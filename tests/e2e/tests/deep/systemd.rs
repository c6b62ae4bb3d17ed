//! The engine as a service of a real systemd, with the unit of the packages (`docs/restarts.md`). A
//! machine that cannot run a second systemd fails these tests.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use e2e::{Agent, Curl, Service, SystemdEngine, Visit, Visitor, eventually, program, provided};

use crate::ALONE;
use crate::visited_agent::{VisitedAgent, check_answers};

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
    let systemd = SystemdEngine::start()?;
    let agent = VisitedAgent::start(systemd.svc(), BUSY)?;
    systemd.restart()?;
    let visits = agent.finish().await;
    let visits = visits.with_context(|| systemd.state())?;
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
    let systemd = SystemdEngine::start()?;
    let agent = VisitedAgent::start(systemd.svc(), STEADY)?;
    let before = systemd.main_process()?;
    systemd.crash()?;
    let killed = Instant::now();
    let visits = agent.finish().await;
    let visits = visits.with_context(|| systemd.state())?;
    assert_ne!(systemd.main_process()?, before);
    // Requests that were open at the crash are broken.
    let later = visits.iter().filter(|visit| visit.began > killed);
    check_answers(later).with_context(|| systemd.state())
}

/// EN-9: the replaced process is the parent of the new one, so that systemd is not notified how
/// that ended.
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

/// 50 requests per second. After a crash they wait for some seconds, and all of them have to fit
/// into the queues of the listeners.
const STEADY: Duration = Duration::from_millis(20);

/// Maximum duration of a request during a restart without long streams.
const RESTART_LIMIT: Duration = Duration::from_millis(500);

/// The first message of a process that drains.
const DRAINING: &str = r#""message":"draining""#;

/// The last message of a process that has drained.
const STOPPED: &str = r#""message":"stopped""#;
