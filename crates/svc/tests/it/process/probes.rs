//! Agents in containers: probes of their health, and the time of their stop.

use std::{fs, time::Instant};

use nix::sys::signal::Signal;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use crate::installed::{alone, alone_at};
use crate::program::{DRAIN, Home, RunningCommand};

/// The status of a probe.
async fn probe(health: &str, path: &str) -> u16 {
    let mut stream = TcpStream::connect(health).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    answer.split(' ').nth(1).unwrap().parse().unwrap()
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
