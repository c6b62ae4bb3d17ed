use tokio::io::{AsyncReadExt as _, DuplexStream, duplex};
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::agent::tap::recorder::{TapRecorder, certificate};

/// An edge and a service with an opener between them.
struct OpenerPair {
    edge: DuplexStream,
    service: DuplexStream,
    notes: TapRecorder,
    carried: tokio::task::JoinHandle<CopyResult>,
}

impl OpenerPair {
    fn start() -> Self {
        let (certificate, key) = certificate("anybody");
        let opener = TlsInterceptor::new(certificate, key).unwrap();
        // Larger than a ClientHello, so that writing it does not block, as with a socket.
        let (edge, mut near) = duplex(16 * 1024);
        let (mut far, service) = duplex(16 * 1024);
        let notes = TapRecorder::default();
        let tap = Box::new(notes.clone());
        let carried = tokio::spawn(async move {
            opener
                .copy_decrypted(Source::default(), &mut near, &mut far, tap)
                .await
        });
        Self {
            edge,
            service,
            notes,
            carried,
        }
    }

    /// Both sessions, for an edge and a service with these ALPN protocols.
    async fn shaken(
        self,
        offered: &[&str],
        has: &[&str],
    ) -> (TlsStream<DuplexStream>, TlsStream<DuplexStream>, Rest) {
        let offered: Vec<_> = offered.iter().map(|name| name.as_bytes()).collect();
        let client = service_client_config(provider(), &offered).unwrap();
        let edge = handshake(client, "web.test", self.edge);
        let (certificate, key) = certificate("elsewhere.test");
        let mut server = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        server.alpn_protocols = has.iter().map(|name| name.as_bytes().to_vec()).collect();
        let service = TlsAcceptor::from(Arc::new(server)).accept(self.service);
        let (edge, service) = tokio::join!(edge, service);
        let rest = Rest {
            notes: self.notes,
            carried: self.carried,
        };
        (edge.unwrap(), service.unwrap().into(), rest)
    }
}

/// Everything besides the two sessions.
struct Rest {
    notes: TapRecorder,
    carried: tokio::task::JoinHandle<CopyResult>,
}

#[tokio::test]
async fn names_and_protocols_pass_through_the_opener() {
    for (offered, has, chosen) in [
        (
            &["h2", "http/1.1"][..],
            &["http/1.1", "h2"][..],
            Some("http/1.1"),
        ),
        (&["h2", "http/1.1"], &["h2"], Some("h2")),
        (&["http/1.1"], &["h2", "http/1.1"], Some("http/1.1")),
        (&["h2", "http/1.1"], &[], None),
        (&[], &["h2"], None),
    ] {
        let (edge, service, _rest) = OpenerPair::start().shaken(offered, has).await;
        let chosen = chosen.map(str::as_bytes);
        assert_eq!(edge.get_ref().1.alpn_protocol(), chosen, "{offered:?}");
        assert_eq!(service.get_ref().1.alpn_protocol(), chosen, "{offered:?}");
        let TlsStream::Server(service) = service else {
            panic!("a service is a server");
        };
        assert_eq!(service.get_ref().1.server_name(), Some("web.test"));
    }
}

#[tokio::test]
async fn bytes_are_observed_and_both_sessions_end_alike() {
    for cut in [false, true] {
        let (mut edge, mut service, rest) = OpenerPair::start().shaken(&[], &[]).await;
        edge.write_all(b"question").await.unwrap();
        let mut question = [0; 8];
        service.read_exact(&mut question).await.unwrap();
        service.write_all(b"answer").await.unwrap();
        if cut {
            service.flush().await.unwrap();
        } else {
            service.shutdown().await.unwrap();
        }
        drop(service);
        let mut answer = Vec::new();
        let read = edge.read_to_end(&mut answer).await;
        assert_eq!(answer, b"answer");
        let kind = read.err().map(|error| error.kind());
        assert_eq!(kind, cut.then_some(io::ErrorKind::UnexpectedEof));
        // The edge drops a connection that it no longer needs.
        drop(edge);
        rest.carried.await.unwrap().result.unwrap();
        let notes = rest.notes.calls.lock();
        assert_eq!(
            *notes,
            "opened web.test\n> question\n< answer\nended None\n"
        );
    }
}

#[tokio::test]
async fn a_service_without_tls_prevents_the_edge_session() {
    let mut between = OpenerPair::start();
    between
        .service
        .write_all(b"HTTP/1.1 400 Bad\r\n\r\n")
        .await
        .unwrap();
    let client = service_client_config(provider(), &[]).unwrap();
    let edge = handshake(client, "web.test", between.edge).await;
    assert!(edge.is_err());
    let pumped = between.carried.await.unwrap();
    let error = pumped.result.unwrap_err().to_string();
    assert!(
        error.starts_with("the TLS handshake with the service failed"),
        "{error}"
    );
    assert!(between.notes.calls.lock().starts_with("ended Some("));
}
