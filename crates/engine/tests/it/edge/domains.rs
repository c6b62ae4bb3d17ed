//! Custom domains of a community engine.

use std::path::Path;
use std::sync::Arc;

use client::Properties;
use engine::clock::SystemClock;
use serde_json::json;
use tempfile::TempDir;
use testing::{RawVisitor, TestCa, TestEngine, TestTunnel, Upstream, Visitor, within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use wire::ErrorCode;

use crate::agent::raw_messages::{self, PlainAgent, Wire};

const APP: &str = "app.example.com";

/// An engine whose domains have certificates of an authority of their own.
struct Site {
    engine: TestEngine,
    ca: TestCa,
    /// Contains the certificate of the domains.
    files: TempDir,
}

impl Site {
    /// Starts it for `app.example.com` and the names below `wild.example.com`.
    async fn start() -> Self {
        let ca = TestCa::new();
        let files = tempfile::tempdir().unwrap();
        write(&ca, files.path());
        let engine = TestEngine::start_with(&sections(files.path())).await;
        Self { engine, ca, files }
    }

    fn visitor(&self) -> Visitor {
        Visitor::new(self.engine.addr(), &self.ca)
    }

    /// Publishes a service under a custom domain.
    async fn publish(&self, domain: &str, service: &Upstream) -> TestTunnel {
        let properties = Properties::http().hostname(domain);
        self.engine.publish_as(properties, service.addr()).await
    }
}

/// Issues the certificate of the domains.
fn write(ca: &TestCa, directory: &Path) {
    let names = [APP, "other.example.com", "*.wild.example.com"];
    ca.issue(&names).write_to(directory);
}

fn sections(files: &Path) -> String {
    let domain = |name: &str| {
        json!({
            "name": name,
            "cert_file": files.join("cert.pem"),
            "key_file": files.join("key.pem"),
        })
    };
    let domains = ["APP.example.com", "other.example.com", "*.wild.example.com"];
    format!("domains: {}", json!(domains.map(domain)))
}

async fn status(visitor: &Visitor, host: &str) -> (u16, Option<String>) {
    let answer = visitor.http1(host).await.get("/", host).await;
    if answer.status == 200 {
        return (200, None);
    }
    let code = answer.json()["code"].as_str().map(str::to_owned);
    (answer.status, code)
}

#[tokio::test]
async fn a_tunnel_is_reached_by_its_custom_domain() {
    let site = Site::start().await;
    let service = Upstream::http1().await;
    let app = site.publish(APP, &service).await;
    let below = site.publish("a.wild.example.com", &service).await;
    assert_eq!(app.hostname(), APP);
    let port = site.engine.addr().port();
    let forwarding = app.online().properties.forwarding(port);
    assert_eq!(forwarding, format!("https://{APP}:{port}"));
    for host in [APP, below.hostname()] {
        let visitor = site.visitor();
        assert_eq!(visitor.http1(host).await.get("/", host).await.status, 200);
        assert_eq!(visitor.h2(host).await.get("/", host).await.status, 200);
    }
    // Names below the engine's own host stay as they are.
    let label = site.engine.publish(service.addr()).await;
    let visitor = site.engine.visitor();
    assert_eq!(status(&visitor, label.hostname()).await, (200, None));
    // The lists show the domain.
    let mut visitor = visitor.http1(site.engine.host()).await;
    let bearer = format!("Authorization: Bearer {}\r\n", site.engine.token(json!({})));
    visitor
        .request("GET", "/api/tunnels", site.engine.host(), &bearer)
        .await;
    let listed = visitor.answer().await.json();
    let listed = listed.as_array().unwrap().iter();
    let mut names = listed.filter_map(|tunnel| tunnel["hostname"].as_str());
    assert!(names.any(|name| name == APP));
}

#[tokio::test]
async fn the_rules_of_the_edge_apply_to_a_custom_domain() {
    let site = Site::start().await;
    let service = Upstream::http1().await;
    let properties = Properties::http().hostname(APP).token_auth(true);
    let _tunnel = site.engine.publish_as(properties, service.addr()).await;
    let mut visitor = site.visitor().http1(APP).await;
    assert_eq!(visitor.get("/", APP).await.status, 401);
    let bearer = format!("Authorization: Bearer {}\r\n", site.engine.token(json!({})));
    let mut visitor = site.visitor().http1(APP).await;
    visitor.request("GET", "/", APP, &bearer).await;
    assert_eq!(visitor.answer().await.status, 200);
    assert_eq!(service.accepted(), 1);
}

#[tokio::test]
async fn a_request_for_another_name_than_that_of_the_handshake_is_misdirected() {
    let site = Site::start().await;
    let service = Upstream::http1().await;
    let app = site.publish(APP, &service).await;
    let label = site.engine.publish(service.addr()).await;
    let of_app = site.visitor().http1(app.hostname()).await;
    let of_label = site.engine.visitor().http1(label.hostname()).await;
    for (mut visitor, host) in [(of_app, label.hostname()), (of_label, app.hostname())] {
        let answer = visitor.get("/", host).await;
        assert_eq!(
            (answer.status, answer.json()["code"].as_str()),
            (421, Some("misdirected_request"))
        );
    }
}

/// Letters, the dot of the root and the port of `Host` are of no importance. Longer names are
/// others.
#[tokio::test]
async fn every_spelling_of_a_domain_leads_to_its_tunnel() {
    let site = Site::start().await;
    let service = Upstream::http1().await;
    let _app = site.publish(APP, &service).await;
    for host in [
        "APP.Example.com",
        "app.example.com.",
        "App.example.COM.:443",
    ] {
        let mut visitor = site.visitor().http1(APP).await;
        assert_eq!(visitor.get("/", host).await.status, 200, "{host}");
    }
    for host in [
        "app.example.com..",
        "app.example.com.example.net",
        "xapp.example.com",
        ".app.example.com",
        "app.example.com@example.net",
    ] {
        let mut visitor = site.visitor().http1(APP).await;
        let answer = visitor.get("/", host).await;
        assert!([400, 421].contains(&answer.status), "{host}");
    }
}

#[tokio::test]
async fn a_domain_without_an_agent_is_unknown_or_offline() {
    let site = Site::start().await;
    let service = Upstream::http1().await;
    let visitor = site.visitor();
    let unknown = (404, Some("tunnel_not_found".to_owned()));
    assert_eq!(status(&visitor, APP).await, unknown);
    let tunnel = site.publish(APP, &service).await;
    assert_eq!(status(&visitor, APP).await, (200, None));
    tunnel.close().await;
    let offline = (503, Some("tunnel_offline".to_owned()));
    assert_eq!(status(&visitor, APP).await, offline);
    assert_eq!(status(&visitor, "b.wild.example.com").await, unknown);
}

/// Agents of an earlier process may return within the grace.
#[tokio::test]
async fn a_domain_is_offline_during_the_startup_grace() {
    let ca = TestCa::new();
    let files = tempfile::tempdir().unwrap();
    write(&ca, files.path());
    let sections = format!(
        "timeouts: {{startup_grace_seconds: 3600}}\n{}",
        sections(files.path())
    );
    let engine = TestEngine::start_with(&sections).await;
    let visitor = Visitor::new(engine.addr(), &ca);
    let offline = (503, Some("tunnel_offline".to_owned()));
    assert_eq!(status(&visitor, APP).await, offline);
}

/// EN-11: other names are refused with the next step.
#[tokio::test]
async fn en_11_a_name_that_is_no_domain_of_the_engine_is_refused() {
    let site = Site::start().await;
    let mut agent = PlainAgent::connect(&site.engine).await;
    for (name, next_step) in [
        ("unknown.example.com", "`domains`"),
        ("wild.example.com", "`domains`"),
        ("a.b.wild.example.com", "`domains`"),
        ("www.app.example.com", "`domains`"),
        ("web.engine.localhost", "single label"),
    ] {
        let refused = agent.open(raw_messages::http(name)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorCode::FeatureNotAvailable, "{name}");
        let text = refused.to_string();
        assert!(text.contains(next_step) && text.contains(name), "{text}");
    }
}

/// Visitors of such a name would never reach the tunnel.
#[tokio::test]
async fn a_name_of_another_server_below_a_wildcard_is_refused() {
    let files = tempfile::tempdir().unwrap();
    write(&TestCa::new(), files.path());
    let routes = "[{server_name: routed.wild.example.com, to: '127.0.0.1:1'}]";
    let variables = [("SVC_TLS__ROUTES", routes)];
    let clock = Arc::new(SystemClock);
    let engine = TestEngine::start_at(&sections(files.path()), &variables, clock).await;
    let mut agent = PlainAgent::connect(&engine).await;
    let refused = agent
        .open(raw_messages::http("Routed.wild.example.com"))
        .await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.kind(), ErrorCode::FeatureNotAvailable);
    assert!(refused.to_string().contains("`tls.routes`"), "{refused}");
    agent
        .open(raw_messages::http("a.wild.example.com"))
        .await
        .unwrap();
}

