//! The published Python SDK as an agent, a dialling client and an event stream client.

use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::{Curl, Svc, long_script, python, script};
use serde_json::{Value, json};

#[test]
fn our_schema_and_the_sdks_have_the_same_numbers() -> Result<()> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(python()?)
        .arg(here.join("python/schema.py"))
        .arg(here.join("../../crates/wire/agent.proto"))
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()?;
    ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let result: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(result["version"], "1.4.5");
    assert_eq!(result["compared"], 26);
    assert_eq!(result["differences"], json!([]));
    let additions = json!([
        "Message 100",
        "Message 101",
        "Message 102",
        "ClientDetails 100",
        "ClientDetails 101",
        "ServerDetails 101",
        "ServerDetails 102",
        "TunnelProperties 100",
        "TunnelProperties 101",
        "TunnelProperties 102",
        "TunnelProperties 103",
        "TunnelProperties 104",
        "TunnelProperties 107",
        "Error 100"
    ]);
    assert_eq!(result["additions"], additions);
    Ok(())
}

#[test]
fn it_publishes_an_http_service_with_zero_rtt() -> Result<()> {
    publishes_an_http_service("zero-rtt")
}

#[test]
fn it_publishes_an_http_service_without_zero_rtt() -> Result<()> {
    publishes_an_http_service("wait")
}

fn publishes_an_http_service(mode: &str) -> Result<()> {
    let svc = Svc::engine()?;
    let result = script(&svc, "publish_http.py", &[mode], &[])?;
    let hostname = result["hostname"].as_str().unwrap_or_default();
    let (_, port) = svc.address().split_once(':').unwrap_or_default();
    assert!(hostname.ends_with(".t.engine.localhost"), "{result}");
    // The SDK builds its displayed address from the host name and the port of the answer.
    assert_eq!(result["address"], format!("https://{hostname}:{port}"));
    assert_eq!(result["port"].to_string(), port);
    assert!(
        result["id"]
            .as_str()
            .unwrap_or_default()
            .starts_with("tun_"),
        "{result}"
    );
    assert_eq!(result["protocol"], "http");
    assert_eq!(result["type"], "bytestream");
    assert_eq!(result["publish"], true);
    assert_eq!(result["http_version"], "http/1.1");
    assert_eq!(result["labels"], json!({"env": "test"}));
    assert_eq!(result["dated"], true);
    let said = format!("/one?two=3 of {hostname}:{port}");
    assert_eq!(result["one"], json!([200, said, "https"]));
    assert_eq!(result["upload"], true);
    assert_eq!(result["many"], 40);
    assert_eq!(result["after_close"], 503);
    assert_eq!(result["closed"], true);
    assert_eq!(result["control_open"], true);
    Ok(())
}

#[test]
fn it_serves_an_application_on_streams_that_end() -> Result<()> {
    let svc = Svc::engine()?;
    let result = script(&svc, "publish_wsgi.py", &[], &[])?;
    let answers: Vec<Value> = (0..5)
        .map(|n| json!([201, "PUT", format!("/{n} hello")]))
        .collect();
    assert_eq!(result["answers"], json!(answers));
    Ok(())
}

#[test]
fn it_publishes_raw_bytes() -> Result<()> {
    let (first, last) = ports::lease_range(8).into_inner();
    let svc = Svc::engine_with(&json!({"tcp": {"port_range": format!("{first}-{last}")}}))?;
    let result = script(&svc, "publish_raw.py", &[], &[])?;
    let port = result["tcp_port"].as_u64().unwrap_or_default();
    assert!((first.into()..=last.into()).contains(&port), "{result}");
    let address = result["tcp_address"].as_str().unwrap_or_default();
    assert!(address.ends_with(&format!(":{port} (tcp)")), "{result}");
    assert_eq!(result["tcp"], json!([true, true]));
    assert_eq!(result["tls_mode"], "terminated");
    assert_eq!(result["tls"], json!([true, true]));
    Ok(())
}

#[test]
fn it_dials_private_tunnels_by_name_and_by_id() -> Result<()> {
    let svc = Svc::engine()?;
    let result = script(&svc, "private_dial.py", &[], &[])?;
    for agent in ["True", "False"] {
        for dialler in ["True", "False"] {
            for by in ["name", "id"] {
                let key = format!("agent {agent}, dialler {dialler}, by {by}");
                assert_eq!(result[&key], json!([true, true]), "{key}");
            }
        }
        assert_eq!(result[format!("at once, agent {agent}")], 20);
    }
    assert_eq!(result["address"], "rstrm://private-False (unpublished)");
    assert_eq!(result["publish"], false);
    assert_eq!(result["protocol"], Value::Null);
    Ok(())
}

