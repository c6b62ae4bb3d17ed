//! `svc up --public` from an empty directory, with BIND as the name server, and a custom domain.

use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use e2e::{Authority, Curl, NameServer, Process, Service, eventually, program};
use serde_json::Value;
use tempfile::TempDir;

use super::public::{HOST, demo_server, port, ready, serves_everything, start_server};

/// The zone of the custom domain, of another party than that of the server.
const ZONE: &str = "example.net";
pub(super) const DOMAIN: &str = "app.example.net";

/// `svc` in the context that the server has written for this machine.
fn svc(directory: &TempDir, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(program()?);
    command
        .args(arguments)
        .args(["--output", "json"])
        .env_clear()
        .env("HOME", directory.path())
        .env("SVC_CONFIG", directory.path().join("config"))
        .stdin(Stdio::null());
    Ok(command)
}

/// The output of a command that succeeds.
fn run(command: &mut Command) -> Result<Value> {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output()?;
    let text = String::from_utf8_lossy(&stdout);
    ensure!(
        status.success(),
        "{text}{}",
        String::from_utf8_lossy(&stderr)
    );
    serde_json::from_str(&text).with_context(|| format!("no JSON: {text}"))
}

/// A record of `svc domain add` as its owner enters it.
pub(super) fn entered(record: &Value) -> Result<String> {
    let part = |name: &str| record[name].as_str().context("no text");
    let (name, kind, value) = (part("name")?, part("type")?, part("value")?);
    Ok(match kind {
        "TXT" => format!("{name}. TXT \"{value}\""),
        kind => format!("{name}. {kind} {value}."),
    })
}

/// A tunnel under a domain that is not verified yet is refused, with the command that shows the
/// records to enter.
fn pending_is_refused(directory: &TempDir, service: &str) -> Result<()> {
    let mut forward = svc(directory, &["forward", service, "--hostname", DOMAIN])?;
    let Output {
        status,
        stdout,
        stderr,
    } = forward.output()?;
    let text = [stdout, stderr].concat();
    let text = String::from_utf8_lossy(&text);
    ensure!(!status.success(), "{text}");
    for next_step in ["pending", &format!("svc domain show {DOMAIN}")] {
        ensure!(text.contains(next_step), "{text}");
    }
    Ok(())
}

#[test]
fn a_bare_server_ends_with_https_for_engine_tunnel_platform_and_custom_domain() -> Result<()> {
    let records = "@ IN A 127.0.0.1\n* IN A 127.0.0.1\n*.t IN A 127.0.0.1\n";
    let dns = NameServer::of_network(&[(HOST, records), (ZONE, "")])?;
    let address = dns.address();
    let authority = Authority::start(&[("PEBBLE_DNS_SERVER", address.as_str())])?;
    let key = NameServer::key(NameServer::KEY, NameServer::SECRET);
    let directory = tempfile::tempdir()?;
    let mut command = demo_server(&authority, &address, &directory)?;
    command
        .args(["--dns-update", &address, "--dns-propagation", "0"])
        .arg("--dns-key")
        .arg(dns.file("key", &key)?)
        .args(["--dns-root", &address]);
    let server = start_server(&mut command, &directory)?;
    let ready = ready(&server)?;
    let curl = Curl::trusting(authority.root());
    serves_everything(&curl, &authority, &ready)?;

    let add = ["domain", "add", DOMAIN];
    let added = run(&mut svc(&directory, &[&add[..], &["--no-wait"]].concat())?)?;
    assert_eq!(added["status"], "pending", "{added}");
    let shown = added["records"].as_array().context("no records")?;
    let shown: Vec<String> = shown.iter().map(entered).collect::<Result<_>>()?;
    ensure!(shown.len() == 2, "{added}");
    let service = Service::answering(|| "below a name of its own".to_owned())?.to_string();
    pending_is_refused(&directory, &service)?;
    dns.enter(ZONE, &shown)?;
    // It waits until the platform has found them.
    let verified = run(&mut svc(&directory, &add)?)?;
    assert_eq!(verified["status"], "verified", "{verified}");

    let state = format!("data/acme/engine/domains/{DOMAIN}/certificate.json");
    let state = directory.path().join(state);
    eventually("the certificate of the domain", || Ok(state.exists()))?;
    let mut forward = svc(&directory, &["forward", &service, "--hostname", DOMAIN])?;
    let agent = Process::start(&mut forward, &directory.path().join("agent.log"))?;
    let online = agent.json("the tunnel", |line| line["status"] == "online")?;
    let url = format!("https://{DOMAIN}:{}", port(authority.tls())?);
    assert_eq!(online["forwarding"], url.as_str(), "{online}");
    eventually("the certificate of a handshake", || {
        Ok(curl.get(&[&url]).is_ok())
    })?;
    let answer = curl.get(&[&url])?;
    assert_eq!(
        (answer.status, answer.text().as_str()),
        (200, "below a name of its own")
    );
    drop(agent);
    a_refusal_is_explained(&directory, &curl, (&service, &url))
}

/// A guarded tunnel under the domain refuses a visitor without a token, and `svc explain` names the
/// rule, as for any other name.
fn a_refusal_is_explained(
    directory: &TempDir,
    curl: &Curl,
    (service, url): (&str, &str),
) -> Result<()> {
    let guarded = ["forward", service, "--hostname", DOMAIN, "--token-auth"];
    let mut forward = svc(directory, &guarded)?;
    let agent = Process::start(&mut forward, &directory.path().join("guarded.log"))?;
    agent.json("the guarded tunnel", |line| line["status"] == "online")?;
    let refused = curl.get(&[url])?;
    assert_eq!(refused.status, 401, "{refused:?}");
    let problem = refused.json();
    let reference = problem["reference"].as_str().context("no reference")?;
    let explanation = run(&mut svc(directory, &["explain", reference])?)?;
    let record = &explanation["record"];
    assert_eq!(record["rule"], "token", "{explanation}");
    let host = record["request"]["host"].as_str();
    assert!(
        host.is_some_and(|host| host.starts_with(DOMAIN)),
        "{explanation}"
    );
    Ok(())
}
