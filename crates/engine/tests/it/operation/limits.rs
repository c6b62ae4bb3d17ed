//! Limits of a project's plan for its visitors: requests per second and bytes per second.

use std::time::{Duration, Instant};

use api::link::Limits;
use client::Properties;
use http::Request;
use http_body_util::{BodyExt, Full};
use serde_json::Value;
use testing::{H2Visitor, ReceivedResponse, TestEngine, TestTunnel, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::world::World;

async fn get(engine: &TestEngine, tunnel: &TestTunnel) -> ReceivedResponse {
    let host = tunnel.hostname();
    engine.visitor().http1(host).await.get("/", host).await
}

fn requests(tunnel: Option<u32>, project: Option<u32>) -> Limits {
    Limits {
        tunnel_requests_per_second: tunnel,
        requests_per_second: project,
        ..Limits::default()
    }
}

fn is_limited(answer: &ReceivedResponse, limit: &str) -> bool {
    if answer.status != 429 {
        return false;
    }
    let problem = answer.json();
    assert_eq!(problem["code"], "rate_limited");
    assert_eq!(answer.header("retry-after"), Some("1"));
    let named = format!("`{limit}`");
    assert!(
        problem["detail"].as_str().unwrap().contains(&named),
        "{problem}"
    );
    true
}

#[tokio::test]
async fn a_tunnel_has_a_request_rate() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let world = World::with(&format!("access_log: {{path: {log:?}}}\n")).await;
    let engine = &world.engine;
    let service = Upstream::http1().await;
    let tunnel = world.publish(Properties::http(), &service).await;
    let other = world.publish(Properties::http(), &service).await;
    world
        .change(|project| project.limits = requests(Some(3), None))
        .await;
    let host = tunnel.hostname();
    let mut kept = engine.visitor().http1(host).await;
    for _ in 0..3 {
        assert_eq!(kept.get("/", host).await.status, 200);
    }
    let before = service.accepted();
    let limit = "tunnel_requests_per_second";
    assert!(is_limited(&kept.get("/", host).await, limit));
    assert!(is_limited(&get(engine, &tunnel).await, limit));
    let mut h2 = engine.visitor().h2(host).await;
    assert!(is_limited(&h2.get("/", host).await, limit));
    assert_eq!(service.accepted(), before, "the service receives none");
    assert_eq!(
        get(engine, &other).await.status,
        200,
        "the limit is the tunnel's own"
    );
    // A third of a second adds one request.
    world.set_forward(Duration::from_millis(334));
    assert_eq!(kept.get("/", host).await.status, 200);
    assert!(is_limited(&kept.get("/", host).await, limit));
    // A longer time adds no more than a second does.
    world.set_forward(Duration::from_secs(100));
    for _ in 0..3 {
        assert_eq!(kept.get("/", host).await.status, 200);
    }
    assert!(is_limited(&kept.get("/", host).await, limit));
    // Changes take effect immediately.
    world
        .change(|project| project.limits = Limits::default())
        .await;
    for _ in 0..20 {
        assert_eq!(kept.get("/", host).await.status, 200);
    }
    world.engine.stop().await;
    let records = std::fs::read_to_string(log).unwrap();
    let refused = records
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .find(|record| record["status"] == 429)
        .unwrap();
    assert_eq!(refused["rule"], "rate_limit");
    assert_eq!(refused["failure"], "rate_limited");
    assert!(
        refused["reason"].as_str().unwrap().contains(limit),
        "{refused}"
    );
}

#[tokio::test]
async fn a_project_has_a_request_rate_for_all_of_its_tunnels() {
    let world = World::with("").await;
    let engine = &world.engine;
    let service = Upstream::http1().await;
    let guarded = Properties::http().token_auth(true);
    let guarded = world.publish(guarded, &service).await;
    let one = world.publish(Properties::http(), &service).await;
    let echoes = Upstream::tcp().await;
    let raw = world.publish(Properties::tls(), &echoes).await;
    world
        .change(|project| project.limits = requests(Some(2), Some(4)))
        .await;
    // Refused requests do not count.
    for _ in 0..10 {
        assert_eq!(get(engine, &guarded).await.status, 401);
    }
    for _ in 0..2 {
        assert_eq!(get(engine, &one).await.status, 200);
    }
    assert!(is_limited(
        &get(engine, &one).await,
        "tunnel_requests_per_second"
    ));
    let bearer = format!("Authorization: Bearer {}\r\n", world.token);
    let host = guarded.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    visitor.request("GET", "/", host, &bearer).await;
    assert_eq!(visitor.answer().await.status, 200);
    // Connections of other tunnels count like requests.
    let config = engine.ca().client(&[]);
    for passes in [true, false] {
        let mut stream = engine.visitor().connect(raw.hostname(), &config).await;
        let mut echo = [0; 4];
        let talking = async {
            stream.write_all(b"ping").await?;
            stream.flush().await?;
            stream.read_exact(&mut echo).await
        };
        let talked = within("echo, or the end", talking).await;
        assert_eq!(talked.is_ok(), passes);
    }
    visitor.request("GET", "/", host, &bearer).await;
    let answer = visitor.answer().await;
    assert!(is_limited(&answer, "requests_per_second"));
    // A request that the project's limit refused does not count for the tunnel.
    world
        .change(|project| project.limits = requests(Some(2), None))
        .await;
    visitor.request("GET", "/", host, &bearer).await;
    assert_eq!(visitor.answer().await.status, 200);
}

