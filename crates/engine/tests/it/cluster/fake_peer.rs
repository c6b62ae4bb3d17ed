//! The header of a forwarded stream, as another engine receives it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use engine::cluster::RemoteTunnel;
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use testing::cluster::{CLUSTER, ClusterAuthority, TestCluster};
use testing::{Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use transport::lane::Lane;
use transport::standing::{AcceptedStream, StandingConnection};
use transport::{Socket, TlsStream, wrap_server_session};
use wire::cluster::{
    ALPN, ConnectionPurpose, ForwardedVisitor, PeerDecoder, PeerFrame, PeerIdentity,
    StreamProtocol, encode_frame,
};
use wire::pool::{Side, StreamOpen};

const ENGINE: &str = "engine-3";

/// An engine that reports the opening of each stream, and then breaks its connection.
struct FakePeer {
    address: SocketAddr,
    openings: mpsc::UnboundedReceiver<StreamOpen>,
    _tasks: JoinSet<()>,
}

impl FakePeer {
    async fn start(authority: &ClusterAuthority) -> Self {
        let files = authority.files(ENGINE);
        let chain = CertificateDer::from_pem_file(&files.certificate).unwrap();
        let key = PrivateKeyDer::from_pem_file(&files.key).unwrap();
        let mut config = ServerConfig::builder_with_provider(daemon::tls::provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![chain], key)
            .unwrap();
        config.alpn_protocols = vec![ALPN.to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, openings) = mpsc::unbounded_channel();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                let (stream, peer) = listener.accept().await.unwrap();
                connections.spawn(serve(stream, peer, acceptor.clone(), sender.clone()));
            }
        });
        Self {
            address,
            openings,
            _tasks: tasks,
        }
    }

    async fn next_opening(&mut self) -> StreamOpen {
        within("opening of a stream", self.openings.recv())
            .await
            .expect("the engine runs")
    }
}

async fn serve(
    stream: TcpStream,
    peer: SocketAddr,
    acceptor: TlsAcceptor,
    openings: mpsc::UnboundedSender<StreamOpen>,
) {
    let session = acceptor.accept(Socket::new(stream, peer)).await.unwrap();
    let mut stream = wrap_server_session(session);
    let identity = read_hello(&mut stream).await;
    assert_eq!(identity.cluster, CLUSTER);
    if identity.purpose == ConnectionPurpose::Control {
        let answer = PeerIdentity {
            engine: ENGINE.to_owned(),
            ..identity
        };
        let mut bytes = Vec::new();
        encode_frame(&PeerFrame::Hello(answer), &mut bytes).unwrap();
        stream.write_all(&bytes).await.unwrap();
        stream.flush().await.unwrap();
        // Pings of the other engine, until it ends.
        let mut byte = [0; 1];
        while stream.read(&mut byte).await.is_ok_and(|count| count > 0) {}
        return;
    }
    match StandingConnection::new(stream, Side::Agent).accept().await {
        Ok(Some(AcceptedStream::Stream(open, _framed))) => drop(openings.send(*open)),
        Ok(Some(AcceptedStream::Lane(io))) => {
            let (_lane, mut driver) = Lane::agent(io);
            let accepted = std::future::poll_fn(|cx| driver.poll_accept(cx)).await;
            if let Ok(Some((open, _stream))) = accepted {
                drop(openings.send(open));
            }
        }
        Ok(None) | Err(_) => {}
    }
}

async fn read_hello(stream: &mut TlsStream) -> PeerIdentity {
    let mut decoder = PeerDecoder::default();
    loop {
        match decoder.next_frame().unwrap() {
            Some(PeerFrame::Hello(identity)) => return identity,
            Some(frame) => panic!("{frame:?}"),
            None => {}
        }
        let mut bytes = vec![0; decoder.missing().unwrap()];
        stream.read_exact(&mut bytes).await.unwrap();
        decoder.push(&bytes);
    }
}

#[tokio::test]
async fn the_header_has_the_visitor_and_the_reference_of_the_access_record() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let section = format!("access_log: {{path: '{}'}}", log.display());
    let cluster = TestCluster::start_with(&section, "").await;
    let upstream = Upstream::http1().await;
    let tunnel = cluster.publish(upstream.addr()).await;
    let host = tunnel.hostname().to_owned();
    // The same tunnel, as if its agent was connected to the third engine.
    let entry = cluster.entry(&tunnel);
    let moved = RemoteTunnel::new(
        Arc::clone(entry.view()),
        entry.identity().clone(),
        None,
        Some(7),
        [ENGINE.to_owned()],
    );
    let mut peer = FakePeer::start(cluster.authority()).await;
    cluster.directory().set_peers([(ENGINE, peer.address)]);
    let running = cluster.visited().running();
    within("link", running.wait_for_peer(ENGINE, true)).await;
    cluster.directory().set_name(&host, Some(Arc::new(moved)));

    let source = Ipv4Addr::new(127, 0, 0, 9);
    let mut visitor = cluster.visitor().from(source).http1(&host).await;
    // Not idempotent, so that it is not sent again.
    visitor
        .request("POST", "/", &host, "Content-Length: 0\r\n")
        .await;
    let open = peer.next_opening().await;
    assert_eq!(open.tunnel_id, tunnel.online().tunnel_id);
    assert!(open.exchanges);
    let forwarding = ForwardedVisitor::decode(&open).unwrap();
    assert_eq!(forwarding.name, host);
    assert_eq!(forwarding.project, "default");
    assert_eq!(forwarding.generation, Some(7));
    assert_eq!(forwarding.source.ip(), IpAddr::from(source));
    assert_ne!(forwarding.source.port(), 0);
    assert!(forwarding.is_terminated);
    assert_eq!(forwarding.protocol, StreamProtocol::Exchanges);
    let answer = visitor.answer().await;
    assert_eq!(answer.status, 502, "{answer:?}");
    let reference = forwarding.reference.expect("the access log is written");
    assert_eq!(answer.json()["reference"], reference.as_str());

    let (visited, _serving) = cluster.into_engines();
    visited.stop().await;
    let text = std::fs::read_to_string(log).unwrap();
    let line: serde_json::Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!(line["id"], reference.as_str());
    assert_eq!(line["source_ip"], source.to_string());
}
