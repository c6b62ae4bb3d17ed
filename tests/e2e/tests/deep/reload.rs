//! Reloads and restarts of an engine with the numbers that operators are promised
//! (`docs/restarts.md`).

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{Agent, Curl, Svc, Visit, Visitor, eventually, program, provided};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{JoinSet, spawn_blocking};

use crate::ALONE;
use crate::load_service::{CLIENT_FRAME, LoadService, SERVER_FRAME, check_download, exchange};
use crate::visited_agent::{VisitedAgent, check_answers};

/// Streams that are open during all reloads.
struct Streams {
    has_ended: watch::Sender<bool>,
    /// Results in messages or chunks.
    open: JoinSet<Result<u64>>,
}

impl Streams {
    /// Opens them, and returns when the first bytes of each have arrived.
    async fn open(
        has_ended: watch::Sender<bool>,
        svc: &Svc,
        visitor: &Visitor,
        (web, port): (&Agent, u16),
    ) -> Result<Self> {
        let mut open = JoinSet::new();
        for _ in 0..WEBSOCKETS {
            let stream = Visitor::upgraded(visitor.upgrading().await?).await?;
            let messages = exchange(
                stream,
                (&CLIENT_FRAME, &SERVER_FRAME),
                has_ended.subscribe(),
            );
            open.spawn(async move { messages.await.map(u64::from).context("a WebSocket") });
        }
        for _ in 0..TCP_STREAMS {
            let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
            stream.write_all(b"!").await?;
            ensure!(stream.read_u8().await? == b'!', "another byte");
            let messages = exchange(stream, (&[], &[]), has_ended.subscribe());
            open.spawn(async move { messages.await.map(u64::from).context("a TCP stream") });
        }
        for _ in 0..DOWNLOADS {
            let url = web.url("/download");
            let args = ["--http1.1", "--max-time", "600", url.as_str()];
            let mut download = Curl::new(svc).start(&args)?;
            let mut body = download.read(8)?;
            open.spawn(async move {
                let rest = spawn_blocking(move || download.rest()).await?;
                body.extend(rest.context("a download")?);
                check_download(&body).context("a download")
            });
        }
        Ok(Self { has_ended, open })
    }

    /// Ends them, and checks that none has lost a byte.
    async fn finish(mut self) -> Result<()> {
        self.has_ended.send_replace(true);
        let mut count = 0;
        while let Some(finished) = self.open.join_next().await {
            ensure!(finished?? > 0, "a stream without a message");
            count += 1;
        }
        ensure!(
            count == WEBSOCKETS + TCP_STREAMS + DOWNLOADS,
            "{count} streams"
        );
        Ok(())
    }
}

/// The first and the last program have the release profile. The build without optimisation replaces it,
/// and is replaced by it.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn five_reloads_lose_none_of_10_000_requests_and_no_byte_of_75_streams() -> Result<()> {
    let _alone = ALONE.lock().await;
    let (tested, other) = (program()?, provided("SVC_TEST_OTHER_BUILD")?);
    let (first, last) = ports::lease_range(4).into_inner();
    let mut svc = Svc::engine_with(&json!({
        "tcp": {"port_range": format!("{first}-{last}")},
        // Longer than the test takes: the streams are those of the first process.
        "timeouts": {"drain_seconds": 600, "startup_grace_seconds": 0},
    }))?;
    let (has_ended, downloads) = watch::channel(false);
    let service = LoadService::start(downloads).await?;
    let (target, echo) = (service.web.to_string(), service.echo.to_string());
    let mut web = Agent::forward(&svc, &target, &["--http", "--hostname", "web"])?;
    let mut tcp = Agent::forward(&svc, &echo, &["--tcp", "--name", "db"])?;
    let port = u16::try_from(tcp.online()["port"].as_u64().context("no port")?)?;
    let visitor = Visitor::new(&svc, web.hostname()?)?;
    let streams = Streams::open(has_ended, &svc, &visitor, (&web, port)).await?;

    let began = Instant::now();
    let mut visits = Vec::new();
    for program in [&tested, &other, &tested, &tested, &tested] {
        let requests = visitor.clone();
        let more = |count: usize| count < REQUESTS_PER_RELOAD;
        let visiting = tokio::spawn(requests.visit_while(PERIOD, more));
        svc.install(program)?;
        svc.reload()?;
        web.online_again()?;
        tcp.online_again()?;
        assert_eq!(svc.installed()?, program.canonicalize()?);
        visits.extend(visiting.await??);
    }
    let rate = f64::from(u32::try_from(visits.len())?) / began.elapsed().as_secs_f64();
    Visit::all_succeeded(&visits).with_context(|| svc.log())?;
    assert_eq!(visits.len(), 10_000);
    assert!(rate >= 200.0, "{rate} requests per second");

    assert!(!svc.process().has_exited()?, "streams are open");
    streams.finish().await.with_context(|| svc.log())?;
    let log = svc.directory().join("engine.log");
    eventually("the ends of the replaced processes", || {
        Ok(fs::read_to_string(&log)?.matches(STOPPED).count() == 5)
    })
}

