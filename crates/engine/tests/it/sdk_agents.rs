//! Agents without extensions, as the published SDKs are: one connection for each stream.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testing::{Answer, TestEngine, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use wire::message::{
    ClientDetails, CloseControlChannelReq, Heartbeat, OpenControlChannelReq, ProxyConnReq,
    ProxyConnRsp, ProxyReq, ServerMessage, StreamRsp, TunnelProperties,
};
use wire::{Error, ErrorCode, Kind};

use crate::wired::{self, PlainAgent, Wire};

const HOST: &str = "web.t.engine.localhost";

async fn agent(engine: &TestEngine) -> PlainAgent {
    let mut agent = PlainAgent::connect(engine).await;
    agent.open(wired::http("web")).await.unwrap();
    agent
}

fn secret(request: &ProxyConnReq) -> &str {
    &request.secret.as_ref().expect("a secret").value
}

/// Reads a request's head from a stream that an agent has brought.
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

/// A visitor's request under way.
fn visit(engine: &TestEngine, target: &'static str) -> tokio::task::JoinHandle<Answer> {
    let visitor = engine.visitor();
    tokio::spawn(async move { visitor.http1(HOST).await.get(target, HOST).await })
}

#[tokio::test]
async fn a_visitor_is_brought_a_connection_with_and_without_waiting() {
    let engine = TestEngine::start().await;
    let mut agent = agent(&engine).await;
    for zero_rtt in [false, true] {
        let visitor = visit(&engine, "/a?b");
        let request = agent.asked().await;
        assert_eq!(request.stream_id.len(), 24);
        assert!(
            request
                .stream_id
                .bytes()
                .all(|byte| byte.is_ascii_hexdigit())
        );
        let source = request.source_ip.clone().unwrap().to_ip();
        assert_eq!(source, Some("127.0.0.1".parse().unwrap()));
        let brought = wired::bring(&engine, &request.stream_id, secret(&request), zero_rtt);
        let mut stream = brought.await.unwrap().into_stream();
        assert!(head(&mut stream).await.starts_with("GET /a?b HTTP/1.1\r\n"));
        answer(&mut stream, "brought").await;
        let answer = visitor.await.unwrap();
        assert_eq!((answer.status, answer.text()), (200, "brought"));
        // Closed with the end of this turn, so that the next visitor needs another one.
        stream.shutdown().await.unwrap();
    }
}

#[tokio::test]
async fn a_secret_is_good_once_and_for_its_stream() {
    let engine = TestEngine::start().await;
    let mut agent = agent(&engine).await;
    let visitor = visit(&engine, "/");
    let request = agent.asked().await;
    let (id, right) = (request.stream_id.as_str(), secret(&request));
    let wrong = right.replace(|byte| byte != '0', "0");
    for (id, secret) in [
        (id, wrong.as_str()),
        (id, ""),
        (id, &right[1..]),
        ("000000000000000000000000", right),
        ("not a stream", right),
    ] {
        let refused = wired::bring(&engine, id, secret, false).await;
        let error = refused.err().expect("refused");
        assert_eq!(error.kind(), ErrorCode::InvalidStream);
        // Without waiting, the refusal is a close.
        let brought = wired::bring(&engine, id, secret, true).await.unwrap();
        let mut stream = brought.into_stream();
        let mut bytes = Vec::new();
        let ended = within("close", stream.read_to_end(&mut bytes)).await;
        assert!(ended.is_err() && bytes.is_empty(), "no request for it");
    }
    // A wrong one takes nothing from the agent that knows the right one.
    let brought = wired::bring(&engine, id, right, false).await.unwrap();
    let mut stream = brought.into_stream();
    head(&mut stream).await;
    let refused = wired::bring(&engine, id, right, false).await;
    let error = refused.err().expect("refused");
    assert_eq!(error.kind(), ErrorCode::InvalidStream, "it is used up");
    answer(&mut stream, "right").await;
    assert_eq!(visitor.await.unwrap().text(), "right");
}

