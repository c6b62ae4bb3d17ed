//! Faults of an authority and of the state directory. Each has a message with the next step, and
//! the certificate in use stays.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::DirBuilderExt as _;
use std::thread;

use anyhow::{Context as _, Result};
use e2e::{Authority, Curl, Svc, eventually};
use serde_json::{Value, json};

use super::public::manage;
use super::{
    ask_for_renewal, check, describe, dns_program, log, stored_chain, url, wait_for_certificate,
};

/// Waits for the reason of a failed order in the state directory, where `svc engine --check` finds
/// it.
fn wait_for_problem(authority: &Authority, svc: &Svc, parts: &[&str]) -> Result<()> {
    let file = authority.state_dir().join("problem.txt");
    let what = format!("a problem with {parts:?}");
    eventually(&what, || {
        let text = fs::read_to_string(&file).unwrap_or_default();
        Ok(parts.iter().all(|part| text.contains(part)))
    })?;
    let checked = check(svc)?;
    assert!(
        checked.contains("the last order of a certificate failed"),
        "{checked}"
    );
    Ok(())
}

/// Faults of the first order: what is wrong, and the parts of the message.
#[test]
fn a_fault_of_the_first_order_is_reported_with_the_next_step() -> Result<()> {
    let garbage = fake(|_| ("200 OK", String::new(), "<html>".to_owned()))?;
    let limited = fake(|path| rate_limited(path, "accounts"))?;
    let limited_orders = fake(|path| rate_limited(path, "orders"))?;
    for (sections, parts) in [
        (
            json!({"acme": {"directory": garbage}}),
            &["does not respond as expected", "check `directory`"][..],
        ),
        (
            json!({"acme": {"directory": limited}}),
            &[
                "too many accounts",
                "waits as long as the authority asks for",
            ],
        ),
        (
            json!({"acme": {"directory": limited_orders}}),
            &["too many orders", "waits as long as the authority asks for"],
        ),
        (
            json!({"acme": {"profile": "classic"}}),
            &["has no profile classic", "one that it lists (default)"],
        ),
        (
            json!({"acme": {"ca_file": null}}),
            &["does not respond as expected", "`ca_file`"],
        ),
        (
            json!({"acme": {"challenges": ["http-01"]}, "http": "127.0.0.1:0"}),
            &[
                "could not validate engine.localhost by http-01",
                "DNS records",
            ],
        ),
        (
            json!({"acme": {"challenges": ["dns-01"], "dns_program": "/bin/false"}}),
            &["/bin/false present failed", "run it by hand"],
        ),
    ] {
        let authority = Authority::start(&[])?;
        let mut all = authority.sections(&sections["acme"]);
        if let Some(address) = sections["http"].as_str() {
            all["http"]["listen_addr"] = json!(address);
        }
        let svc = Svc::engine_with(&all)?;
        wait_for_problem(&authority, &svc, parts)?;
        let url = url(&svc, "engine.localhost")?;
        assert!(Curl::trusting(authority.root()).get(&[&url]).is_err());
        let limits = [json!(limited), json!(limited_orders)];
        if limits.contains(&sections["acme"]["directory"]) {
            let log = log(&svc)?;
            // Time passes between the response and the next attempt.
            let is_respected = delays(&log).any(|seconds| (7_100..=7_200).contains(&seconds));
            assert!(is_respected, "the requested delay: {log}");
        }
    }
    Ok(())
}

/// The delays in seconds until the next attempts, as the log reports them.
fn delays(log: &str) -> impl Iterator<Item = u64> {
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter_map(|line| line["retry.seconds"].as_u64())
}

#[test]
fn an_authority_that_is_unreachable_at_start_is_reported() -> Result<()> {
    let mut authority = Authority::start(&[])?;
    authority.kill();
    let svc = authority.engine(&json!({}))?;
    wait_for_problem(
        &authority,
        &svc,
        &["does not respond as expected", "the network"],
    )
}

#[test]
fn a_missing_binding_of_the_account_is_reported() -> Result<()> {
    let key = "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W";
    let authority = Authority::start(&[("PEBBLE_EXTERNAL_ACCOUNT_KEY", key)])?;
    let svc = authority.engine(&json!({}))?;
    wait_for_problem(&authority, &svc, &["set `external_account`"])
}

