//! nghttp2's programs: `nghttp` and `h2load` as visitors over HTTP/2, `nghttpd` as a service.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::{Agent, Nginx, Process, Svc, eventually, provided};
use tempfile::TempDir;

/// Larger than the windows of every hop at the start.
const UPLOAD: usize = 3 << 20;

#[test]
fn an_http1_service_is_visited_with_many_streams() -> Result<()> {
    let (svc, nginx) = (Svc::engine()?, Nginx::start()?);
    let agent = Agent::forward(&svc, &nginx.http1(), &["--http"])?;
    // Fifty parallel requests on one connection.
    let output = nghttp(&svc, &agent, "/seen", &["-nv", "-m", "50"])?;
    assert_eq!(output.matches(":status: 200").count(), 50, "{output}");

    let files = tempfile::tempdir()?;
    let upload = file(&files)?;
    let put = ["-nv", "-d", &upload, "-H", ":method: PUT"];
    let output = nghttp(&svc, &agent, "/stored", &put)?;
    assert!(output.contains(":status: 201"), "{output}");
    assert!(fs::read(nginx.root().join("stored"))? == fs::read(&upload)?);

    load(&svc, &agent, "/seen")
}

#[test]
fn nghttpd_is_served_over_http2_completely() -> Result<()> {
    let svc = Svc::engine()?;
    let files = tempfile::tempdir()?;
    fs::write(files.path().join("index.html"), "hello")?;
    let (_nghttpd, service) = nghttpd(&files)?;
    let agent = Agent::forward(&svc, &service, &["--http", "--http-version", "h2c"])?;

    // The upload is echoed, with trailers in both directions.
    let upload = file(&files)?;
    let echoed = ["-d", &upload, "--trailer", "x-sent: whole"];
    let output = nghttp(&svc, &agent, "/echo", &echoed)?;
    assert!(
        output.as_bytes() == fs::read(&upload)?,
        "{} bytes came back",
        output.len()
    );
    let output = nghttp(&svc, &agent, "/", &["-nv", "-m", "20"])?;
    assert_eq!(output.matches(":status: 200").count(), 20, "{output}");
    assert_eq!(output.matches("x-served: whole").count(), 20, "{output}");

    load(&svc, &agent, "/")
}

/// A hundred parallel streams on each of three connections. Every answer is correct.
fn load(svc: &Svc, agent: &Agent, path: &str) -> Result<()> {
    let to = format!("--connect-to={}", here(svc)?);
    let output = Command::new(provided("SVC_TEST_H2LOAD")?)
        .args(["-n", "3000", "-c", "3", "-m", "100", &to, &agent.url(path)])
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout);
    let all = "3000 total, 3000 started, 3000 done, 3000 succeeded, 0 failed, 0 errored, 0 timeout";
    assert!(said.contains(all), "{said}");
    assert!(said.contains("status codes: 3000 2xx,"), "{said}");
    Ok(())
}

/// Output of `nghttp` for `path`. The name is in `:authority`, which it also uses for the
/// handshake.
fn nghttp(svc: &Svc, agent: &Agent, path: &str, args: &[&str]) -> Result<String> {
    let authority = agent.url("").replace("https://", ":authority: ");
    let output = Command::new(provided("SVC_TEST_NGHTTP")?)
        .args(args)
        .args(["--no-verify-peer", "-H", &authority])
        .arg(format!("https://{}{path}", here(svc)?))
        .output()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{}\n{said}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(said)
}

/// The engine's address by IP.
fn here(svc: &Svc) -> Result<String> {
    let (_, port) = svc.address().rsplit_once(':').context("no port")?;
    Ok(format!("127.0.0.1:{port}"))
}

/// A text file to send.
fn file(files: &TempDir) -> Result<String> {
    let path = files.path().join("upload");
    let text: String = ('a'..='z').cycle().take(UPLOAD).collect();
    fs::write(&path, text)?;
    Ok(path.display().to_string())
}

/// A service that echoes with a trailer, over HTTP/2 without TLS.
fn nghttpd(files: &TempDir) -> Result<(Process, String)> {
    let port = ports::lease();
    let mut command = Command::new(provided("SVC_TEST_NGHTTPD")?);
    command
        .args(["--no-tls", "--echo-upload", "--trailer", "x-served: whole"])
        .args(["--address", "127.0.0.1", "--htdocs"])
        .arg(files.path())
        .arg(port.to_string());
    let process = Process::start(&mut command, Path::new("/dev/null"))?;
    let address = format!("127.0.0.1:{port}");
    eventually("nghttpd listens", || {
        Ok(std::net::TcpStream::connect(&address).is_ok())
    })?;
    Ok((process, address))
}