/// A secret belongs to its client: another agent of the engine cannot refuse the stream, and one
/// that has not been asked knows no secret.
#[tokio::test]
async fn a_visitor_that_the_agent_refuses_is_told_that_the_service_is_unreachable() {
    let engine = TestEngine::start().await;
    let mut agent = agent(&engine).await;
    let mut other = PlainAgent::connect(&engine).await;
    let visitor = visit(&engine, "/");
    let request = agent.asked().await;
    let refusal = |text: &str| {
        Kind::ProxyConnRsp(ProxyConnRsp {
            stream_id: request.stream_id.clone(),
            error: Some(Error::invalid_stream(text)),
        })
    };
    other.channel.send(refusal("not mine")).await;
    // Answered in order: the engine has read what was said before.
    other.open(wired::http("other")).await.unwrap();
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
        "what the agent says is for the log"
    );
    let late = wired::bring(&engine, &request.stream_id, secret(&request), false).await;
    assert_eq!(
        late.err().expect("refused").kind(),
        ErrorCode::InvalidStream
    );
}

#[tokio::test]
async fn streams_of_http_are_kept_alive_and_used_again() {
    let engine = TestEngine::start().await;
    let mut agent = agent(&engine).await;
    let mut visitor = engine.visitor().http1(HOST).await;
    visitor.request("GET", "/1", HOST, "").await;
    let request = agent.asked().await;
    let brought = wired::bring(&engine, &request.stream_id, secret(&request), true).await;
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
    // Nothing was asked for meanwhile: the next message is the answer to this.
    agent.open(wired::http("other")).await.unwrap();
}

/// The published clients give up their channel when more is asked of them than they queue.
#[tokio::test]
async fn at_most_64_connections_are_asked_for_at_once() {
    const VISITORS: usize = ProxyConnReq::MAX_PENDING + 6;
    let engine = TestEngine::start().await;
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
        asked.push(agent.asked().await);
    }
    // One at a time from here on: each one that is brought, or refused, makes room for one.
    let mut next = asked.into_iter();
    let mut streams = Vec::new();
    for number in ProxyConnReq::MAX_PENDING..VISITORS {
        // All diallers are there long since; were more asked for, it would be read here instead.
        let other = agent.open(wired::http(&format!("w{number}"))).await;
        assert!(other.is_ok(), "asked for more than it may");
        let request = next.next().unwrap();
        if number % 2 == 0 {
            let brought = wired::bring(&engine, &request.stream_id, secret(&request), false);
            streams.push(brought.await.unwrap());
        } else {
            let refusal = ProxyConnRsp {
                stream_id: request.stream_id,
                error: Some(Error::invalid_stream("no")),
            };
            agent.channel.send(Kind::ProxyConnRsp(refusal)).await;
        }
        agent.asked().await;
    }
    assert_eq!(streams.len(), 3);
}

/// What a later version says is no error.
#[tokio::test]
async fn unknown_kinds_and_fields_are_ignored() {
    let engine = TestEngine::start().await;
    let mut agent = PlainAgent::connect(&engine).await;
    // Field 999, length-delimited, empty: as a message of its own, and beside a heartbeat's.
    let unknown = [0xba, 0x3e, 0x00];
    let with_heartbeat = [&[0x7a, 0x00][..], &unknown].concat();
    for payload in [&unknown[..], &with_heartbeat] {
        let len = u32::try_from(payload.len()).unwrap().to_be_bytes();
        agent
            .channel
            .send_bytes(&[&len[..], payload].concat())
            .await;
    }
    let message = Kind::ServerMessage(ServerMessage {
        message: "an engine's to send".to_owned(),
    });
    agent.channel.send(message).await;
    agent.open(wired::http("web")).await.unwrap();
}

fn frame(len: u32, payload: &[u8]) -> Vec<u8> {
    [&len.to_be_bytes()[..], payload].concat()
}

