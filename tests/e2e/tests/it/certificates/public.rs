//! `svc up --public`, with certificates from Pebble and the own name server.

use std::fs;
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use e2e::{Authority, Curl, Process, eventually, program};
use serde_json::Value;
use tempfile::TempDir;

const HOST: &str = "engine.localhost";
const EMAIL: &str = "ada@example.com";

/// The command for a server whose ports the authority knows.
fn command(authority: &Authority, dns_port: u16, directory: &TempDir) -> Result<Command> {
    let tcp_ports = ports::lease_range(10);
    let mut command = Command::new(program()?);
    command
        .args(["up", "--public", HOST, "--email", EMAIL, "--agree-terms"])
        .args(["--acme-directory", authority.url(), "--acme-ca"])
        .arg(authority.all_roots()?)
        .args(["--public-address", "127.0.0.1"])
        .args(["--listen-address", "127.0.0.1"])
        .args(["--resolver", authority.resolver()])
        .args(["--port", port(authority.tls())?])
        .args(["--http-port", port(authority.http())?])
        .args(["--dns-port", &dns_port.to_string()])
        .args(["--metrics-port", "0", "--platform-port", "0"])
        .args(["--turn-port", "0"])
        .args(["--turn-tls-port", &ports::lease().to_string()])
        .arg("--tcp-ports")
        .arg(format!("{}-{}", tcp_ports.start(), tcp_ports.end()))
        .args(["--output", "json", "--demo", "--data-dir"])
        .arg(directory.path().join("data"))
        .arg("--config")
        .arg(directory.path().join("config"))
        .env_clear()
        .env("HOME", directory.path())
        .stdin(Stdio::null());
    Ok(command)
}

fn port(address: &str) -> Result<&str> {
    let (_, port) = address.rsplit_once(':').context("no port")?;
    Ok(port)
}

fn start(authority: &Authority, dns_port: u16, directory: &TempDir) -> Result<Process> {
    let mut command = command(authority, dns_port, directory)?;
    Process::start(command.arg("--wait"), &directory.path().join("up.log"))
}

/// The first output, once the server is ready.
fn ready(process: &Process) -> Result<Value> {
    process.json("platform_url", |line| line["platform_url"].is_string())
}

/// The text of a field.
fn field<'a>(ready: &'a Value, name: &str) -> Result<&'a str> {
    ready[name]
        .as_str()
        .with_context(|| format!("no {name} in {ready}"))
}

#[test]
fn one_command_serves_engine_platform_and_tunnels_over_https() -> Result<()> {
    let dns_port = ports::lease();
    let authority = Authority::start(&[])?;
    let directory = tempfile::tempdir()?;
    let mut process = start(&authority, dns_port, &directory)?;
    let log = directory.path().join("up.log");
    eventually("the missing records", || {
        Ok(fs::read_to_string(&log)?.contains("Waiting for these DNS records"))
    })?;
    let delegation = format!("{}/delegation/127.0.0.1:{dns_port}", authority.management());
    let entered = Curl::plain().get(&["-X", "PUT", &delegation])?;
    ensure!(entered.status == 200, "{entered:?}");
    let ready = ready(&process)?;
    let curl = Curl::trusting(authority.root());

    let engine = format!("{}/api/openapi.json", field(&ready, "engine_url")?);
    assert_eq!(curl.get(&[&engine])?.status, 200);
    // The host itself is no project, but has a certificate.
    curl.get(&[&format!("https://{HOST}:{}/", port(authority.tls())?)])?;
    let demo = curl.get(&[&format!("{}/", field(&ready, "demo_url")?)])?;
    assert!(demo.text().contains("It works"), "{demo:?}");
    let platform = field(&ready, "platform_url")?;
    let login = format!("{platform}/login");
    let page = curl.get(&[&login])?;
    assert!(
        page.status == 200 && page.text().contains("<form"),
        "{page:?}"
    );

    let names: Vec<&Value> = ready["certificates"]
        .as_array()
        .context("no certificates")?
        .iter()
        .filter_map(|certificate| certificate["names"].as_array())
        .flatten()
        .collect();
    for name in [HOST, "*.t.engine.localhost", "*.engine.localhost"] {
        assert!(names.iter().any(|found| *found == name), "{name}: {ready}");
    }
    for name in ["platform.engine.localhost", "turn.engine.localhost"] {
        assert!(names.iter().any(|found| *found == name), "{name}: {ready}");
    }

    signed_in_from_another_address(&curl, &ready, platform)?;

    process.terminate()?;
    assert_eq!(process.wait_for_exit()?, Some(0), "{}", process.log());
    // A second start orders nothing: the certificates are on disk. So it does not wait for records.
    let delegation = format!("{}/delegation", authority.management());
    let removed = Curl::plain().get(&["-X", "DELETE", &delegation])?;
    ensure!(removed.status == 200, "{removed:?}");
    let again = start(&authority, dns_port, &directory)?;
    assert_eq!(self::ready(&again)?["certificates"], ready["certificates"]);
    let text = again.log();
    assert!(text.contains("Certificates cannot be renewed"), "{text}");
    Ok(())
}

/// The platform behind the engine's port sees the visitor, and not the engine.
fn signed_in_from_another_address(curl: &Curl, ready: &Value, platform: &str) -> Result<()> {
    let login = format!("{platform}/login");
    let origin = format!("Origin: {platform}");
    let password = format!("password={}", field(ready, "admin_password")?);
    let email = format!("email={EMAIL}");
    let answer = curl.get(&[
        "--ipv4",
        "--interface",
        "127.0.0.2",
        "-H",
        &origin,
        "--data-urlencode",
        &email,
        "--data-urlencode",
        &password,
        &login,
    ])?;
    ensure!(answer.status == 303, "not signed in: {answer:?}");
    let cookie = answer.header("set-cookie").context("no cookie")?;
    assert!(cookie.contains("Secure"), "{cookie}");
    let bearer = format!("Authorization: Bearer {}", field(ready, "token")?);
    let audit = format!("{platform}/api/user/audit");
    eventually("the sign-in in the audit log", || {
        let log = curl.get(&["-H", &bearer, &audit])?.json();
        let entries = log["entries"].as_array().cloned().unwrap_or_default();
        let mut signed_in = entries
            .iter()
            .filter(|entry| entry["action"] == "user.signed_in");
        Ok(signed_in.any(|entry| entry["ip"] == "127.0.0.2"))
    })
}

/// The output of a command that ends.
fn output(command: &mut Command) -> Result<(Option<i32>, String)> {
    let Output { status, stderr, .. } = command.output()?;
    Ok((status.code(), String::from_utf8(stderr)?))
}

#[test]
fn missing_records_are_printed_as_they_have_to_be_entered() -> Result<()> {
    // Its name server delegates no challenges.
    let authority = Authority::start(&[])?;
    let directory = tempfile::tempdir()?;
    let mut command = command(&authority, ports::lease(), &directory)?;
    let (code, text) = output(&mut command)?;
    assert_eq!(code, Some(2), "{text}");
    // The failure is JSON.
    let failure: Value = serde_json::from_str(text.lines().last().unwrap_or_default())?;
    assert_eq!(failure["error"]["code"], "server_not_prepared");
    let message = failure["error"]["message"].as_str().unwrap_or_default();
    let lines: Vec<String> = message
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    assert_eq!(
        lines,
        [
            "add _acme-challenge.engine.localhost. NS engine.localhost.",
            "add _acme-challenge.t.engine.localhost. NS engine.localhost.",
        ]
    );
    Ok(())
}
