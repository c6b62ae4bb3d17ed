//! Services with HTTP/2 that close connections, and requests that are on their way at that moment.

use std::sync::Arc;

use bytes::Bytes;
use client::Properties;
use client::properties::HttpVersion;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Request, Response};
use testing::{H2Visitor, TestEngine, Upstream, within};
use tokio::net::TcpStream;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::task::JoinSet;

use super::idle::{METHODS, distant_tunnel};

/// The end of an idle connection.
#[derive(Clone, Copy, Debug)]
enum ConnectionEnd {
    /// A GOAWAY with the last request that was processed precedes it.
    Announced,
    Silent,
}

/// A service that ends its idle connections when the test requests it, and has the ids of the requests
/// that it received.
struct ClosingService {
    upstream: Upstream,
    close: watch::Sender<()>,
    closed: mpsc::UnboundedReceiver<()>,
    ids: Arc<Mutex<Vec<String>>>,
}

impl ClosingService {
    async fn start(end: ConnectionEnd) -> Self {
        let (close, closing) = watch::channel(());
        let (report, closed) = mpsc::unbounded_channel();
        let ids = Arc::<Mutex<Vec<String>>>::default();
        let received = Arc::clone(&ids);
        let upstream = Upstream::start(move |stream, _| {
            let (mut closing, report) = (closing.clone(), report.clone());
            closing.mark_unchanged();
            let received = Arc::clone(&received);
            async move {
                serve(stream, closing, end, received).await;
                report.send(()).ok();
            }
        })
        .await;
        Self {
            upstream,
            close,
            closed,
            ids,
        }
    }

    async fn close_idle(&mut self) {
        self.close.send(()).unwrap();
        within("close of a connection", self.closed.recv()).await;
    }
}

/// Serves a connection until it has to end.
async fn serve(
    stream: TcpStream,
    mut closing: watch::Receiver<()>,
    end: ConnectionEnd,
    received: Arc<Mutex<Vec<String>>>,
) {
    let Ok(mut connection) = h2::server::handshake(stream).await else {
        return;
    };
    let mut requests = JoinSet::new();
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let Some(Ok((request, response))) = accepted else { return };
                requests.spawn(answer(request, response, Arc::clone(&received)));
            }
            _asked = closing.changed() => break,
        }
    }
    if matches!(end, ConnectionEnd::Announced) {
        connection.abrupt_shutdown(Reason::NO_ERROR);
        while let Some(Ok(_)) = connection.accept().await {}
    }
}

async fn answer(
    request: Request<RecvStream>,
    mut response: SendResponse<Bytes>,
    received: Arc<Mutex<Vec<String>>>,
) {
    let id = request
        .headers()
        .get("x-id")
        .map_or("", |id| id.to_str().unwrap());
    let id = id.to_owned();
    let mut body = request.into_body();
    while let Some(Ok(data)) = body.data().await {
        body.flow_control().release_capacity(data.len()).unwrap();
    }
    received.lock().await.push(id);
    let mut body = response.send_response(Response::new(()), false).unwrap();
    body.send_data(Bytes::from("ok"), true).unwrap();
}

/// Size of a field of each request. HPACK makes it smaller.
const PAD: usize = 2000;

/// The agent has received the start of a request when it has received so many bytes. Other messages
/// are smaller.
const START: usize = 1000;

fn pad(number: usize) -> String {
    number.to_string().repeat(PAD)
}

/// The engine sends each request on a connection that the service has closed, and notices that later.
/// Each request reaches the service once, whatever its method.
#[tokio::test]
async fn no_request_to_an_http_2_service_is_lost_when_it_closes_an_idle_connection() {
    let h2c = Properties::http().http_version(HttpVersion::H2c);
    for end in [ConnectionEnd::Announced, ConnectionEnd::Silent] {
        let engine = TestEngine::start().await;
        let mut service = ClosingService::start(end).await;
        let address = service.upstream.addr();
        let (tunnel, line) = distant_tunnel(&engine, address, h2c.clone()).await;
        let host = tunnel.hostname();
        let mut visitor = engine.visitor().http1(host).await;
        visitor.request("GET", "/", host, "X-Id: first\r\n").await;
        assert_eq!(visitor.answer().await.status, 200);
        for (number, (method, length)) in METHODS.into_iter().enumerate() {
            let arrived = line.hold() + START;
            service.close_idle().await;
            let pad = pad(number);
            let mut request = format!(
                "{method} / HTTP/1.1\r\nHost: {host}\r\nX-Id: {number}\r\nX-Pad: {pad}\r\n\
                 Content-Length: {length}\r\n\r\n"
            )
            .into_bytes();
            request.resize(request.len() + length, b'x');
            let (answer, ()) = tokio::join!(visitor.exchange(&request), line.release_at(arrived));
            assert_eq!(answer.status, 200, "{end:?} {method} {length}: {answer:?}");
        }
        let ids = service.ids.lock().await;
        assert_eq!(ids.join(" "), "first 0 1 2 3 4 5 6 7", "{end:?}");
    }
}

