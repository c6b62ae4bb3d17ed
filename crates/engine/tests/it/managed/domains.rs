//! Custom domains of projects: an engine serves those that its platform lists.

use std::sync::Arc;

use api::control::domains::DomainCertificateValidation;
use api::link::{CustomDomain, DomainCertificate, Item, Project};
use client::Properties;
use engine::clock::SystemClock;
use testing::{FakePlatform, TestCa, TestEngine, Upstream, Visitor, within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::client::TlsStream;

use super::{A, B, TwoProjects, publish};

const APP: &str = "app.example.com";

/// Gives the domain to a project.
fn with_domain(project: &mut Project) {
    project.domains = vec![CustomDomain {
        id: "dom_1".to_owned(),
        hostname: APP.to_owned(),
        certificate_validation: DomainCertificateValidation::TlsAlpn01,
        has_certificate: false,
        challenge_alias: None,
    }];
}

/// A tunnel whose service terminates TLS, so that the engine needs no certificate of the domain.
fn properties() -> Properties {
    Properties::tls().hostname(APP).tls_mode("passthrough")
}

/// A service that greets each visitor and keeps the connection.
async fn greeter(ca: &TestCa) -> Upstream {
    let config = ca.server(&[APP], &[]);
    Upstream::start(move |stream, _| {
        let acceptor = TlsAcceptor::from(Arc::clone(&config));
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return;
            };
            stream.write_all(b"hello").await.ok();
            stream.flush().await.ok();
            // Until the visitor is gone.
            stream.read_u8().await.ok();
        }
    })
    .await
}

/// A visit that was greeted. `None` if the engine refuses the handshake.
async fn visit(engine: &TestEngine, ca: &TestCa) -> Option<TlsStream<TcpStream>> {
    let visitor = Visitor::new(engine.addr(), ca);
    let mut stream = visitor.try_connect(APP, &ca.client(&[])).await?;
    let mut greeting = [0; 5];
    let read = within("the greeting", stream.read_exact(&mut greeting)).await;
    read.ok().map(|_| stream)
}

/// The refusal of [`APP`].
async fn refusal(engine: &TestEngine, endpoint: &str, token: &str) -> String {
    let mut tunnel = engine.agent_at(endpoint, token).await.open(properties());
    let refused = within("a refusal", tunnel.online()).await.unwrap_err();
    refused.to_string()
}

#[tokio::test]
async fn a_domain_is_served_for_its_project_until_it_is_deleted() {
    let TwoProjects { platform, ann, ben } = TwoProjects::start().await;
    platform.add_project_with(A, with_domain);
    let engine = TestEngine::managed(&platform).await;
    let ca = TestCa::new();
    let service = greeter(&ca).await;
    // The platform sends verified domains only, so that this may be a pending one.
    let refused = refusal(&engine, B, &ben).await;
    for next_step in [
        "pending",
        "svc domain add app.example.com",
        "svc domain show app.example.com",
    ] {
        assert!(refused.contains(next_step), "{refused}");
    }
    let tunnel = publish(engine.agent_at(A, &ann).await, properties(), &service).await;
    assert_eq!(tunnel.hostname(), APP);
    let mut open = visit(&engine, &ca).await.unwrap();

    platform.add_project(A);
    let ended = within("the end of the visit", open.read_u8()).await;
    assert!(ended.is_err(), "the project no longer has the domain");
    within("the end of the tunnel", async {
        while visit(&engine, &ca).await.is_some() {}
    })
    .await;
    let refused = refusal(&engine, A, &ann).await;
    assert!(refused.contains("svc domain add"), "{refused}");
}

#[tokio::test]
async fn a_domain_moves_to_another_project() {
    let TwoProjects { platform, ann, ben } = TwoProjects::start().await;
    platform.add_project_with(A, with_domain);
    let engine = TestEngine::managed(&platform).await;
    platform.add_project_with(B, with_domain);
    platform.add_project(A);
    engine.wait_for_changes().await;
    let ca = TestCa::new();
    let service = greeter(&ca).await;
    let refused = refusal(&engine, A, &ann).await;
    assert!(refused.contains("svc domain add"), "{refused}");
    let _tunnel = publish(engine.agent_at(B, &ben).await, properties(), &service).await;
    assert!(visit(&engine, &ca).await.is_some());
}

