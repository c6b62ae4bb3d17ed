//! Published TLS tunnels, and the routing of a ClientHello.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::Arc;

use client::Properties;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ProtocolVersion, RootCertStore, version};
use testing::{RawVisitor, TestCa, TestEngine, TestTunnel, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use wire::ErrorCode;
use wire::message::TunnelProperties;

use crate::agent::raw_messages;
use crate::agent::raw_messages::PlainAgent;

fn properties(label: &str) -> Properties {
    Properties::tls().hostname(label.to_owned())
}

/// A client that trusts `ca` and supports only these versions.
pub(crate) fn client(
    ca: &TestCa,
    versions: &[&'static rustls::SupportedProtocolVersion],
    alpns: &[&str],
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(ca.certificate()).unwrap();
    let mut config = ClientConfig::builder_with_provider(daemon::tls::provider())
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = alpns.iter().map(|alpn| alpn.as_bytes().to_vec()).collect();
    Arc::new(config)
}

async fn connect(
    edge: SocketAddr,
    host: &str,
    config: Arc<ClientConfig>,
) -> std::io::Result<TlsStream<TcpStream>> {
    let socket = TcpStream::connect(edge).await.unwrap();
    let name = ServerName::try_from(host.to_owned()).unwrap();
    let handshake = TlsConnector::from(config).connect(name, socket);
    within("end of the handshake", handshake).await
}

async fn exchange(stream: &mut TlsStream<TcpStream>, bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let exchanging = async {
        stream.write_all(bytes).await?;
        stream.flush().await?;
        let mut back = vec![0; bytes.len()];
        stream.read_exact(&mut back).await?;
        Ok(back)
    };
    within("echo", exchanging).await
}

fn certificate(stream: &TlsStream<TcpStream>) -> CertificateDer<'static> {
    let chain = stream.get_ref().1.peer_certificates().unwrap();
    chain[0].clone().into_owned()
}

/// A service that terminates TLS itself. It reports the negotiated protocol and then echoes.
async fn tls_service(ca: &TestCa, host: &str, alpns: &[&str]) -> Upstream {
    let config = ca.server(&[host], alpns);
    Upstream::start(move |stream, _| {
        let acceptor = TlsAcceptor::from(Arc::clone(&config));
        async move {
            let Ok(mut stream) = acceptor.accept(stream).await else {
                return;
            };
            let protocol = stream.get_ref().1.alpn_protocol().unwrap_or(b"none");
            let line = [protocol, b"\n"].concat();
            stream.write_all(&line).await.ok();
            stream.flush().await.ok();
            let (mut reader, mut writer) = tokio::io::split(stream);
            if tokio::io::copy(&mut reader, &mut writer).await.is_ok() {
                writer.shutdown().await.ok();
            }
        }
    })
    .await
}

async fn line(stream: &mut TlsStream<TcpStream>) -> String {
    let mut line = String::new();
    while !line.ends_with('\n') {
        let byte = within("line", stream.read_u8()).await.unwrap();
        line.push(char::from(byte));
    }
    line.trim_end().to_owned()
}

#[tokio::test]
async fn a_terminated_tunnel_offers_the_protocols_of_its_owner() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::tcp().await;
    let requested = properties("broker").tls_alpns(vec!["mqtt".to_owned(), "h2".to_owned()]);
    let tunnel = engine.publish_as(requested, upstream.addr()).await;
    let edge = engine.addr();
    for (offered, agreed) in [
        (&["mqtt"][..], Some(&b"mqtt"[..])),
        (&["h2", "mqtt"], Some(b"mqtt")),
        (&["http/1.1", "h2"], Some(b"h2")),
        (&[], None),
    ] {
        let config = engine.ca().client(offered);
        let mut visitor = connect(edge, tunnel.hostname(), config).await.unwrap();
        assert_eq!(visitor.get_ref().1.alpn_protocol(), agreed, "{offered:?}");
        assert_eq!(exchange(&mut visitor, b"ping").await.unwrap(), b"ping");
    }
    let before = upstream.accepted();
    let config = engine.ca().client(&["imap"]);
    let refused = connect(edge, tunnel.hostname(), config).await;
    assert!(refused.is_err(), "RFC 7301 section 3.2");
    assert_eq!(upstream.accepted(), before);
}