/// An administrator of the authority has deactivated the account. The next step of the message
/// leads to a certificate.
#[test]
fn a_deactivated_account_keeps_the_certificate_in_use() -> Result<()> {
    let authority = Authority::start(&[])?;
    let mut svc = authority.engine(&json!({}))?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    let before = stored_chain(&authority)?;
    let account = authority.state_dir().join("account.json");
    let stored: Value = serde_json::from_str(&fs::read_to_string(&account)?)?;
    let address = stored["credentials"]["id"].as_str().unwrap_or_default();
    let (_, id) = address.rsplit_once('/').context("no account")?;
    let deactivate = format!("{}/deactivate/{id}", authority.management());
    assert_eq!(Curl::plain().status(&["--data", "", &deactivate])?, 200);
    ask_for_renewal(&authority, &before)?;
    svc.start_again()?;
    let parts = ["Account has been deactivated", "remove `account.json`"];
    wait_for_problem(&authority, &svc, &parts)?;
    let url = url(&svc, "engine.localhost")?;
    assert_eq!(Curl::trusting(authority.root()).get(&[&url])?.status, 200);
    assert_eq!(stored_chain(&authority)?, before);
    let program = dns_program(&authority, "")?;
    fs::remove_file(&account)?;
    // Another name is an order that is due now.
    svc.kill_and_configure(|config| {
        config["certs"]["acme"]["challenges"] = json!(["dns-01"]);
        config["certs"]["acme"]["dns_program"] = json!(program);
    })?;
    eventually("a certificate of another account", || {
        Ok(stored_chain(&authority)? != before)
    })
}

#[test]
fn rejected_nonces_are_replaced() -> Result<()> {
    let authority = Authority::start(&[("PEBBLE_WFE_NONCEREJECT", "10")])?;
    let svc = authority.engine(&json!({}))?;
    wait_for_certificate(&authority, &svc, "engine.localhost")
}

/// A directory in place of the temporary file refuses every write, like a full disk.
#[test]
fn a_disk_that_is_full_keeps_the_certificate_in_use() -> Result<()> {
    let authority = Authority::start(&[])?;
    let mut svc = authority.engine(&json!({}))?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    let before = stored_chain(&authority)?;
    ask_for_renewal(&authority, &before)?;
    fs::create_dir(authority.state_dir().join("order.json.new"))?;
    svc.start_again()?;
    wait_for_problem(
        &authority,
        &svc,
        &["order.json cannot be used", "free space"],
    )?;
    let url = url(&svc, "engine.localhost")?;
    assert_eq!(Curl::trusting(authority.root()).get(&[&url])?.status, 200);
    assert_eq!(
        stored_chain(&authority)?,
        before,
        "{}",
        describe(&authority)?
    );
    Ok(())
}

/// The disk is full when the certificate is written, after the authority has issued it. The next
/// attempt stores this certificate, without another order.
#[test]
fn a_disk_that_is_full_at_the_end_of_an_order_loses_no_certificate() -> Result<()> {
    let authority = Authority::start(&[])?;
    let state = authority.state_dir();
    let full = state.join("certificate.json.new");
    // Directories to which others may write are refused, whatever the umask of the tests is.
    fs::DirBuilder::new().mode(0o700).create(&state)?;
    fs::create_dir(&full)?;
    let mut svc = authority.engine(&json!({}))?;
    wait_for_problem(
        &authority,
        &svc,
        &["certificate.json cannot be used", "free space"],
    )?;
    fs::remove_dir(&full)?;
    svc.start_again()?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    let log = log(&svc)?;
    assert!(log.contains("an unfinished order is continued"), "{log}");
    assert_eq!(log.matches("a certificate is ordered").count(), 1, "{log}");
    Ok(())
}

/// The clock of this machine is behind that of the authority, whose certificate is valid later. The
/// order is kept, because another certificate would not be better.
#[test]
fn a_wrong_clock_keeps_the_certificate_in_use() -> Result<()> {
    let authority = Authority::start(&[])?;
    let mut svc = authority.engine(&json!({}))?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    let before = stored_chain(&authority)?;
    let later = "validity/2040-01-01T00:00:00Z/2041-01-01T00:00:00Z";
    manage(&authority, "PUT", later)?;
    ask_for_renewal(&authority, &before)?;
    svc.start_again()?;
    let parts = ["not valid yet", "check the clock of this machine"];
    wait_for_problem(&authority, &svc, &parts)?;
    is_in_use(&authority, &svc, &before)?;
    assert!(authority.state_dir().join("order.json").exists());
    Ok(())
}

/// The certificate is the stored one, and visitors accept it.
fn is_in_use(authority: &Authority, svc: &Svc, chain: &str) -> Result<()> {
    let url = url(svc, "engine.localhost")?;
    assert_eq!(Curl::trusting(authority.root()).get(&[&url])?.status, 200);
    assert_eq!(stored_chain(authority)?, chain, "{}", describe(authority)?);
    Ok(())
}

