//! A platform and its engine as `svc up` runs them: access to a published tunnel. Visitors are
//! Chromium, curl, and curl with a certificate made by OpenSSL. A refused visitor never reaches the
//! service, and can look up the reason.

use std::env;
use std::process::Command;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use e2e::{Agent, Answer, Platform, Service};
use serde_json::{Value, json};

/// A service behind a tunnel, with the targets of its requests.
struct PublishedService {
    agent: Agent,
    targets: mpsc::Receiver<String>,
}

impl PublishedService {
    fn new(platform: &Platform, args: &[&str]) -> Result<Self> {
        let (service, targets) = Service::reporting_mirror()?;
        let agent = platform.forward(&service.to_string(), args)?;
        Ok(Self { agent, targets })
    }

    fn url(&self, path: &str) -> String {
        self.agent.url(path)
    }

    /// The number of requests since the last call.
    fn seen(&self) -> usize {
        self.targets.try_iter().count()
    }
}

/// ED-2, ED-4, ED-6: a user signs in with the administrator's account, sees the service, signs out
/// and is refused. Ten tabs that open together all reach their page. A viewer of the workspace sees whom
/// to ask, and continues with another account. A program gets the answers for programs.
#[test]
fn ed_2_a_person_signs_in_at_a_tunnel_and_out_again() -> Result<()> {
    let platform = Platform::up()?;
    let session = PublishedService::new(&platform, &["--name", "team", "--svc-auth"])?;
    let challenge = PublishedService::new(&platform, &["--name", "door", "--challenge-mode"])?;
    let tabs = PublishedService::new(&platform, &["--name", "tabs", "--svc-auth"])?;
    let (at_session, at_challenge) = (session.url(""), challenge.url(""));

    let curl = platform.curl();
    refused(
        &curl.get(&[&session.url("/reports")])?,
        401,
        "unauthenticated",
    );
    let bad = bearer("a.b.c");
    let answer = curl.get(&[&session.url("/reports"), "-H", &bad])?;
    let vain = refused(&answer, 401, "unauthenticated");
    let detail = "Tokens are not accepted here. This address needs a browser session.";
    assert_eq!(answer.json()["detail"], detail);
    let explanation = platform.svc_json(&["explain", &vain])?;
    assert_eq!(explanation["record"]["detail"], detail, "{explanation}");
    let answer = curl.get(&[&challenge.url("/deep")])?;
    refused(&answer, 403, "challenge_required");
    assert_eq!((session.seen(), challenge.seen()), (0, 0));

    let ready = platform.ready();
    let given = json!({
        "session": at_session,
        "challenge": at_challenge,
        "tabs": tabs.url(""),
        "workspace": ready["workspace_id"],
        "token": ready["token"],
    });
    let results = platform.node_with("managed.mjs", given)?;
    let seen = results["session"]["seen"].as_str().unwrap_or_default();
    assert!(seen.starts_with("GET /reports?page=2 HTTP/1.1"), "{seen}");
    assert!(seen.contains("svc-auth-method: session"), "{seen}");
    assert!(!seen.contains("__Host-svc"), "{seen}");
    assert_eq!(results["session"]["refused"]["status"], 401);
    let paths = (session.seen(), challenge.seen());
    // One page each. A browser may also request an icon, with its cookie.
    assert!(
        (1..=2).contains(&paths.0) && (1..=2).contains(&paths.1),
        "{paths:?}"
    );
    let seen = results["challenge"]["seen"].as_str().unwrap_or_default();
    assert!(seen.starts_with("GET /deep?x=1 HTTP/1.1"), "{seen}");

    // The refusal after the sign-out, looked up by its reference.
    let reference = results["session"]["refused"]["reference"].as_str();
    let explanation = platform.svc_json(&["explain", reference.context("no reference")?])?;
    assert_eq!(explanation["record"]["rule"], "session", "{explanation}");
    assert_eq!(
        explanation["record"]["request"]["path"], "/again",
        "{explanation}"
    );
    Ok(())
}