#[tokio::test]
async fn each_direction_of_a_terminated_tunnel_is_closed_separately() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::start(|mut stream, _| async move {
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        stream.write_all(&said).await.unwrap();
    })
    .await;
    let tunnel = engine.publish_as(properties("web"), upstream.addr()).await;
    let config = engine.ca().client(&[]);
    let connecting = connect(engine.addr(), tunnel.hostname(), config);
    let mut visitor = connecting.await.unwrap();
    visitor.write_all(b"all of it").await.unwrap();
    visitor.shutdown().await.unwrap();
    let mut back = Vec::new();
    // An end without close_notify would be an error here.
    within("answer", visitor.read_to_end(&mut back))
        .await
        .unwrap();
    assert_eq!(back, b"all of it");
}

#[tokio::test]
async fn tls_min_version_refuses_older_clients() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::tcp().await;
    let modern = properties("modern").tls_min_version("tls1.3");
    let modern = engine.publish_as(modern, upstream.addr()).await;
    let any = engine.publish_as(properties("any"), upstream.addr()).await;
    let tls12 = || client(engine.ca(), &[&version::TLS12], &[]);
    let tls13 = || client(engine.ca(), &[&version::TLS13], &[]);
    let refused = connect(engine.addr(), modern.hostname(), tls12()).await;
    assert!(refused.is_err());
    assert_eq!(upstream.accepted(), 0);
    for (tunnel, config, agreed) in [
        (&modern, tls13(), ProtocolVersion::TLSv1_3),
        (&any, tls12(), ProtocolVersion::TLSv1_2),
        (&any, tls13(), ProtocolVersion::TLSv1_3),
    ] {
        let connecting = connect(engine.addr(), tunnel.hostname(), config);
        let mut visitor = connecting.await.unwrap();
        assert_eq!(visitor.get_ref().1.protocol_version(), Some(agreed));
        assert_eq!(exchange(&mut visitor, b"ping").await.unwrap(), b"ping");
    }
}

/// Visitors of a tunnel with named cipher suites get only these suites.
#[tokio::test]
async fn tls_ciphers_are_applied_or_refused() {
    const AES_256: &str = "TLS_AES_256_GCM_SHA384";
    const OLDER: &str = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384";
    let engine = TestEngine::start().await;
    let asked = |protocol: &str, ciphers: &[&str]| TunnelProperties {
        protocol: Some(protocol.into()),
        tls_ciphers: ciphers.iter().copied().map(String::from).collect(),
        ..raw_messages::http(protocol)
    };
    for protocol in ["tls", "http"] {
        let host = format!("{protocol}.t.engine.localhost");
        for (ciphers, tls13, tls12) in [
            (&[AES_256][..], Some("TLS13_AES_256_GCM_SHA384"), None),
            (&[OLDER], None, Some(OLDER)),
            (
                &[OLDER, AES_256],
                Some("TLS13_AES_256_GCM_SHA384"),
                Some(OLDER),
            ),
        ] {
            // Each takes over from the one before.
            let mut agent = PlainAgent::connect(&engine).await;
            agent.open(asked(protocol, ciphers)).await.unwrap();
            for (version, expected) in [(&version::TLS13, tls13), (&version::TLS12, tls12)] {
                let config = client(engine.ca(), &[version], &[]);
                let visitor = connect(engine.addr(), &host, config).await.ok();
                let suite = visitor.map(|visitor| {
                    let suite = visitor.get_ref().1.negotiated_cipher_suite().unwrap();
                    suite.suite().as_str().unwrap()
                });
                assert_eq!(suite, expected, "{protocol} {ciphers:?} {version:?}");
            }
        }
    }
    let contradiction = TunnelProperties {
        tls_min_version: Some("tls1.3".into()),
        ..asked("tls", &[OLDER])
    };
    let mut agent = PlainAgent::connect(&engine).await;
    for (refused, field) in [
        (asked("tls", &[AES_256, "RC4-SHA"]), "tls_ciphers.1"),
        (
            asked("http", &["TLS13_AES_256_GCM_SHA384"]),
            "tls_ciphers.0",
        ),
        (contradiction, "tls_ciphers"),
    ] {
        let error = agent.open(refused).await.unwrap_err();
        assert_eq!(error.kind(), ErrorCode::InvalidRequest);
        assert!(error.text().contains(field), "{error}");
    }
}

