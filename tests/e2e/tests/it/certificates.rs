//! Certificates that an engine, a platform or a relay orders from Pebble, the test authority of Let's
//! Encrypt.

mod chains;
mod dns;
mod domains;
mod faults;
mod profiles;
mod public;
mod public_domain;
mod public_page;
mod renewal;
mod servers;
mod unknown_names;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::{Authority, Curl, Svc, eventually, run};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};

use self::renewal::{client, handshake};

/// Waits until the engine responds to a client that trusts only the authority.
fn wait_for_certificate(authority: &Authority, svc: &Svc, host: &str) -> Result<()> {
    let curl = Curl::trusting(authority.root());
    let url = url(svc, host)?;
    eventually("a certificate of the authority", || {
        Ok(curl.get(&[&url]).is_ok())
    })
}

fn url(svc: &Svc, host: &str) -> Result<String> {
    Ok(format!("https://{host}:{}/api/openapi.json", port(svc)?))
}

fn port(svc: &Svc) -> Result<u16> {
    let (_, port) = svc.address().rsplit_once(':').context("no port")?;
    Ok(port.parse()?)
}

/// The chain in the state directory.
fn stored_chain(authority: &Authority) -> Result<String> {
    let text = fs::read_to_string(authority.state_dir().join("certificate.json"))?;
    let stored: Value = serde_json::from_str(&text)?;
    Ok(stored["chain"].as_str().context("no chain")?.to_owned())
}

/// A program for DNS records that writes them to the name server of the authority. `first` is its
/// first command.
fn dns_program(authority: &Authority, first: &str) -> Result<PathBuf> {
    let path = authority.directory().join("dns-program");
    let curl = std::env::var("SVC_TEST_CURL")?;
    let script = format!(
        "#!/bin/sh\n{first}\ncase $1 in present) method=PUT;; cleanup) method=DELETE;; \
         *) exit 64;; esac\nexec {curl} --disable --silent --show-error --fail --request $method \
         \"{}/txt/$2/$3\"\n",
        authority.management()
    );
    // Written by a child: a child of another test may inherit a file that this process is writing,
    // and the program cannot be started while that is open.
    let write = r#"printf %s "$1" > "$2" && chmod 755 "$2""#;
    run(Command::new("sh")
        .args(["-c", write, "sh", &script])
        .arg(&path))?;
    Ok(path)
}

fn log(svc: &Svc) -> Result<String> {
    Ok(fs::read_to_string(svc.directory().join("engine.log"))?)
}

#[test]
fn each_challenge_leads_to_a_certificate() -> Result<()> {
    for challenges in [
        json!(["http-01"]),
        json!(["tls-alpn-01"]),
        json!(["tls-alpn-01", "dns-01"]),
        json!(["dns-01"]),
    ] {
        let authority = Authority::start(&[])?;
        let mut acme = json!({"challenges": challenges, "contact": ["admin@example.com"]});
        let has_dns = challenges
            .as_array()
            .is_some_and(|kinds| kinds.contains(&json!("dns-01")));
        if has_dns {
            acme["dns_program"] = json!(dns_program(&authority, "")?);
        }
        let svc = authority.engine(&acme)?;
        let waited = wait_for_certificate(&authority, &svc, "engine.localhost");
        waited.with_context(|| format!("{challenges}"))?;
        let tunnel = url(&svc, "web.t.engine.localhost")?;
        let wildcard = Curl::trusting(authority.root()).get(&[&tunnel]);
        assert_eq!(wildcard.is_ok(), has_dns, "{challenges}");
        for name in ["account.json", "certificate.json"] {
            let mode = fs::metadata(authority.state_dir().join(name))?.permissions();
            assert_eq!(mode.mode() & 0o777, 0o600, "{name}");
        }
        assert!(!authority.state_dir().join("order.json").exists());
    }
    Ok(())
}

#[test]
fn a_stored_certificate_is_served_while_the_authority_is_unreachable() -> Result<()> {
    let mut authority = Authority::start(&[])?;
    let mut svc = authority.engine(&json!({}))?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    authority.kill();
    svc.start_again()?;
    let curl = Curl::trusting(authority.root());
    assert_eq!(curl.get(&[&url(&svc, "engine.localhost")?])?.status, 200);
    Ok(())
}

/// RFC 9773: the authority asks for a renewal now.
#[test]
fn a_certificate_is_renewed_when_the_authority_asks() -> Result<()> {
    let authority = Authority::start(&[])?;
    let mut svc = authority.engine(&json!({}))?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    let before = stored_chain(&authority)?;
    ask_for_renewal(&authority, &before)?;
    // The next question of a running engine is hours later.
    svc.start_again()?;
    let curl = Curl::trusting(authority.root());
    let url = url(&svc, "engine.localhost")?;
    eventually("the renewed certificate", || {
        assert_eq!(curl.get(&[&url])?.status, 200, "no handshake fails");
        Ok(stored_chain(&authority)? != before)
    })
}

