//! The TURN relay of `svc up`: third-party clients reach each other through it, with credentials
//! that the platform issued and with derived ones. Clients without permission are refused.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{Platform, TurnClient, eventually, node, python, relay_of};
use serde_json::{Value, json};

/// Seconds until a revocation must be effective: normally one, but more on a busy machine.
const SOON: f64 = 10.0;

/// coturn's client, over every transport, in pairs that send to each other.
#[test]
fn coturns_client_relays_over_udp_tcp_and_tls() -> Result<()> {
    let platform = Platform::up()?;
    let (host, [port, tls_port]) = relay_of(&platform)?;
    let pat = derived_from_token(&platform, 600)?;
    let issued = platform.svc_json(&["turn-credentials"])?;
    for credential in [issued, pat] {
        let text = |key: &str| credential[key].as_str().unwrap_or_default();
        // The last two relay TCP (RFC 6062): one client connects to the other's relayed address.
        let transports = [
            &[][..],
            &["-s"],
            &["-c"],
            &["-t"],
            &["-t", "-S"],
            &["-T"],
            &["-T", "-S"],
        ];
        for flags in transports {
            let port = if flags.contains(&"-S") {
                tls_port
            } else {
                port
            };
            let output = Command::new(uclient()?)
                .args(["-y", "-n", "10", "-m", "2", "-u", text("username")])
                .args(["-w", text("credential"), "-p", &port.to_string()])
                .args(flags)
                .arg(&host)
                .output()?;
            let output_text = String::from_utf8_lossy(&output.stdout);
            ensure!(
                output.status.success() && output_text.contains("Total lost packets 0 (0.000000%)"),
                "{flags:?}: {output_text}"
            );
        }
    }
    Ok(())
}

/// aiortc: two peers with relay candidates only, and a data channel between them.
#[test]
fn aiortc_connects_through_the_relay() -> Result<()> {
    let platform = Platform::up()?;
    let issued = platform.svc_json(&["turn-credentials"])?;
    let urls = issued["urls"].as_array().cloned().unwrap_or_default();
    let pat = derived_from_token(&platform, 600)?;
    // It accepts one url, and no TLS with a private authority.
    for (credential, url) in [(&issued, 0), (&pat, 0), (&pat, 1)] {
        let mut given = credential.clone();
        given["urls"] = json!([urls.get(url)]);
        let mut command = Command::new(python()?);
        command.arg(here().join("python/turn_aiortc.py"));
        let result = printed(command.env("TURN_CREDENTIAL", given.to_string()))?;
        assert_eq!(
            result,
            json!({"text": "good day to you", "kinds": ["relay"]})
        );
    }
    Ok(())
}

/// Chromium, with `iceTransportPolicy: relay`, over UDP, TCP and TLS, with a credential that the
/// platform issued and with one derived from a token.
#[test]
fn chromium_connects_through_the_relay() -> Result<()> {
    let platform = Platform::up()?;
    let issued = platform.svc_json(&["turn-credentials"])?;
    let urls = issued["urls"].as_array().cloned();
    // Not TLS over UDP, because the relay has no DTLS.
    let mut urls = urls.unwrap_or_default();
    urls.retain(|url| url.as_str().is_some_and(|url| !is_dtls(url)));
    for mut credential in [issued, derived_from_token(&platform, 600)?] {
        credential["urls"] = json!(urls);
        let mut command = Command::new(node()?);
        command.arg(here().join("../node/turn.mjs"));
        let result = printed(command.env("TURN_CREDENTIAL", credential.to_string()))?;
        assert_eq!(result, json!({"met": 3}));
    }
    Ok(())
}

fn is_dtls(url: &str) -> bool {
    url.starts_with("turns:") && url.ends_with("transport=udp")
}

/// TU-4: a credential that is expired, or valid for more than an hour, is refused, whatever its
/// origin.
#[test]
fn tu_4_expired_and_long_lived_credentials_are_refused() -> Result<()> {
    let platform = Platform::up()?;
    let mut client = TurnClient::start(&platform)?;
    for (ttl, code) in [
        (600, 0),
        (3595, 0),
        (0, 401),
        (-60, 401),
        (3700, 401),
        (86_400, 401),
    ] {
        let credential = derived_from_token(&platform, ttl)?;
        assert_eq!(client.allocate("one", &credential, "udp")?, code, "{ttl} s");
    }
    Ok(())
}