/// ED-1, ED-1b, ED-1c, ED-4: a script passes with a token of the project, in the header or the
/// query, and with no other. `svc explain` names the rule, by reference and by address.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn ed_1c_a_script_passes_with_its_token_and_with_no_other() -> Result<()> {
    let platform = Platform::up()?;
    let tunnel =
        PublishedService::new(&platform, &["--name", "api", "--token-auth", "--svc-auth"])?;
    let curl = platform.curl();
    let url = tunnel.url("/v1");

    let token = platform.svc(&["token", "create", "--ttl", "5m"])?;
    let answer = curl.get(&[&url, "-H", &bearer(&token)])?;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(
        answer.text().contains("svc-auth-method: token"),
        "{answer:?}"
    );
    assert!(!answer.text().contains(&token), "{answer:?}");
    let in_query = format!("{url}?a=b&svc.token={token}");
    let answer = curl.get(&[&in_query])?;
    assert_eq!(answer.status, 200, "{answer:?}");
    assert!(
        answer.text().starts_with("GET /v1?a=b HTTP/1.1"),
        "{answer:?}"
    );
    assert_eq!(tunnel.seen(), 2);

    // No token, a token of another key, a malformed one, and one of another project.
    let needed = refused(&curl.get(&[&url])?, 401, "unauthenticated");
    let strangers = platform.svc(&["token", "mint", "--secret", STRANGERS])?;
    let answer = curl.get(&[&url, "-H", &bearer(&strangers)])?;
    let wrong = refused(&answer, 401, "invalid_token");
    let twice = format!("{in_query}&svc.token={token}");
    refused(&curl.get(&[&twice])?, 400, "invalid_request");
    let elsewhere = of_another_project(&platform)?;
    let answer = curl.get(&[&url, "-H", &bearer(&elsewhere)])?;
    let outside = refused(&answer, 403, "insufficient_scope");
    assert_eq!(tunnel.seen(), 0);

    // Expired: it is valid for a moment only.
    let brief = platform.svc(&["token", "create", "--ttl", "1s"])?;
    let deadline = Instant::now() + WAIT_LIMIT;
    // A visit during which it expires may be closed without a complete answer.
    while !matches!(curl.status(&[&url, "-H", &bearer(&brief)]), Ok(401)) {
        ensure!(Instant::now() < deadline, "it does not expire");
    }
    tunnel.seen();
    refused(
        &curl.get(&[&url, "-H", &bearer(&brief)])?,
        401,
        "invalid_token",
    );
    assert_eq!(tunnel.seen(), 0);

    let explanation = platform.svc_json(&["explain", &needed])?;
    let detail = "This address needs a token or a browser session.";
    assert_eq!(explanation["record"]["detail"], detail, "{explanation}");
    let explanation = platform.svc_json(&["explain", &wrong])?;
    let record = &explanation["record"];
    assert_eq!(record["rule"], "token", "{explanation}");
    assert_eq!(
        (&record["outcome"], &record["status"]),
        (&json!("denied"), &json!(401))
    );
    assert!(
        record["reason"].is_string() && explanation["next_step"].is_string(),
        "{explanation}"
    );
    assert!(
        !explanation.to_string().contains(&strangers),
        "the explanation contains no token"
    );
    let logs = platform.svc(&["project", "logs", "--outcome", "denied"])?;
    let line = logs.lines().find(|line| line.ends_with(&wrong));
    assert!(
        line.is_some_and(|line| line.contains("\t/v1\t401\t127.0.0.1\t")),
        "{logs}"
    );
    let explanation = platform.svc(&["explain", &outside])?;
    assert!(
        explanation.contains("rule        boundary"),
        "{explanation}"
    );

    // By address: the result combines the client's view with the engine's report.
    let explanation = platform.svc_json(&["explain", &url, "--token", &elsewhere])?;
    assert_eq!(
        explanation["visit"]["answer"]["status"], 403,
        "{explanation}"
    );
    assert_eq!(
        explanation["token"]["boundary"], "excludes_project",
        "{explanation}"
    );
    assert_eq!(
        explanation["visit"]["certificate"]["trusted"], true,
        "{explanation}"
    );
    assert_eq!(explanation["record"]["rule"], "boundary", "{explanation}");
    assert_eq!(tunnel.seen(), 0);
    let explanation = platform.svc_json(&["explain", &url, "--token", &token])?;
    assert_eq!(
        explanation["visit"]["answer"]["status"], 200,
        "{explanation}"
    );
    assert!(
        explanation["visit"]["answer"]["edge_ms"].is_number(),
        "{explanation}"
    );
    assert_eq!(explanation["token"]["boundary"], "none", "{explanation}");
    Ok(())
}

