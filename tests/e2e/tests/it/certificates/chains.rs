//! Certificates as visitors receive them: the chain, without a response of OCSP. The authority
//! validates slowly, or offers alternative chains.

use std::env;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result};
use e2e::{Authority, Curl, run};
use serde_json::json;

use super::{log, port, stored_chain, url, wait_for_certificate};

/// The log of the authority, with the switches that it has applied.
fn authority_log(authority: &Authority) -> Result<String> {
    Ok(fs::read_to_string(
        authority.directory().join("pebble.log"),
    )?)
}

/// Let's Encrypt has ended its service for OCSP, so there is nothing to staple. A client that asks for
/// a response completes its handshake without one.
#[test]
fn a_client_that_requests_an_ocsp_response_receives_none() -> Result<()> {
    let openssl = env::var_os("SVC_TEST_OPENSSL")
        .context("SVC_TEST_OPENSSL is not set: run `cargo xtask test`")?;
    let authority = Authority::start(&[])?;
    let svc = authority.engine(&json!({}))?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    let address = format!("127.0.0.1:{}", port(&svc)?);
    for version in ["-tls1_2", "-tls1_3"] {
        let output = run(Command::new(&openssl)
            .args(["s_client", "-connect", &address])
            .args(["-servername", "engine.localhost", "-alpn", "http/1.1"])
            .args(["-status", version, "-verify_return_error", "-CAfile"])
            .arg(authority.root()))?;
        for expected in [
            "OCSP response: no response sent",
            "Verify return code: 0 (ok)",
        ] {
            assert!(output.contains(expected), "{version}: {output}");
        }
    }
    Ok(())
}

/// Each of the authority's attempts to validate the name begins up to three seconds late.
#[test]
fn an_order_waits_for_a_slow_validation() -> Result<()> {
    let switches = [("PEBBLE_VA_NOSLEEP", "0"), ("PEBBLE_VA_SLEEPTIME", "4")];
    let authority = Authority::start(&switches)?;
    let svc = authority.engine(&json!({}))?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    let applied = authority_log(&authority)?;
    let is_slow = applied.contains("Setting maximum random VA sleep time to 4 seconds");
    assert!(is_slow, "{applied}");
    let log = log(&svc)?;
    assert_eq!(log.matches("a certificate is ordered").count(), 1, "{log}");
    assert!(!log.contains("there is no new certificate"), "{log}");
    Ok(())
}

/// RFC 8555 section 7.4.2: the chain that the authority prefers is served, and the alternatives are
/// ignored.
#[test]
fn the_default_chain_of_an_authority_with_alternatives_is_served() -> Result<()> {
    let switches = [
        ("PEBBLE_ALTERNATE_ROOTS", "2"),
        ("PEBBLE_CHAIN_LENGTH", "2"),
    ];
    let authority = Authority::start(&switches)?;
    let svc = authority.engine(&json!({}))?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    let chain = stored_chain(&authority)?;
    let certificates = chain.matches("-----BEGIN CERTIFICATE-----").count();
    assert_eq!(certificates, 3, "with two intermediate ones: {chain}");
    let url = url(&svc, "engine.localhost")?;
    for number in 1..=2 {
        let address = format!("{}/roots/{number}", authority.management());
        let answer = Curl::plain().get(&[&address])?;
        assert_eq!(answer.status, 200, "{answer:?}");
        let root = authority.directory().join(format!("root-{number}.pem"));
        fs::write(&root, answer.text())?;
        let visit = Curl::trusting(root).get(&[&url]);
        assert!(visit.is_err(), "the root {number} is an alternative");
    }
    let log = log(&svc)?;
    assert_eq!(log.matches("a certificate is ordered").count(), 1, "{log}");
    assert!(!log.contains("there is no new certificate"), "{log}");
    Ok(())
}