/// A call does not end with its credential, and still ends when the credential's origin is revoked.
#[test]
fn a_call_continues_after_its_credential_has_expired() -> Result<()> {
    let platform = Platform::up()?;
    let mut client = TurnClient::start(&platform)?;
    let create = ["credential", "create", "call", "--ttl", "24h"];
    let permission = ["--permission", "turn.relay.allocate"];
    let issued = platform.svc_json(&[&create[..], &permission].concat())?;
    let token = issued["token"].as_str().context("no token")?;
    let order = derive_pat(&platform, token, 15)?;
    let mut credential = Value::Null;
    eventually("the token is known", || {
        // Derived again each time, so that it does not expire before the relay has the token.
        credential = client.order(&order)?;
        Ok(client.allocate("call", &credential, "udp")? == 0)
    })?;
    let refresh = json!({"refresh": "call"});
    assert_eq!(client.order(&refresh)?["code"], 0);
    eventually("the end of the credential", || {
        // Each closes the connection of the one before it, which ends its allocation.
        Ok(client.allocate("late", &credential, "tcp")? == 401)
    })?;
    assert_eq!(client.order(&refresh)?["code"], 0);

    let id = issued["credential"]["id"].as_str().unwrap_or_default();
    platform.svc(&["credential", "revoke", id])?;
    let ended = client.order(&json!({"ended": "call", "within": SOON}))?;
    let seconds = ended["ended"].as_f64().unwrap_or(f64::MAX);
    assert!(seconds < SOON && ended["code"] != 0, "{ended}");
    Ok(())
}

/// TU-5: credentials derived from a token or an application have its permissions and its boundary.
/// When it is revoked, their allocations end within a second.
#[test]
fn tu_5_derived_credentials_are_checked_and_end_with_their_origin() -> Result<()> {
    let platform = Platform::up()?;
    let mut client = TurnClient::start(&platform)?;
    let pat = |name: &str, flags: &[&str]| {
        let create = ["credential", "create", name, "--ttl", "24h"];
        platform.svc_json(&[&create[..], flags].concat())
    };
    let good = pat("good", &["--permission", "turn.relay.allocate"])?;
    let weak = pat("weak", &["--permission", "turn.credentials.create"])?;
    let other = json!({"tunnels": {"projects": ["prj_01h455vb4pex5vsknk084sn02q"]}});
    let elsewhere = pat("elsewhere", &["--resources", &other.to_string()])?;
    let text = |value: &Value| value["token"].as_str().unwrap_or_default().to_owned();
    let credential = |client: &mut TurnClient, token: &Value| {
        client.order(&derive_pat(&platform, &text(token), 600)?)
    };
    let derived = credential(&mut client, &good)?;
    // The relay receives a token after the platform has created it.
    eventually("the token is known", || {
        Ok(client.allocate("one", &derived, "udp")? == 0)
    })?;
    assert_eq!(client.allocate("two", &derived, "tls")?, 0);
    let echoed = client.order(&json!({"echo": ["one", "two"], "bytes": 40}))?;
    assert_eq!(echoed, json!({"codes": [0, 0], "echoed": 40}));
    for (token, what) in [(&weak, "permission"), (&elsewhere, "boundary")] {
        let derived = credential(&mut client, token)?;
        eventually(what, || Ok(client.allocate("x", &derived, "udp")? == 403))?;
    }
    let mut foreign = derived.clone();
    let username = derived["username"].as_str().unwrap_or_default();
    let endpoint = platform.ready()["project_endpoint"]
        .as_str()
        .unwrap_or_default();
    foreign["username"] = json!(username.replace(endpoint, "00000000"));
    assert_eq!(
        client.allocate("x", &foreign, "udp")?,
        401,
        "the password is of another username"
    );
    let mut order = derive_pat(&platform, &text(&good), 600)?;
    order["endpoint"] = json!("00000000");
    let foreign = client.order(&order)?;
    assert_eq!(
        client.allocate("x", &foreign, "udp")?,
        403,
        "a good password, for a project that is not of the token's owner"
    );

    let id = good["credential"]["id"].as_str().unwrap_or_default();
    platform.svc(&["credential", "revoke", id])?;
    let ended = client.order(&json!({"ended": "one", "within": SOON}))?;
    let seconds = ended["ended"].as_f64().unwrap_or(f64::MAX);
    assert!(seconds < SOON && ended["code"] != 0, "{ended}");
    assert_eq!(client.allocate("three", &derived, "udp")?, 401);
    Ok(())
}

