//! Names in the TLS handshake, in the request, and in the hostname that an agent requests.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{DigitallySignedStruct, SignatureScheme};
use testing::{RawVisitor, TestEngine};
use wire::ErrorCode;
use wire::message::TunnelProperties;

use super::{Site, Table};
use crate::agent::raw_messages;
use crate::agent::raw_messages::PlainAgent;

/// Hosts of a request on a connection whose handshake names the tunnel.
#[tokio::test]
async fn a_host_is_the_name_of_the_handshake() {
    let site = Site::start().await;
    let host = site.host();
    let label = host.split('.').next().unwrap();
    let other = site.bystander.hostname();
    let mut table = Table::default();
    for (written, status) in [
        // Another name.
        (other.to_owned(), 421),
        ("engine.localhost".to_owned(), 421),
        ("t.engine.localhost".to_owned(), 421),
        (format!("a.{host}"), 421),
        (format!("{label}.engine.localhost"), 421),
        (label.to_owned(), 421),
        (format!("{host}.example"), 421),
        (format!("{host}.localhost"), 421),
        (format!("x{host}"), 421),
        (format!("xn--{host}"), 421),
        (format!("*.{}", host.split_once('.').unwrap().1), 400),
        ("127.0.0.1".to_owned(), 421),
        ("[::1]".to_owned(), 421),
        ("localhost".to_owned(), 421),
        // No name.
        (format!("{host}.."), 400),
        (format!(".{host}"), 400),
        (host.replacen('.', "..", 1), 400),
        (format!("{host}:"), 400),
        (format!("{host}:a"), 400),
        (format!("{host}:-1"), 400),
        (format!("{host}:99999"), 400),
        (format!("{host}:443:443"), 400),
        (format!("{host}%2e"), 400),
        (format!("{host}%00"), 400),
        (format!("{host}/"), 400),
        (format!("{host}?"), 400),
        (format!("{host};"), 400),
        (format!("{host}\\"), 400),
        (host.replacen('.', "\u{ff0e}", 1), 400),
        (host.replacen('.', "\u{3002}", 1), 400),
        (format!("\u{200b}{host}"), 400),
    ] {
        let mut visitor = site.engine.visitor().http1(host).await;
        let answer = visitor.get("/", &written).await;
        table.row([&written], &answer.status, &status);
    }
    table.assert_no_failures();
    site.check_untouched().await;
    for written in [
        host.to_ascii_uppercase(),
        format!("{host}."),
        format!("{host}:443"),
        format!("{host}:1"),
    ] {
        let mut visitor = site.engine.visitor().http1(host).await;
        assert_eq!(visitor.get("/", &written).await.status, 200, "{written:?}");
    }
}

/// Names of a handshake, with the same host in the request.
#[tokio::test]
async fn a_handshake_finds_its_tunnel_by_the_whole_name() {
    let site = Site::start().await;
    let host = site.host();
    let (label, below) = host.split_once('.').unwrap();
    let mut table = Table::default();
    for (name, status) in [
        (format!("a.{host}"), 404),
        (format!("{label}.{host}"), 404),
        (format!("{label}.engine.localhost"), 404),
        (format!("{label}.t.t.engine.localhost"), 404),
        (format!("{label}.t.engine.localhost.localhost"), 404),
        (format!("x{host}"), 404),
        (format!("{label}x.{below}"), 404),
        (format!("xn--{host}"), 404),
        (below.to_owned(), 404),
        (format!("t.{below}"), 404),
        (format!("engine.{below}"), 404),
        ("localhost".to_owned(), 404),
        ("t".to_owned(), 404),
        // The engine's own name, which has no such page.
        ("engine.localhost".to_owned(), 404),
        ("ENGINE.localhost".to_owned(), 404),
    ] {
        let answer = visit(&site.engine, &name, &name).await;
        table.row([&name], &answer, &Some(status));
    }
    table.assert_no_failures();
    site.check_untouched().await;
    for name in [host.to_ascii_uppercase(), format!("{host}.")] {
        assert_eq!(visit(&site.engine, &name, host).await, Some(200), "{name}");
    }
    // An engine's own name never leads to a tunnel, whatever the request contains.
    assert_eq!(
        visit(&site.engine, "engine.localhost", host).await,
        Some(421)
    );
}