/// An engine whose listener the test holds, as systemd holds it in its descriptor store.
fn supervised_engine() -> Result<Svc> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let grace = json!({"timeouts": {"startup_grace_seconds": 3600}});
    Svc::engine_on(listener, &grace)
}

/// OP-1: names without their agent get 503, never 404.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_restart_refuses_no_connection_and_delays_it_for_half_a_second() -> Result<()> {
    let _alone = ALONE.lock().await;
    let mut svc = supervised_engine()?;
    let agent = VisitedAgent::start(&svc, PERIOD)?;
    svc.process().terminate()?;
    let exit = svc.process().wait_for_exit()?;
    assert_eq!(exit, Some(0), "{}", svc.log());
    svc.start_again()?;
    let visits = agent.finish().await.with_context(|| svc.log())?;
    check_answers(&visits).with_context(|| svc.log())?;
    let slowest = visits.iter().map(Visit::duration).max();
    let slowest = slowest.context("no visit")?;
    assert!(slowest <= RESTART_LIMIT, "{slowest:?}");
    Ok(())
}

/// EN-9: the agent reconnects.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn after_a_crash_the_first_good_answer_takes_at_most_300_ms() -> Result<()> {
    let _alone = ALONE.lock().await;
    let mut svc = supervised_engine()?;
    let agent = VisitedAgent::start(&svc, PERIOD)?;
    svc.process().kill();
    let killed = Instant::now();
    svc.start_again()?;
    let ready = Instant::now();
    let visits = agent.finish().await.with_context(|| svc.log())?;
    // Requests that were open at the crash are broken.
    let later = visits.iter().filter(|visit| visit.began > killed);
    let mut good = Vec::new();
    for visit in later {
        match &visit.status {
            Ok(200) => good.push(visit.ended),
            Ok(503) => {}
            other => bail!("{other:?}: {}", svc.log()),
        }
    }
    let first = good.into_iter().min().context("no good answer")?;
    let waited = first.saturating_duration_since(ready);
    assert!(waited <= CRASH_LIMIT, "{waited:?}");
    Ok(())
}

const WEBSOCKETS: usize = 50;
const TCP_STREAMS: usize = 20;
const DOWNLOADS: usize = 5;

/// A fifth of 10,000.
const REQUESTS_PER_RELOAD: usize = 2_000;

/// 222 requests per second, so that the last answers do not bring the rate below 200.
const PERIOD: Duration = Duration::from_micros(4_500);

/// Maximum duration of a request during a restart.
const RESTART_LIMIT: Duration = Duration::from_millis(500);

/// Time limit from the end of the start after a crash to the first good answer.
const CRASH_LIMIT: Duration = Duration::from_millis(300);

/// The last message of a process that has drained.
const STOPPED: &str = r#""message":"stopped""#;