/// Frames that nobody can read, and messages out of place.
fn broken() -> Vec<(&'static str, Vec<u8>)> {
    let mut misplaced = Vec::new();
    let answer = Kind::StreamRsp(StreamRsp { outcome: None });
    wire::encode(&answer.into(), &mut misplaced).unwrap();
    vec![
        ("too long", frame(65_536, &[])),
        ("much too long", frame(u32::MAX, &[])),
        ("empty", frame(0, &[])),
        ("undecodable", frame(4, &[0x0a, 0xff, 0xff, 0xff])),
        ("out of place", misplaced),
    ]
}

#[tokio::test]
async fn a_frame_that_cannot_be_read_ends_the_channel() {
    let engine = TestEngine::start().await;
    for (case, bytes) in broken() {
        let mut agent = agent(&engine).await;
        agent.channel.send_bytes(&bytes).await;
        let said = agent.channel.rest().await;
        assert!(
            matches!(&said[..], [Kind::ServerMessage(why)] if !why.message.is_empty()),
            "{case}: {said:?}"
        );
        let answer = visit(&engine, "/").await.unwrap();
        assert_eq!(answer.status, 503, "{case}: the tunnel is offline");
    }
}

#[tokio::test]
async fn a_connection_that_begins_badly_is_told_so() {
    let engine = TestEngine::start().await;
    for (case, bytes) in broken() {
        let mut connection = Wire::connect(&engine).await;
        connection.send_bytes(&bytes).await;
        let error = refusal(connection).await;
        assert_eq!(error.kind(), ErrorCode::InvalidRequest, "{case}");
    }
}

