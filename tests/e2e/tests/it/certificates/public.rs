//! `svc up --public`, with certificates from Pebble and the own name server.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use e2e::{Authority, Curl, Process, eventually, program};
use serde_json::Value;
use tempfile::TempDir;

use super::dns_program;

pub(super) const HOST: &str = "engine.localhost";
const EMAIL: &str = "ada@example.com";

/// `svc` with these arguments, which make a public server of it, on a server whose ports the
/// authority knows. `resolver` is the name server that it asks about its records.
pub(super) fn server(
    arguments: &[&str],
    authority: &Authority,
    resolver: &str,
    directory: &TempDir,
) -> Result<Command> {
    let tcp_ports = ports::lease_range(10);
    let mut command = Command::new(program()?);
    command
        .args(arguments)
        .args(["--acme-directory", authority.url(), "--acme-ca"])
        .arg(authority.all_roots()?)
        .args(["--public-address", "127.0.0.1"])
        .args(["--listen-address", "127.0.0.1"])
        .args(["--resolver", resolver])
        .args(["--port", port(authority.tls())?])
        .args(["--http-port", port(authority.http())?])
        .args(["--metrics-port", "0", "--platform-port", "0"])
        .args(["--turn-port", "0"])
        .args(["--turn-tls-port", &ports::lease().to_string()])
        .arg("--tcp-ports")
        .arg(format!("{}-{}", tcp_ports.start(), tcp_ports.end()))
        .env_clear()
        .env("HOME", directory.path())
        .stdin(Stdio::null());
    Ok(command)
}

/// The same with a demo, and a data directory in `directory`.
pub(super) fn demo_server(
    authority: &Authority,
    resolver: &str,
    directory: &TempDir,
) -> Result<Command> {
    let arguments = ["up", "--public", HOST, "--email", EMAIL, "--agree-terms"];
    let mut command = server(&arguments, authority, resolver, directory)?;
    command
        .args(["--output", "json", "--demo", "--data-dir"])
        .arg(directory.path().join("data"))
        .arg("--config")
        .arg(directory.path().join("config"));
    Ok(command)
}

/// The same with the name server of the authority, and the own one on this port.
fn command(authority: &Authority, dns_port: u16, directory: &TempDir) -> Result<Command> {
    let mut command = demo_server(authority, authority.resolver(), directory)?;
    command.args(["--dns-port", &dns_port.to_string()]);
    Ok(command)
}

pub(super) fn port(address: &str) -> Result<&str> {
    let (_, port) = address.rsplit_once(':').context("no port")?;
    Ok(port)
}

/// Starts a server whose output is JSON.
pub(super) fn start_server(command: &mut Command, directory: &TempDir) -> Result<Process> {
    Process::start(command, &directory.path().join("up.log"))
}

fn start(authority: &Authority, dns_port: u16, directory: &TempDir) -> Result<Process> {
    let mut command = command(authority, dns_port, directory)?;
    start_server(command.arg("--wait"), directory)
}

/// Calls the management of the authority.
pub(super) fn manage(authority: &Authority, method: &str, path: &str) -> Result<()> {
    let address = format!("{}/{path}", authority.management());
    let answer = Curl::plain().get(&["-X", method, &address])?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(())
}

/// The first output, once the server is ready.
pub(super) fn ready(process: &Process) -> Result<Value> {
    process.json("platform_url", |line| line["platform_url"].is_string())
}

/// The text of a field.
pub(super) fn field<'a>(ready: &'a Value, name: &str) -> Result<&'a str> {
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
    let delegation = format!("delegation/127.0.0.1:{dns_port}");
    manage(&authority, "PUT", &delegation)?;
    let ready = ready(&process)?;
    let curl = Curl::trusting(authority.root());
    serves_everything(&curl, &authority, &ready)?;
    let platform = field(&ready, "platform_url")?;

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

    // A second process with this directory ends, and the first one continues.
    let (code, text) = output(&mut command(&authority, dns_port, &directory)?)?;
    assert_eq!(code, Some(4), "{text}");
    for part in ["another `svc up` uses", "--data-dir"] {
        assert!(text.contains(part), "{text}");
    }
    signed_in_from_another_address(&curl, &ready, platform)?;

    process.terminate()?;
    assert_eq!(process.wait_for_exit()?, Some(0), "{}", process.log());
    // A second start orders nothing: the certificates are on disk. So it does not wait for records.
    manage(&authority, "DELETE", "delegation")?;
    let again = start(&authority, dns_port, &directory)?;
    assert_eq!(self::ready(&again)?["certificates"], ready["certificates"]);
    let text = again.log();
    assert!(text.contains("Certificates cannot be renewed"), "{text}");
    Ok(())
}

