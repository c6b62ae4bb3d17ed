//! Combined authentication methods over real connections, and the information that the edge adds to
//! a visit.

use client::Properties;
use serde_json::Value;
use testing::{RawVisitor, ScriptedUpstream, TestTunnel};

use crate::raw_tunnels::tls::client;

use super::{A, PAGE, Site, received_values, with_sessions};

/// ED-4: the token is checked first and is final. The service receives none of the refused
/// requests.
#[tokio::test]
async fn ed_4_a_token_is_checked_before_the_session_and_is_final() {
    let properties = with_sessions().token_auth(true);
    let site = Site::start(properties).await;
    let good = site.token.clone();
    let (_, barred) = site.platform.add_pat("usr_eve");
    site.engine.wait_for_changes().await;
    let bearer = |token: &str| format!("{PAGE}Authorization: Bearer {token}\r\n");
    let refused: [(String, String, u16); 6] = [
        ("/".to_owned(), PAGE.to_owned(), 302),
        ("/".to_owned(), String::new(), 401),
        ("/".to_owned(), bearer("no.good.token"), 401),
        ("/".to_owned(), bearer(&barred), 403),
        ("/?svc.token=no.good.token".to_owned(), bearer(&good), 401),
        ("/?svc.token=".to_owned(), bearer(&good), 400),
    ];
    for (target, fields, status) in &refused {
        assert_eq!(
            site.get(target, fields).await.status,
            *status,
            "{target} {fields}"
        );
    }
    assert_eq!(site.service.accepted(), 0);
    let answer = site.get("/", &bearer(&good)).await;
    assert_eq!(
        received_values(&answer.json(), "svc-auth-method"),
        ["token"]
    );
    let answer = site
        .get(
            &format!("/?svc.token={good}"),
            &bearer("of-the-application"),
        )
        .await;
    assert_eq!(
        received_values(&answer.json(), "authorization"),
        ["Bearer of-the-application"]
    );
}

/// ED-2: a service cannot set the edge's cookies, over either HTTP version.
#[tokio::test]
async fn ed_2_a_service_cannot_set_the_edges_cookies() {
    let site = Site::start(Properties::http()).await;
    let service = ScriptedUpstream::answering(
        "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nSet-Cookie: a=1\r\n\
         Set-Cookie: __Host-svc_auth=theirs; Path=/; Secure\r\nSet-Cookie: b=2\r\n\
         Set-Cookie: =__Host-svc_challenge=theirs\r\n\r\n",
    )
    .await;
    let agent = site.engine.agent_at(A, &site.token).await;
    let target: client::Target = service.addr().to_string().parse().unwrap();
    let tunnel = TestTunnel::open(agent, Properties::http(), target).await;
    let host = tunnel.hostname();
    let over_1 = site.engine.visitor().http1(host).await.get("/", host).await;
    let over_2 = site.engine.visitor().h2(host).await.get("/", host).await;
    for answer in [over_1, over_2] {
        assert_eq!(answer.status, 200);
        let set = answer
            .headers
            .iter()
            .filter(|(name, _)| name == "set-cookie");
        let set: Vec<_> = set.map(|(_, value)| value.as_str()).collect();
        assert_eq!(set, ["a=1", "b=2"]);
    }
}

/// Timings are only sent to authenticated visitors that request them.
#[tokio::test]
async fn timings_are_sent_to_authenticated_visitors_on_request() {
    let properties = Properties::http().token_auth(true);
    let site = Site::start(properties).await;
    let bearer = format!("Authorization: Bearer {}\r\n", site.token);
    let asked = format!("{bearer}svc-debug: timing\r\n");
    let answer = site.get("/", &asked).await;
    let timing = answer.header("server-timing").unwrap();
    assert!(
        timing.contains("edge;") && timing.contains("service;"),
        "{timing}"
    );
    assert!(received_values(&answer.json(), "svc-debug").is_empty());
    let mut visitor = site.engine.visitor().h2(site.host()).await;
    let request = http::Request::get(format!("https://{}/", site.host()))
        .header("authorization", format!("Bearer {}", site.token))
        .header("svc-debug", "timing")
        .body(testing::H2Visitor::empty())
        .unwrap();
    let response = visitor.send(request).await.unwrap();
    assert!(response.headers().contains_key("server-timing"));
    assert!(
        site.get("/", &bearer)
            .await
            .header("server-timing")
            .is_none()
    );
    let refused = site.get("/", "svc-debug: timing\r\n").await;
    assert!(refused.header("server-timing").is_none());
    let open = Site::start(Properties::http()).await;
    let answer = open.get("/", "svc-debug: timing\r\n").await;
    assert!(
        answer.header("server-timing").is_none(),
        "no visitor is authenticated"
    );
}

