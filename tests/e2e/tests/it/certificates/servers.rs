//! Certificates that a platform and a relay order.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::{Authority, Control, Curl, Process, eventually, run};
use serde_json::{Value, json};

use super::renewal::{client, handshake_for};
use super::{ask_for_renewal, dns_program, stored_chain};

/// The section `tls` of a platform, or `turn.tls` of a relay. `acme` overrides keys of its section.
fn tls_section(authority: &Authority, acme: &Value) -> Value {
    json!({"http_listen_addr": authority.http(), "acme": authority.section(acme)})
}

fn tls_port(authority: &Authority) -> Result<u16> {
    let (_, port) = authority.tls().rsplit_once(':').context("no port")?;
    Ok(port.parse()?)
}

/// Waits until a client that trusts only the authority completes a handshake.
fn wait_for_handshake(authority: &Authority, name: &'static str) -> Result<()> {
    let (port, config) = (tls_port(authority)?, client(authority, &[])?);
    eventually("a certificate of the authority", || {
        Ok(handshake_for(name, port, &config).is_ok())
    })
}

/// A browser reaches the page for signing in over HTTP/2, and plain HTTP leads there.
#[test]
fn a_platform_orders_its_certificate_by_its_own_listeners() -> Result<()> {
    for challenge in ["http-01", "tls-alpn-01"] {
        let authority = Authority::start(&[])?;
        let directory = tempfile::tempdir()?;
        let tls = tls_section(&authority, &json!({"challenges": [challenge]}));
        let control = Control::over_tls(directory.path(), authority.tls(), &tls)?;
        wait_for_handshake(&authority, "platform.localhost").context(challenge)?;
        let login = format!("{}/login", control.base_url());
        let page = Curl::trusting(authority.root()).get(&["--http2", &login])?;
        assert_eq!((page.status, page.version.as_str()), (200, "2"));
        assert!(page.text().contains("Sign in"), "{}", page.text());
        let plain = format!("http://{}/login?next=a", authority.http());
        let redirect = Curl::plain().get(&[&plain])?;
        assert_eq!(redirect.status, 308);
        let target = format!("{login}?next=a");
        assert_eq!(redirect.header("location"), Some(target.as_str()));
        eventually("the readiness", || Ok(readiness(control.ready())?.0 == 200))?;
    }
    Ok(())
}

/// Status and text of `/readyz` of the metrics listener of a process.
fn readiness(ready: &Value) -> Result<(u64, String)> {
    let metrics = ready["metrics_url"].as_str().context("no metrics")?;
    let answer = Curl::plain().get(&[&format!("{metrics}/readyz")])?;
    Ok((answer.status, answer.text()))
}

/// The output of `--check`.
fn checked(server: &str, config: &Path) -> Result<String> {
    let output = Command::new(e2e::program()?)
        .args([server, "--check", "-c"])
        .arg(config)
        .env_clear()
        .output()?;
    ensure!(output.status.success(), "{server}: {output:?}");
    Ok(String::from_utf8_lossy(&output.stderr).into_owned())
}

/// The listeners, the readiness and `--check` while the authority is unreachable.
#[test]
fn a_server_without_a_certificate_reports_the_reason() -> Result<()> {
    let mut authority = Authority::start(&[])?;
    authority.kill();
    let directory = tempfile::tempdir()?;
    let tls = tls_section(&authority, &json!({}));
    let mut control = Control::over_tls(directory.path(), authority.tls(), &tls)?;
    eventually("the reason", || has_reason(control.ready()))?;
    let config = directory.path().join("platform.yaml");
    let text = checked("platform", &config)?;
    assert!(text.contains("tls.acme: the last order"), "{text}");
    control.process().kill();
    // The relay has the same directory.
    fs::remove_file(authority.state_dir().join("problem.txt"))?;
    let relay = TurnServer::start(&authority, &tls)?;
    eventually("the reason", || has_reason(&relay.ready))?;
    eventually("the metric of the reason", || has_failed(&relay.ready))?;
    let text = checked("turn", &relay.config)?;
    assert!(text.contains("turn.tls.acme: the last order"), "{text}");
    Ok(())
}

/// True if a process reports that it has no certificate because of the authority.
fn has_reason(ready: &Value) -> Result<bool> {
    let (status, text) = readiness(ready)?;
    let reason = "there is no certificate: the certificate authority does not respond";
    Ok(status == 503 && text.contains(reason))
}