/// ED-3, ED-4, ED-5: a machine passes with a registered certificate, alone or with other guards. An
/// unregistered certificate is refused, and so is a certificate together with a token.
#[test]
fn ed_3_a_machine_passes_with_its_certificate_and_with_no_other() -> Result<()> {
    let platform = Platform::up()?;
    let only = PublishedService::new(&platform, &["--name", "machines", "--mtls-auth"])?;
    let guards = ["--token-auth", "--svc-auth", "--mtls-auth"];
    let any = PublishedService::new(&platform, &[&["--name", "any"], &guards[..]].concat())?;
    let known = client_certificate(&platform, "known")?;
    let stranger = client_certificate(&platform, "stranger")?;
    let register = ["credential", "create", "door", "--type", "mtls"];
    let credential = platform
        .svc_json(&[&register[..], &["--certificate-file", &known.certificate]].concat())?;

    let curl = platform.curl();
    let with = |certificate: &ClientCertificate, url: &str, more: &[&str]| {
        let own = [
            "--cert",
            &certificate.certificate,
            "--key",
            &certificate.key,
        ];
        curl.get(&[&[url], &own[..], more].concat())
    };
    // The engine receives it over the link.
    let deadline = Instant::now() + WAIT_LIMIT;
    let answer = loop {
        let answer = with(&known, &only.url("/"), &[])?;
        if answer.status == 200 {
            break answer;
        }
        ensure!(Instant::now() < deadline, "{answer:?}");
    };
    assert!(
        answer.text().contains("svc-auth-method: mtls"),
        "{answer:?}"
    );
    let id = credential["credential"]["id"].as_str().context("no id")?;
    assert!(answer.text().contains(&format!("svc-credential-id: {id}")));
    assert_eq!(with(&known, &any.url("/"), &[])?.status, 200);
    let token = platform.svc(&["token", "create", "--ttl", "5m"])?;
    assert_eq!(curl.status(&[&any.url("/"), "-H", &bearer(&token)])?, 200);
    assert_eq!((only.seen(), any.seen()), (1, 2));

    assert!(curl.get(&[&only.url("/")]).is_err(), "no handshake without");
    refused(
        &with(&stranger, &only.url("/"), &[])?,
        401,
        "invalid_certificate",
    );
    refused(
        &with(&stranger, &any.url("/"), &[])?,
        401,
        "invalid_certificate",
    );
    let both = with(&known, &any.url("/"), &["-H", &bearer(&token)])?;
    refused(&both, 400, "ambiguous_credentials");
    assert_eq!((only.seen(), any.seen()), (0, 0));

    // A revocation is effective at the engine within moments, on a new connection. A visit in
    // flight is closed without a complete answer.
    platform.svc(&["credential", "revoke", id])?;
    let deadline = Instant::now() + WAIT_LIMIT;
    while !matches!(with(&known, &only.url("/"), &[]), Ok(answer) if answer.status == 401) {
        ensure!(Instant::now() < deadline, "it is not revoked");
    }
    Ok(())
}

