//! Custom domains of an engine, with certificates from Pebble and from files.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use e2e::{Agent, Authority, Curl, ManagedPair, NameServer, Service, Svc, dig, eventually};
use serde_json::{Value, json};

use super::public_domain::entered;
use super::{check, dns_program, log, port, wait_for_certificate};

/// An engine with domains, the first of which does not exist in the DNS of the authority.
fn engine(authority: &Authority, acme: &Value, domains: &Value) -> Result<Svc> {
    let mut sections = authority.sections(acme);
    sections["domains"] = domains.clone();
    sections["metrics"] = json!({"prometheus": {"enabled": true, "listen_addr": "127.0.0.1:0"}});
    let svc = Svc::engine_with(&sections)?;
    wait_for_certificate(authority, &svc, "engine.localhost")?;
    // Agents trust this file; the engine's own certificate is one of the authority.
    let mut trusted = OpenOptions::new().append(true).open(svc.ca_file())?;
    trusted.write_all(&fs::read(authority.root())?)?;
    Ok(svc)
}

/// The address of a domain, and the option with which curl finds the engine there.
fn at(svc: &Svc, domain: &str) -> Result<(String, String)> {
    let port = port(svc)?;
    Ok((
        format!("https://{domain}:{port}/"),
        format!("{domain}:{port}:127.0.0.1"),
    ))
}

/// Waits until visitors of a domain accept its certificate, and reach its tunnel.
fn wait_for_domain(svc: &Svc, ca_file: PathBuf, domain: &str, text: &str) -> Result<()> {
    let curl = Curl::trusting(ca_file);
    let (url, resolve) = at(svc, domain)?;
    eventually(&format!("the certificate of {domain}"), || {
        Ok(curl.get(&["--resolve", &resolve, &url]).is_ok())
    })?;
    let answer = curl.get(&["--resolve", &resolve, &url])?;
    assert_eq!((answer.status, answer.text().as_str()), (200, text));
    Ok(())
}