#[tokio::test]
async fn a_passthrough_visitor_sees_the_services_own_certificate() {
    let engine = TestEngine::start().await;
    let own = TestCa::new();
    let host = "own.t.engine.localhost";
    let upstream = tls_service(&own, host, &["secret/1"]).await;
    let requested = properties("own").tls_mode("passthrough");
    let tunnel = engine.publish_as(requested, upstream.addr()).await;
    assert_eq!(tunnel.hostname(), host);
    let config = own.client(&["secret/1"]);
    let mut visitor = connect(engine.addr(), host, config).await.unwrap();
    assert_eq!(
        visitor.get_ref().1.alpn_protocol(),
        Some(&b"secret/1"[..]),
        "negotiated with the service"
    );
    assert_eq!(line(&mut visitor).await, "secret/1");
    assert_eq!(exchange(&mut visitor, b"ping").await.unwrap(), b"ping");
    // A client that trusts only the engine's authority does not trust this certificate.
    let refused = connect(engine.addr(), host, engine.ca().client(&[])).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidData);
}

/// A ClientHello may arrive in any number of segments and records.
#[tokio::test]
async fn a_client_hello_in_pieces_finds_its_tunnel() {
    let engine = TestEngine::start().await;
    let own = TestCa::new();
    let host = "own.t.engine.localhost";
    let upstream = tls_service(&own, host, &[]).await;
    let requested = properties("own").tls_mode("passthrough");
    let _tunnel = engine.publish_as(requested, upstream.addr()).await;
    let name = ServerName::try_from(host).unwrap();
    let mut session = rustls::ClientConnection::new(own.client(&[]), name).unwrap();
    let mut hello = Vec::new();
    session.write_tls(&mut hello).unwrap();
    let mut socket = TcpStream::connect(engine.addr()).await.unwrap();
    socket.set_nodelay(true).unwrap();
    for piece in hello.chunks(7) {
        socket.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    // The service answers exactly this hello. The handshake succeeds only if each byte of it
    // arrived once and in order.
    let mut bytes = vec![0; 16 * 1024];
    let handshaking = async {
        while session.is_handshaking() {
            let read = socket.read(&mut bytes).await.unwrap();
            assert!(read > 0, "the connection ended in the handshake");
            let mut fresh = &bytes[..read];
            while !fresh.is_empty() {
                session.read_tls(&mut fresh).unwrap();
                session.process_new_packets().unwrap();
            }
            let mut out = Vec::new();
            while session.wants_write() {
                session.write_tls(&mut out).unwrap();
            }
            socket.write_all(&out).await.unwrap();
        }
    };
    within("end of the handshake", handshaking).await;
    assert_eq!(upstream.accepted(), 1);
}

/// The engine terminates the visitor's TLS and starts another TLS session with the service, using
/// the visitor's protocol.
#[tokio::test]
async fn upstream_tls_encrypts_again_towards_the_service() {
    let engine = TestEngine::start().await;
    let own = TestCa::new();
    let upstream = tls_service(&own, "inside.example", &["mqtt", "other"]).await;
    let requested = properties("broker")
        .upstream_tls(true)
        .tls_alpns(vec!["mqtt".to_owned()]);
    let tunnel = engine.publish_as(requested, upstream.addr()).await;
    for (offered, agreed) in [(&["mqtt"][..], "mqtt"), (&[], "none")] {
        let config = engine.ca().client(offered);
        let connecting = connect(engine.addr(), tunnel.hostname(), config);
        let mut visitor = connecting.await.unwrap();
        assert_ne!(certificate(&visitor), own.certificate());
        assert_eq!(line(&mut visitor).await, agreed);
        let payload = Upstream::payload(100_000);
        let (mut reader, mut writer) = tokio::io::split(visitor);
        let mut back = Vec::new();
        let sending = async {
            writer.write_all(&payload).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let both = async { tokio::join!(sending, reader.read_to_end(&mut back)) };
        within("echo", both).await.1.unwrap();
        assert!(back == payload);
    }
}

/// A service without TLS in a tunnel that is configured with TLS.
#[tokio::test]
async fn upstream_tls_with_a_plain_service_is_seen_as_a_reset() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::start(|mut stream, _| async move {
        stream.write_all(b"220 mail.example\r\n").await.ok();
        stream.read_to_end(&mut Vec::new()).await.ok();
    })
    .await;
    let requested = properties("mail").upstream_tls(true);
    let tunnel = engine.publish_as(requested, upstream.addr()).await;
    let config = engine.ca().client(&[]);
    let connecting = connect(engine.addr(), tunnel.hostname(), config);
    let mut visitor = connecting.await.unwrap();
    let mut said = Vec::new();
    let ended = within("end", visitor.read_to_end(&mut said)).await;
    assert_eq!(ended.unwrap_err().kind(), ErrorKind::ConnectionReset);
    assert_eq!(
        said, b"",
        "unencrypted data of the service is not forwarded"
    );
}

#[tokio::test]
async fn trusted_ips_keep_other_addresses_away_from_a_tls_service() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::tcp().await;
    for mode in ["terminated", "passthrough"] {
        let requested = properties(mode)
            .tls_mode(mode.to_owned())
            .trusted_ips(vec!["192.0.2.0/24".to_owned()]);
        let tunnel: TestTunnel = engine.publish_as(requested, upstream.addr()).await;
        let config = engine.ca().client(&[]);
        let kind = match connect(engine.addr(), tunnel.hostname(), config).await {
            Ok(mut visitor) => exchange(&mut visitor, b"ping").await.unwrap_err().kind(),
            Err(error) => error.kind(),
        };
        assert!(
            matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
            "{mode}: {kind}"
        );
    }
    assert_eq!(upstream.accepted(), 0);
}

