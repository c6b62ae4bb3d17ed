//! Engines that may not connect.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use testing::cluster::{CLUSTER, ClusterAuthority, SERVING, TestCluster};
use testing::{Gate, ScriptedUpstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};
use wire::cluster::{ALPN, ConnectionPurpose, PeerFrame, PeerIdentity, encode_frame};

/// A client with the certificate of an engine, which trusts the authority of `trusted`.
fn client(trusted: &ClusterAuthority, own: Option<(&ClusterAuthority, &str)>) -> ClientConfig {
    let client = trusted.ca().client(&[]);
    let config = ClientConfig::clone(&client);
    let mut config = match own {
        None => config,
        Some((authority, engine)) => {
            let files = authority.files(engine);
            let chain = CertificateDer::from_pem_file(&files.certificate).unwrap();
            let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
            let mut roots = rustls::RootCertStore::empty();
            roots.add(trusted.ca().certificate()).unwrap();
            ClientConfig::builder_with_provider(daemon::tls::provider())
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_root_certificates(roots)
                .with_client_auth_cert(vec![chain], key)
                .unwrap()
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    config
}

/// The listener of the serving engine.
fn peers_addr(cluster: &TestCluster) -> SocketAddr {
    cluster.serving().running().peers_addr().unwrap()
}

/// Connects to the serving engine and sends a hello. In TLS 1.3 a client learns only afterwards that
/// its certificate is refused.
async fn connect(
    address: SocketAddr,
    config: ClientConfig,
    hello: &PeerIdentity,
) -> io::Result<TlsStream<TcpStream>> {
    let stream = TcpStream::connect(address).await?;
    let name = engine::cluster::engine_name(CLUSTER, SERVING);
    let name = ServerName::try_from(name).unwrap();
    let connector = TlsConnector::from(Arc::new(config));
    let mut stream = connector.connect(name, stream).await?;
    let mut bytes = Vec::new();
    encode_frame(&PeerFrame::Hello(hello.clone()), &mut bytes).unwrap();
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    Ok(stream)
}

fn hello(engine: &str) -> PeerIdentity {
    PeerIdentity {
        cluster: CLUSTER.to_owned(),
        engine: engine.to_owned(),
        instance: "0123456789abcdef0123456789abcdef".to_owned(),
        purpose: ConnectionPurpose::Control,
    }
}

/// True if the engine answers the hello.
async fn is_accepted(cluster: &TestCluster, config: ClientConfig, hello: &PeerIdentity) -> bool {
    let talking = async {
        let mut stream = connect(peers_addr(cluster), config, hello).await?;
        stream.read_u8().await
    };
    // The type of an answer to a hello.
    matches!(within("answer or end", talking).await, Ok(1))
}

#[tokio::test]
async fn only_engines_with_a_certificate_of_the_cluster_connect() {
    let cluster = TestCluster::start().await;
    let own = cluster.authority();
    let other = ClusterAuthority::new();
    let third = "engine-3";
    // Of another authority, with the right name.
    let stranger = client(own, Some((&other, third)));
    assert!(!is_accepted(&cluster, stranger, &hello(third)).await);
    // Without a certificate.
    let anonymous = client(own, None);
    assert!(!is_accepted(&cluster, anonymous, &hello(third)).await);
    // With the certificate of another engine.
    let impostor = client(own, Some((own, third)));
    assert!(!is_accepted(&cluster, impostor, &hello("engine-4")).await);
    // With the id of the engine itself.
    let twin = client(own, Some((own, SERVING)));
    assert!(!is_accepted(&cluster, twin, &hello(SERVING)).await);
    // Of another cluster.
    let elsewhere = PeerIdentity {
        cluster: "other".to_owned(),
        ..hello(third)
    };
    let config = client(own, Some((own, third)));
    assert!(!is_accepted(&cluster, config, &elsewhere).await);
    // Last, because a process with the same id may not be connected twice.
    let accepted = client(own, Some((own, third)));
    assert!(is_accepted(&cluster, accepted, &hello(third)).await);
}

#[tokio::test]
async fn a_data_connection_needs_a_control_connection() {
    let cluster = TestCluster::start().await;
    let own = cluster.authority();
    let data = PeerIdentity {
        purpose: ConnectionPurpose::Data,
        ..hello("engine-3")
    };
    let config = client(own, Some((own, "engine-3")));
    let mut stream = connect(peers_addr(&cluster), config, &data).await.unwrap();
    let end = within("end of the connection", stream.read_u8()).await;
    assert!(end.is_err(), "{end:?}");
}

/// A server that another authority certifies as the engine.
#[tokio::test]
async fn an_engine_does_not_connect_to_one_of_another_authority() {
    let cluster = TestCluster::start().await;
    let other = ClusterAuthority::new();
    let name = engine::cluster::engine_name(CLUSTER, SERVING);
    let alpn = std::str::from_utf8(ALPN).unwrap();
    for (authority, is_trusted) in [(cluster.authority(), true), (&other, false)] {
        let acceptor = TlsAcceptor::from(authority.ca().server(&[&name], &[alpn]));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        cluster.directory().set_peers([(SERVING, address)]);
        let (stream, _) = within("connection", listener.accept()).await.unwrap();
        let accepted = within("handshake", acceptor.accept(stream)).await;
        assert_eq!(accepted.is_ok(), is_trusted, "{:?}", accepted.err());
    }
}

/// A stream that leaves its lane during the drain needs one.
#[tokio::test]
async fn a_draining_engine_accepts_data_connections() {
    let cluster = TestCluster::start().await;
    let gate = Gate::new();
    let upstream = ScriptedUpstream::slow_body(&gate).await;
    let tunnel = cluster.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = cluster.visitor().http1(host).await;
    visitor.request("GET", "/", host, "").await;
    let head = visitor.head().await;

    let (own, third) = (cluster.authority(), "engine-3");
    let config = client(own, Some((own, third)));
    let address = peers_addr(&cluster);
    let accepted = connect(address, config.clone(), &hello(third)).await;
    let mut control = accepted.unwrap();
    let (_visited, serving) = cluster.into_engines();
    // A HELLO is read first, so that the connection is one of the engine's before it drains.
    read_until(&mut control, 1).await;
    let stopping = tokio::spawn(serving.stop());
    read_until(&mut control, 3).await;
    let data = PeerIdentity {
        purpose: ConnectionPurpose::Data,
        ..hello(third)
    };
    let accepted = within("connection", connect(address, config, &data)).await;
    assert!(accepted.is_ok(), "{:?}", accepted.err());
    gate.open();
    assert!(visitor.body(head).await.is_complete);
    drop(visitor);
    within("end of the engine", stopping).await.unwrap();
}

/// Reads frames until one has this type.
async fn read_until(control: &mut TlsStream<TcpStream>, kind: u32) {
    let reading = async {
        loop {
            let head = control.read_u32().await.unwrap();
            let mut payload = vec![0; usize::try_from(head & 0x00ff_ffff).unwrap()];
            control.read_exact(&mut payload).await.unwrap();
            if head >> 24 == kind {
                return;
            }
        }
    };
    within("frame", reading).await;
}