/// The metric of a domain.
fn expiry(svc: &Svc, domain: &str) -> Result<f64> {
    let url = svc.ready()["metrics_url"].as_str().context("no metrics")?;
    let answer = Curl::plain().get(&[&format!("{url}/metrics")])?.text();
    let series =
        format!(r#"svc_domain_certificate_expiry_timestamp_seconds{{domain="{domain}"}} "#);
    let line = answer.lines().find_map(|line| line.strip_prefix(&series));
    Ok(line.context("no series")?.parse()?)
}

#[test]
fn each_domain_gets_a_certificate_and_a_failure_delays_no_other() -> Result<()> {
    let mut authority = Authority::start(&[])?;
    let files = tempfile::tempdir()?;
    let of_files = Svc::certificate_for(files.path(), &["files.example.com"])?;
    let domains = json!([
        {"name": "nowhere.example.com"},
        {"name": "One.example.com"},
        {"name": "two.example.com"},
        {
            "name": "files.example.com",
            "cert_file": files.path().join("cert.pem"),
            "key_file": files.path().join("key.pem"),
        },
    ]);
    let mut svc = engine(&authority, &json!({}), &domains)?;
    let mut agents = Vec::new();
    for domain in ["one.example.com", "two.example.com", "files.example.com"] {
        let service = Service::answering(move || domain.to_owned())?.to_string();
        let agent = Agent::forward(&svc, &service, &["--hostname", domain])?;
        let url = format!("https://{domain}:{}", port(&svc)?);
        assert_eq!(agent.online()["forwarding"], url, "{}", agent.online());
        agents.push(agent);
    }
    for domain in ["one.example.com", "two.example.com"] {
        wait_for_domain(&svc, authority.root(), domain, domain)?;
        let stored = authority.state_dir().join("domains").join(domain);
        let mode = fs::metadata(stored.join("certificate.json"))?.permissions();
        assert_eq!(mode.mode() & 0o777, 0o600, "{domain}");
        assert!(expiry(&svc, domain)? > 0.0, "{domain}");
    }
    wait_for_domain(
        &svc,
        of_files.clone(),
        "files.example.com",
        "files.example.com",
    )?;
    assert!(expiry(&svc, "files.example.com")? > 0.0);

    let failure = "could not validate nowhere.example.com";
    eventually("the failure", || Ok(log(&svc)?.contains(failure)))?;
    assert_eq!(expiry(&svc, "nowhere.example.com")?.to_bits(), 0);
    let checked = check(&svc)?;
    let warning = "the last order of a certificate for nowhere.example.com failed";
    assert!(checked.contains(warning), "{checked}");
    // Neither the domain that failed nor an unknown name makes the engine unready.
    let metrics = svc.ready()["metrics_url"].as_str().context("no metrics")?;
    let ready = format!("{metrics}/readyz");
    eventually("the readiness", || {
        Ok(Curl::plain().status(&[&ready])? == 200)
    })?;
    let (url, resolve) = at(&svc, "unknown.example.com")?;
    let refused = Curl::trusting(authority.root()).get(&["--resolve", &resolve, &url]);
    assert!(refused.is_err(), "it has no certificate");

    let text = log(&svc)?;
    let orders = |domain: &str| {
        let ordered = text
            .lines()
            .filter(|line| line.contains("a certificate is ordered"));
        ordered.filter(|line| line.contains(domain)).count()
    };
    for domain in ["one.example.com", "two.example.com", "nowhere.example.com"] {
        assert_eq!(orders(domain), 1, "{domain}: {text}");
    }
    assert_eq!(orders("unknown.example.com"), 0, "{text}");
    let registered = text.matches("the account was registered").count();
    assert_eq!(registered, 1, "all share an account: {text}");

    // The stored certificates do not need the authority.
    authority.kill();
    svc.start_again()?;
    for agent in &mut agents {
        agent.online_again()?;
    }
    wait_for_domain(&svc, authority.root(), "one.example.com", "one.example.com")
}

#[test]
fn a_wildcard_domain_is_validated_by_dns() -> Result<()> {
    let authority = Authority::start(&[])?;
    let program = dns_program(&authority, "")?;
    let acme = json!({"challenges": ["tls-alpn-01", "dns-01"], "dns_program": program});
    let domains = json!([{"name": "*.wild.example.com"}]);
    let svc = engine(&authority, &acme, &domains)?;
    let service = Service::answering(|| "below".to_owned())?.to_string();
    let _agent = Agent::forward(&svc, &service, &["--hostname", "a.wild.example.com"])?;
    wait_for_domain(&svc, authority.root(), "a.wild.example.com", "below")?;
    let state = authority.state_dir().join("domains/_.wild.example.com");
    assert!(state.join("certificate.json").exists());
    Ok(())
}

/// The engine answers for the challenges of its domains as for its own.
#[test]
fn a_wildcard_domain_is_validated_with_the_own_responder() -> Result<()> {
    let address = ports::lease_address();
    let authority = Authority::start(&[("PEBBLE_DNS_SERVER", address.as_str())])?;
    let acme = json!({
        "challenges": ["dns-01"],
        "dns_responder": {"listen_addr": [address]},
    });
    let domains = json!([{"name": "*.wild.example.com"}]);
    let svc = engine(&authority, &acme, &domains)?;
    let service = Service::answering(|| "below".to_owned())?.to_string();
    let _agent = Agent::forward(&svc, &service, &["--hostname", "a.wild.example.com"])?;
    wait_for_domain(&svc, authority.root(), "a.wild.example.com", "below")
}

/// Without `dns-01` no order could succeed, so none is placed.
#[test]
fn a_wildcard_without_dns_is_reported_and_not_ordered() -> Result<()> {
    let authority = Authority::start(&[])?;
    let domains = json!([{"name": "*.wild.example.com"}]);
    let svc = engine(&authority, &json!({}), &domains)?;
    let checked = check(&svc)?;
    assert!(checked.contains("a wildcard needs dns-01"), "{checked}");
    assert!(!authority.state_dir().join("domains").exists());
    Ok(())
}

/// Adds a domain of the project, enters its records, and verifies it. Returns its path, and the name to
/// which its challenges are delegated.
fn verified(managed: &ManagedPair, bind: &NameServer, body: &Value) -> Result<(String, String)> {
    let domains = format!("/api/projects/tunnels/{}/domains", managed.project());
    let added = managed.call("POST", &domains, Some(body))?.json();
    let records = added["records"].as_array().context("no records")?;
    let lines: Vec<String> = records.iter().map(entered).collect::<Result<_>>()?;
    let delegation = records.get(2).and_then(|record| record["value"].as_str());
    let alias = delegation.context("no delegation")?.to_owned();
    bind.enter("example.com", &lines)?;
    let id = added["id"].as_str().context("no id")?;
    let path = format!("{domains}/{id}");
    let verify = format!("{path}/verify");
    let checked = managed.call("POST", &verify, None)?.json();
    assert_eq!(checked["status"], "verified", "{checked}");
    Ok((path, alias))
}

/// The owner of a domain delegates its challenges to a zone that the engine changes in BIND. The
/// platform finds all three records there, and Pebble follows the delegation. Then the project uploads
/// another certificate.
#[test]
fn a_wildcard_of_a_project_is_validated_through_its_delegation() -> Result<()> {
    let records = "@ IN A 127.0.0.1\n* IN A 127.0.0.1\n*.t IN A 127.0.0.1\n";
    let zones = [
        ("engine.localhost", records),
        ("example.com", ""),
        ("acme.example.net", ""),
    ];
    let bind = NameServer::of_network(&zones)?;
    let server = bind.address();
    let authority = Authority::start(&[("PEBBLE_DNS_SERVER", server.as_str())])?;
    let platform = json!({"domains": {
        "root_servers": ["127.0.0.1"],
        "name_server_port": bind.port(),
        "allow_private_nameservers": true,
        "challenge_zones": {"engine.localhost": "acme.example.net"},
    }});
    let mut managed = ManagedPair::with_platform(&platform)?;
    let key = authority.directory().join("tsig.key");
    fs::write(&key, NameServer::SECRET)?;
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600))?;
    let acme = authority.section(&json!({
        "challenges": ["tls-alpn-01", "dns-01"],
        "dns_update": {"server": server, "key_name": NameServer::KEY, "key_file": key},
    }));
    managed
        .engine
        .kill_and_configure(|config| config["certs"]["acme"] = acme)?;

    let wildcard = json!({"hostname": "*.wild.example.com"});
    let (path, alias) = verified(&managed, &bind, &wildcard)?;
    // The name itself is validated at the same record.
    let name = json!({"hostname": "wild.example.com", "certificateValidation": "dns_01"});
    let (_, same) = verified(&managed, &bind, &name)?;
    assert_eq!(same, alias);
    for folder in ["_.wild.example.com", "wild.example.com"] {
        let state = authority.state_dir().join("domains").join(folder);
        eventually(&format!("the certificate of {folder}"), || {
            Ok(state.join("certificate.json").exists())
        })?;
    }
    let service = Service::answering(|| "below".to_owned())?.to_string();
    let _agent = managed.forward(&service, &["--hostname", "a.wild.example.com"])?;
    let engine = &managed.engine;
    wait_for_domain(engine, authority.root(), "a.wild.example.com", "below")?;
    assert_eq!(
        dig(&server, &["+short", &alias, "TXT"])?,
        "",
        "it is removed"
    );

    // The project replaces it by a certificate of its own.
    let own = rcgen::generate_simple_self_signed(["*.wild.example.com".to_owned()])?;
    let body = json!({
        "certificate": own.cert.pem(),
        "privateKey": own.signing_key.serialize_pem(),
    });
    let uploaded = managed.call("PUT", &format!("{path}/certificate"), Some(&body))?;
    assert_eq!(uploaded.status, 200, "{}", uploaded.text());
    let trusted = authority.directory().join("own.pem");
    fs::write(&trusted, own.cert.pem())?;
    wait_for_domain(engine, trusted, "a.wild.example.com", "below")
}
