//! Control channels, message by message: the hello, malformed messages, heartbeats and the end.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use testing::TestEngine;
use wire::message::{
    ClientDetails, CloseControlChannelReq, Heartbeat, OpenControlChannelReq, ServerMessage,
    StreamRsp,
};
use wire::{Error, ErrorCode, Kind};

use crate::agent::raw_messages;
use crate::agent::raw_messages::{PlainAgent, Wire};

/// An agent with a tunnel that visitors can reach.
async fn agent(engine: &TestEngine) -> PlainAgent {
    let mut agent = PlainAgent::connect(engine).await;
    agent.open(raw_messages::http("web")).await.unwrap();
    agent
}

/// Returns the status of a visit to that tunnel.
async fn visit(engine: &TestEngine) -> u16 {
    const HOST: &str = "web.t.engine.localhost";
    let mut visitor = engine.visitor().http1(HOST).await;
    visitor.get("/", HOST).await.status
}

/// Unknown messages and fields of a later version are not errors.
#[tokio::test]
async fn unknown_kinds_and_fields_are_ignored() {
    let engine = TestEngine::start().await;
    let mut agent = PlainAgent::connect(&engine).await;
    // Field 999, length-delimited, empty: as a separate message, and next to a heartbeat's.
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
    agent.open(raw_messages::http("web")).await.unwrap();
}

fn frame(len: u32, payload: &[u8]) -> Vec<u8> {
    [&len.to_be_bytes()[..], payload].concat()
}

/// Malformed frames, and messages in the wrong order.
fn malformed_frames() -> Vec<(&'static str, Vec<u8>)> {
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
async fn a_malformed_frame_ends_the_channel() {
    let engine = TestEngine::start().await;
    for (case, bytes) in malformed_frames() {
        let mut agent = agent(&engine).await;
        agent.channel.send_bytes(&bytes).await;
        let messages = agent.channel.rest().await;
        assert!(
            matches!(&messages[..], [Kind::ServerMessage(why)] if !why.message.is_empty()),
            "{case}: {messages:?}"
        );
        assert_eq!(visit(&engine).await, 503, "{case}: the tunnel is offline");
    }
}

#[tokio::test]
async fn a_malformed_handshake_is_answered_with_an_error() {
    let engine = TestEngine::start().await;
    for (case, bytes) in malformed_frames() {
        let mut connection = Wire::connect(&engine).await;
        connection.send_bytes(&bytes).await;
        let error = refusal(connection).await;
        assert_eq!(error.kind(), ErrorCode::InvalidRequest, "{case}");
    }
}

async fn refusal(connection: Wire) -> Error {
    use wire::message::ControlChannelOutcome;
    let messages = connection.rest().await;
    let [Kind::OpenControlChannelRsp(answer)] = &messages[..] else {
        panic!("{messages:?}")
    };
    match answer.outcome.clone() {
        Some(ControlChannelOutcome::Error(error)) => error,
        other => panic!("{other:?}"),
    }
}

/// EN-7: the version, the token and the permission of a hello are checked.
#[tokio::test]
async fn en_7_a_hello_is_checked_by_version_and_token() {
    let engine = TestEngine::start().await;
    let good = || raw_messages::details(&engine, json!({}));
    let version = |version: Option<&str>| ClientDetails {
        protocol_version: version.map(Into::into),
        ..good()
    };
    let token = |token: Option<&str>| ClientDetails {
        token: token.map(Into::into),
        ..good()
    };
    let expired = engine.token(json!({"exp": 1}));
    // The token is not valid yet by the clock of its issuer. That is temporary, so the agent may
    // try again.
    let early = engine.token(json!({"iat": 4_000_000_000_i64, "exp": 4_000_000_060_i64}));
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
        (
            "a token that is not valid yet",
            token(Some(&early)),
            ErrorCode::ServiceUnavailable,
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
    // The version is checked first. An agent with another version need not understand the rest.
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
    // An agent whose token may not open tunnels may connect, and is refused the tunnel.
    let weak: Value = json!({"permissions": ["tunnels.resources.read-only"]});
    let mut weak = PlainAgent::connect_as(&engine, weak).await;
    let refused = weak.open(raw_messages::http("web")).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorCode::Unauthorized);
    assert!(refused.text().contains("tunnels.tunnels.create-delete"));
}

/// Negotiation of heartbeats. The engine confirms the proposed interval, and sets the timeout to
/// three intervals, at least 10 s and at most 900 s. Without a proposal it sets nothing.
#[tokio::test]
async fn heartbeats_are_negotiated_and_acknowledged() {
    let engine = TestEngine::start().await;
    for (interval, timeout) in [(100, 10_000), (5_000, 15_000), (300_000, 900_000)] {
        let mut channel = Wire::connect(&engine).await;
        let details = raw_messages::details(&engine, json!({}));
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
        let details = raw_messages::details(&engine, json!({}));
        let refused = channel.hello(Some(details), Some(interval)).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorCode::InvalidRequest);
    }
    // In the old mode heartbeats are empty and are not acknowledged.
    let mut old = PlainAgent::connect(&engine).await;
    old.channel
        .send(Kind::Heartbeat(Heartbeat::default()))
        .await;
    old.open(raw_messages::http("web")).await.unwrap();
}

/// A silent agent gets no more visitors after the negotiated time, whatever the state of its
/// connection. Any message extends that time.
#[tokio::test]
async fn a_silent_agent_goes_offline() {
    let engine = TestEngine::start().await;
    let channel = Wire::connect(&engine).await;
    let mut agent = PlainAgent::over(channel, &engine, json!({}), Some(100)).await;
    // Before the last message of the agent.
    let started_at = Instant::now();
    agent.open(raw_messages::http("web")).await.unwrap();
    let messages = agent.channel.rest().await;
    let lasted = started_at.elapsed();
    assert_eq!(messages, []);
    assert!(lasted >= Duration::from_secs(10), "{lasted:?}");
    assert_eq!(visit(&engine).await, 503);
}

#[tokio::test]
async fn a_goodbye_is_confirmed_and_removes_the_tunnels() {
    let engine = TestEngine::start().await;
    let mut agent = agent(&engine).await;
    let bye = Kind::CloseControlChannelReq(CloseControlChannelReq {});
    agent.channel.send(bye).await;
    let messages = agent.channel.rest().await;
    assert!(matches!(&messages[..], [Kind::CloseControlChannelRsp(_)]));
    assert_eq!(visit(&engine).await, 503);
}