#[test]
fn an_accepted_stream_outlives_the_control_channel() -> Result<()> {
    let svc = Svc::engine()?;
    let result = script(&svc, "outlive.py", &[], &[])?;
    assert_eq!(
        result,
        json!({"before": "hello", "after": true, "ends": true})
    );
    Ok(())
}

#[test]
fn a_burst_of_visitors_does_not_close_its_control_channel() -> Result<()> {
    let (first, last) = ports::lease_range(2).into_inner();
    let svc = Svc::engine_with(&json!({"tcp": {"port_range": format!("{first}-{last}")}}))?;
    let result = script(&svc, "burst.py", &[], &[])?;
    let expected = json!({"answered": 400, "errors": [], "control_open": true});
    assert_eq!(result, expected);
    Ok(())
}

/// EN-1, EN-2, EN-2a, EN-2b.
#[test]
fn it_lists_tunnels_and_clients() -> Result<()> {
    let svc = Svc::engine()?;
    let result = script(&svc, "inventory.py", &[], &[])?;
    let lists = json!({
        "all": ["web", "db", "tls"],
        "limit": ["web", "db"],
        "by_name": ["db"],
        "by_id": ["web"],
        "by_client": ["tls"],
        "by_publish": ["db"],
        "by_protocol": ["tls"],
        "by_http_version": ["web"],
        "by_hostname": ["web"],
        "by_status": [],
        "by_label": ["web"],
        "by_label_key": ["web", "db"],
        "by_labels": ["web"],
        "by_nothing_there": [],
    });
    for (list, names) in lists.as_object().into_iter().flatten() {
        assert_eq!(&result[list], names, "{list}");
    }
    assert_eq!(result["statuses"], json!(["online"]));
    assert_eq!(result["clients"], 2);
    let client = json!({
        "agent": "rstream-python-runtime", "channel": "sdk", "version": "0.7.0", "status": "online",
    });
    assert_eq!(result["client"], client);
    assert_eq!(result["clients_by_agent"], 2);
    assert_eq!(result["clients_by_other_agent"], 0);
    assert_eq!(result["client_of_tunnel"], true);
    // The list formats the time with milliseconds, and names one field differently.
    let differs = result["differs"].as_array().cloned().unwrap_or_default();
    assert!(
        differs.iter().all(|field| field == "creation_date"),
        "{differs:?}"
    );
    assert_api_refusal(&result["bad_limit"], 400);
    assert_api_refusal(&result["bad_token"], 401);
    Ok(())
}

/// EN-3, EN-3a.
#[test]
fn it_watches_with_server_sent_events() -> Result<()> {
    watches("sse")
}

/// EN-4.
#[test]
fn it_watches_with_a_websocket() -> Result<()> {
    watches("websocket")
}

fn watches(transport: &str) -> Result<()> {
    let svc = Svc::engine()?;
    let result = script(&svc, "watch.py", &[transport], &[])?;
    let events = json!([
        "state.initial",
        "tunnel.created",
        "tunnel.deleted",
        "client.created",
        "client.deleted",
    ]);
    assert_eq!(result["events"], events);
    assert_eq!(result["initial_tunnels"], json!(["before"]));
    assert_eq!(result["initial_clients"], 1);
    assert_eq!(result["snapshot_at"], true);
    assert_eq!(result["created"], json!(["after", true]));
    assert_eq!(result["envelope"], true);
    assert_eq!(result["deleted"], true);
    assert_api_refusal(&result["refused"], 401);
    Ok(())
}

/// EN-7, EN-11.
#[test]
fn it_receives_refusals() -> Result<()> {
    let svc = Svc::engine()?;
    let reader = svc.token_with(&json!({"permissions": ["tunnels.resources.read-only"]}));
    let result = script(
        &svc,
        "refusals.py",
        &[],
        &[("SVC_TEST_READ_TOKEN", &reader)],
    )?;

    assert_eq!(result["no_token"]["code"], 1000, "{result}");
    assert_eq!(result["bad_token"]["code"], 1000, "{result}");
    for (option, refused) in result["unavailable"].as_object().into_iter().flatten() {
        assert_eq!(refused["code"], 5000, "{option}: {refused}");
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(
            message.contains("available") && message.contains(option),
            "{message}"
        );
    }
    for (option, refused) in result["invalid"].as_object().into_iter().flatten() {
        assert_eq!(refused["code"], 2000, "{option}: {refused}");
        let message = refused["message"].as_str().unwrap_or_default();
        assert!(message.contains(option), "{message}");
    }
    assert_eq!(result["name_twice"][0], Value::Null);
    assert_eq!(result["name_twice"][1]["code"], 2000, "{result}");
    assert_eq!(result["still_open"], true);

    assert_eq!(result["dial_unknown"]["code"], 3000, "{result}");
    assert_eq!(
        result["dial_unknown_zero_rtt"], "",
        "a refusal must not look like data"
    );
    assert_eq!(result["dial_bad_token"]["code"], 1000, "{result}");
    assert_eq!(result["dial_read_token"]["code"], 1000, "{result}");
    assert_eq!(result["list_read_token"], 1);
    assert_eq!(result["create_read_token"]["code"], 1000, "{result}");
    Ok(())
}

