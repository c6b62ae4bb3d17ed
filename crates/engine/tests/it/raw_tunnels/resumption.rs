//! TLS sessions are resumed only for the name for which they were created.

use std::sync::Arc;

use rustls::client::{
    ClientSessionMemoryCache, ClientSessionStore, Resumption, Tls12ClientSessionValue,
    Tls13ClientSessionValue,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, HandshakeKind, NamedGroup};
use testing::{RawVisitor, TestEngine, TestTunnel, Upstream};

/// A client that presents its tickets to every server, whichever server issued them.
#[derive(Debug)]
struct SharedTicketStore(ClientSessionMemoryCache);

fn anybody() -> ServerName<'static> {
    ServerName::try_from("anybody").unwrap()
}

impl ClientSessionStore for SharedTicketStore {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        self.0.set_kx_hint(anybody(), group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        self.0.kx_hint(&anybody())
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        self.0.set_tls12_session(anybody(), value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.0.tls12_session(&anybody())
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        self.0.remove_tls12_session(&anybody());
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.0.insert_tls13_ticket(anybody(), value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.0.take_tls13_ticket(&anybody())
    }
}

/// Visits `host`. Returns true if an earlier session was resumed.
async fn visit(engine: &TestEngine, host: &str, config: &Arc<ClientConfig>) -> HandshakeKind {
    let stream = engine.visitor().connect(host, config).await;
    let kind = stream.get_ref().1.handshake_kind().unwrap();
    // Tickets arrive after the handshake, before the answer.
    RawVisitor::new(stream).get("/", host).await;
    kind
}

#[tokio::test]
async fn a_session_is_resumed_for_its_own_name_only() {
    let engine = TestEngine::start().await;
    let service = Upstream::http1().await;
    let tunnels = [
        engine.publish(service.addr()).await,
        engine.publish(service.addr()).await,
    ];
    let [own, other] = tunnels.each_ref().map(TestTunnel::hostname);
    for (first, then, expected) in [
        (own, own, HandshakeKind::Resumed),
        (own, other, HandshakeKind::Full),
        (own, engine.host(), HandshakeKind::Full),
        (engine.host(), other, HandshakeKind::Full),
    ] {
        let mut config = ClientConfig::clone(&engine.ca().client(&["http/1.1"]));
        let store = SharedTicketStore(ClientSessionMemoryCache::new(8));
        config.resumption = Resumption::store(Arc::new(store));
        let config = Arc::new(config);
        assert_eq!(visit(&engine, first, &config).await, HandshakeKind::Full);
        assert_eq!(
            visit(&engine, then, &config).await,
            expected,
            "{first}, then {then}"
        );
    }
}