/// A domain has one holder, as a label has.
#[tokio::test]
async fn only_the_same_identity_may_take_over_a_domain() {
    let site = Site::start().await;
    let engine = &site.engine;
    for name in [APP, "c.wild.example.com"] {
        let mut holder = PlainAgent::connect(engine).await;
        let first = holder.open(raw_messages::http(name)).await.unwrap();
        assert_eq!(first.hostname.unwrap().value, name);
        let again = holder.open(raw_messages::http(name)).await.unwrap_err();
        assert_eq!(again.kind(), ErrorCode::InvalidRequest, "the same channel");
        let other = json!({"userId": "usr_other"});
        let mut other = PlainAgent::connect_as(engine, other).await;
        let refused = other.open(raw_messages::http(name)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorCode::InvalidRequest, "{refused}");
        let upper = name.to_uppercase();
        let refused = other.open(raw_messages::http(&upper)).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorCode::InvalidRequest, "{refused}");
        let mut second = PlainAgent::connect(engine).await;
        let taken = second.open(raw_messages::http(&upper)).await.unwrap();
        assert_eq!(taken.hostname.unwrap().value, name);
    }
}

/// The boundary of a token can restrict its domains.
#[tokio::test]
async fn the_boundary_of_a_token_may_name_a_domain() {
    let site = Site::start().await;
    let create = json!({"create": {"filters": {"hostname": APP}}});
    let boundary = json!({"projects": ["default"], "scopes": {"tunnels": create}});
    let claims = json!({"resources": {"tunnels": boundary}});
    let mut agent = PlainAgent::connect_as(&site.engine, claims).await;
    agent.open(raw_messages::http(APP)).await.unwrap();
    let refused = agent.open(raw_messages::http("other.example.com")).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorCode::Unauthorized);
}

