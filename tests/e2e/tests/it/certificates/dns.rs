//! Certificates by DNS: with BIND, and with the engine's own responder.

use std::env;
use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use e2e::{Authority, Curl, NameServer, Svc, dig, eventually, kdig, run};
use serde_json::{Value, json};

use super::{log, wait_for_certificate};

/// An authority that asks this name server only.
fn authority_with(server: &str) -> Result<Authority> {
    Authority::start(&[("PEBBLE_DNS_SERVER", server)])
}

/// The texts at the challenge for the engine's wildcard.
fn texts(server: &str) -> Result<String> {
    dig(
        server,
        &["+short", "_acme-challenge.t.engine.localhost", "TXT"],
    )
}

#[test]
fn a_wildcard_is_ordered_with_updates_of_bind() -> Result<()> {
    let secret = format!("{}\n", NameServer::SECRET);
    let key = NameServer::key(NameServer::KEY, NameServer::SECRET);
    for (content, others) in [
        (secret.as_str(), json!({"key_name": NameServer::KEY})),
        (key.as_str(), json!({"zone": "engine.localhost"})),
    ] {
        let server = NameServer::start()?;
        let authority = authority_with(&server.address())?;
        let mut update = json!({
            "server": server.address(),
            "key_file": server.file("key", content)?,
        });
        extend(&mut update, others)?;
        let acme = json!({"challenges": ["dns-01"], "dns_update": update});
        let svc = authority.engine(&acme)?;
        wait_for_certificate(&authority, &svc, "engine.localhost")?;
        wait_for_certificate(&authority, &svc, "web.t.engine.localhost")?;
        let other = format!("\"{}\"\n", NameServer::OTHER_TEXT);
        assert_eq!(texts(&server.address())?, other, "only its own are removed");
        assert!(!log(&svc)?.contains(NameServer::SECRET));
    }
    Ok(())
}

/// lego, a client of another project, orders the same names from the same authority with updates of
/// the same name server. Both certificates are of the same form, and the authority has a time of
/// renewal for both (RFC 9773).
#[test]
fn another_client_gets_a_certificate_of_the_same_form() -> Result<()> {
    let server = NameServer::start()?;
    let authority = authority_with(&server.address())?;
    let acme = json!({"challenges": ["dns-01"], "dns_update": {
        "server": server.address(),
        "key_name": NameServer::KEY,
        "key_file": server.file("key", NameServer::SECRET)?,
    }});
    let svc = authority.engine(&acme)?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    let state = fs::read_to_string(authority.state_dir().join("certificate.json"))?;
    let state: Value = serde_json::from_str(&state)?;
    let chain = state["chain"].as_str().context("no chain")?;

    let lego =
        env::var_os("SVC_TEST_LEGO").context("SVC_TEST_LEGO is not set: run `cargo xtask test`")?;
    let mut command = Command::new(lego);
    command
        .arg(authority.url())
        .arg(server.file("chain", chain)?)
        .args(["engine.localhost", "*.t.engine.localhost"])
        .env("LEGO_CA_CERTIFICATES", authority.directory().join("ca.pem"))
        .env("RFC2136_NAMESERVER", server.address())
        .env("RFC2136_TSIG_KEY", format!("{}.", NameServer::KEY))
        .env("RFC2136_TSIG_SECRET", NameServer::SECRET)
        .env("RFC2136_TSIG_ALGORITHM", "hmac-sha256.")
        // Seconds between two challenges, and between two checks of one.
        .env("RFC2136_SEQUENCE_INTERVAL", "1")
        .env("RFC2136_POLLING_INTERVAL", "1");
    let output = run(&mut command)?;
    let seen: Value = serde_json::from_str(&output)?;
    let own = &seen["given"];
    assert_eq!(own, &seen["lego"]);
    let names = json!(["*.t.engine.localhost", "engine.localhost"]);
    assert_eq!((&own["names"], &own["hasWindow"]), (&names, &json!(true)));
    Ok(())
}

fn extend(section: &mut Value, others: Value) -> Result<()> {
    let section = section.as_object_mut().context("no section")?;
    let Value::Object(others) = others else {
        anyhow::bail!("no section: {others}");
    };
    section.extend(others);
    Ok(())
}

/// Each error names the cause, as the server reports it, and the next step.
#[test]
fn a_refused_update_is_explained() -> Result<()> {
    let server = NameServer::start()?;
    let authority = authority_with(&server.address())?;
    let other_secret = "YW5vdGhlciBzZWNyZXQgb2YgdGhlIG5hbWUgc2VydmVy";
    for (key, secret, zone, reasons) in [
        (
            NameServer::KEY,
            other_secret,
            None,
            ["BADSIG", "the same secret"],
        ),
        (
            "unknown",
            NameServer::SECRET,
            None,
            ["BADKEY", "`key_name`"],
        ),
        (
            NameServer::OTHER_KEY,
            NameServer::SECRET,
            None,
            ["REFUSED", "allow the key"],
        ),
        (
            NameServer::KEY,
            NameServer::SECRET,
            Some("localhost"),
            ["NOTAUTH", "set `zone`"],
        ),
    ] {
        let file = server.file("key", &NameServer::key(key, secret))?;
        let mut update = json!({"server": server.address(), "key_file": file});
        if let Some(zone) = zone {
            update["zone"] = json!(zone);
        }
        let acme = json!({"challenges": ["dns-01"], "dns_update": update});
        let svc = authority.engine(&acme)?;
        eventually(reasons[0], || {
            let log = log(&svc)?;
            Ok(reasons.iter().all(|reason| log.contains(reason)))
        })?;
        let text = log(&svc)?;
        ensure!(!text.contains(secret), "the log has no secret: {text}");
    }
    Ok(())
}