/// A visit by a client that ignores certificates. Returns the status if there is an answer.
async fn visit(engine: &TestEngine, name: &str, host: &str) -> Option<u16> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .unwrap()
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate(provider)))
        .with_no_client_auth();
    let stream = engine
        .visitor()
        .try_connect(name, &Arc::new(config))
        .await?;
    Some(RawVisitor::new(stream).get("/nothing", host).await.status)
}

/// Accepts every certificate, because the tests are about the requested name.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<rustls::crypto::CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signature, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// Hostnames that an agent cannot get.
#[tokio::test]
async fn no_agent_gets_a_name_that_is_not_one_label_below_the_tunnels() {
    let engine = TestEngine::start().await;
    let mut agent = PlainAgent::connect(&engine).await;
    let long = "a".repeat(64);
    let mut table = Table::default();
    for asked in [
        "engine.localhost",
        "ENGINE.LOCALHOST",
        "engine.localhost.",
        "t.engine.localhost",
        "web.engine.localhost",
        "a.b.t.engine.localhost",
        "t.t.t.engine.localhost",
        "web.t.engine.localhost.example",
        "web.t.engine.localhos",
        "xweb.t.engine.localhost.localhost",
        "shop.example",
        "*",
        "*.t.engine.localhost",
        "",
        ".",
        ".t.engine.localhost",
        "..",
        "a..b",
        "-a",
        "a-",
        "a b",
        "a_b",
        "a/b",
        "a:443",
        "a\0b",
        "a\r\nb",
        "\u{e4}",
        "\u{430}dmin",
        "a\u{200b}b",
        "a\u{ff0e}t",
        "127.0.0.1",
        "[::1]",
        &long,
    ] {
        let refused = agent.open(raw_messages::http(asked)).await;
        let code = refused
            .map(|opened| opened.hostname)
            .map_err(|error| error.kind());
        let refused = matches!(
            code,
            Err(ErrorCode::InvalidRequest | ErrorCode::FeatureNotAvailable)
        );
        table.row([format!("{asked:?}: {code:?}")], &refused, &true);
    }
    table.assert_no_failures();
    // Another spelling of the same name is the same name.
    let opened = agent.open(raw_messages::http("web")).await.unwrap();
    assert_eq!(hostname(&opened), "web.t.engine.localhost");
    let other = serde_json::json!({"userId": "usr_other"});
    let mut other = PlainAgent::connect_as(&engine, other).await;
    for spelling in [
        "web",
        "WEB",
        "Web.T.Engine.Localhost",
        "web.t.engine.localhost.",
    ] {
        let refused = other.open(raw_messages::http(spelling)).await;
        assert!(refused.is_err(), "{spelling}: {refused:?}");
    }
}

fn hostname(tunnel: &TunnelProperties) -> &str {
    &tunnel.hostname.as_ref().unwrap().value
}

/// A name that its owner reclaims while another agent requests it has one holder afterwards.
#[tokio::test]
async fn a_name_that_two_agents_request_together_has_one_holder() {
    let engine = TestEngine::start().await;
    for round in 0..10 {
        let name = format!("web{round}");
        let mut gone = PlainAgent::connect(&engine).await;
        gone.open(raw_messages::http(&name)).await.unwrap();
        let mut owner = PlainAgent::connect(&engine).await;
        let other = serde_json::json!({"userId": "usr_other"});
        let mut other = PlainAgent::connect_as(&engine, other).await;
        drop(gone);
        let (back, taken) = tokio::join!(
            owner.open(raw_messages::http(&name)),
            other.open(raw_messages::http(&name))
        );
        assert_ne!(back.is_ok(), taken.is_ok(), "{back:?}, {taken:?}");
        // The agent that holds the name gets the visitor.
        let host = format!("{name}.t.engine.localhost");
        let holder = if back.is_ok() { &mut owner } else { &mut other };
        let mut visitor = engine.visitor().http1(&host).await;
        visitor.request("GET", "/", &host, "").await;
        assert_eq!(
            holder.next_stream_request().await.tunnel_id,
            id(&back.or(taken).unwrap())
        );
    }
}

fn id(tunnel: &TunnelProperties) -> String {
    tunnel.id.as_ref().unwrap().value.clone()
}
