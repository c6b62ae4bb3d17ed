//! Agents in containers: probes of their health, and the time of their stop.

use std::{fs, time::Instant};

use nix::sys::signal::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::installed::{alone, alone_at};
use crate::local_platform::up::shouting_service;
use crate::program::{CommandOutput, DRAIN, Home, RunningCommand, soon};

/// The status and the body of a request with these fields.
async fn request(health: &str, path: &str, fields: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(health).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

/// The status of a probe.
async fn probe(health: &str, path: &str) -> u16 {
    request(health, path, "").await.0
}

/// The value of a series in the text of a scrape.
fn value_of(scrape: &str, series: &str) -> f64 {
    let mut lines = scrape.lines();
    let value = lines.find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    let value = value.unwrap_or_else(|| panic!("{series} is missing in {scrape}"));
    value.parse().unwrap()
}

/// The address of the health listener, which the program reports.
async fn health_of(agent: &mut RunningCommand) -> String {
    let text = agent.wait_for_stderr("/readyz and /healthz").await;
    let (_, rest) = text.split_once("health: http://").unwrap();
    rest.split('/').next().unwrap().to_owned()
}

#[tokio::test]
async fn an_agent_is_ready_while_its_tunnel_is_online() {
    let home = Home::new();
    let port = ports::lease().to_string();
    let engine = alone_at(&home, &port).await;
    let args = [
        "forward",
        "9",
        "--bytestream",
        "-o",
        "json",
        "--health-listen",
        "0",
    ];
    let mut agent = home.start(&args);
    let health = health_of(&mut agent).await;
    agent.json_where(|line| line["status"] == "online").await;
    assert_eq!(probe(&health, "/readyz").await, 200);
    assert_eq!(probe(&health, "/healthz").await, 200);

    engine.stop().await;
    agent
        .json_where(|line| line["status"] == "disconnected")
        .await;
    assert_eq!(probe(&health, "/readyz").await, 503);
    assert_eq!(probe(&health, "/healthz").await, 200);
    let engine = alone_at(&home, &port).await;
    agent.json_where(|line| line["status"] == "online").await;
    assert_eq!(probe(&health, "/readyz").await, 200);
    agent.terminate().await;
    engine.stop().await;
}

/// `svc run` is ready when every tunnel of its file is online.
#[tokio::test]
async fn one_refused_tunnel_makes_an_agent_unready() {
    let home = Home::new();
    let engine = alone(&home, &[]).await;
    let file = home.path().join("svc.yaml");
    let refused = "  b: {target: 9, svc_auth: true}\n";
    let tunnels = "version: 1\ntunnels:\n  a: {target: 9, publish: false}\n";
    fs::write(&file, format!("{tunnels}{refused}")).unwrap();
    let mut agent = home.start(&["run", "-o", "json", "--health-listen", "127.0.0.1:0"]);
    let health = health_of(&mut agent).await;
    // An engine without a platform has no browser sign-in.
    let (mut online, mut refused) = (false, false);
    while !(online && refused) {
        let line = agent.json().await;
        online |= line["tunnel"] == "a" && line["status"] == "online";
        refused |= line["tunnel"] == "b" && line["status"] == "closed";
    }
    assert_eq!(probe(&health, "/readyz").await, 503);
    fs::write(&file, tunnels).unwrap();
    agent.signal(Signal::SIGHUP);
    agent.json_where(|line| line["removed"][0] == "b").await;
    assert_eq!(probe(&health, "/readyz").await, 200);
    agent.terminate().await;
    engine.stop().await;
}

#[tokio::test]
async fn an_agent_serves_its_metrics_beside_its_health() {
    let home = Home::new();
    let port = ports::lease().to_string();
    let engine = alone_at(&home, &port).await;
    let service = shouting_service().await.to_string();
    let args = ["forward", &service, "--bytestream", "--name", "db"];
    let mut agent = home.start(&[&args[..], &["-o", "json", "--health-listen", "0"]].concat());
    let health = health_of(&mut agent).await;
    agent.json_where(|line| line["status"] == "online").await;
    let dialled = home.run_with_input(&["dial", "db"], b"hello").await;
    assert_eq!(dialled.stdout, "HELLO");
    // The agent counts a stream before it reports its end.
    agent.json_where(|line| line["active"] == false).await;
    let (status, scrape) = request(&health, "/metrics", "").await;
    assert_eq!(status, 200);
    let build = concat!(
        "svc_build_info{version=\"",
        env!("CARGO_PKG_VERSION"),
        "\"}"
    );
    for (series, value) in [
        ("svc_agent_tunnels", 1.0),
        ("svc_agent_streams_active", 0.0),
        ("svc_agent_streams_total{outcome=\"served\"}", 1.0),
        ("svc_agent_streams_total{outcome=\"failed\"}", 0.0),
        ("svc_agent_bytes_total{direction=\"in\"}", 5.0),
        ("svc_agent_bytes_total{direction=\"out\"}", 5.0),
        ("svc_agent_reconnects_total", 0.0),
        (build, 1.0),
    ] {
        assert_eq!(
            value_of(&scrape, series).to_string(),
            value.to_string(),
            "{series}"
        );
    }
    let samples = scrape.lines().filter(|line| line.starts_with("svc_"));
    for sample in samples {
        let name = sample.split(['{', ' ']).next().unwrap();
        for comment in ["HELP", "TYPE"] {
            let line = format!("# {comment} {name} ");
            assert!(scrape.contains(&line), "{line} is missing in {scrape}");
        }
    }

    engine.stop().await;
    agent
        .json_where(|line| line["status"] == "disconnected")
        .await;
    let (_, scrape) = request(&health, "/metrics", "").await;
    assert_eq!(value_of(&scrape, "svc_agent_tunnels").to_string(), "0");
    let engine = alone_at(&home, &port).await;
    agent.json_where(|line| line["status"] == "online").await;
    let reconnected = async {
        loop {
            let (_, scrape) = request(&health, "/metrics", "").await;
            let values = ["svc_agent_tunnels", "svc_agent_reconnects_total"];
            let values = values.map(|name| value_of(&scrape, name).to_string());
            if values == ["1", "1"] {
                return;
            }
        }
    };
    soon("one tunnel and one reconnect in the metrics", reconnected).await;
    agent.terminate().await;
    engine.stop().await;
}

/// Other machines reach such an address: health is for their probes, and metrics need a token.
#[tokio::test]
async fn metrics_beyond_loopback_need_a_token() {
    let home = Home::new();
    let engine = alone(&home, &[]).await;
    let dial = [
        "dial",
        "db",
        "--listen",
        "0",
        "--health-listen",
        "0.0.0.0:0",
    ];
    let mut open = home.start(&dial);
    let health = health_of(&mut open).await.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(probe(&health, "/healthz").await, 200);
    assert_eq!(probe(&health, "/metrics").await, 404);
    open.terminate().await;

    let file = home.path().join("scraper");
    fs::write(&file, "scraper-token\n").unwrap();
    let token = ["--metrics-token-file", file.to_str().unwrap()];
    let mut guarded = home.start(&[&dial[..], &token].concat());
    let health = health_of(&mut guarded)
        .await
        .replace("0.0.0.0", "127.0.0.1");
    assert_eq!(probe(&health, "/healthz").await, 200);
    assert_eq!(probe(&health, "/metrics").await, 401);
    let bearer = "Authorization: Bearer scraper-token\r\n";
    let (status, scrape) = request(&health, "/metrics", bearer).await;
    assert_eq!(status, 200);
    assert_eq!(value_of(&scrape, "svc_agent_tunnels").to_string(), "0");
    guarded.terminate().await;

    // The token is for the listener. An empty variable counts as unset.
    let alone = home.run(&[&["forward", "9"], &token[..]].concat()).await;
    assert_eq!(alone.code, Some(2), "{alone:?}");
    assert!(alone.stderr.contains("needs --health-listen"), "{alone:?}");
    let mut empty = home.command(&["dial", "nothing"]);
    empty.env("SVC_METRICS_TOKEN_FILE", "");
    let unset = CommandOutput::of_command(empty).await;
    assert_eq!(unset.code, Some(1), "{unset:?}");
    engine.stop().await;
}

/// An open stream does not delay the stop beyond the drain time.
#[tokio::test]
async fn the_drain_time_is_an_option() {
    let home = Home::new();
    let engine = alone(&home, &[]).await;
    let service = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = service.local_addr().unwrap().port().to_string();
    let publish = [
        "forward",
        &port,
        "--bytestream",
        "--name",
        "db",
        "-o",
        "json",
        "--drain",
        "100ms",
    ];
    let mut agent = home.start(&publish);
    agent.json_where(|line| line["status"] == "online").await;
    let mut dial = home.start(&["dial", "db", "--listen", "0", "-o", "json", "--drain", "0"]);
    let ready = dial.json().await;
    let mut visitor = TcpStream::connect(ready["listening"].as_str().unwrap())
        .await
        .unwrap();
    visitor.write_all(b"x").await.unwrap();
    let (_open, _peer) = service.accept().await.unwrap();
    let started = Instant::now();
    assert_eq!(agent.terminate().await.code, Some(0));
    assert!(started.elapsed() < DRAIN, "{:?}", started.elapsed());

    let mut again = home.start(&publish);
    again.json_where(|line| line["status"] == "online").await;
    let mut visitor = TcpStream::connect(ready["listening"].as_str().unwrap())
        .await
        .unwrap();
    visitor.write_all(b"x").await.unwrap();
    let (_open, _peer) = service.accept().await.unwrap();
    let started = Instant::now();
    assert_eq!(dial.terminate().await.code, Some(0));
    assert!(started.elapsed() < DRAIN, "{:?}", started.elapsed());
    again.terminate().await;
    engine.stop().await;
}

/// Clients of `localhost` try both address families, and some try only one.
#[tokio::test]
async fn localhost_is_served_in_both_address_families() {
    let home = Home::new();
    let engine = alone(&home, &[]).await;
    let args = ["dial", "db", "--listen", "localhost:0", "-o", "json"];
    let mut dial = home.start(&args);
    let ready = dial.json().await;
    let first = ready["listening"].as_str().unwrap().to_owned();
    let (_, port) = first.rsplit_once(':').unwrap();
    let expected = [format!("127.0.0.1:{port}"), format!("[::1]:{port}")];
    assert_eq!(
        ready["tunnels"][0]["addresses"],
        serde_json::json!(expected)
    );
    for address in &expected {
        TcpStream::connect(address).await.unwrap();
    }
    assert_eq!(dial.terminate().await.code, Some(0));
    engine.stop().await;
}