/// The same for visitors with HTTP/2, such as those of gRPC.
#[tokio::test]
async fn no_request_between_http_2_peers_is_lost_when_the_service_closes_an_idle_connection() {
    let h2c = Properties::http().http_version(HttpVersion::H2c);
    for end in [ConnectionEnd::Announced, ConnectionEnd::Silent] {
        let engine = TestEngine::start().await;
        let mut service = ClosingService::start(end).await;
        let address = service.upstream.addr();
        let (tunnel, line) = distant_tunnel(&engine, address, h2c.clone()).await;
        let host = tunnel.hostname();
        let mut visitor = engine.visitor().h2(host).await;
        assert_eq!(visitor.get("/", host).await.status, 200);
        for (number, (method, length)) in METHODS.into_iter().enumerate() {
            let arrived = line.hold() + START;
            service.close_idle().await;
            let request = Request::builder()
                .method(method)
                .uri(format!("https://{host}/"))
                .header("x-id", number)
                .header("x-pad", pad(number))
                .body(H2Visitor::full(vec![b'x'; length]))
                .unwrap();
            let (answer, ()) = tokio::join!(visitor.send(request), line.release_at(arrived));
            let answer = H2Visitor::collect(answer.unwrap()).await;
            assert_eq!(answer.status, 200, "{end:?} {method} {length}: {answer:?}");
        }
        let ids = service.ids.lock().await;
        assert_eq!(ids.join(" "), " 0 1 2 3 4 5 6 7", "{end:?}");
    }
}

/// The service has received the request, and may have executed it.
#[tokio::test]
async fn a_request_that_reached_an_http_2_service_is_not_sent_again() {
    let engine = TestEngine::start().await;
    let (sender, mut requests) = mpsc::unbounded_channel();
    let service = Upstream::start(move |stream, number| {
        let sender = sender.clone();
        async move {
            let Ok(mut connection) = h2::server::handshake(stream).await else {
                return;
            };
            let mut is_first = number == 1;
            while let Some(Ok((_, mut response))) = connection.accept().await {
                sender.send(number).ok();
                if !is_first {
                    // Without a response.
                    return;
                }
                is_first = false;
                response.send_response(Response::new(()), true).unwrap();
            }
        }
    })
    .await;
    let tunnel = engine.publish_h2c(service.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    assert_eq!(visitor.get("/", host).await.status, 200);
    let length = "Content-Length: 1\r\n";
    visitor.request("POST", "/", host, length).await;
    visitor.send("x").await;
    let answer = within("answer", visitor.answer()).await;
    assert_eq!(answer.status, 502);
    assert_eq!(answer.json()["code"], "upstream_unreachable");
    assert_eq!(service.accepted(), 1);
    assert_eq!(requests.recv().await, Some(1));
    assert_eq!(requests.recv().await, Some(1));
    assert!(requests.try_recv().is_err());
}

/// A service may refuse a request that it has not processed (RFC 9113, 8.7).
#[tokio::test]
async fn a_refused_stream_is_sent_again_on_another_connection() {
    let engine = TestEngine::start().await;
    let service = Upstream::start(|stream, number| async move {
        let Ok(mut connection) = h2::server::handshake(stream).await else {
            return;
        };
        let mut is_first = true;
        while let Some(Ok((request, mut response))) = connection.accept().await {
            if number == 1 && !is_first {
                response.send_reset(Reason::REFUSED_STREAM);
                continue;
            }
            is_first = false;
            tokio::spawn(answer(request, response, Arc::default()));
        }
    })
    .await;
    let tunnel = engine.publish_h2c(service.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().h2(host).await;
    assert_eq!(visitor.get("/", host).await.status, 200);
    let request = Request::post(format!("https://{host}/"))
        .body(H2Visitor::full(vec![b'x'; 100_000]))
        .unwrap();
    let answer = H2Visitor::collect(visitor.send(request).await.unwrap()).await;
    assert_eq!((answer.status, answer.text()), (200, "ok"));
    assert_eq!(service.accepted(), 2);
}
