//! A scripted engine: real TLS on a real port, with a test in the role of the engine.

use std::{sync::Arc, time::Duration};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use svc_client::{Agent, Config, HostPort, Token, Trust};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};
use tokio_rustls::{TlsAcceptor, TlsStream};
use wire::{
    Decoder, Kind, Message,
    handshake::{ALPN_SVC, EXT_POOL, PROTOCOL_VERSION},
    liveness::EngineLiveness,
    message::{
        ControlChannelLiveness, ControlChannelOk, ControlChannelOutcome, OpenControlChannelReq,
        OpenControlChannelRsp, OpenTunnelReq, OpenTunnelRsp, ServerDetails, TunnelOutcome,
    },
};

/// Longer than any step of these tests takes.
pub(crate) const SOON: Duration = Duration::from_secs(45);

pub(crate) struct FakeEngine {
    listener: TcpListener,
    acceptor: TlsAcceptor,
    root: CertificateDer<'static>,
}

impl FakeEngine {
    pub(crate) async fn start() -> Self {
        Self::speaking(ALPN_SVC).await
    }

    /// An engine that supports only this protocol.
    pub(crate) async fn speaking(alpn: &[u8]) -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let ca = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let leaf = CertificateParams::new(vec!["engine.localhost".to_owned()])
            .unwrap()
            .signed_by(&key, &ca)
            .unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![leaf.der().clone()],
                PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der())),
            )
            .unwrap();
        tls.alpn_protocols = vec![alpn.to_vec()];
        Self {
            listener: TcpListener::bind("127.0.0.1:0").await.unwrap(),
            acceptor: TlsAcceptor::from(Arc::new(tls)),
            root: ca.der().clone(),
        }
    }

    pub(crate) fn config(&self) -> Config {
        let port = self.listener.local_addr().unwrap().port();
        let mut config = Config::new(
            HostPort::new("engine.localhost", port).unwrap(),
            Token::new("a.b.c"),
        );
        config.trust = Trust::Roots(vec![self.root.clone()]);
        config.heartbeat = Duration::from_secs(1);
        config
    }

    /// Uses the certificate of another engine from now on, and returns its own.
    pub(crate) fn swap_certificate(&mut self, other: &Self) -> TlsAcceptor {
        std::mem::replace(&mut self.acceptor, other.acceptor.clone())
    }

    pub(crate) fn restore_certificate(&mut self, own: TlsAcceptor) {
        self.acceptor = own;
    }

    /// Refuses the next control channel, and returns the token that it presented.
    pub(crate) async fn refuse_next(&self, error: wire::Error) -> String {
        let mut peer = self.accept().await;
        let hello = peer.hello().await;
        let outcome = Some(ControlChannelOutcome::Error(error));
        peer.send(Kind::OpenControlChannelRsp(OpenControlChannelRsp {
            outcome,
        }))
        .await;
        token(&hello)
    }

    pub(crate) fn agent(&self) -> Agent {
        Agent::start(self.config()).unwrap()
    }

    /// The next connection of any kind.
    pub(crate) async fn accept(&self) -> Peer {
        let (tcp, _) = timeout(SOON, self.listener.accept())
            .await
            .unwrap()
            .unwrap();
        let tls = self.acceptor.accept(tcp).await.unwrap();
        assert_eq!(tls.get_ref().1.alpn_protocol(), Some(ALPN_SVC));
        assert_eq!(tls.get_ref().1.server_name(), Some("engine.localhost"));
        Peer {
            io: TlsStream::Server(tls),
            decoder: Decoder::new(),
        }
    }

    /// The next connection, once it has received data.
    pub(crate) async fn asked(&self) -> impl Sized + use<> {
        let (tcp, _) = self.listener.accept().await.unwrap();
        let mut tls = self.acceptor.accept(tcp).await.unwrap();
        tls.read_u8().await.unwrap();
        tls
    }

    /// Accepts the next connection and closes it, like a load balancer without an engine.
    pub(crate) async fn drop_next(&self) {
        drop(
            timeout(SOON, self.listener.accept())
                .await
                .unwrap()
                .unwrap(),
        );
    }

    /// The next connection, whose handshake must fail.
    pub(crate) async fn accept_failing(&self) {
        let (tcp, _) = timeout(SOON, self.listener.accept())
            .await
            .unwrap()
            .unwrap();
        assert!(self.acceptor.accept(tcp).await.is_err());
    }

    /// The next connection, which must be a control channel. The engine accepts it.
    pub(crate) async fn control(&self) -> Peer {
        let mut peer = self.accept().await;
        let hello = peer.hello().await;
        peer.welcome(&hello).await;
        peer
    }

    /// A control channel and one tunnel `t-1` on it.
    pub(crate) async fn control_with_tunnel(&self) -> Peer {
        let mut peer = self.control().await;
        let asked = peer.tunnel_request().await;
        peer.grant(&asked, "t-1").await;
        peer
    }
}

