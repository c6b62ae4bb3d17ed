use std::time::Duration;

use rustls::ServerConfig;
use socket2::{Domain, Socket as Raw, Type};
use tokio::io::{AsyncReadExt, duplex};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_rustls::TlsAcceptor;

use super::*;
use crate::agent::tap::recorder::{TapRecorder, certificate};

fn visit() -> Visit {
    Visit::new("", None)
}

/// Taps without and with an interceptor.
fn taps() -> [TapRecorder; 2] {
    let (certificate, key) = certificate("app.test");
    let opener = TlsInterceptor::new(certificate, key).unwrap();
    let with_opener = TapRecorder {
        opener: Some(opener),
        ..TapRecorder::default()
    };
    [TapRecorder::default(), with_opener]
}

/// The agent opens the TLS session with the service at `address`.
fn tls_forward(address: SocketAddr, tap: &TapRecorder) -> Forward {
    let target: Target = format!("https://{address}").parse().unwrap();
    let to = Destination::new(target).with_service_name("app.test".parse().unwrap());
    Forward::new(ForwardOptions::to(to).with_tap(Arc::new(tap.clone())))
}

/// A service whose machine does not respond.
#[tokio::test(start_paused = true)]
async fn a_dial_times_out() {
    let listener = Raw::new(Domain::IPV4, Type::STREAM, None).unwrap();
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    listener.bind(&any.into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    // This connection fills the accept queue: the system drops further ones.
    let _waiting = std::net::TcpStream::connect(address).unwrap();
    let target: Target = address.to_string().parse().unwrap();
    let forward = Forward::new(ForwardOptions::to(target));
    let began = Instant::now();
    let visit = visit();
    let dialled = timeout(Duration::from_mins(5), forward.dial(&visit)).await;
    assert!(dialled.expect("the dial times out").is_err());
    assert_eq!(began.elapsed().as_secs(), 10);
}

/// The tap must have the session, because a later replay of the request uses TLS as well.
#[tokio::test]
async fn a_request_for_an_unreachable_service_is_shown_with_the_session_of_the_agent() {
    for tap in taps() {
        let forward = tls_forward(SocketAddr::from(([127, 0, 0, 1], 1)), &tap);
        let (mut engine, mut near) = duplex(1024);
        engine.write_all(b"question").await.unwrap();
        forward
            .show_unreachable(&visit(), &mut near, "not there")
            .await;
        let expected = "opened app.test\n> question\nended Some(\"not there\")\n";
        assert_eq!(*tap.calls.lock(), expected);
    }
}

#[tokio::test]
async fn a_tap_sees_the_bytes_inside_the_session_of_the_agent() {
    for tap in taps() {
        let (certificate, key) = certificate("app.test");
        let config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let forward = tls_forward(listener.local_addr().unwrap(), &tap);
        let serving = tokio::spawn(async move {
            let (socket, _) = listener.accept().await.unwrap();
            let acceptor = TlsAcceptor::from(Arc::new(config));
            let mut session = acceptor.accept(socket).await.unwrap();
            session.read_exact(&mut [0; 8]).await.unwrap();
            session.write_all(b"answer").await.unwrap();
            session.shutdown().await.unwrap();
            session.read_to_end(&mut Vec::new()).await.unwrap();
        });
        let service = forward.dial(&visit()).await.unwrap();
        let (mut engine, mut near) = duplex(1024);
        engine.write_all(b"question").await.unwrap();
        engine.shutdown().await.unwrap();
        let copied = forward
            .copy_bidirectional(&visit(), service, &mut near)
            .await;
        copied.result.unwrap();
        serving.await.unwrap();
        let mut answer = [0; 6];
        engine.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"answer");
        let expected = "opened app.test\n> question\n< answer\nended None\n";
        assert_eq!(*tap.calls.lock(), expected);
    }
}

/// A reset would mean to the service that its last response was not read.
#[tokio::test]
async fn the_engines_end_after_an_exchange_closes_the_services_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target: Target = listener.local_addr().unwrap().to_string().parse().unwrap();
    let forward = Forward::new(ForwardOptions::to(target));
    let serving = tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.unwrap();
        socket.read_exact(&mut [0; 8]).await.unwrap();
        socket.write_all(b"answer").await.unwrap();
        let end = socket.read(&mut [0; 1]).await;
        end.map_err(|error| error.kind())
    });
    let visit = visit();
    let service = forward.dial(&visit).await.unwrap();
    let (mut engine, mut near) = duplex(1024);
    let using = async move {
        engine.write_all(b"question").await.unwrap();
        engine.read_exact(&mut [0; 6]).await.unwrap();
    };
    let (ended, ()) = tokio::join!(forward.copy(&visit, service, &mut near, true), using);
    assert_eq!((ended.reset, ended.error), (None, None));
    assert_eq!(serving.await.unwrap(), Ok(0));
}