/// EN-10: agents connect to the engine's own host only.
#[tokio::test]
async fn en_10_an_agent_cannot_connect_to_a_custom_domain() {
    let site = Site::start().await;
    let socket = TcpStream::connect(site.engine.addr()).await.unwrap();
    let connector = TlsConnector::from(site.ca.client(&["svc/1"]));
    let connecting = connector.connect(APP.try_into().unwrap(), socket);
    assert!(within("end of the handshake", connecting).await.is_err());
    // The engine's own host still serves agents.
    Wire::connect(&site.engine).await;
}

/// A server name that is not a domain gets the engine's own certificate, which its visitors refuse.
#[tokio::test]
async fn an_unknown_name_gets_no_certificate_of_a_domain() {
    let site = Site::start().await;
    for name in [
        "unknown.example.com",
        "wild.example.com",
        "a.b.wild.example.com",
    ] {
        for ca in [&site.ca, site.engine.ca()] {
            let visitor = Visitor::new(site.engine.addr(), ca);
            let config = ca.client(&["http/1.1"]);
            assert!(visitor.try_connect(name, &config).await.is_none(), "{name}");
        }
    }
    // Nor does the engine's own host get one of a domain.
    let own = site.engine.visitor();
    let host = site.engine.host();
    own.http1(host).await;
}

/// EN-12: as the files of the engine's own certificate.
#[tokio::test]
async fn en_12_the_files_of_a_domain_are_read_again() {
    let site = Site::start().await;
    let service = Upstream::http1().await;
    let _tunnel = site.publish(APP, &service).await;
    assert_eq!(status(&site.visitor(), APP).await, (200, None));
    let next = TestCa::new();
    write(&next, site.files.path());
    let visitor = Visitor::new(site.engine.addr(), &next);
    let config = next.client(&["http/1.1"]);
    let renewed = async {
        loop {
            // The files that handshakes use are checked every two seconds.
            if let Some(stream) = visitor.try_connect(APP, &config).await {
                return stream;
            }
        }
    };
    let stream = within("the new certificate", renewed).await;
    let mut visitor = RawVisitor::new(stream);
    assert_eq!(visitor.get("/", APP).await.status, 200);
}

/// Plain HTTP leads to https under the same name.
#[tokio::test]
async fn plain_http_is_redirected_under_the_domain() {
    let ca = TestCa::new();
    let files = tempfile::tempdir().unwrap();
    write(&ca, files.path());
    let sections = format!(
        "http: {{enabled: true, listen_addr: '127.0.0.1:0'}}\n{}",
        sections(files.path())
    );
    let engine = TestEngine::start_with(&sections).await;
    let plain = engine.running().http_addr().unwrap();
    let stream = TcpStream::connect(plain).await.unwrap();
    let answer = RawVisitor::new(stream).get("/a?b", APP).await;
    assert_eq!(answer.status, 308);
    let port = engine.addr().port();
    let location = format!("https://{APP}:{port}/a?b");
    assert_eq!(answer.header("location"), Some(location.as_str()));
}

/// A `tls` tunnel may have a custom domain; the service terminates TLS itself.
#[tokio::test]
async fn a_passthrough_tunnel_may_have_a_custom_domain() {
    let site = Site::start().await;
    let of_service = TestCa::new();
    let config = of_service.server(&[APP], &[]);
    let service = Upstream::start(move |stream, _| {
        let acceptor = TlsAcceptor::from(Arc::clone(&config));
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return;
            };
            stream.write_all(b"hello").await.ok();
            stream.shutdown().await.ok();
        }
    })
    .await;
    let properties = Properties::tls().hostname(APP).tls_mode("passthrough");
    let _tunnel = site.engine.publish_as(properties, service.addr()).await;
    let visitor = Visitor::new(site.engine.addr(), &of_service);
    let mut stream = visitor.connect(APP, &of_service.client(&[])).await;
    let mut text = String::new();
    within("the service", stream.read_to_string(&mut text))
        .await
        .unwrap();
    assert_eq!(text, "hello");
}