/// An operator takes down one address: its visitors are refused, the owner sees the reason, and the
/// other tunnels are not affected.
#[test]
fn an_operator_takes_down_one_address_and_restores_it() -> Result<()> {
    let platform = Platform::up()?;
    let shop = PublishedService::new(&platform, &["--name", "shop"])?;
    let other = PublishedService::new(&platform, &["--name", "other"])?;
    let curl = platform.curl();
    let url = shop.url("/");
    assert_eq!(curl.status(&[&url])?, 200);
    let token = platform.ready()["token"].as_str().context("no token")?;
    let operator = bearer(token);
    let takedowns = format!("{}/api/operator/takedowns", platform.base_url());
    let hostname = shop.agent.hostname()?;
    let body = json!({"hostname": hostname, "reason": "Phishing; ticket 4711."}).to_string();
    let json_body = ["-H", "Content-Type: application/json", "-d", &body];
    let to = [takedowns.as_str(), "-H", &operator];
    let answer = curl.get(&[&to[..], &json_body[..]].concat())?;
    assert_eq!(answer.status, 201, "{answer:?}");

    let deadline = Instant::now() + WAIT_LIMIT;
    // A visit in flight is closed without a complete answer.
    while !matches!(curl.status(&[&url]), Ok(403)) {
        ensure!(Instant::now() < deadline, "it is not taken down");
    }
    let reference = refused(
        &curl.get(&[&shop.url("/late")])?,
        403,
        "hostname_taken_down",
    );
    assert_eq!(curl.status(&[&other.url("/")])?, 200);
    // The service may receive a request late that was forwarded before the takedown.
    assert!(shop.targets.try_iter().all(|target| target == "/"));
    let explanation = platform.svc_json(&["explain", &reference])?;
    assert_eq!(explanation["record"]["rule"], "taken_down", "{explanation}");
    let list = platform.svc(&["project", "takedowns"])?;
    let is_listed =
        |line: &str| line.starts_with(hostname) && line.ends_with("\tPhishing; ticket 4711.");
    assert!(list.lines().any(is_listed), "{list}");

    let one = format!("{takedowns}/{hostname}");
    let restored = curl.status(&[&one, "-X", "DELETE", "-H", &operator])?;
    assert_eq!(restored, 204);
    let deadline = Instant::now() + WAIT_LIMIT;
    while curl.status(&[&url])? != 200 {
        ensure!(Instant::now() < deadline, "it is not restored");
    }
    Ok(())
}

/// Checks that the answer is a refusal of the edge with this status and code. Returns its
/// reference.
#[track_caller]
fn refused(answer: &Answer, status: u64, code: &str) -> String {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.json()["code"], code, "{answer:?}");
    let reference = answer.header("svc-reference").unwrap_or_default();
    assert_eq!(reference.len(), 24, "{answer:?}");
    assert_eq!(answer.json()["reference"], reference, "{answer:?}");
    reference.to_owned()
}

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}")
}

/// A token that is restricted to another project of the same user.
fn of_another_project(platform: &Platform) -> Result<String> {
    let preview = platform.svc_json(&["project", "create", "--preview"])?;
    let plans = preview["plans"].as_array().context("no plans")?;
    let basic = plans.iter().find(|plan| plan["plan"] == "basic");
    let fingerprint = basic.and_then(|plan| plan["creationFingerprint"].as_str());
    let fingerprint = fingerprint.context("no fingerprint")?;
    let create = ["project", "create", "other", "--plan", "basic"];
    let other: Value = platform.svc_json(&[&create[..], &["--confirm", fingerprint]].concat())?;
    let resources = json!({"tunnels": {"projects": [other["id"]]}}).to_string();
    platform.svc(&["token", "create", "--resources", &resources])
}

/// Files of a client certificate and its key.
struct ClientCertificate {
    certificate: String,
    key: String,
}

/// A self-signed one, as used by machines.
fn client_certificate(platform: &Platform, name: &str) -> Result<ClientCertificate> {
    let Some(openssl) = env::var_os("SVC_TEST_OPENSSL") else {
        bail!("SVC_TEST_OPENSSL is not set: run `cargo xtask test`");
    };
    let file = |kind: &str| {
        let path = platform.directory().join(format!("{name}.{kind}"));
        path.to_string_lossy().into_owned()
    };
    let (certificate, key) = (file("pem"), file("key"));
    let created = Command::new(openssl)
        .args(["req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"])
        .args(["-pkeyopt", "ec_paramgen_curve:P-256"])
        .args(["-subj", &format!("/CN={name}")])
        .args(["-keyout", &key, "-out", &certificate])
        .output()?;
    ensure!(
        created.status.success(),
        "openssl: {}",
        String::from_utf8_lossy(&created.stderr)
    );
    Ok(ClientCertificate { certificate, key })
}

/// A key that the platform does not have, long enough for HS256.
const STRANGERS: &str = "a secret of a stranger, of no worth anywhere at all";
/// Longer than any step of these tests takes.
const WAIT_LIMIT: Duration = Duration::from_mins(1);