/// An engine whose responder has this address.
fn with_responder(authority: &Authority, responder: &Value) -> Result<Svc> {
    authority.engine(&json!({
        "challenges": ["dns-01"],
        "dns_responder": responder,
    }))
}

#[test]
fn a_wildcard_is_ordered_with_the_own_responder() -> Result<()> {
    let address = ports::lease_address();
    let authority = authority_with(&address)?;
    let svc = with_responder(&authority, &json!({"listen_addr": [address]}))?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    wait_for_certificate(&authority, &svc, "web.t.engine.localhost")?;
    assert_eq!(texts(&address)?, "", "the records are removed");
    let name = "_acme-challenge.t.engine.localhost";
    let answer = dig(&address, &[name, "NS"])?;
    assert!(answer.contains("NS\tengine.localhost."), "{answer}");
    Ok(())
}

#[test]
fn the_whole_zone_is_served_by_the_own_responder() -> Result<()> {
    let address = ports::lease_address();
    let authority = authority_with(&address)?;
    let responder = json!({
        "listen_addr": [address],
        "serve_zone": true,
        "addresses": ["127.0.0.1", "2001:db8::1"],
        "caa": ["pebble.example", "ca.example.net"],
        "caa_account": true,
    });
    let svc = with_responder(&authority, &responder)?;
    wait_for_certificate(&authority, &svc, "web.t.engine.localhost")?;
    for (kind, expected) in [("A", "127.0.0.1\n"), ("AAAA", "2001:db8::1\n")] {
        assert_eq!(
            dig(&address, &["+short", "web.t.engine.localhost", kind])?,
            expected
        );
    }
    // Only the account of the engine gets certificates of the first authority.
    let state = fs::read_to_string(authority.state_dir().join("account.json"))?;
    let state: Value = serde_json::from_str(&state)?;
    let account = state["credentials"]["id"].as_str().context("no account")?;
    let records = dig(&address, &["+short", "t.engine.localhost", "CAA"])?;
    let mut records: Vec<_> = records.lines().collect();
    records.sort_unstable();
    let first = format!("0 issue \"pebble.example; accounturi={account}\"");
    assert_eq!(records, ["0 issue \"ca.example.net\"", first.as_str()]);
    let below = dig(&address, &["+short", "web.t.engine.localhost", "CAA"])?;
    assert_eq!(below, "", "an authority climbs to the zone");
    Ok(())
}

/// The table has queries that the responder must not answer, and some that it answers.
#[test]
fn the_responder_is_strict() -> Result<()> {
    let address = ports::lease_address();
    let authority = authority_with(&address)?;
    let responder = json!({"listen_addr": [address], "zone": "acme.example.net"});
    let _svc = with_responder(&authority, &responder)?;
    for (arguments, expected) in [
        ("acme.example.net SOA", "status: NOERROR"),
        ("acme.example.net SOA", "flags: qr aa rd;"),
        ("acme.example.net NS", "NS\tengine.localhost."),
        ("acme.example.net TXT", "ANSWER: 0, AUTHORITY: 1"),
        ("+tcp acme.example.net TXT", "ANSWER: 0, AUTHORITY: 1"),
        (
            "+noedns acme.example.net TXT",
            "AUTHORITY: 1, ADDITIONAL: 0",
        ),
        ("ACME.eXample.NET SOA", "ACME.eXample.NET.\t5\tIN\tSOA"),
        ("missing.acme.example.net TXT", "status: NXDOMAIN"),
        ("example.net SOA", "status: REFUSED"),
        ("engine.localhost A", "status: REFUSED"),
        (". NS", "status: REFUSED"),
        ("version.bind CH TXT", "status: REFUSED"),
        ("+notcp acme.example.net ANY", "HINFO\t\"RFC8482\" \"\""),
        ("acme.example.net AXFR", "Transfer failed"),
        ("+opcode=update acme.example.net SOA", "status: NOTIMP"),
        ("+opcode=notify acme.example.net SOA", "status: NOTIMP"),
        ("+opcode=status acme.example.net SOA", "status: NOTIMP"),
        ("+header-only acme.example.net", "status: FORMERR"),
        (
            "+edns=1 +noednsnegotiation acme.example.net SOA",
            "status: BADVERS",
        ),
        ("+dnssec acme.example.net SOA", "flags: do;"),
        ("+bufsize=4096 acme.example.net SOA", "udp: 1232"),
    ] {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let output = dig(&address, &arguments)?;
        assert!(output.contains(expected), "{arguments:?}: {output}");
    }
    Ok(())
}

