//! Interim answers for HTTP/2 visitors.

use std::future::poll_fn;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::ext::Protocol;
use h2::{Reason, SendStream};
use http::{HeaderMap, Method, Request, Response, Version};
use testing::{Report, ScriptedUpstream, Step, TestEngine, Upstream, within};
use tokio_util::task::AbortOnDropHandle;

use super::interim::GatedService;

/// An HTTP/2 visitor that shows interim answers.
struct Visitor {
    sender: SendRequest<Bytes>,
    _connection: AbortOnDropHandle<Result<(), h2::Error>>,
}

/// A request whose final answer has not arrived.
struct Exchange {
    answer: ResponseFuture,
    body: SendStream<Bytes>,
}

impl Visitor {
    async fn connect(engine: &TestEngine, host: &str) -> Self {
        let config = engine.ca().client(&["h2"]);
        let stream = engine.visitor().connect(host, &config).await;
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        Self {
            sender,
            _connection: AbortOnDropHandle::new(tokio::spawn(connection)),
        }
    }

    async fn get(&mut self, host: &str) -> Exchange {
        let request = Request::get(format!("https://{host}/"));
        self.send(request.body(()).unwrap(), true).await
    }

    /// Sends the head of a request whose body waits for a 100.
    async fn put(&mut self, host: &str) -> Exchange {
        let request = Request::put(format!("https://{host}/"))
            .header("content-length", "4")
            .header("expect", "100-continue");
        self.send(request.body(()).unwrap(), false).await
    }

    /// Sends such a request, and its body after the 100. Returns the final answer.
    async fn put_body(&mut self, host: &str) -> (u16, Bytes) {
        let mut exchange = self.put(host).await;
        assert_eq!(exchange.interim().await.unwrap().0, 100);
        exchange.body.send_data("body".into(), true).unwrap();
        assert_eq!(exchange.interim().await, None);
        exchange.end().await
    }

    async fn send(&mut self, request: Request<()>, is_whole: bool) -> Exchange {
        let ready = within("connection", self.sender.clone().ready()).await;
        self.sender = ready.unwrap();
        let (answer, body) = self.sender.send_request(request, is_whole).unwrap();
        Exchange { answer, body }
    }
}

impl Exchange {
    /// The next interim answer. `None` if the final one follows.
    async fn interim(&mut self) -> Option<(u16, HeaderMap)> {
        let polling = poll_fn(|cx| self.answer.poll_informational(cx));
        let response = within("interim or final answer", polling).await?.unwrap();
        Some((response.status().as_u16(), response.into_parts().0.headers))
    }

    async fn statuses(&mut self) -> Vec<u16> {
        let mut statuses = Vec::new();
        while let Some((status, _)) = self.interim().await {
            statuses.push(status);
        }
        statuses
    }

    /// The status and body of the final answer.
    async fn end(self) -> (u16, Bytes) {
        let (head, mut body) = within("answer", self.answer).await.unwrap().into_parts();
        let data = within("body", body.data()).await.transpose().unwrap();
        (head.status.as_u16(), data.unwrap_or_default())
    }
}

/// Each one arrives when the service sends it, with the header fields that a final answer may have.
#[tokio::test]
async fn interim_answers_reach_an_http_2_visitor_in_order() {
    let service = GatedService::start(|gate| {
        vec![
            Step::ReadHead,
            Step::write(
                "HTTP/1.1 103 Early Hints\r\nlink: </a>\r\nlink: </b>\r\nx-hop: 1\r\n\
                 connection: x-hop\r\nkeep-alive: timeout=5\r\nset-cookie: a=1\r\n\
                 set-cookie: __Host-svc_auth=x; Path=/\r\n\r\n\
                 HTTP/1.1 100 Continue\r\n\r\n",
            ),
            Step::Wait(gate.clone()),
            Step::write("HTTP/1.1 199 Own\r\n\r\n"),
            Step::Wait(gate.clone()),
            Step::write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
        ]
    })
    .await;
    let host = service.tunnel.hostname();
    let mut visitor = Visitor::connect(&service.engine, host).await;
    let mut exchange = visitor.get(host).await;
    let (status, fields) = exchange.interim().await.unwrap();
    assert_eq!(status, 103);
    let values = |name| fields.get_all(name).iter().collect::<Vec<_>>();
    assert_eq!(values("link"), ["</a>", "</b>"]);
    assert_eq!(values("set-cookie"), ["a=1"]);
    assert_eq!(fields.len(), 3, "{fields:?}");
    assert_eq!(exchange.interim().await.unwrap().0, 100);
    service.gate.open();
    assert_eq!(exchange.interim().await.unwrap().0, 199);
    service.gate.open();
    assert_eq!(exchange.interim().await, None);
    assert_eq!(exchange.end().await, (200, "ok".into()));
}