/// The wildcard of the first project includes the name until the second one has it.
#[tokio::test]
async fn a_name_below_a_wildcard_moves_to_the_project_that_adds_it() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    platform.add_project_with(A, |project| {
        with_domain(project);
        for domain in &mut project.domains {
            domain.hostname = "*.example.com".to_owned();
            domain.certificate_validation = DomainCertificateValidation::Dns01;
        }
    });
    let engine = TestEngine::managed(&platform).await;
    let ca = TestCa::new();
    let service = greeter(&ca).await;
    let _tunnel = publish(engine.agent_at(A, &ann).await, properties(), &service).await;
    let mut open = visit(&engine, &ca).await.unwrap();

    platform.add_project_with(B, with_domain);
    let ended = within("the end of the visit", open.read_u8()).await;
    assert!(ended.is_err(), "another project has the name");
    let refused = refusal(&engine, A, &ann).await;
    assert!(refused.contains("svc domain add"), "{refused}");
}

#[tokio::test]
async fn a_restart_without_the_platform_serves_the_domains() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    platform.add_project_with(A, with_domain);
    let data = tempfile::tempdir().unwrap();
    let start = || TestEngine::managed_at(&platform, Some(data.path()), "", Arc::new(SystemClock));
    let engine = start().await;
    engine.wait_for_changes().await;
    engine.stop().await;

    platform.set_unavailable(true);
    let engine = start().await;
    let ca = TestCa::new();
    let service = greeter(&ca).await;
    let _tunnel = publish(engine.agent_at(A, &ann).await, properties(), &service).await;
    assert!(visit(&engine, &ca).await.is_some());
}

/// The domain, and its certificate from an authority, as the platform sends them after an upload.
fn upload(platform: &FakePlatform, ca: &TestCa) {
    let project = platform.add_project_with(A, |project| {
        with_domain(project);
        for domain in &mut project.domains {
            domain.has_certificate = true;
        }
    });
    let issued = ca.issue(&[APP]);
    platform.send(vec![Item::DomainCertificate(Box::new(DomainCertificate {
        id: "dom_1".to_owned(),
        project_id: project.id,
        hostname: APP.to_owned(),
        chain: issued.cert_pem,
        private_key: issued.key_pem,
    }))]);
}

/// Visits a tunnel whose TLS ends at the engine. `None` if the visitor does not trust its
/// certificate.
async fn status(engine: &TestEngine, ca: &TestCa) -> Option<u16> {
    let visitor = Visitor::new(engine.addr(), ca);
    visitor.try_connect(APP, &ca.client(&["http/1.1"])).await?;
    let answer = visitor.http1(APP).await.get("/", APP).await;
    Some(answer.status)
}

#[tokio::test]
async fn an_uploaded_certificate_is_served_until_it_is_removed_also_without_the_platform() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    platform.add_project_with(A, with_domain);
    let data = tempfile::tempdir().unwrap();
    let start = || TestEngine::managed_at(&platform, Some(data.path()), "", Arc::new(SystemClock));
    let engine = start().await;
    let service = Upstream::http1().await;
    let properties = || Properties::http().hostname(APP);
    let tunnel = publish(engine.agent_at(A, &ann).await, properties(), &service).await;
    let ca = TestCa::new();
    assert_eq!(status(&engine, &ca).await, None, "it is the engine's own");
    upload(&platform, &ca);
    engine.wait_for_changes().await;
    assert_eq!(status(&engine, &ca).await, Some(200));
    // A tunnel that is open keeps its name.
    let other = TestCa::new();
    upload(&platform, &other);
    engine.wait_for_changes().await;
    assert_eq!(status(&engine, &ca).await, None, "it was replaced");
    assert_eq!(status(&engine, &other).await, Some(200));
    drop(tunnel);
    engine.stop().await;

    platform.set_unavailable(true);
    let engine = start().await;
    let tunnel = publish(engine.agent_at(A, &ann).await, properties(), &service).await;
    assert_eq!(status(&engine, &other).await, Some(200));
    platform.set_unavailable(false);
    platform.add_project_with(A, with_domain);
    engine.wait_for_changes().await;
    assert_eq!(status(&engine, &other).await, None, "it was removed");
    drop(tunnel);
}