/// Faults of a renewal: the keys of `certs.acme` that cause it, and parts of the message. Another
/// authority or another name is an order that is due now.
#[test]
fn a_fault_of_a_renewal_keeps_the_certificate_in_use() -> Result<()> {
    let limited = fake(|path| rate_limited(path, "orders"))?;
    let invalid = fake(|path| lie(path, "engine.localhost", "token"))?;
    let authority = Authority::start(&[])?;
    let mut svc = authority.engine(&json!({}))?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    let before = stored_chain(&authority)?;
    let unpublished = json!({"challenges": ["dns-01"], "dns_program": "/bin/true"});
    for (acme, has_text, parts) in [
        (
            json!({"directory": limited}),
            false,
            ["too many orders", "waits as long as the authority asks for"],
        ),
        (
            json!({"directory": invalid}),
            false,
            ["the order is invalid", "it is tried again"],
        ),
        (
            unpublished.clone(),
            false,
            ["No TXT records found", "check the name's DNS records"],
        ),
        // The name server has the answer of another order.
        (
            unpublished,
            true,
            ["Correct value not found", "check the name's DNS records"],
        ),
    ] {
        for name in ["engine.localhost", "t.engine.localhost"] {
            let method = if has_text { "PUT" } else { "DELETE" };
            manage(
                &authority,
                method,
                &format!("txt/_acme-challenge.{name}/other"),
            )?;
        }
        svc.kill_and_configure(|config| {
            config["certs"]["acme"] = authority.section(&acme);
        })?;
        wait_for_problem(&authority, &svc, &parts)?;
        is_in_use(&authority, &svc, &before)?;
    }
    Ok(())
}

/// The port of the name leads elsewhere when a renewal is due: the authority connects to a port
/// where this engine no longer listens.
#[test]
fn a_wrong_port_at_a_renewal_keeps_the_certificate_in_use() -> Result<()> {
    let authority = Authority::start(&[])?;
    let mut sections = authority.sections(&json!({}));
    sections["metrics"] = json!({"prometheus": {"enabled": true, "listen_addr": "127.0.0.1:0"}});
    let mut svc = Svc::engine_with(&sections)?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    let before = stored_chain(&authority)?;
    ask_for_renewal(&authority, &before)?;
    svc.kill_and_configure(|config| {
        config["certs"]["acme"]["challenges"] = json!(["http-01"]);
        config["http"]["listen_addr"] = json!("127.0.0.1:0");
    })?;
    wait_for_problem(
        &authority,
        &svc,
        &[
            "could not validate engine.localhost by http-01",
            "check the name's DNS records and that the authority reaches this host",
        ],
    )?;
    is_in_use(&authority, &svc, &before)?;
    // The engine stays ready, and reports the fault.
    let metrics = svc.ready()["metrics_url"].as_str().context("no metrics")?;
    let url = format!("{metrics}/readyz");
    eventually("the reason in the readiness", || {
        let answer = Curl::plain().get(&[&url])?;
        let reason = "the last order of a certificate failed: the certificate authority could not";
        Ok(answer.status == 200 && answer.text().contains(reason))
    })
}

/// A name server of the zone accepts connections, and does not answer.
#[test]
fn a_name_server_that_does_not_answer_is_reported() -> Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let address = silent.local_addr()?.to_string();
    let authority = Authority::start(&[("PEBBLE_DNS_SERVER", address.as_str())])?;
    let acme = json!({"challenges": ["dns-01"], "dns_program": "/bin/true"});
    let svc = authority.engine(&acme)?;
    wait_for_problem(
        &authority,
        &svc,
        &[
            "Error retrieving TXT records",
            "check the name's DNS records",
        ],
    )
}

/// An authority that is unreachable when a renewal is due: the window is from the authority, so the
/// engine has it only if the authority was reachable.
#[test]
fn an_unreachable_authority_at_a_renewal_keeps_the_certificate_in_use() -> Result<()> {
    let mut authority = Authority::start(&[])?;
    let mut svc = authority.engine(&json!({}))?;
    wait_for_certificate(&authority, &svc, "engine.localhost")?;
    authority.kill();
    // Another name is an order that is due now.
    svc.kill_and_configure(|config| {
        config["certs"]["acme"]["challenges"] = json!(["tls-alpn-01", "dns-01"]);
        config["certs"]["acme"]["dns_program"] = json!("/bin/false");
    })?;
    wait_for_problem(&authority, &svc, &["does not respond as expected"])?;
    let url = url(&svc, "engine.localhost")?;
    assert_eq!(Curl::trusting(authority.root()).get(&[&url])?.status, 200);
    Ok(())
}

