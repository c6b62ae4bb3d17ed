//! h2spec, a conformance tool for HTTP/2 servers (RFC 9113 and RFC 7541), in its strict mode.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::process::Command;
use std::sync::atomic::Ordering;

use anyhow::{Context as _, Result, ensure};
use e2e::{Agent, Curl, Service, Svc};

/// Cases that may fail at the engine's own host, by the first words of their names. They send an
/// invalid frame after the head of a request, and the engine answers without waiting for a body
/// (RFC 9113 section 8.1 allows it). If the answer is faster, there is no stream left to refuse. At
/// a tunnel the service waits, and none of them may fail.
const EARLY: &[&str] = &[
    "http2/5.1\" classname=\"closed: Sends a DATA frame after sending RST_STREAM frame",
    "http2/5.1\" classname=\"closed: Sends a HEADERS frame after sending RST_STREAM frame",
    "http2/6.9.1\" classname=\"Sends multiple WINDOW_UPDATE frames increasing the flow control \
     window to above 2^31-1 on a stream",
    "http2/8.1\" classname=\"Sends a second HEADERS frame without the END_STREAM flag",
    "http2/8.1.2.1\" classname=\"Sends a HEADERS frame that contains a pseudo-header field as \
     trailers",
    "http2/8.1.2.6\" classname=\"Sends a HEADERS frame with the &#34;content-length&#34; header field",
];

#[test]
fn a_tunnel_passes_h2spec() -> Result<()> {
    let svc = Svc::engine()?;
    let (service, requests) = Service::counting_mirror()?;
    let agent = Agent::forward(&svc, &service.to_string(), &["--http"])?;
    let ran = run(&svc, agent.hostname()?, "/", &[])?;
    // The tunnel has answered.
    let requests = requests.load(Ordering::SeqCst);
    assert!(!ran || requests > 50, "the service saw {requests} requests");
    // A well-behaved visitor is still served.
    assert_eq!(Curl::new(&svc).status(&[&agent.url("/")])?, 200);
    Ok(())
}

#[test]
fn the_engines_own_host_passes_h2spec() -> Result<()> {
    let svc = Svc::engine()?;
    run(&svc, "engine.localhost", "/api/openapi.json", EARLY)?;
    Ok(())
}

/// Runs it if it is installed, and returns true if it ran. Only the listed cases may fail.
fn run(svc: &Svc, host: &str, path: &str, may_fail: &[&str]) -> Result<bool> {
    let Some(h2spec) = env::var_os("SVC_TEST_H2SPEC") else {
        tell("h2spec: not run, there is no Go here that builds it")?;
        return Ok(false);
    };
    let (_, port) = svc.address().rsplit_once(':').context("no port")?;
    let (mut failed, line) = verdict(&h2spec, [host, port, path])?;
    tell(&format!("h2spec at {host}: {line}"))?;
    failed.retain(|case| !may_fail.iter().any(|may| case.contains(may)));
    assert!(failed.is_empty(), "{failed:?} {}", svc.log());
    Ok(true)
}

/// The failed cases, and the line with the number of all cases.
fn verdict(h2spec: &OsStr, at: [&str; 3]) -> Result<(Vec<String>, String)> {
    let directory = tempfile::tempdir()?;
    let report = directory.path().join("report.xml");
    let output = Command::new(h2spec).args(at).arg(&report).output()?;
    let output_text = String::from_utf8_lossy(&output.stdout);
    let line = output_text.lines().find(|line| line.contains(" tests, "));
    let line = line.with_context(|| format!("no verdict: {output_text}"))?;
    ensure!(line.starts_with("146 tests, "), "not all of it ran: {line}");
    let report = fs::read_to_string(&report)?;
    let cases = report.split("<testcase ").skip(1);
    let failed = cases
        .filter(|case| case.contains("<failure") || case.contains("<error"))
        .map(|case| case.split(" time=").next().unwrap_or(case).to_owned());
    Ok((failed.collect(), line.to_owned()))
}

/// Prints a line that a test's captured output would hide, to show that this judge ran.
fn tell(line: &str) -> Result<()> {
    Ok(writeln!(io::stderr(), "{line}")?)
}