/// Sets the window of renewal of a certificate to the past.
fn ask_for_renewal(authority: &Authority, chain: &str) -> Result<()> {
    let window = json!({"suggestedWindow": {
        "start": "2020-01-01T00:00:00Z",
        "end": "2020-01-02T00:00:00Z",
    }});
    let body = json!({"certificate": chain, "ariResponse": window.to_string()}).to_string();
    let address = format!("{}/set-renewal-info/", authority.management());
    let answer = Curl::plain().get(&["--data-binary", &body, &address])?;
    ensure!(answer.status == 200, "{answer:?}");
    Ok(())
}

#[test]
fn an_order_continues_after_the_engine_was_killed() -> Result<()> {
    let authority = Authority::start(&[])?;
    let started = authority.directory().join("started");
    let hanging = format!("echo $$ > '{}'; sleep 3600", started.display());
    let program = dns_program(&authority, &hanging)?;
    let acme = json!({"challenges": ["dns-01"], "dns_program": program});
    let mut svc = authority.engine(&acme)?;
    let mut group = None;
    eventually("the program for DNS", || {
        let text = fs::read_to_string(&started).unwrap_or_default();
        group = text.trim().parse().ok();
        Ok(group.is_some())
    })?;
    // Removed first: the file may still be executed.
    fs::remove_file(&program)?;
    dns_program(&authority, "")?;
    svc.start_again()?;
    // The killed engine could not end it.
    killpg(Pid::from_raw(group.context("no process")?), Signal::SIGKILL)?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    assert!(log(&svc)?.contains("an unfinished order is continued"));
    Ok(())
}

#[test]
fn two_engines_with_one_directory_order_once() -> Result<()> {
    let authority = Authority::start(&[])?;
    let program = dns_program(&authority, "")?;
    let acme = json!({"challenges": ["dns-01"], "dns_program": program});
    let one = authority.engine(&acme)?;
    let mut sections = authority.sections(&acme);
    sections["http"] = json!({"enabled": false});
    sections["tls"]["listen_addr"] = json!("127.0.0.1:0");
    let other = Svc::engine_with(&sections)?;
    for svc in [&one, &other] {
        wait_for_certificate(&authority, svc, "engine.localhost")?;
    }
    let logs = format!("{}{}", log(&one)?, log(&other)?);
    let orders = logs.matches("a certificate is ordered").count();
    assert_eq!(orders, 1, "{logs}");
    Ok(())
}

#[test]
fn an_external_account_is_bound_with_the_key_of_its_file() -> Result<()> {
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let authority = Authority::start(&[("PEBBLE_EXTERNAL_ACCOUNT_KEY", key)])?;
    let key_file = authority.directory().join("key");
    fs::write(&key_file, format!("{key}\n"))?;
    let account = json!({"key_id": "test", "key_file": key_file});
    let svc = authority.engine(&json!({"external_account": account}))?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    assert!(!log(&svc)?.contains(key), "the log has no key");
    Ok(())
}

#[test]
fn files_serve_the_names_that_the_authority_does_not() -> Result<()> {
    let authority = Authority::start(&[])?;
    let files = tempfile::tempdir()?;
    let ca_file = Svc::lineage(files.path())?;
    let mut sections = authority.sections(&json!({}));
    sections["certs"]["static"] = json!({
        "cert_file": files.path().join("fullchain.pem"),
        "key_file": files.path().join("privkey.pem"),
    });
    let svc = Svc::engine_with(&sections)?;
    let of_files = Curl::trusting(ca_file);
    let tunnel = url(&svc, "web.t.engine.localhost")?;
    of_files.get(&[&tunnel])?;
    // Both have the engine's own name. The one that expires later is used, and it does not matter
    // here which of them that is.
    eventually("the order", || {
        Ok(authority.state_dir().join("certificate.json").exists())
    })?;
    of_files.get(&[&tunnel])?;
    Ok(())
}

/// Without a pending order, both paths of validation behave as without `certs.acme`.
#[test]
fn validations_are_answered_only_for_pending_orders() -> Result<()> {
    let authority = Authority::start(&[])?;
    let svc = authority.engine(&json!({}))?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    let path = format!(
        "http://{}/.well-known/acme-challenge/token",
        authority.http()
    );
    assert_eq!(Curl::plain().status(&[&path])?, 308);
    let port = port(&svc)?;
    handshake(port, &client(&authority, &["http/1.1"])?)?;
    let validation = handshake(port, &client(&authority, &["acme-tls/1"])?);
    assert!(validation.is_err(), "the protocol is not accepted");
    Ok(())
}

/// The output of `svc engine --check` with the engine's configuration.
fn check(svc: &Svc) -> Result<String> {
    let mut command = Command::new(e2e::program()?);
    command
        .args(["engine", "--check", "-c"])
        .arg(svc.directory().join("engine.yaml"))
        .current_dir(svc.directory());
    let output = command.output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The name and serial number of a stored certificate, for messages.
fn describe(authority: &Authority) -> Result<String> {
    let file = authority.directory().join("chain.pem");
    fs::write(&file, stored_chain(authority)?)?;
    run(Command::new("openssl")
        .args(["x509", "-noout", "-serial", "-in"])
        .arg(&file))
}