/// The token of a hello.
pub(crate) fn token(hello: &OpenControlChannelReq) -> String {
    let details = hello.client_details.clone().unwrap();
    details.token.unwrap().value
}

/// The engine's end of one connection.
pub(crate) struct Peer {
    pub(crate) io: TlsStream<TcpStream>,
    decoder: Decoder,
}

impl Peer {
    pub(crate) async fn send(&mut self, kind: Kind) {
        let mut frame = Vec::new();
        wire::encode(&Message { kind: Some(kind) }, &mut frame).unwrap();
        self.io.write_all(&frame).await.unwrap();
        self.io.flush().await.unwrap();
    }

    /// The next message that is not a heartbeat, without reading further bytes.
    pub(crate) async fn next(&mut self) -> Kind {
        loop {
            match self.next_of_any_kind().await {
                Kind::Heartbeat(_) => {}
                other => return other,
            }
        }
    }

    pub(crate) async fn next_of_any_kind(&mut self) -> Kind {
        let read = async {
            loop {
                if let Some(message) = self.decoder.next().unwrap() {
                    return message.kind.unwrap();
                }
                let mut bytes = vec![0; self.decoder.missing().unwrap()];
                self.io.read_exact(&mut bytes).await.unwrap();
                self.decoder.push(&bytes);
            }
        };
        timeout(SOON, read).await.unwrap()
    }

    /// Reads until the peer closes. Earlier messages are ignored.
    pub(crate) async fn closed(&mut self) {
        let mut rest = Vec::new();
        // A normal end or a reset.
        drop(timeout(SOON, self.io.read_to_end(&mut rest)).await.unwrap());
    }

    pub(crate) async fn hello(&mut self) -> OpenControlChannelReq {
        match self.next().await {
            Kind::OpenControlChannelReq(hello) => hello,
            other => panic!("not a hello: {other:?}"),
        }
    }

    pub(crate) async fn welcome(&mut self, hello: &OpenControlChannelReq) {
        let details = hello.client_details.clone().unwrap();
        assert_eq!(details.protocol_version.unwrap().value, PROTOCOL_VERSION);
        assert_eq!(details.token.unwrap().value, "a.b.c");
        let (liveness, _) =
            EngineLiveness::negotiate(hello.liveness, std::time::Instant::now()).unwrap();
        self.welcome_with(hello, liveness).await;
    }

    pub(crate) async fn welcome_with(
        &mut self,
        hello: &OpenControlChannelReq,
        liveness: Option<ControlChannelLiveness>,
    ) {
        assert!(hello.client_details.is_some());
        self.send(Kind::OpenControlChannelRsp(OpenControlChannelRsp {
            outcome: Some(ControlChannelOutcome::Ok(ControlChannelOk {
                client_id: "cli_1".to_owned(),
                server_details: Some(ServerDetails {
                    extensions: vec![EXT_POOL.to_owned()],
                    ..ServerDetails::default()
                }),
                liveness,
            })),
        }))
        .await;
    }

    pub(crate) async fn tunnel_request(&mut self) -> OpenTunnelReq {
        match self.next().await {
            Kind::OpenTunnelReq(asked) => asked,
            other => panic!("not a request for a tunnel: {other:?}"),
        }
    }

    pub(crate) async fn grant(&mut self, asked: &OpenTunnelReq, id: &str) {
        let mut effective = asked.tunnel_properties.clone().unwrap();
        effective.id = Some(id.into());
        effective.hostname = Some("demo.t.engine.localhost".into());
        self.send(Kind::OpenTunnelRsp(OpenTunnelRsp {
            request_id: asked.request_id.clone(),
            outcome: Some(TunnelOutcome::TunnelProperties(Box::new(effective))),
        }))
        .await;
    }

    pub(crate) async fn refuse_tunnel(&mut self, asked: &OpenTunnelReq, error: wire::Error) {
        self.send(Kind::OpenTunnelRsp(OpenTunnelRsp {
            request_id: asked.request_id.clone(),
            outcome: Some(TunnelOutcome::Error(error)),
        }))
        .await;
    }
}