/// True if the metric of the last failure has only this reason.
fn has_failed(ready: &Value) -> Result<bool> {
    let metrics = ready["metrics_url"].as_str().context("no metrics")?;
    let text = Curl::plain().get(&[&format!("{metrics}/metrics")])?.text();
    let failures = text
        .lines()
        .filter(|line| line.starts_with("svc_acme_last_failure_timestamp_seconds{"));
    let set: Vec<_> = failures.filter(|line| !line.ends_with(" 0")).collect();
    Ok(matches!(set.as_slice(), [one] if one.contains(r#"reason="connection""#)))
}

/// A running `svc turn` whose TLS listener is that of the authority's validations.
struct TurnServer {
    process: Process,
    config: PathBuf,
    ready: Value,
}

impl TurnServer {
    fn start(authority: &Authority, tls: &Value) -> Result<Self> {
        let secret = authority.directory().join("relay.secret");
        fs::write(&secret, "a secret of more than 32 bytes for tests\n")?;
        let config = json!({
            "turn": {
                "listen_addr": ["127.0.0.1:0"],
                "tls_listen_addr": [authority.tls()],
                "tls": tls,
                "realm": "turn.localhost",
                "secret_file": secret,
                "allowed_peers": ["127.0.0.0/8"],
                "log_level": "debug",
            },
            "metrics": {"prometheus": {"enabled": true, "listen_addr": "127.0.0.1:0"}},
        });
        let file = authority.directory().join("turn.yaml");
        fs::write(&file, format!("{config:#}"))?;
        let (process, ready) = launch(&file)?;
        Ok(Self {
            process,
            config: file,
            ready,
        })
    }

    /// Restarts it with the same configuration.
    fn start_again(&mut self) -> Result<()> {
        self.process.kill();
        (self.process, self.ready) = launch(&self.config)?;
        Ok(())
    }
}

fn launch(config: &Path) -> Result<(Process, Value)> {
    let mut command = Command::new(e2e::program()?);
    command
        .args(["turn", "--output", "json", "-c"])
        .arg(config)
        .env_clear();
    let process = Process::start(&mut command, &config.with_extension("log"))?;
    let ready = process.json("turn_realm", |_first| true)?;
    Ok((process, ready))
}

/// OpenSSL verifies chain and name, as clients of TURN over TLS do.
#[test]
fn a_relay_orders_its_certificate_by_each_challenge() -> Result<()> {
    for challenge in ["dns-01", "http-01", "tls-alpn-01"] {
        let authority = Authority::start(&[])?;
        let mut acme = json!({"challenges": [challenge]});
        if challenge == "dns-01" {
            acme["dns_program"] = json!(dns_program(&authority, "")?);
        }
        let relay = TurnServer::start(&authority, &tls_section(&authority, &acme))?;
        wait_for_handshake(&authority, "turn.localhost").context(challenge)?;
        run(Command::new("openssl")
            .args(["s_client", "-brief", "-verify_return_error"])
            .args(["-connect", authority.tls(), "-servername", "turn.localhost"])
            .args(["-verify_hostname", "turn.localhost", "-CAfile"])
            .arg(authority.root()))?;
        eventually("the readiness", || Ok(readiness(&relay.ready)?.0 == 200))?;
        let other = format!("http://{}/", authority.http());
        assert_eq!(Curl::plain().status(&[&other])?, 404);
    }
    Ok(())
}

/// The program for DNS waits until the certificate in use was seen, so that both are served by one
/// process.
#[test]
fn a_renewal_needs_no_restart() -> Result<()> {
    for name in ["platform.localhost", "turn.localhost"] {
        let authority = Authority::start(&[])?;
        let directory = tempfile::tempdir()?;
        let held = authority.directory().join("held");
        let wait = format!("while [ -e '{}' ]; do sleep 0.1; done", held.display());
        let program = dns_program(&authority, &wait)?;
        let acme = json!({"challenges": ["dns-01"], "dns_program": program});
        let tls = tls_section(&authority, &acme);
        let mut control = None;
        let mut relay = None;
        if name == "platform.localhost" {
            let address = authority.tls();
            control = Some(Control::over_tls(directory.path(), address, &tls)?);
        } else {
            relay = Some(TurnServer::start(&authority, &tls)?);
        }
        wait_for_handshake(&authority, name)?;
        fs::write(&held, "")?;
        ask_for_renewal(&authority, &stored_chain(&authority)?)?;
        // The next question of a running process is hours later.
        if let Some(control) = &mut control {
            control.start_again()?;
        }
        if let Some(relay) = &mut relay {
            relay.start_again()?;
        }
        let (port, config) = (tls_port(&authority)?, client(&authority, &[])?);
        let first = handshake_for(name, port, &config)?;
        let order = authority.state_dir().join("order.json");
        eventually("the order", || Ok(order.exists()))?;
        assert_eq!(handshake_for(name, port, &config)?, first);
        fs::remove_file(&held)?;
        eventually("the renewed certificate", || {
            Ok(handshake_for(name, port, &config)? != first)
        })?;
    }
    Ok(())
}