async fn refusal(connection: Wire) -> Error {
    use wire::message::ControlChannelOutcome;
    let said = connection.rest().await;
    let [Kind::OpenControlChannelRsp(answer)] = &said[..] else {
        panic!("{said:?}")
    };
    match answer.outcome.clone() {
        Some(ControlChannelOutcome::Error(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// EN-7: version, token and permission of a hello.
#[tokio::test]
async fn en_7_a_hello_is_judged_by_version_and_token() {
    let engine = TestEngine::start().await;
    let good = || wired::details(&engine, json!({}));
    let version = |version: Option<&str>| ClientDetails {
        protocol_version: version.map(Into::into),
        ..good()
    };
    let token = |token: Option<&str>| ClientDetails {
        token: token.map(Into::into),
        ..good()
    };
    let expired = engine.token(json!({"exp": 1}));
    for (case, details, code) in [
        (
            "no version",
            version(None),
            ErrorCode::ProtocolVersionMissing,
        ),
        (
            "empty",
            version(Some("")),
            ErrorCode::ProtocolVersionInvalid,
        ),
        (
            "no numbers",
            version(Some("1.x.5")),
            ErrorCode::ProtocolVersionInvalid,
        ),
        (
            "an older major version",
            version(Some("0.9.0")),
            ErrorCode::ProtocolVersionIncompatible,
        ),
        (
            "a later major version",
            version(Some("2.0.0")),
            ErrorCode::ProtocolVersionIncompatible,
        ),
        ("no token", token(None), ErrorCode::Unauthorized),
        ("an empty token", token(Some("")), ErrorCode::Unauthorized),
        (
            "an expired token",
            token(Some(&expired)),
            ErrorCode::Unauthorized,
        ),
        ("garbage", token(Some("a.b.c")), ErrorCode::Unauthorized),
    ] {
        let mut connection = Wire::connect(&engine).await;
        let hello = OpenControlChannelReq {
            client_details: Some(details),
            liveness: None,
        };
        connection.send(Kind::OpenControlChannelReq(hello)).await;
        assert_eq!(refusal(connection).await.kind(), code, "{case}");
    }
    // The version is judged first: who speaks another language need not understand the rest.
    let neither = Wire::connect(&engine).await.hello(None, None).await;
    assert_eq!(
        neither.unwrap_err().kind(),
        ErrorCode::ProtocolVersionMissing
    );
    for newer in ["1.0.0", "1.99.0"] {
        let hello = Some(version(Some(newer)));
        let mut connection = Wire::connect(&engine).await;
        connection.hello(hello, None).await.unwrap();
    }
    // A token that may not open tunnels may connect, and is refused the tunnel.
    let weak: Value = json!({"permissions": ["tunnels.resources.read-only"]});
    let mut weak = PlainAgent::connect_as(&engine, weak).await;
    let refused = weak.open(wired::http("web")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorCode::Unauthorized);
    assert!(refused.text().contains("tunnels.tunnels.create-delete"));
}

#[tokio::test]
async fn a_data_connection_that_nobody_asked_for_is_refused() {
    let engine = TestEngine::start().await;
    let mut connection = Wire::connect(&engine).await;
    // Without a stream it is the hello of a standing connection, whose secret it does not know.
    let request = ProxyReq {
        client_details: Some(wired::details(&engine, json!({}))),
        ..ProxyReq::default()
    };
    connection.send(Kind::ProxyReq(request)).await;
    assert_eq!(connection.rest().await, []);
}

/// The terms of the heartbeat: the same interval back, and three of them, at least 10 s and at
/// most 900 s, as the timeout; nothing where nothing was proposed.
#[tokio::test]
async fn heartbeats_are_agreed_and_acknowledged() {
    let engine = TestEngine::start().await;
    for (interval, timeout) in [(100, 10_000), (5_000, 15_000), (300_000, 900_000)] {
        let mut channel = Wire::connect(&engine).await;
        let details = wired::details(&engine, json!({}));
        let ok = channel.hello(Some(details), Some(interval)).await.unwrap();
        let liveness = ok.liveness.unwrap();
        let agreed = (
            liveness.heartbeat_interval_ms,
            liveness.heartbeat_timeout_ms,
        );
        assert_eq!(agreed, (interval, timeout));
        for sequence in [1, 2, 7] {
            let heartbeat = Heartbeat {
                sequence,
                acknowledgement: 0,
            };
            channel.send(Kind::Heartbeat(heartbeat)).await;
            let acknowledged = Heartbeat {
                sequence: 0,
                acknowledgement: sequence,
            };
            assert_eq!(channel.next().await, Some(Kind::Heartbeat(acknowledged)));
        }
    }
    for interval in [1, 99, 300_001] {
        let mut channel = Wire::connect(&engine).await;
        let details = wired::details(&engine, json!({}));
        let refused = channel.hello(Some(details), Some(interval)).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorCode::InvalidRequest);
    }
    // In the old mode heartbeats are empty and nothing comes back for them.
    let mut old = PlainAgent::connect(&engine).await;
    old.channel
        .send(Kind::Heartbeat(Heartbeat::default()))
        .await;
    old.open(wired::http("web")).await.unwrap();
}

/// Silence for the agreed time ends admission, whatever the connection looks like; signs of life
/// of any kind prolong it.
#[tokio::test]
async fn a_silent_agent_goes_offline() {
    let engine = TestEngine::start().await;
    let mut channel = Wire::connect(&engine).await;
    let details = wired::details(&engine, json!({}));
    channel.hello(Some(details), Some(100)).await.unwrap();
    let begun = Instant::now();
    let said = channel.rest().await;
    let lasted = begun.elapsed();
    assert_eq!(said, []);
    assert!(lasted > Duration::from_secs(9), "{lasted:?}");
}

#[tokio::test]
async fn a_goodbye_is_confirmed_and_takes_the_tunnels_along() {
    let engine = TestEngine::start().await;
    let mut agent = agent(&engine).await;
    let bye = Kind::CloseControlChannelReq(CloseControlChannelReq {});
    agent.channel.send(bye).await;
    let said = agent.channel.rest().await;
    assert!(matches!(&said[..], [Kind::CloseControlChannelRsp(_)]));
    assert_eq!(visit(&engine, "/").await.unwrap().status, 503);
}

#[tokio::test]
async fn our_own_agent_works_without_extensions_too() {
    let engine = TestEngine::start().await;
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
        assert!(answer.whole && answer.body == Upstream::payload(100_000));
    }
    assert_eq!(upstream.accepted(), 1);
}