/// TU-5: an application agrees on a key with the relay, whose public half is published.
#[test]
fn tu_5_an_application_derives_its_own_credentials() -> Result<()> {
    let platform = Platform::up()?;
    let mut client = TurnClient::start(&platform)?;
    let pair = client.order(&json!({"keypair": true}))?;
    let file = platform.directory().join("application.pem");
    std::fs::write(&file, pair["public_key"].as_str().unwrap_or_default())?;
    let file = file.display().to_string();
    let create = [
        "credential",
        "create",
        "calls",
        "--type",
        "app",
        "--ttl",
        "24h",
    ];
    let created = platform.svc_json(&[&create[..], &["--public-key-file", &file]].concat())?;
    let realm = platform.ready()["turn_realm"].as_str().unwrap_or_default();
    let url = format!("{}/keyrings/turn/{realm}.spki.der.hex", platform.base_url());
    let relay_key = platform.curl().get(&[&url])?.text().trim().to_owned();
    let derived = client.order(&json!({
        "derive": "app",
        "endpoint": platform.ready()["project_endpoint"],
        "subject": created["credential"]["id"],
        "realm": realm,
        "ttl": 600,
        "private_key": pair["private_key"],
        "relay_key": relay_key,
    }))?;
    eventually("the application is known", || {
        Ok(client.allocate("one", &derived, "udp")? == 0)
    })?;
    assert_eq!(client.allocate("two", &derived, "tcp")?, 0);
    let echoed = client.order(&json!({"echo": ["one", "two"], "bytes": 20}))?;
    assert_eq!(echoed, json!({"codes": [0, 0], "echoed": 20}));
    let id = created["credential"]["id"].as_str().unwrap_or_default();
    platform.svc(&["credential", "revoke", id])?;
    let ended = client.order(&json!({"ended": "one", "within": SOON}))?;
    assert!(
        ended["ended"].as_f64().unwrap_or(f64::MAX) < SOON,
        "{ended}"
    );
    Ok(())
}

/// Relayed bytes count as the project's TURN usage.
#[test]
fn relayed_bytes_are_reported_as_usage() -> Result<()> {
    let platform = Platform::up()?;
    let mut client = TurnClient::start(&platform)?;
    let issued = platform.svc_json(&["turn-credentials"])?;
    assert_eq!(client.allocate("one", &issued, "udp")?, 0);
    assert_eq!(client.allocate("two", &issued, "tcp")?, 0);
    let echoed = client.order(&json!({"echo": ["one", "two"], "bytes": 100}))?;
    assert_eq!(echoed["echoed"], 100);
    let peer = json!({"peer": "one", "address": "10.0.0.1", "port": 9});
    assert_eq!(
        client.order(&peer)?,
        json!({"code": 403}),
        "a private network"
    );
    let (host, [port, _]) = relay_of(&platform)?;
    let itself = json!({"peer": "one", "address": host, "port": port});
    assert_eq!(
        client.order(&itself)?,
        json!({"code": 403}),
        "the relay's own listener"
    );
    // 4950 bytes in each direction, out of one relay and into the other.
    eventually("usage is told", || {
        let usage = platform.svc_json(&["project", "usage", "--turn", "--timeline", "1h"])?;
        Ok(usage.to_string().contains("19800"))
    })
}

/// A credential of the administrator's own token.
fn derived_from_token(platform: &Platform, ttl: i64) -> Result<Value> {
    let token = platform.ready()["token"].as_str().unwrap_or_default();
    TurnClient::start(platform)?.order(&derive_pat(platform, token, ttl)?)
}

fn derive_pat(platform: &Platform, token: &str, ttl: i64) -> Result<Value> {
    Ok(json!({
        "derive": "pat",
        "endpoint": platform.ready()["project_endpoint"],
        "subject": token_endpoint(token)?,
        "realm": platform.ready()["turn_realm"],
        "ttl": ttl,
        "token": token,
    }))
}

/// The endpoint in a token's claims.
fn token_endpoint(token: &str) -> Result<String> {
    let output = Command::new(python()?)
        .args(["-c", "import base64,json,sys; p=sys.argv[1].split('.')[1]; print(json.loads(base64.urlsafe_b64decode(p+'=='))['token_endpoint'])", token])
        .output()?;
    ensure!(output.status.success(), "a token without an endpoint");
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

fn uclient() -> Result<PathBuf> {
    match env::var_os("SVC_TEST_UCLIENT") {
        Some(program) => Ok(program.into()),
        None => bail!("SVC_TEST_UCLIENT is not set: run `cargo xtask test`"),
    }
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn printed(command: &mut Command) -> Result<Value> {
    let output = command.env("PYTHONDONTWRITEBYTECODE", "1").output()?;
    ensure!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(serde_json::from_slice(&output.stdout)?)
}
