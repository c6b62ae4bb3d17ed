//! Agents without extensions, such as the published SDKs, which open one connection per stream.

use serde_json::json;
use testing::{ReceivedResponse, TestEngine, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use wire::message::{ProxyConnReq, ProxyConnRsp, ProxyReq, TunnelProperties};
use wire::{Error, ErrorCode, Kind};

use crate::agent::raw_messages;
use crate::agent::raw_messages::{PlainAgent, Wire};

const HOST: &str = "web.t.engine.localhost";

async fn agent(engine: &TestEngine) -> PlainAgent {
    let mut agent = PlainAgent::connect(engine).await;
    agent.open(raw_messages::http("web")).await.unwrap();
    agent
}

fn secret(request: &ProxyConnReq) -> &str {
    &request.secret.as_ref().expect("a secret").value
}

/// Reads a request's head from a stream that an agent has opened.
async fn head(stream: &mut TlsStream<TcpStream>) -> String {
    let mut head = Vec::new();
    let reading = async {
        while !head.ends_with(b"\r\n\r\n") {
            assert!(stream.read_buf(&mut head).await.unwrap() > 0, "no request");
        }
    };
    within("request", reading).await;
    String::from_utf8(head).unwrap()
}

async fn answer(stream: &mut TlsStream<TcpStream>, body: &str) {
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(answer.as_bytes()).await.unwrap();
    stream.flush().await.unwrap();
}

/// A visitor's request in flight.
fn visit(engine: &TestEngine, target: &'static str) -> tokio::task::JoinHandle<ReceivedResponse> {
    let visitor = engine.visitor();
    tokio::spawn(async move { visitor.http1(HOST).await.get(target, HOST).await })
}

#[tokio::test]
async fn a_visitor_gets_a_connection_with_and_without_waiting() {
    let engine = TestEngine::start_unhurried("").await;
    let mut agent = agent(&engine).await;
    for zero_rtt in [false, true] {
        let visitor = visit(&engine, "/a?b");
        let request = agent.next_stream_request().await;
        assert_eq!(request.stream_id.len(), 24);
        assert!(
            request
                .stream_id
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit())
        );
        let source = request.source_ip.clone().unwrap().to_ip();
        assert_eq!(source, Some("127.0.0.1".parse().unwrap()));
        let brought = raw_messages::bring(&engine, &request.stream_id, secret(&request), zero_rtt);
        let mut stream = brought.await.unwrap().into_stream();
        assert!(head(&mut stream).await.starts_with("GET /a?b HTTP/1.1\r\n"));
        answer(&mut stream, "brought").await;
        let answer = visitor.await.unwrap();
        assert_eq!((answer.status, answer.text()), (200, "brought"));
        // Closed at the end of this round, so that the next visitor needs another one.
        stream.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_secret_is_valid_once_and_for_its_stream() {
    let engine = TestEngine::start_unhurried("").await;
    let mut agent = agent(&engine).await;
    let visitor = visit(&engine, "/");
    let request = agent.next_stream_request().await;
    let (id, right) = (request.stream_id.as_str(), secret(&request));
    let wrong = right.replace(|byte| byte != '0', "0");
    for (id, secret) in [
        (id, wrong.as_str()),
        (id, ""),
        (id, &right[1..]),
        ("000000000000000000000000", right),
        ("not a stream", right),
    ] {
        let refused = raw_messages::bring(&engine, id, secret, false).await;
        let error = refused.err().expect("refused");
        assert_eq!(error.kind(), ErrorCode::InvalidStream);
        // Without waiting, a refusal closes the connection.
        let brought = raw_messages::bring(&engine, id, secret, true)
            .await
            .unwrap();
        let mut stream = brought.into_stream();
        let mut bytes = Vec::new();
        let ended = within("close", stream.read_to_end(&mut bytes)).await;
        assert!(ended.is_err() && bytes.is_empty(), "no request for it");
    }
    // A wrong secret takes nothing from the agent with the right one.
    let brought = raw_messages::bring(&engine, id, right, false)
        .await
        .unwrap();
    let mut stream = brought.into_stream();
    head(&mut stream).await;
    let refused = raw_messages::bring(&engine, id, right, false).await;
    let error = refused.err().expect("refused");
    assert_eq!(error.kind(), ErrorCode::InvalidStream, "it is used up");
    answer(&mut stream, "right").await;
    assert_eq!(visitor.await.unwrap().text(), "right");
}

/// A secret belongs to its client. Another agent of the engine cannot refuse the stream, and an
/// agent that received no request has no secret.
#[tokio::test]
async fn a_visitor_that_the_agent_refuses_gets_service_unreachable() {
    let engine = TestEngine::start_unhurried("").await;
    let mut agent = agent(&engine).await;
    let mut other = PlainAgent::connect(&engine).await;
    let visitor = visit(&engine, "/");
    let request = agent.next_stream_request().await;
    let refusal = |text: &str| {
        Kind::ProxyConnRsp(ProxyConnRsp {
            stream_id: request.stream_id.clone(),
            error: Some(Error::invalid_stream(text)),
        })
    };
    other.channel.send(refusal("not mine")).await;
    // Messages are answered in order, so the engine has read the earlier ones.
    other.open(raw_messages::http("other")).await.unwrap();
    assert!(!visitor.is_finished());
    agent
        .channel
        .send(refusal("connection refused inside"))
        .await;
    let answer = visitor.await.unwrap();
    assert_eq!(answer.status, 502);
    assert_eq!(answer.json()["code"], "upstream_unreachable");
    assert!(
        !answer.text().contains("inside"),
        "the agent's text is for the log"
    );
    let late = raw_messages::bring(&engine, &request.stream_id, secret(&request), false).await;
    assert_eq!(
        late.err().expect("refused").kind(),
        ErrorCode::InvalidStream
    );
}

#[tokio::test]
async fn http_streams_are_kept_alive_and_reused() {
    let engine = TestEngine::start_unhurried("").await;
    let mut agent = agent(&engine).await;
    let mut visitor = engine.visitor().http1(HOST).await;
    visitor.request("GET", "/1", HOST, "").await;
    let request = agent.next_stream_request().await;
    let brought = raw_messages::bring(&engine, &request.stream_id, secret(&request), true).await;
    let mut stream = brought.unwrap().into_stream();
    for number in 1..=3 {
        if number > 1 {
            visitor
                .request("GET", &format!("/{number}"), HOST, "")
                .await;
        }
        let line = format!("GET /{number} HTTP/1.1\r\n");
        assert!(head(&mut stream).await.starts_with(&line));
        answer(&mut stream, &number.to_string()).await;
        assert_eq!(visitor.answer().await.text(), number.to_string());
    }
    // Nothing was requested meanwhile: the next message is the answer to this one.
    agent.open(raw_messages::http("other")).await.unwrap();
}

/// The published clients close their channel when more connections are requested than they queue.
#[tokio::test]
async fn at_most_64_connections_are_requested_at_a_time() {
    const VISITORS: usize = ProxyConnReq::MAX_PENDING + 6;
    let engine = TestEngine::start_unhurried("").await;
    let mut agent = PlainAgent::connect(&engine).await;
    let private = TunnelProperties {
        name: Some("db".into()),
        publish: Some(false.into()),
        ..TunnelProperties::default()
    };
    agent.open(private).await.unwrap();
    let mut diallers = Vec::new();
    for _ in 0..VISITORS {
        let config = engine.agent_config();
        diallers.push(tokio::spawn(
            async move { client::dial(&config, "db").await },
        ));
    }
    let mut asked = Vec::new();
    for _ in 0..ProxyConnReq::MAX_PENDING {
        asked.push(agent.next_stream_request().await);
    }
    // From here on one at a time: each connection that is opened or refused frees a slot.
    let mut next = asked.into_iter();
    let mut streams = Vec::new();
    for number in ProxyConnReq::MAX_PENDING..VISITORS {
        // All dialling clients have connected by now. A surplus request would be read here instead.
        let other = agent.open(raw_messages::http(&format!("w{number}"))).await;
        assert!(other.is_ok(), "requested more than allowed");
        let request = next.next().unwrap();
        if number % 2 == 0 {
            let brought = raw_messages::bring(&engine, &request.stream_id, secret(&request), false);
            streams.push(brought.await.unwrap());
        } else {
            let refusal = ProxyConnRsp {
                stream_id: request.stream_id,
                error: Some(Error::invalid_stream("no")),
            };
            agent.channel.send(Kind::ProxyConnRsp(refusal)).await;
        }
        agent.next_stream_request().await;
    }
    assert_eq!(streams.len(), 3);
}

#[tokio::test]
async fn an_unsolicited_data_connection_is_refused() {
    let engine = TestEngine::start_unhurried("").await;
    let mut connection = Wire::connect(&engine).await;
    // Without a stream it is the hello of a standing connection, whose secret it does not have.
    let request = ProxyReq {
        client_details: Some(raw_messages::details(&engine, json!({}))),
        ..ProxyReq::default()
    };
    connection.send(Kind::ProxyReq(request)).await;
    assert_eq!(connection.rest().await, []);
}

#[tokio::test]
async fn our_own_agent_works_without_extensions() {
    let engine = TestEngine::start_unhurried("").await;
    let upstream = Upstream::http1().await;
    let mut config = engine.agent_config();
    config.standing = false;
    let agent = client::Agent::connect(config).await.unwrap();
    let target: client::Target = upstream.addr().to_string().parse().unwrap();
    let opening = testing::TestTunnel::open(agent, client::Properties::http(), target);
    let tunnel = opening.await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    for _ in 0..3 {
        let answer = visitor.get("/bytes/100000", host).await;
        assert!(answer.is_complete && answer.body == Upstream::payload(100_000));
    }
    assert_eq!(upstream.accepted(), 1);
}
