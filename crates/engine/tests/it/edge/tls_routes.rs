//! Server names that another server of the operator serves on the engine's port.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use client::agent::AgentStatus;
use engine::clock::SystemClock;
use testing::{RawVisitor, TestCa, TestEngine, Upstream, Visitor, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use types::proxy_protocol::{ParsedHeader, parse};

const NAME: &str = "platform.example.com";
/// Length of a header of version 2 with addresses of IPv4.
const V2_HEADER_BYTES: usize = 28;

/// A server with its own certificate, on its own port.
struct Server {
    ca: TestCa,
    listener: TcpListener,
}

impl Server {
    async fn start() -> Self {
        Self {
            ca: TestCa::new(),
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
        }
    }

    fn addr(&self) -> SocketAddr {
        self.listener.local_addr().unwrap()
    }

    async fn accept(&self) -> TcpStream {
        within("a connection", self.listener.accept())
            .await
            .unwrap()
            .0
    }

    async fn handshake(&self, stream: TcpStream, alpn: &str) -> TlsStream<TcpStream> {
        let acceptor = TlsAcceptor::from(self.ca.server(&[NAME], &[alpn]));
        within("a handshake", acceptor.accept(stream))
            .await
            .unwrap()
    }

    fn visitor(&self, engine: &TestEngine) -> Visitor {
        Visitor::new(engine.addr(), &self.ca)
    }
}

async fn engine_with_route(to: SocketAddr, proxy_protocol: bool) -> TestEngine {
    let routes = format!("[{{server_name: {NAME}, to: '{to}', proxy_protocol: {proxy_protocol}}}]");
    let variables = [("SVC_TLS__ROUTES", routes.as_str())];
    TestEngine::start_at("", &variables, Arc::new(SystemClock)).await
}

#[tokio::test]
async fn a_routed_name_reaches_its_server_with_the_source_of_the_visitor() {
    let server = Server::start().await;
    let engine = engine_with_route(server.addr(), true).await;
    let visitor = server.visitor(&engine).from(Ipv4Addr::new(127, 0, 0, 9));
    let config = server.ca.client(&["h2"]);
    let serve = async {
        let mut stream = server.accept().await;
        let mut header = [0; V2_HEADER_BYTES];
        stream.read_exact(&mut header).await.unwrap();
        let ParsedHeader::Header { source, len } = parse(&header) else {
            panic!("a header of the PROXY protocol");
        };
        assert_eq!(len, V2_HEADER_BYTES);
        assert_eq!(source.unwrap().ip(), IpAddr::from([127, 0, 0, 9]));
        let mut stream = server.handshake(stream, "h2").await;
        let mut request = [0; 4];
        stream.read_exact(&mut request).await.unwrap();
        stream.write_all(b"pong").await.unwrap();
        stream.shutdown().await.unwrap();
        request
    };
    // Names are compared without case.
    let visit = async {
        let mut stream = visitor.connect("Platform.Example.com", &config).await;
        stream.write_all(b"ping").await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        answer
    };
    let (request, answer) = tokio::join!(serve, visit);
    assert_eq!((&request, answer.as_slice()), (b"ping", &b"pong"[..]));
}

#[tokio::test]
async fn a_validation_of_a_routed_name_reaches_its_server() {
    let server = Server::start().await;
    let engine = engine_with_route(server.addr(), false).await;
    let visitor = server.visitor(&engine);
    let config = server.ca.client(&["acme-tls/1"]);
    let serve = async {
        let stream = server.accept().await;
        let stream = server.handshake(stream, "acme-tls/1").await;
        stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec)
    };
    let (protocol, _visitor) = tokio::join!(serve, visitor.connect(NAME, &config));
    assert_eq!(protocol.as_deref(), Some(&b"acme-tls/1"[..]));
}

#[tokio::test]
async fn an_unreachable_server_of_a_route_affects_no_other_name() {
    let server = Server::start().await;
    let engine = engine_with_route(server.addr(), false).await;
    // The port stays reserved while the connections of the listener are refused.
    let config = server.ca.client(&["h2"]);
    let visitor = server.visitor(&engine);
    let refuse = async {
        let stream = server.accept().await;
        stream.set_zero_linger().unwrap();
    };
    let ((), session) = tokio::join!(refuse, visitor.try_connect(NAME, &config));
    assert!(session.is_none());
    let service = Upstream::http1().await;
    let tunnel = engine.publish(service.addr()).await;
    let host = tunnel.hostname();
    let visitor = Visitor::new(engine.addr(), engine.ca());
    let mut visitor: RawVisitor = visitor.http1(host).await;
    assert_eq!(visitor.get("/", host).await.status, 200);
}

/// The link to a platform may be such a connection. It ends after the visits and the agents.
#[tokio::test]
async fn a_drain_waits_for_a_routed_connection_last() {
    let server = Server::start().await;
    let engine = engine_with_route(server.addr(), false).await;
    let visitor = server.visitor(&engine);
    let config = server.ca.client(&["h2"]);
    let serve = async {
        let stream = server.accept().await;
        server.handshake(stream, "h2").await
    };
    let (mut far, mut near) = tokio::join!(serve, visitor.connect(NAME, &config));
    let agent = engine.agent().await;
    let mut status = agent.status();
    let stopping = tokio::spawn(engine.stop());
    let is_offline = |status: &AgentStatus| !matches!(status, AgentStatus::Online { .. });
    let offline = status.wait_for(is_offline);
    within("the end of the agent", offline).await.unwrap();
    near.write_all(b"ping").await.unwrap();
    let mut request = [0; 4];
    within("a request", far.read_exact(&mut request))
        .await
        .unwrap();
    assert_eq!(&request, b"ping");
    assert!(!stopping.is_finished());
    drop((near, far));
    within("the end of the engine", stopping).await.unwrap();
}