const SPEED: u64 = 200_000;
/// Takes half a second at that rate, since the burst is a quarter of a second's bytes.
const BODY: usize = 150_000;
const LEAST: Duration = Duration::from_millis(490);

/// Bodies in each direction, for all combinations of protocols.
#[tokio::test]
async fn bodies_do_not_exceed_the_rate_of_the_plan() {
    let world = World::with("").await;
    let engine = &world.engine;
    let services = [Upstream::http1().await, Upstream::h2c().await];
    let h2c = Properties::http().http_version("h2c");
    let tunnels = [
        world.publish(Properties::http(), &services[0]).await,
        world.publish(h2c, &services[1]).await,
    ];
    let target = format!("/bytes/{BODY}");
    for (project, limits) in [
        (
            false,
            Limits {
                tunnel_bytes_per_second: Some(SPEED),
                ..Limits::default()
            },
        ),
        (
            true,
            Limits {
                bytes_per_second: Some(SPEED),
                ..Limits::default()
            },
        ),
    ] {
        world.change(|changed| changed.limits = limits).await;
        for (number, tunnel) in tunnels.iter().enumerate() {
            let host = tunnel.hostname();
            let mut http1 = engine.visitor().http1(host).await;
            let mut h2 = engine.visitor().h2(host).await;
            let started_at = Instant::now();
            let answer = http1.get(&target, host).await;
            assert_eq!(answer.body, Upstream::payload(BODY));
            assert!(started_at.elapsed() >= LEAST, "{:?}", started_at.elapsed());
            let started_at = Instant::now();
            let answer = h2.get(&target, host).await;
            assert_eq!(answer.body, Upstream::payload(BODY));
            assert!(started_at.elapsed() >= LEAST, "{:?}", started_at.elapsed());
            if project && number == 1 {
                break;
            }
            let started_at = Instant::now();
            let request = Request::post(format!("https://{host}/mirror"));
            let body = Full::new(Upstream::payload(BODY).into());
            let body = body.map_err(|never| match never {}).boxed_unsync();
            let request = request.body(body).unwrap();
            let answer = H2Visitor::collect(h2.send(request).await.unwrap()).await;
            assert_eq!(answer.body, Upstream::payload(BODY));
            assert!(started_at.elapsed() >= LEAST, "{:?}", started_at.elapsed());
        }
    }
}

/// Raw byte streams. A limit that is set later also applies to open streams.
#[tokio::test]
async fn open_streams_are_slowed_down_when_the_plan_changes() {
    let world = World::with("").await;
    let service = Upstream::tcp().await;
    let tunnel = world.publish(Properties::tls(), &service).await;
    let config = world.engine.ca().client(&[]);
    let stream = world
        .engine
        .visitor()
        .connect(tunnel.hostname(), &config)
        .await;
    let (mut reader, mut writer) = tokio::io::split(stream);
    let payload = Upstream::payload(BODY);
    let mut echo = async || {
        let started_at = Instant::now();
        let mut echoed = vec![0; BODY];
        let talking = async {
            let (wrote, read) = tokio::join!(
                async {
                    writer.write_all(&payload).await?;
                    writer.flush().await
                },
                reader.read_exact(&mut echoed)
            );
            wrote.and(read).unwrap();
        };
        within("echo", talking).await;
        assert!(echoed == payload);
        started_at.elapsed()
    };
    echo().await;
    world
        .change(|project| project.limits.tunnel_bytes_per_second = Some(SPEED))
        .await;
    let slow = echo().await;
    assert!(slow >= LEAST, "{slow:?}");
}