/// Authorities that lie: the name of their authorization, its token, and a part of the message.
#[test]
fn an_authority_with_contradictory_answers_is_reported() -> Result<()> {
    for (name, token, part) in [
        (
            "other.example",
            "token",
            "offers no configured challenge for other.example",
        ),
        (
            "engine.localhost",
            "../token",
            "a token has invalid characters",
        ),
        // The delay that its order requests exceeds every clock.
        ("engine.localhost", "token", "the order is invalid"),
    ] {
        let directory = fake(move |path| lie(path, name, token))?;
        let authority = Authority::start(&[])?;
        let svc = authority.engine(&json!({"directory": directory}))?;
        wait_for_problem(&authority, &svc, &[part])?;
    }
    Ok(())
}

/// An authority on loopback without TLS, whose responses depend on the path: status, header fields
/// and body. It runs until the test program ends.
fn fake(
    answer: impl Fn(&str) -> (&'static str, String, String) + Send + 'static,
) -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A client that has gone needs no response.
            respond(&stream, address.port(), &answer).ok();
        }
    });
    Ok(format!("http://{address}/dir"))
}

fn respond(
    mut stream: &TcpStream,
    port: u16,
    answer: &impl Fn(&str) -> (&'static str, String, String),
) -> Result<()> {
    let mut reader = BufReader::new(stream);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let line = line.trim().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
        if line.is_empty() {
            break;
        }
    }
    // A body that is not read would reset the connection, and the response with it.
    reader.read_exact(&mut vec![0; length])?;
    let path = first.split(' ').nth(1).unwrap_or_default();
    let (status, fields, body) = answer(path);
    let port = port.to_string();
    let (fields, body) = (fields.replace("PORT", &port), body.replace("PORT", &port));
    write!(
        stream,
        "HTTP/1.1 {status}\r\n{fields}Connection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    Ok(())
}

/// Refuses new `accounts` or `orders` for two hours.
fn rate_limited(path: &str, limited: &str) -> (&'static str, String, String) {
    let address = |name: &str| json!(format!("http://127.0.0.1:PORT/{name}"));
    let json = |value: Value| value.to_string();
    match path {
        "/dir" => {
            let directory = json!({
                "newNonce": address("nonce"),
                "newAccount": address("account"),
                "newOrder": address("order"),
            });
            ("200 OK", String::new(), json(directory))
        }
        "/nonce" => ("200 OK", "Replay-Nonce: one\r\n".to_owned(), String::new()),
        "/account" if limited == "orders" => {
            let fields = "Location: http://127.0.0.1:PORT/account/1\r\nReplay-Nonce: two\r\n";
            ("201 Created", fields.to_owned(), "{}".to_owned())
        }
        _ => {
            let problem = json!({
                "type": "urn:ietf:params:acme:error:rateLimited",
                "detail": format!("too many {limited}"),
            });
            let fields = "Retry-After: 7200\r\nReplay-Nonce: two\r\n".to_owned();
            ("429 Too Many Requests", fields, json(problem))
        }
    }
}

/// Accepts an order for the engine's name. Its authorization is for `name`, and its end is invalid.
fn lie(path: &str, name: &str, token: &str) -> (&'static str, String, String) {
    let address = |name: &str| format!("http://127.0.0.1:PORT/{name}");
    let order = |status: &str| {
        json!({
            "status": status,
            "identifiers": [{"type": "dns", "value": "engine.localhost"}],
            "authorizations": [address("authorization")],
            "finalize": address("finalize"),
        })
        .to_string()
    };
    let challenge = json!({
        "type": "tls-alpn-01",
        "url": address("challenge"),
        "token": token,
        "status": "pending",
    });
    let nonce = "Replay-Nonce: three\r\n";
    match path {
        "/order" => {
            let fields = format!("{nonce}Location: {}\r\n", address("order/1"));
            ("201 Created", fields, order("pending"))
        }
        "/order/1" => {
            let fields = format!("{nonce}Retry-After: 18446744073709551615\r\n");
            ("200 OK", fields, order("invalid"))
        }
        "/authorization" => {
            let authorization = json!({
                "status": "pending",
                "identifier": {"type": "dns", "value": name},
                "challenges": [challenge],
            });
            ("200 OK", nonce.to_owned(), authorization.to_string())
        }
        "/challenge" => ("200 OK", nonce.to_owned(), challenge.to_string()),
        _ => rate_limited(path, "orders"),
    }
}
