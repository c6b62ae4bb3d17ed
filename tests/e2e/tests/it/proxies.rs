//! Agents and commands that reach their engine only through a proxy.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use e2e::{Agent, Process, ProxyServer, Service, Svc, program};
use serde_json::Value;

/// Everything that an agent and a command do, through tinyproxy.
#[test]
fn agents_and_commands_use_an_http_proxy_with_a_login() -> Result<()> {
    let svc = Svc::engine_named(ProxyServer::NAME)?;
    let proxy = ProxyServer::http(port(&svc)?)?;
    everything_works_through(&svc, &proxy)
}

/// The same through microsocks, which resolves the name.
#[test]
fn agents_and_commands_use_a_socks_proxy_with_a_login() -> Result<()> {
    let svc = Svc::engine_named(ProxyServer::NAME)?;
    let proxy = ProxyServer::socks()?;
    everything_works_through(&svc, &proxy)
}

#[test]
fn a_proxy_that_refuses_is_named_with_the_reason() -> Result<()> {
    let svc = Svc::engine_named(ProxyServer::NAME)?;
    let proxy = ProxyServer::http(port(&svc)?)?;
    for (login, code) in [("", "proxy_login"), ("ada:wrong@", "proxy_login")] {
        let output = command(&svc, &["tunnels", "-o", "json"], &proxy.url_with(login))?;
        let error: Value = serde_json::from_slice(&output.stderr)?;
        assert_eq!(error["error"]["code"], code, "{login}: {error}");
        assert!(!error.to_string().contains("wrong"), "{error}");
    }
    // Another port than the one that the proxy allows.
    let other = format!("{}:{}", ProxyServer::NAME, ports::lease());
    let arguments = ["tunnels", "-o", "json", "--engine", &other];
    let error: Value = serde_json::from_slice(&command(&svc, &arguments, &proxy.url())?.stderr)?;
    assert_eq!(error["error"]["code"], "proxy_refused", "{error}");

    let output = command(
        &svc,
        &["doctor", "-o", "json"],
        &proxy.url_with("ada:wrong@"),
    )?;
    let found: Value = serde_json::from_slice(&output.stdout)?;
    let check = check(&found, "proxy")?;
    assert_eq!(check["status"], "fail", "{found}");
    let message = check["message"].as_str().unwrap_or_default();
    assert!(
        message.contains("HTTPS_PROXY") && message.contains("does not accept"),
        "{found}"
    );
    assert_eq!(found["summary"]["fail"], 1, "{found}");
    Ok(())
}

/// The tunnel is restored through the proxy after the proxy was away.
#[test]
fn an_agent_reconnects_when_its_proxy_is_back() -> Result<()> {
    let svc = Svc::engine_named(ProxyServer::NAME)?;
    let mut proxy = ProxyServer::socks()?;
    let mut agent = agent(
        &svc,
        &proxy,
        "127.0.0.1:9",
        &["--bytestream", "--name", "db"],
    )?;
    proxy.process().kill();
    agent.disconnected()?;
    proxy.start_socks_again()?;
    agent.online_again()?;
    Ok(())
}

fn everything_works_through(svc: &Svc, proxy: &ProxyServer) -> Result<()> {
    let service = Service::start()?;
    let mut agent = agent(
        svc,
        proxy,
        &service.address(),
        &["--bytestream", "--name", "db"],
    )?;

    let output = command(svc, &["tunnels", "-o", "json"], &proxy.url())?;
    let listed: Value = serde_json::from_slice(&output.stdout).context("no list")?;
    assert_eq!(listed[0]["name"], "db", "{listed}");

    let dial = dial(svc, proxy)?;
    let address = dial.json("dial", |line| line["status"] == "ready")?;
    let mut visitor = TcpStream::connect(address["listening"].as_str().unwrap_or_default())?;
    visitor.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")?;
    let mut call = service.next()?;
    call.write("served")?;
    let mut answer = [0; 6];
    visitor.read_exact(&mut answer)?;
    assert_eq!(&answer, b"served");
    // The agent stops immediately if no stream is open.
    drop((visitor, call));

    let output = command(svc, &["doctor", "-o", "json", "--no-tunnel"], &proxy.url())?;
    let found: Value = serde_json::from_slice(&output.stdout)?;
    assert_eq!(found["summary"]["fail"], 0, "{found}");
    for (name, status) in [
        ("proxy", "pass"),
        ("dns", "skip"),
        ("tls", "pass"),
        ("alpn", "pass"),
    ] {
        assert_eq!(check(&found, name)?["status"], status, "{name}: {found}");
    }
    let message = check(&found, "proxy")?["message"].to_string();
    assert!(
        message.contains("HTTPS_PROXY") && !message.contains("s3cret"),
        "{message}"
    );

    // Without the proxy, the name has no address.
    let direct = ["tunnels", "-o", "json", "--proxy", "none"];
    let error: Value = serde_json::from_slice(&command(svc, &direct, &proxy.url())?.stderr)?;
    assert_eq!(error["error"]["code"], "engine_not_resolved", "{error}");
    agent.process().terminate()?;
    ensure!(
        agent.process().wait_for_exit()? == Some(0),
        "{}",
        agent.log()
    );
    Ok(())
}

/// An agent behind the proxy. It retries until the proxy listens.
fn agent(svc: &Svc, proxy: &ProxyServer, target: &str, flags: &[&str]) -> Result<Agent> {
    let url = proxy.url();
    let flags = [&["--proxy", &url, "--heartbeat", "1s"], flags].concat();
    Agent::forward_to(svc, &engine(svc)?, target, &flags)
}

fn dial(svc: &Svc, proxy: &ProxyServer) -> Result<Process> {
    let mut command = prepared(svc, &["dial", "db", "--listen", "0", "-o", "json"])?;
    command.env("ALL_PROXY", proxy.url());
    Process::start(&mut command, &svc.directory().join("dial.log"))
}

/// Runs a command whose proxy is from the environment.
fn command(svc: &Svc, arguments: &[&str], proxy: &str) -> Result<Output> {
    let mut command = prepared(svc, arguments)?;
    Ok(command.env("HTTPS_PROXY", proxy).output()?)
}

fn prepared(svc: &Svc, arguments: &[&str]) -> Result<Command> {
    let mut command = Command::new(program()?);
    command
        .args(arguments)
        .env_clear()
        .env("HOME", svc.directory())
        .env("SVC_ENGINE", engine(svc)?)
        .env("SVC_CA_FILE", svc.ca_file())
        .env("SVC_TOKEN", svc.token());
    Ok(command)
}

/// The engine under the name that only the proxy resolves.
fn engine(svc: &Svc) -> Result<String> {
    Ok(format!("{}:{}", ProxyServer::NAME, port(svc)?))
}

fn port(svc: &Svc) -> Result<u16> {
    let (_, port) = svc.address().rsplit_once(':').context("no port")?;
    Ok(port.parse()?)
}

fn check<'v>(found: &'v Value, name: &str) -> Result<&'v Value> {
    let checks = found["checks"].as_array().context("no checks")?;
    let mut named = checks.iter().filter(|check| check["name"] == name);
    named
        .next()
        .with_context(|| format!("no {name} in {found}"))
}