/// Days until a time, as `date` reads it.
fn days_until(time: &str) -> Result<u64> {
    let output = Command::new("date")
        .args(["--date", time, "+%s"])
        .output()?;
    let end: u64 = String::from_utf8(output.stdout)?.trim().parse()?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(end.saturating_sub(now.as_secs()) / (24 * 3600))
}

/// The visitor trusts only the root of the authority, and gets responses of the engine, of a tunnel
/// and of the platform.
pub(super) fn serves_everything(curl: &Curl, authority: &Authority, ready: &Value) -> Result<()> {
    let engine = format!("{}/api/openapi.json", field(ready, "engine_url")?);
    assert_eq!(curl.get(&[&engine])?.status, 200);
    // The host itself is not a project, but has a certificate.
    curl.get(&[&format!("https://{HOST}:{}/", port(authority.tls())?)])?;
    let demo = curl.get(&[&format!("{}/", field(ready, "demo_url")?)])?;
    assert!(demo.text().contains("It works"), "{demo:?}");
    let login = format!("{}/login", field(ready, "platform_url")?);
    let page = curl.get(&[&login])?;
    assert!(
        page.status == 200 && page.text().contains("<form"),
        "{page:?}"
    );
    Ok(())
}

/// The records of challenges come from a program, or from a zone of the own name server. All
/// certificates have the profile of the option.
#[test]
fn records_of_challenges_can_be_elsewhere() -> Result<()> {
    for is_program in [true, false] {
        let authority = Authority::start(&[("PEBBLE_SHORTLIVED", "1")])?;
        let directory = tempfile::tempdir()?;
        let dns_port = ports::lease();
        let mut command = command(&authority, dns_port, &directory)?;
        command.args(["--acme-profile", "shortlived"]);
        if is_program {
            let program = dns_program(&authority, "")?;
            command.args(["--dns-propagation", "0", "--dns-program"]);
            command.arg(program);
        } else {
            let zone = "acme.example.net";
            let delegation = format!("delegation/127.0.0.1:{dns_port}/{zone}/{HOST}");
            manage(&authority, "PUT", &delegation)?;
            command.args(["--dns-zone", zone]);
        }
        let process = start_server(&mut command, &directory)?;
        let ready = ready(&process)?;
        let curl = Curl::trusting(authority.root());
        serves_everything(&curl, &authority, &ready)
            .with_context(|| format!("with a program: {is_program}"))?;
        let config = fs::read_to_string(directory.path().join("data/engine.yaml"))?;
        assert_eq!(config.contains("\"dns_program\""), is_program, "{config}");
        let certificates = ready["certificates"].as_array();
        let certificates = certificates.context("no certificates")?;
        assert_eq!(certificates.len(), 3, "{ready}");
        for certificate in certificates {
            let days = days_until(field(certificate, "expires_at")?)?;
            assert!((5..=6).contains(&days), "{certificate}");
        }
    }
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

/// The code and the error output of a command that ends.
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
    assert_eq!(
        missing_records(&mut command)?,
        [
            "_acme-challenge.engine.localhost. NS engine.localhost.",
            "_acme-challenge.t.engine.localhost. NS engine.localhost.",
        ]
    );
    Ok(())
}

/// The records that a command prints as missing before it ends, with single spaces.
pub(super) fn missing_records(command: &mut Command) -> Result<Vec<String>> {
    let (code, text) = output(command)?;
    assert_eq!(code, Some(2), "{text}");
    // The failure is JSON.
    let failure: Value = serde_json::from_str(text.lines().last().unwrap_or_default())?;
    assert_eq!(failure["error"]["code"], "server_not_prepared");
    let message = failure["error"]["message"].as_str().unwrap_or_default();
    let lines = message.lines().skip(1).map(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        let line = words.join(" ");
        let record = line.strip_prefix("add ").map(str::to_owned);
        record.with_context(|| format!("not a missing record: {line}"))
    });
    lines.collect()
}