/// The error that a visitor gets has a reference. The log record with that reference names the rule
/// that decided.
#[tokio::test]
async fn a_reference_leads_to_the_rule_that_decided() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let site = Site::start_with(with_sessions(), &format!("access_log: {{path: {log:?}}}")).await;
    let answer = site.get("/", "").await;
    let reference = answer.header("svc-reference").unwrap().to_owned();
    assert_eq!(answer.json()["reference"], reference);
    let needed = "This address needs a browser session.";
    assert_eq!(answer.json()["detail"], needed);
    let bearer = "Authorization: Bearer a.b.c\r\n";
    for (target, fields) in [("/", bearer), ("/?svc.token=a.b.c", "")] {
        let answer = site.get(target, fields).await;
        let detail = format!("Tokens are not accepted here. {needed}");
        assert_eq!(answer.json()["detail"], detail, "{target}");
    }
    let page = site.get("/.well-known/svc/callback", PAGE).await;
    let shown = page.header("svc-reference").unwrap().to_owned();
    assert!(page.text().contains(&shown), "{}", page.text());
    let Site { engine, tunnel, .. } = site;
    drop(tunnel);
    engine.stop().await;
    let text = std::fs::read_to_string(log).unwrap();
    let records: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let record = |id: &str| records.iter().find(|record| record["id"] == *id).unwrap();
    let refused = record(&reference);
    assert_eq!(
        (&refused["rule"], &refused["failure"]),
        (&"session".into(), &"unauthenticated".into())
    );
    assert_eq!(refused["reason"], "no session");
    assert!(refused["explain"].as_str().unwrap().contains("sign in"));
    assert_eq!(record(&shown)["failure"], "sign_in_failed");
}

/// ED-8: a change of the project's policy applies to open tunnels and to new ones.
#[tokio::test]
async fn ed_8_a_projects_policy_applies_immediately_and_at_opening() {
    use api::control::settings::{MinTlsVersion, PublicAccessPolicy};
    let site = Site::start(Properties::http()).await;
    assert_eq!(site.get("/", "").await.status, 200);
    let set = async |policy, min_tls| {
        site.platform.add_project_with(A, |project| {
            project.settings.public_access_policy = policy;
            project.settings.min_tls_version = min_tls;
        });
        site.engine.wait_for_changes().await;
    };
    set(PublicAccessPolicy::AuthRequired, None).await;
    let answer = site.get("/", "").await;
    assert_eq!(
        (answer.status, &answer.json()["code"]),
        (403, &"public_access_not_allowed".into())
    );
    let agent = site.engine.agent_at(A, &site.token).await;
    let refused = agent.open(Properties::http()).online().await;
    assert!(refused.unwrap_err().to_string().contains("token_auth"));
    set(PublicAccessPolicy::Forbidden, None).await;
    assert_eq!(site.get("/", "").await.status, 403);
    // The next handshake uses the newer version (`mtls::ed_8_…`). This test covers an existing
    // connection.
    let older = client(site.engine.ca(), &[&rustls::version::TLS12], &["http/1.1"]);
    let older = site.engine.visitor().connect(site.host(), &older).await;
    set(PublicAccessPolicy::Allowed, Some(MinTlsVersion::Tls13)).await;
    assert_eq!(
        site.get("/", "").await.status,
        200,
        "visitors of tests speak TLS 1.3"
    );
    let answer = RawVisitor::new(older).get("/", site.host()).await;
    assert_eq!(
        (answer.status, &answer.json()["code"]),
        (403, &"tls_version_too_low".into())
    );
}
