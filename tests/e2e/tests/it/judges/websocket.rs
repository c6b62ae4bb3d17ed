//! RFC 6455 through a published tunnel. The edge forwards WebSocket frames unchanged, so the
//! results of two libraries, also for invalid frames, are the same with and without it.

use anyhow::Result;
use e2e::{Agent, Peer, Svc, Verdict, judge};
use serde_json::json;

const SERVICES: [&str; 2] = ["judges/websocket_service.py", "websocket_service.mjs"];

#[test]
fn clients_and_services_of_two_libraries_interoperate() -> Result<()> {
    let svc = Svc::engine()?;
    for service in SERVICES {
        let service = Peer::start(service)?;
        let agent = Agent::forward(&svc, service.address()?, &["--http"])?;
        let url = agent.url("").replace("https://", "wss://");
        let published = json!({
            "url": url, "ca_file": svc.ca_file(), "service": service.address()?,
        });
        for client in ["judges/websocket_client.py", "websocket_client.mjs"] {
            let verdict = judge(client, &published)?;
            assert_eq!(verdict.failed, [""; 0], "{client}\n{}", svc.log());
            assert!(verdict.run_count > 60, "{client} ran {}", verdict.run_count);
        }
    }
    Ok(())
}

#[test]
fn invalid_frames_and_handshakes_are_left_to_the_service() -> Result<()> {
    let svc = Svc::engine()?;
    for service in SERVICES {
        let service = Peer::start(service)?;
        let agent = Agent::forward(&svc, service.address()?, &["--http"])?;
        for (table, at_least) in [("frames", 100), ("handshakes", 15)] {
            let verdict = by_hand(&svc, &service, &agent, table)?;
            assert_eq!(verdict.failed, [""; 0], "{table}\n{}", svc.log());
            assert!(
                verdict.run_count >= at_least,
                "{table} ran {}",
                verdict.run_count
            );
        }
    }
    Ok(())
}

#[test]
fn answers_and_ends_are_forwarded_unchanged() -> Result<()> {
    let svc = Svc::engine()?;
    let service = Peer::start("judges/websocket_scripted.py")?;
    let agent = Agent::forward(&svc, service.address()?, &["--http"])?;
    let verdict = by_hand(&svc, &service, &agent, "ends")?;
    assert_eq!(verdict.failed, [""; 0], "{}\n{}", service.log(), svc.log());
    assert!(verdict.run_count >= 20, "ran {}", verdict.run_count);
    Ok(())
}

fn by_hand(svc: &Svc, service: &Peer, agent: &Agent, table: &str) -> Result<Verdict> {
    let world = json!({
        "service": service.address()?,
        "tunnel": agent.url("").replace("https://", ""),
        "ca_file": svc.ca_file(),
        "table": table,
        "path": "/echo?id=by-hand",
        "early": service.ready()["early"],
    });
    judge("judges/websocket_frames.py", &world)
}

/// RFC 8441: a WebSocket as one of the streams of an HTTP/2 connection.
#[test]
fn a_websocket_over_http2_is_a_plain_websocket_to_the_service() -> Result<()> {
    let svc = Svc::engine()?;
    for service in SERVICES {
        let service = Peer::start(service)?;
        let agent = Agent::forward(&svc, service.address()?, &["--http"])?;
        let world = json!({
            "tunnel": agent.url("").replace("https://", ""),
            "ca_file": svc.ca_file(),
            "service": service.address()?,
        });
        let verdict = judge("judges/websocket_h2.py", &world)?;
        assert_eq!(verdict.failed, [""; 0], "{}", svc.log());
        assert!(verdict.run_count >= 20, "ran {}", verdict.run_count);
    }
    Ok(())
}

/// RFC 6455, 7.1.7 and 7.4.1: the engine's own event stream reports invalid frames of a client.
#[test]
fn the_engines_own_websocket_checks_frames() -> Result<()> {
    let svc = Svc::engine()?;
    let world = json!({
        "tunnel": svc.address(),
        "ca_file": svc.ca_file(),
        "table": "watcher",
        "path": "/api/websocket",
        "authorization": format!("Bearer {}", svc.token()),
    });
    let verdict = judge("judges/websocket_frames.py", &world)?;
    assert_eq!(verdict.failed, [""; 0], "{}", svc.log());
    assert!(verdict.run_count >= 40, "ran {}", verdict.run_count);
    Ok(())
}