/// EN-10.
#[tokio::test]
async fn en_10_only_the_base_host_accepts_the_agent_protocol() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::tcp().await;
    let requested = properties("trap").tls_alpns(vec!["svc/1".to_owned(), "rstrm/1".to_owned()]);
    let trap = engine.publish_as(requested, upstream.addr()).await;
    for alpn in ["svc/1", "rstrm/1"] {
        let config = || engine.ca().client(&[alpn]);
        for name in [
            "other.engine.localhost",
            "nobody.t.engine.localhost",
            trap.hostname(),
        ] {
            let refused = connect(engine.addr(), name, config()).await;
            assert!(refused.is_err(), "{alpn} on {name}");
        }
        let agent = connect(engine.addr(), engine.host(), config()).await;
        let agreed = agent.unwrap();
        assert_eq!(agreed.get_ref().1.alpn_protocol(), Some(alpn.as_bytes()));
    }
    assert_eq!(upstream.accepted(), 0);
}

/// The agent protocol requires TLS 1.3.
#[tokio::test]
async fn an_agent_with_tls_1_2_is_refused() {
    let engine = TestEngine::start().await;
    let config = client(engine.ca(), &[&version::TLS12], &["svc/1"]);
    if let Ok(mut agent) = connect(engine.addr(), engine.host(), config).await {
        let ended = within("end", agent.read(&mut [0; 1])).await;
        assert!(
            matches!(ended, Ok(0) | Err(_)),
            "it was answered: {ended:?}"
        );
    }
    // The Engine API accepts TLS 1.2.
    let config = client(engine.ca(), &[&version::TLS12], &["http/1.1"]);
    let visitor = connect(engine.addr(), engine.host(), config).await.unwrap();
    let answer = RawVisitor::new(visitor)
        .get("/api/tunnels", engine.host())
        .await;
    assert_eq!(answer.status, 401);
}

/// A client without a server name reaches the engine itself, at any address.
#[tokio::test]
async fn without_a_server_name_the_engine_api_answers() {
    let engine = TestEngine::start().await;
    let mut config = ClientConfig::clone(&engine.ca().client(&["http/1.1"]));
    config.enable_sni = false;
    let connecting = connect(engine.addr(), engine.host(), Arc::new(config));
    let mut visitor = RawVisitor::new(connecting.await.unwrap());
    let answer = visitor.get("/api/openapi.json", engine.host()).await;
    assert_eq!(answer.status, 200);
    assert!(
        answer.json()["openapi"]
            .as_str()
            .unwrap()
            .starts_with("3.1")
    );
}