/// The visitor gets the service's decision: a 100, or a final answer without one.
#[tokio::test]
async fn a_service_decides_about_a_body_that_waits_for_continue() {
    let engine = TestEngine::start().await;
    let upstream = ScriptedUpstream::start(|number| {
        if number == 1 {
            return vec![
                Step::ReadHead,
                Step::write("HTTP/1.1 100 Continue\r\n\r\n"),
                Step::ReadBytes(4),
                Step::write("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"),
                Step::KeepOpen,
            ];
        }
        vec![
            Step::ReadHead,
            Step::write("HTTP/1.1 401 Unauthorized\r\ncontent-length: 2\r\n\r\nno"),
            Step::ReadToEnd,
        ]
    })
    .await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = Visitor::connect(&engine, host).await;
    assert_eq!(visitor.put_body(host).await, (200, "ok".into()));
    let head = upstream.head().await;
    assert!(head.contains("expect: 100-continue\r\n"), "{head}");
    assert_eq!(upstream.report().await, Report::Bytes(b"body".to_vec()));

    let other = engine.publish(upstream.addr()).await;
    let host = other.hostname();
    let mut visitor = Visitor::connect(&engine, host).await;
    let mut exchange = visitor.put(host).await;
    assert_eq!(exchange.interim().await, None);
    assert_eq!(exchange.end().await, (401, "no".into()));
}

