//! Requests, connections and their bytes.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use client::Properties;
use futures_util::{SinkExt, StreamExt};
use testing::cluster::TestCluster;
use testing::{EventSource, H2Visitor, TestCa, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_tungstenite::tungstenite::Message;

const LARGE: usize = 3_000_000;

#[tokio::test]
async fn a_request_reaches_the_agent_of_another_engine() {
    let cluster = TestCluster::start().await;
    let upstream = Upstream::http1().await;
    let tunnel = cluster.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let source = Ipv4Addr::new(127, 0, 0, 9);
    let mut http1 = cluster.visitor().from(source).http1(host).await;
    let mut h2 = cluster.visitor().from(source).h2(host).await;
    for target in ["/first", "/second"] {
        for answer in [http1.get(target, host).await, h2.get(target, host).await] {
            assert_eq!((answer.status, answer.is_complete), (200, true));
            let seen = answer.json();
            assert_eq!(seen["target"], target);
            // The service learns the visitor's address, not the one of an engine.
            let addresses = seen["headers"].as_array().unwrap().iter();
            let addresses: Vec<_> = addresses
                .filter(|field| field[0] == "x-forwarded-for")
                .map(|field| field[1].as_str().unwrap())
                .collect();
            assert_eq!(addresses, ["127.0.0.9"]);
        }
    }
    // The visited engine reuses the connections to the service, as for its own agents.
    assert!(upstream.accepted() <= 2, "{}", upstream.accepted());
}

#[tokio::test]
async fn large_bodies_pass_in_both_directions() {
    let cluster = TestCluster::start().await;
    for (name, upstream) in [
        ("http1", Upstream::http1().await),
        ("h2c", Upstream::h2c().await),
    ] {
        let properties = match name {
            "h2c" => Properties::http().http_version(client::properties::HttpVersion::H2c),
            _ => Properties::http(),
        };
        let tunnel = cluster.publish_as(properties, upstream.addr()).await;
        let host = tunnel.hostname();
        let body = Upstream::payload(LARGE);
        let mut http1 = cluster.visitor().http1(host).await;
        let head =
            format!("POST /mirror HTTP/1.1\r\nHost: {host}\r\nContent-Length: {LARGE}\r\n\r\n");
        let answer = http1
            .exchange(&[head.as_bytes(), body.as_slice()].concat())
            .await;
        assert!(answer.is_complete, "{name}");
        assert!(answer.body == body, "{name}");
        for target in [format!("/bytes/{LARGE}"), format!("/chunked/{LARGE}")] {
            let answer = http1.get(&target, host).await;
            assert!(answer.is_complete && answer.body == body, "{name} {target}");
        }
        let mut h2 = cluster.visitor().h2(host).await;
        let request = hyper::Request::post(format!("https://{host}/mirror"));
        let request = request.body(H2Visitor::full(body.clone())).unwrap();
        let answer = H2Visitor::collect(h2.send(request).await.unwrap()).await;
        assert!(
            answer.is_complete && answer.body == body,
            "{name} over HTTP/2"
        );
    }
}

#[tokio::test]
async fn websockets_are_forwarded() {
    let cluster = TestCluster::start().await;
    let upstream = Upstream::websocket().await;
    let tunnel = cluster.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let stream = cluster.visitor().http1(host).await.into_stream();
    let (mut socket, _) = tokio_tungstenite::client_async(format!("wss://{host}/"), stream)
        .await
        .unwrap();
    let large = Message::binary(Upstream::payload(1_000_000));
    for message in [Message::text("hello"), large, Message::text("again")] {
        socket.send(message.clone()).await.unwrap();
        let echoed = within("echo", socket.next()).await;
        assert_eq!(echoed.unwrap().unwrap(), message);
    }
    socket.close(None).await.unwrap();
    let last = within("close", socket.next()).await;
    assert!(matches!(last, Some(Ok(Message::Close(_)))), "{last:?}");
}

#[tokio::test]
async fn events_are_forwarded_when_they_happen() {
    let cluster = TestCluster::start().await;
    let source = EventSource::start().await;
    let tunnel = cluster.publish(source.upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = cluster.visitor().http1(host).await;
    visitor
        .request("GET", "/", host, "Accept: text/event-stream\r\n")
        .await;
    assert_eq!(
        visitor.head().await.header("content-type"),
        Some("text/event-stream")
    );
    for number in 0..20 {
        let event = source.send(&format!("event {number}"));
        assert_eq!(visitor.chunk().await.unwrap(), event.as_bytes());
    }
    source.end();
    assert_eq!(visitor.chunk().await.unwrap(), b"");
}

/// The service sends first, and then what it received before the visitor's end.
async fn half_closing_service() -> Upstream {
    Upstream::start(|mut stream, _| async move {
        stream.write_all(b"hello, ").await.unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).await.unwrap();
        stream.write_all(&said).await.unwrap();
    })
    .await
}

#[tokio::test]
async fn tcp_tunnels_are_forwarded_and_each_direction_is_closed_separately() {
    let ports = ports::lease_range(1);
    let section = format!("tcp: {{port_range: '{}-{}'}}", ports.start(), ports.end());
    let cluster = TestCluster::start_with(&section, &section).await;
    let upstream = half_closing_service().await;
    let tunnel = cluster.publish_as(Properties::tcp(), upstream.addr()).await;
    let port = tunnel.online().properties.port.expect("a port");
    let address = SocketAddr::new(cluster.visited().addr().ip(), port);
    // The visited engine listens as soon as it has processed the entry.
    let connecting = async {
        loop {
            match TcpStream::connect(address).await {
                Ok(stream) => return stream,
                Err(_refused) => tokio::task::yield_now().await,
            }
        }
    };
    let mut visitor = within("listener of the port", connecting).await;
    let mut hello = [0; 7];
    within("hello", visitor.read_exact(&mut hello))
        .await
        .unwrap();
    let said = Upstream::payload(LARGE);
    let (mut reader, mut writer) = visitor.split();
    let mut echoed = Vec::new();
    let exchanging = async {
        writer.write_all(&said).await.unwrap();
        writer.shutdown().await.unwrap();
        reader.read_to_end(&mut echoed).await.unwrap();
    };
    within("echo", exchanging).await;
    assert!(echoed == said);
    // Without the entry nothing listens there.
    cluster.directory().set_ports([]);
    let refused = async {
        while TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    within("end of the listener", refused).await;
}

#[tokio::test]
async fn tls_tunnels_are_forwarded_unread() {
    let cluster = TestCluster::start().await;
    let ca = TestCa::new();
    let host = "own.t.engine.localhost";
    let config = ca.server(&[host], &["own"]);
    let upstream = Upstream::start(move |stream, _| {
        let acceptor = TlsAcceptor::from(Arc::clone(&config));
        async move {
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut said = [0; 5];
            stream.read_exact(&mut said).await.unwrap();
            stream.write_all(&said).await.unwrap();
            stream.shutdown().await.unwrap();
        }
    })
    .await;
    let properties = Properties::tls()
        .hostname("own".to_owned())
        .tls_mode("passthrough");
    let tunnel = cluster.publish_as(properties, upstream.addr()).await;
    assert_eq!(tunnel.hostname(), host);
    // Only the service has a certificate of this authority.
    let client = ca.client(&["own"]);
    let mut visitor = cluster.visitor().connect(host, &client).await;
    visitor.write_all(b"hello").await.unwrap();
    let mut echoed = Vec::new();
    let reading = visitor.read_to_end(&mut echoed);
    within("echo", reading).await.unwrap();
    assert_eq!(echoed, b"hello");
}