/// The client of another name server, with what else clients and resolvers send: sizes of EDNS,
/// options and types that the responder does not support, several questions over one connection.
#[test]
fn another_client_reads_the_answers_of_the_responder() -> Result<()> {
    let address = ports::lease_address();
    let authority = authority_with(&address)?;
    let responder = json!({"listen_addr": [address], "zone": "acme.example.net"});
    let _svc = with_responder(&authority, &responder)?;
    let nothing = "ANSWER: 0; AUTHORITY: 1; ADDITIONAL: 0";
    for (arguments, expected) in [
        ("acme.example.net SOA", "IN\tSOA\tengine.localhost."),
        ("acme.example.net SOA", "Flags: qr aa rd;"),
        ("+tcp acme.example.net SOA", "IN\tSOA\tengine.localhost."),
        ("+tcp acme.example.net SOA", "(TCP)"),
        ("+noedns acme.example.net TXT", nothing),
        ("+bufsize=512 acme.example.net SOA", "UDP size: 1232 B"),
        ("+bufsize=4096 acme.example.net SOA", "UDP size: 1232 B"),
        (
            "+tcp +bufsize=65535 acme.example.net SOA",
            "UDP size: 1232 B",
        ),
        (
            "+dnssec acme.example.net SOA",
            "flags: do; UDP size: 1232 B",
        ),
        ("+tcp +dnssec +nsid acme.example.net SOA", "flags: do;"),
        (
            "+nsid acme.example.net SOA",
            "ANSWER: 1; AUTHORITY: 0; ADDITIONAL: 1",
        ),
        ("+cookie acme.example.net SOA", "status: NOERROR"),
        (
            "+subnet=192.0.2.0/24 acme.example.net SOA",
            "status: NOERROR",
        ),
        ("+padding=128 acme.example.net SOA", "status: NOERROR"),
        (
            "+ednsopt=65001:c0ffee acme.example.net SOA",
            "status: NOERROR",
        ),
        ("+edns=1 acme.example.net SOA", "status: BADVERS"),
        ("acme.example.net TYPE65280", nothing),
        ("+tcp acme.example.net TYPE65280", nothing),
        ("acme.example.net HTTPS", nothing),
        ("acme.example.net DNSKEY", nothing),
        ("missing.acme.example.net TXT", "status: NXDOMAIN"),
        ("example.net SOA", "status: REFUSED"),
        ("+tcp example.net SOA", "status: REFUSED"),
        ("acme.example.net ANY", "HINFO\t\"RFC8482\" \"\""),
        (
            "+tcp +keepopen missing.acme.example.net TXT acme.example.net NS",
            "IN\tNS\tengine.localhost.",
        ),
    ] {
        let arguments: Vec<&str> = arguments.split(' ').collect();
        let output = kdig(&address, &arguments)?;
        assert!(output.contains(expected), "{arguments:?}: {output}");
        // Options of the query are not repeated, so that an answer stays small.
        for option in ["NSID", "COOKIE", "CLIENT-SUBNET", "PADDING", "65001"] {
            assert!(!output.contains(option), "{arguments:?}: {output}");
        }
    }
    Ok(())
}

#[test]
fn an_address_that_another_server_has_is_explained() -> Result<()> {
    let server = NameServer::start()?;
    let authority = Authority::start(&[])?;
    let responder = json!({"listen_addr": [server.address()]});
    let Err(error) = with_responder(&authority, &responder) else {
        anyhow::bail!("the engine has started");
    };
    let text = format!("{error:#}");
    assert!(
        text.contains("certs.acme.dns_responder.listen_addr"),
        "{text}"
    );
    assert!(text.contains("systemd-resolved"), "{text}");
    Ok(())
}

/// Queries are counted by their response.
#[test]
fn queries_are_counted() -> Result<()> {
    let address = ports::lease_address();
    let authority = authority_with(&address)?;
    let metrics = ports::lease_address();
    let mut sections = authority.sections(&json!({
        "challenges": ["dns-01"],
        "dns_responder": {"listen_addr": [address]},
    }));
    sections["metrics"] = json!({"prometheus": {"enabled": true, "listen_addr": metrics}});
    let svc = Svc::engine_with(&sections)?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    dig(&address, &["example.org", "A"])?;
    let answer = Curl::plain().get(&[&format!("http://{metrics}/metrics")])?;
    let text = String::from_utf8(answer.body)?;
    let line = |result: &str, count: &str| {
        text.contains(&format!(
            "svc_dns_queries_total{{result=\"{result}\"}} {count}"
        ))
    };
    assert!(line("refused", "1\n"), "{text}");
    assert!(line("answer", "") && !line("answer", "0\n"), "{text}");
    Ok(())
}
