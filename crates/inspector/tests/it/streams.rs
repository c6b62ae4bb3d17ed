//! Streams with third-party libraries at both ends, and a tap in between.

use std::time::Duration;

use client::tap::{TappedStream, Visit};
use futures_util::{SinkExt as _, StreamExt as _};
use inspector::{Inspector, Kind, RecordingMode, Summary, Update};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, copy_bidirectional, duplex};

/// A visitor's end and a service's end. Bytes between them are tapped.
fn joined(inspector: &Inspector) -> (DuplexStream, DuplexStream) {
    let visit = Visit::new("str_1", Some([192, 0, 2, 7].into()));
    let (visitor, mut near) = duplex(64 * 1024);
    let (far, service) = duplex(64 * 1024);
    let tap = inspector
        .tap("3000".parse().unwrap())
        .stream(&visit)
        .unwrap();
    drop(tokio::spawn(async move {
        let mut tapped = TappedStream::new(far, tap);
        let ended = copy_bidirectional(&mut near, &mut tapped).await;
        tapped.end(ended.err().map(|error| error.to_string()).as_deref());
    }));
    (visitor, service)
}

/// Waits until an exchange is over.
async fn over(inspector: &Inspector) -> Summary {
    let mut subscription = inspector.subscribe();
    let is_over = |summary: &Summary| summary.duration.is_some();
    if let Some(summary) = subscription.list().into_iter().find(is_over) {
        return summary;
    }
    let waited = tokio::time::timeout(Duration::from_mins(1), async {
        loop {
            if let Some(Update::Exchange(summary)) = subscription.next().await
                && is_over(&summary)
            {
                return summary;
            }
        }
    });
    waited.await.unwrap()
}

#[tokio::test]
async fn a_websocket_of_another_library_is_read() {
    let inspector = Inspector::new(RecordingMode::Always);
    let (visitor, service) = joined(&inspector);
    let served = tokio::spawn(async move {
        let mut socket = tokio_tungstenite::accept_async(service).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() {
                socket.send(message).await.unwrap();
            }
        }
    });
    let (mut socket, _) = tokio_tungstenite::client_async("ws://web.test/chat", visitor)
        .await
        .unwrap();
    socket.send("hello".into()).await.unwrap();
    assert_eq!(socket.next().await.unwrap().unwrap(), "hello".into());
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    drop(socket);
    served.await.unwrap();
    let summary = over(&inspector).await;
    assert_eq!((summary.kind, summary.status), (Kind::WebSocket, Some(101)));
    assert_eq!((summary.messages, summary.error), (4, None));
    assert_eq!(summary.source_ip, Some([192, 0, 2, 7].into()));
}

#[tokio::test]
async fn http2_of_another_library_is_read() {
    let inspector = Inspector::new(RecordingMode::Always);
    let (visitor, service) = joined(&inspector);
    let served = tokio::spawn(async move {
        let mut connection = h2::server::handshake(service).await.unwrap();
        while let Some(Ok((request, mut answer))) = connection.accept().await {
            let mut body = request.into_body();
            drop(tokio::spawn(async move {
                while let Some(Ok(data)) = body.data().await {
                    body.flow_control().release_capacity(data.len()).unwrap();
                }
                let mut received = answer
                    .send_response(http::Response::new(()), false)
                    .unwrap();
                received.send_data(vec![b'x'; 30_000].into(), true).unwrap();
            }));
        }
    });
    let (sender, connection) = h2::client::handshake(visitor).await.unwrap();
    let connection = tokio::spawn(connection);
    for round in 0..20 {
        let uri = format!("http://web.test/items/{round}?token=abc");
        let request = http::Request::post(uri).header("x-round", round);
        let mut sender = sender.clone().ready().await.unwrap();
        let (answer, mut body) = sender
            .send_request(request.body(()).unwrap(), false)
            .unwrap();
        body.send_data("a question".into(), true).unwrap();
        let mut received = answer.await.unwrap().into_body();
        while let Some(data) = received.data().await {
            let length = data.unwrap().len();
            received.flow_control().release_capacity(length).unwrap();
        }
    }
    drop(sender);
    connection.await.unwrap().unwrap();
    served.await.unwrap();
    let list = inspector.subscribe().list();
    assert_eq!(list.len(), 20);
    for (round, one) in list.iter().enumerate() {
        assert_eq!(&*one.path, format!("/items/{round}?token=[masked]"));
        assert_eq!(
            (one.status, one.response_bytes, one.request_bytes),
            (Some(200), 30_000, 10)
        );
        assert_eq!((&one.error, one.duration.is_some()), (&None, true));
    }
}

#[tokio::test]
async fn bytes_pass_unchanged_even_if_they_cannot_be_parsed() {
    let inspector = Inspector::new(RecordingMode::Always);
    let (mut visitor, mut service) = joined(&inspector);
    let sent: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let asked = sent.clone();
    let asking = tokio::spawn(async move {
        visitor.write_all(&asked).await.unwrap();
        visitor.shutdown().await.unwrap();
        let mut received = Vec::new();
        visitor.read_to_end(&mut received).await.unwrap();
        received
    });
    let mut heard = Vec::new();
    service.read_to_end(&mut heard).await.unwrap();
    assert!(heard == sent);
    service.write_all(&heard).await.unwrap();
    drop(service);
    assert!(asking.await.unwrap() == sent);
    assert_eq!(inspector.subscribe().list(), []);
}

#[test]
fn without_an_open_page_nothing_is_recorded() {
    let inspector = Inspector::new(RecordingMode::WhileSubscribed);
    let tap = inspector.tap("3000".parse().unwrap());
    let visit = Visit::new("", None);
    assert!(tap.stream(&visit).is_none());
    let looking = inspector.subscribe();
    assert!(tap.stream(&visit).is_some());
    drop(looking);
    assert!(tap.stream(&visit).is_none());
}

#[tokio::test]
async fn a_slow_subscriber_is_asked_to_reload_the_list() {
    let inspector = Inspector::new(RecordingMode::Always);
    let mut subscription = inspector.subscribe();
    let visit = Visit::new("", None);
    let mut stream = inspector
        .tap("3000".parse().unwrap())
        .stream(&visit)
        .unwrap();
    for _ in 0..600 {
        stream.to_service(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        stream.to_visitor(b"HTTP/1.1 204 No Content\r\n\r\n");
    }
    assert_eq!(subscription.next().await, Some(Update::Missed));
    let list = subscription.list();
    assert_eq!(list.last().unwrap().id, 600);
    assert_eq!(list.len(), inspector::limits::MAX_EXCHANGES);
    stream.to_service(b"GET /next HTTP/1.1\r\nHost: h\r\n\r\n");
    // The oldest one is removed for it.
    assert_eq!(
        subscription.next().await,
        Some(Update::Removed { up_to: 101 })
    );
    let Some(Update::Exchange(summary)) = subscription.next().await else {
        panic!("no exchange");
    };
    assert_eq!(&*summary.path, "/next");
}
