//! Failures of the network between agent and engine.

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::{Agent, Curl, Relay, Service, Svc};

/// An engine, a network that can be interrupted, and an agent behind it.
struct Scene {
    svc: Svc,
    relay: Relay,
    service: Service,
    agent: Agent,
}

impl Scene {
    fn set() -> Result<Self> {
        let svc = Svc::engine()?;
        let (host, port) = svc.address().rsplit_once(':').context("no port")?;
        let relay = Relay::start(port.parse()?)?;
        let service = Service::start()?;
        let way = format!("{host}:{}", relay.port());
        let flags = ["--http", "--heartbeat", "1s"];
        let agent = Agent::forward_to(&svc, &way, &service.address(), &flags)?;
        Ok(Self {
            svc,
            relay,
            service,
            agent,
        })
    }

    /// The address of the published name at the engine, not at the relay.
    fn url(&self, path: &str) -> Result<String> {
        let (_, port) = self.svc.address().rsplit_once(':').context("no port")?;
        Ok(format!("https://{}:{port}{path}", self.agent.hostname()?))
    }
}

#[test]
fn an_interruption_shorter_than_the_grace_loses_nothing() -> Result<()> {
    let mut scene = Scene::set()?;
    let curl = Curl::new(&scene.svc);
    let events = scene.svc.events()?;
    let mut before = curl.start(&[&scene.url("/before")?])?;
    let mut call = scene.service.next()?;
    call.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegun ")?;
    assert_eq!(before.read(6)?, b"begun ");

    scene.relay.interrupt();
    call.write("during ")?;
    // A visitor who connects during the interruption waits, and is served.
    let during = curl.start(&[&scene.url("/during")?])?;
    outage(Duration::from_secs(4));
    assert!(!scene.service.has_call(), "the network was not interrupted");
    scene.relay.restore();

    assert_eq!(before.read(7)?, b"during ");
    call.write("after")?;
    drop(call);
    assert_eq!(before.rest()?, b"after");
    let mut call = scene.service.next()?;
    assert!(call.head.starts_with("GET /during "), "{}", call.head);
    call.write("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nserved")?;
    assert_eq!(during.rest()?, b"served");

    // The agent has only logged its streams, and the engine has reported no loss.
    scene.agent.process().terminate()?;
    let mut lines = Vec::new();
    scene.agent.process().json("end", |line| {
        lines.push(line["status"].as_str().unwrap_or_default().to_owned());
        line["status"] == "closed"
    })?;
    assert!(!lines.contains(&"disconnected".to_owned()), "{lines:?}");
    let first = events.json("event", |_any| true)?;
    assert_eq!(first["type"], "tunnel.deleted", "{first}");
    Ok(())
}

#[test]
fn after_a_longer_interruption_the_agent_reconnects_and_streams_continue() -> Result<()> {
    let mut scene = Scene::set()?;
    let curl = Curl::new(&scene.svc);
    let events = scene.svc.events()?;
    let mut before = curl.start(&[&scene.url("/before")?])?;
    let mut call = scene.service.next()?;
    call.write("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nbegun ")?;
    assert_eq!(before.read(6)?, b"begun ");
    let hostname = scene.agent.hostname()?.to_owned();

    scene.relay.interrupt();
    // Three missed heartbeats, and 10 s at least.
    events.json("end of the tunnel", |event| {
        event["type"] == "tunnel.deleted"
    })?;
    let offline = curl.get(&[&scene.url("/late")?])?;
    assert_eq!(offline.status, 503, "{offline:?}");
    scene.agent.disconnected()?;
    scene.relay.restore();

    scene.agent.online_again()?;
    assert_eq!(scene.agent.hostname()?, hostname);
    call.write("end")?;
    drop(call);
    assert_eq!(before.rest()?, b"end");
    let again = curl.start(&[&scene.url("/again")?])?;
    scene
        .service
        .next()?
        .write("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nagain")?;
    assert_eq!(again.rest()?, b"again");
    Ok(())
}

/// The test is about the outage, and this is its duration.
#[expect(
    clippy::disallowed_methods,
    reason = "time itself, not a wait for something"
)]
fn outage(duration: Duration) {
    std::thread::sleep(duration);
}