/// An HTTP/2 service need not send a 100, so the edge does.
#[tokio::test]
async fn the_edge_requests_a_body_for_an_http_2_service() {
    let engine = TestEngine::start().await;
    let service = Upstream::h2c().await;
    let tunnel = engine.publish_h2c(service.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = Visitor::connect(&engine, host).await;
    assert_eq!(visitor.put_body(host).await.0, 200);
}

/// A service with HTTP/2 that sends interim responses with these statuses and sizes of a field, and
/// then 200.
async fn http2_service(interim: &'static [(u16, usize)]) -> Upstream {
    Upstream::start(move |stream, _| async move {
        let Ok(mut connection) = h2::server::handshake(stream).await else {
            return;
        };
        while let Some(Ok((_, mut answer))) = connection.accept().await {
            for (status, length) in interim {
                let hint = Response::builder()
                    .status(*status)
                    .header("link", "a".repeat(*length))
                    .header("set-cookie", "__Host-svc_auth=x; Path=/");
                answer.send_informational(hint.body(()).unwrap()).ok();
            }
            // The engine may have reset the stream.
            if let Ok(mut body) = answer.send_response(Response::new(()), false) {
                body.send_data("ok".into(), true).ok();
            }
        }
    })
    .await
}

#[tokio::test]
async fn interim_answers_of_an_http_2_service_reach_its_visitors_in_order() {
    let engine = TestEngine::start().await;
    // The edge itself sends the 100 that a visitor expects.
    let service = http2_service(&[(103, 1), (100, 1), (102, 2)]).await;
    let tunnel = engine.publish_h2c(service.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = Visitor::connect(&engine, host).await;
    let mut exchange = visitor.get(host).await;
    for (status, link) in [(103, "a"), (102, "aa")] {
        let (received, fields) = exchange.interim().await.unwrap();
        assert_eq!(
            (received, fields["link"].as_bytes()),
            (status, link.as_bytes())
        );
        assert_eq!(fields.len(), 1, "{fields:?}");
    }
    assert_eq!(exchange.interim().await, None);
    assert_eq!(exchange.end().await, (200, "ok".into()));

    let mut http1 = engine.visitor().http1(host).await;
    http1.request("GET", "/", host, "").await;
    for status in [103, 102] {
        assert_eq!(http1.head().await.status, status);
    }
    let answer = http1.answer().await;
    assert_eq!((answer.status, answer.text()), (200, "ok"));
    let old = format!("GET / HTTP/1.0\r\nHost: {host}\r\n\r\n");
    assert_eq!(http1.exchange(old.as_bytes()).await.status, 200);
}

#[tokio::test]
async fn interim_answers_of_an_http_2_service_are_limited() {
    let engine = TestEngine::start().await;
    for (service, forwarded) in [
        (http2_service(&[(103, 15_000); 3]).await, 2),
        (http2_service(&[(103, 1); 17]).await, 16),
    ] {
        let tunnel = engine.publish_h2c(service.addr()).await;
        let host = tunnel.hostname();
        let mut visitor = Visitor::connect(&engine, host).await;
        let mut exchange = visitor.get(host).await;
        assert_eq!(exchange.statuses().await, vec![103; forwarded]);
        assert_eq!(exchange.end().await.0, 502);
        let answer = engine.visitor().http1(host).await.get("/", host).await;
        assert_eq!(answer.status, 502);
        assert_eq!(answer.json()["code"], "upstream_invalid_response");
    }
}

/// They would otherwise use memory without limit while the visitor does not read.
#[tokio::test]
async fn the_size_of_all_interim_answers_is_limited() {
    let engine = TestEngine::start().await;
    let hints = format!(
        "HTTP/1.1 103 Early Hints\r\nlink: <{}>\r\n\r\n",
        "a".repeat(15_000)
    );
    for (count, expected) in [(2, 200), (3, 502)] {
        let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
        let upstream = ScriptedUpstream::answering(hints.repeat(count) + answer).await;
        let tunnel = engine.publish(upstream.addr()).await;
        let host = tunnel.hostname();
        let mut visitor = Visitor::connect(&engine, host).await;
        let mut exchange = visitor.get(host).await;
        assert_eq!(exchange.statuses().await, [103, 103]);
        assert_eq!(exchange.end().await.0, expected);
        let answer = engine.visitor().http1(host).await.get("/", host).await;
        assert_eq!(answer.status, expected);
    }
}

/// Before an extended CONNECT is accepted, and after the visitor has reset its stream.
#[tokio::test]
async fn interim_answers_precede_the_change_of_protocols() {
    let service = GatedService::start(|gate| {
        vec![
            Step::ReadHead,
            Step::write("HTTP/1.1 103 Early Hints\r\nlink: </a>\r\n\r\n"),
            Step::Wait(gate.clone()),
            Step::write(
                "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\n\
                 upgrade: chat\r\n\r\nhello",
            ),
            Step::ReadBytes(3),
            Step::KeepOpen,
        ]
    })
    .await;
    let host = service.tunnel.hostname();
    let mut visitor = Visitor::connect(&service.engine, host).await;
    // Any answer shows that the settings of the engine have arrived.
    let refused = visitor.get("other.invalid").await;
    refused.end().await;
    let mut connect = async || {
        let request = Request::builder()
            .method(Method::CONNECT)
            .uri(format!("https://{host}/"))
            .version(Version::HTTP_2)
            .extension(Protocol::from_static("chat"));
        visitor.send(request.body(()).unwrap(), false).await
    };
    let mut left = connect().await;
    assert_eq!(left.interim().await.unwrap().0, 103);
    left.body.send_reset(Reason::CANCEL);
    let mut kept = connect().await;
    assert_eq!(kept.interim().await.unwrap().0, 103);
    service.gate.open();
    service.gate.open();
    assert_eq!(kept.interim().await, None);
    kept.body.send_data("bye".into(), false).unwrap();
    assert_eq!(kept.end().await, (200, "hello".into()));
}