#[test]
fn a_second_channel_of_the_same_identity_takes_a_name_over() -> Result<()> {
    let svc = Svc::engine()?;
    let other = svc.token_with(&json!({"userId": "usr_other"}));
    let result = script(
        &svc,
        "takeover.py",
        &[],
        &[("SVC_TEST_OTHER_TOKEN", &other)],
    )?;
    assert!(result["stranger"]["code"].is_u64(), "{result}");
    assert_eq!(result["displaced"]["code"], "ERR_RSTREAM_TUNNEL_CLOSED");
    assert_eq!(result["same_id"], false);
    assert_eq!(result["answers"], true);
    Ok(())
}

#[test]
fn its_heartbeats_are_answered_and_it_may_send_none() -> Result<()> {
    let svc = Svc::engine()?;
    let result = script(&svc, "liveness.py", &[], &[])?;
    assert_eq!(result["timeout"], 10.0);
    assert_eq!(result["silent_timeout"], 0.0);
    assert_eq!(result["silent_serves"], "silent");
    assert_eq!(result["open"], json!([true, true]));
    Ok(())
}

/// Seconds between two attempts of an application. The SDK has no automatic reconnect.
const RETRY_SECONDS: &str = "1";

/// EN-9: it does not support the message with which agents move, so it is disconnected. Its first
/// attempt after its own retry time reaches the new process, and its open streams continue in the
/// old one.
#[test]
fn it_reconnects_after_a_reload_with_its_first_attempt() -> Result<()> {
    let grace = json!({"timeouts": {"startup_grace_seconds": 3600}});
    let mut svc = Svc::engine_with(&grace)?;
    let agent = long_script(&svc, "reconnect.py", &[RETRY_SECONDS])?;
    let first = agent.json("tunnel", |line| line["id"].is_string())?;
    let address = first["address"].as_str().context("no address")?;
    let curl = Curl::new(&svc);
    let mut slow = curl.start(&["--http1.1", &format!("{address}/slow")])?;
    assert_eq!(slow.read(5)?, b"begun");

    svc.reload()?;
    let meanwhile = curl.status(&[address])?;
    assert!(matches!(meanwhile, 200 | 503), "{meanwhile}");
    let again = agent.json("tunnel again", |line| line["id"].is_string())?;
    assert_ne!(again["id"], first["id"]);
    assert_eq!(again["address"], first["address"]);
    assert_eq!(again["failures"], 0, "{again}");
    let answer = curl.get(&[&format!("{address}/continue")])?;
    assert_eq!((answer.status, answer.text().as_str()), (200, "begun done"));
    assert_eq!(slow.rest()?, b" done");
    Ok(())
}

/// EN-9: the listener is held by the test, as systemd holds it in its descriptor store.
#[test]
fn it_reconnects_after_a_restart_with_its_first_attempt() -> Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut svc = Svc::engine_on(listener, &json!({}))?;
    let agent = long_script(&svc, "reconnect.py", &[RETRY_SECONDS])?;
    let first = agent.json("tunnel", |line| line["id"].is_string())?;
    let address = first["address"].as_str().context("no address")?;

    svc.process().terminate()?;
    assert_eq!(svc.process().wait_for_exit()?, Some(0), "{}", svc.log());
    svc.start_again()?;
    let again = agent.json("tunnel again", |line| line["id"].is_string())?;
    assert_eq!(again["address"], first["address"]);
    assert_eq!(again["failures"], 0, "{again}");
    assert_eq!(Curl::new(&svc).status(&[address])?, 200);
    Ok(())
}

fn assert_api_refusal(refused: &Value, status: u16) {
    assert_eq!(refused["code"], "ERR_RSTREAM_ENGINE_API_HTTP", "{refused}");
    let message = refused["message"].as_str().unwrap_or_default();
    assert!(message.contains(&format!("error {status}: ")), "{message}");
}
