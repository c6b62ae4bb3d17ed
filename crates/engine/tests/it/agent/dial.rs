//! Private tunnels, dialled by name and by id.

use std::net::IpAddr;

use client::dial::dial_zero_rtt;
use client::{Agent, ConnectError, Properties, RefusalKind, Token};
use serde_json::{Value, json};
use testing::{ClosedPort, TestEngine, Upstream, within};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use wire::ErrorCode;
use wire::message::{BoolValue, StreamReq};

use crate::agent::raw_messages;
use crate::support::{CREATE, READ, STREAMS};

async fn echo<S: AsyncRead + AsyncWrite + Unpin>(mut stream: S, bytes: &[u8]) -> Vec<u8> {
    let mut back = Vec::new();
    let exchanging = async {
        stream.write_all(bytes).await.unwrap();
        stream.shutdown().await.unwrap();
        stream.read_to_end(&mut back).await.unwrap();
    };
    within("echo", exchanging).await;
    back
}

#[tokio::test]
async fn a_private_tunnel_is_dialled_by_name_and_by_id() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::tcp().await;
    let tunnel = engine
        .publish_as(Properties::private("db"), upstream.addr())
        .await;
    assert_eq!(tunnel.online().forwarding, "svc://db");
    let dialler = engine.agent().await;
    let id = tunnel.online().tunnel_id.clone();
    for key in ["db", &id] {
        let stream = within("stream", dialler.dial(key)).await.unwrap();
        assert_eq!(stream.stream_id().len(), 24);
        let payload = Upstream::payload(300_000);
        let (mut reader, mut writer) = tokio::io::split(stream);
        let mut back = Vec::new();
        let sending = async {
            writer.write_all(&payload).await.unwrap();
            writer.shutdown().await.unwrap();
        };
        let both = async { tokio::join!(sending, reader.read_to_end(&mut back)) };
        within("echo", both).await.1.unwrap();
        assert!(back == payload, "by {key}");
        let stream = dial_zero_rtt(&engine.agent_config(), key).await.unwrap();
        assert_eq!(echo(stream, b"at once").await, b"at once", "by {key}");
    }
    assert_eq!(upstream.accepted(), 4);
}

/// The service may send first, and each direction is closed separately.
#[tokio::test]
async fn a_dialling_client_may_wait_for_the_service_to_send_first() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::start(|mut stream, _| async move {
        stream.write_all(b"hello").await.unwrap();
        stream.shutdown().await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    })
    .await;
    let _tunnel = engine
        .publish_as(Properties::private("db"), upstream.addr())
        .await;
    for zero_rtt in [false, true] {
        let config = engine.agent_config();
        let dialling = async {
            if zero_rtt {
                dial_zero_rtt(&config, "db").await
            } else {
                client::dial(&config, "db").await
            }
        };
        let mut stream = within("stream", dialling).await.unwrap();
        let mut hello = Vec::new();
        within("hello", stream.read_to_end(&mut hello))
            .await
            .unwrap();
        assert_eq!(hello, b"hello");
        stream.write_all(b"still heard").await.unwrap();
    }
}

/// The agent receives the address of the dialling client.
#[tokio::test]
async fn the_agent_receives_the_dialling_clients_address_and_the_streams_id() {
    let engine = TestEngine::start().await;
    let mut tunnel = engine.agent().await.open(Properties::private("db"));
    within("tunnel", tunnel.online()).await.unwrap();
    let dialler = engine.agent().await;
    let dialling = async { tokio::join!(dialler.dial("db"), tunnel.accept()) };
    let (dialled, accepted) = within("stream", dialling).await;
    let (dialled, accepted) = (dialled.unwrap(), accepted.unwrap());
    assert_eq!(dialled.stream_id(), accepted.stream_id());
    let source: IpAddr = "127.0.0.1".parse().unwrap();
    assert_eq!(accepted.source_ip(), Some(source));
}

/// EN-7: permission and boundary must both allow the dial, and the token selects the project.
#[tokio::test]
async fn en_7_dialling_needs_permission_boundary_and_project() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::tcp().await;
    let private = Properties::private("db").labels([("tier".to_owned(), "data".to_owned())].into());
    let _tunnel = engine.publish_as(private, upstream.addr()).await;
    let connect = |scope: Value| {
        json!({"resources": {"tunnels": {
            "projects": ["default"], "scopes": {"tunnels": {"connect": scope}},
        }}})
    };
    let elsewhere = json!({"resources": {"tunnels": {"projects": ["other"]}}});
    let create = json!({"resources": {"tunnels": {
        "projects": ["default"], "scopes": {"tunnels": {"create": true}},
    }}});
    let path = json!({"params": {"path": {"regex": ".*"}}});
    for (claims, allowed) in [
        (json!({}), true),
        (json!({"permissions": [STREAMS]}), true),
        (json!({"type": "pat", "permissions": [STREAMS]}), true),
        (json!({"userId": "somebody-else"}), true),
        (json!({"permissions": [READ, CREATE]}), false),
        (json!({"permissions": []}), false),
        (connect(json!(true)), true),
        (connect(json!(false)), false),
        (connect(json!({"filters": {"name": "db"}})), true),
        (connect(json!({"filters": {"name": "other"}})), false),
        (
            connect(json!({"filters": {"labels": {"tier": "data"}}})),
            true,
        ),
        (
            connect(json!({"filters": {"labels": {"tier": "web"}}})),
            false,
        ),
        // A dialled stream has no path that could be within the boundary.
        (connect(path), false),
        (create, false),
        (elsewhere, false),
        (json!({"resources": {"tunnels": {}}}), false),
        (json!({"exp": 1}), false),
    ] {
        let before = upstream.accepted();
        match raw_messages::dial(&engine, claims.clone(), "db").await {
            Ok((stream, _)) => {
                assert!(allowed, "{claims}");
                assert_eq!(echo(stream, b"ping").await, b"ping");
            }
            Err(error) => {
                assert!(!allowed, "{claims}: {error}");
                assert_eq!(error.kind(), ErrorCode::Unauthorized, "{claims}");
                assert_eq!(upstream.accepted(), before, "{claims}");
            }
        }
    }
}

#[tokio::test]
async fn a_target_that_cannot_be_dialled_is_not_found() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::http1().await;
    let published = engine
        .publish_as(Properties::http().named("web"), upstream.addr())
        .await;
    let private = engine
        .publish_as(Properties::private("db"), upstream.addr())
        .await;
    let gone = private.online().tunnel_id.clone();
    private.close().await;
    let id = &published.online().tunnel_id;
    // A published tunnel is not private. The edge enforces its guards.
    for key in [
        "",
        "db",
        &gone,
        "web",
        id,
        "tun_01h455vb4pex5vsknk084sn02q",
        "DB",
    ] {
        let refused = raw_messages::dial(&engine, json!({}), key)
            .await
            .unwrap_err();
        assert_eq!(refused.kind(), ErrorCode::TunnelNotFound, "{key}");
    }
    let refused = engine.agent().await.dial("db").await.unwrap_err();
    let ConnectError::Refused(refusal) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!(refusal.kind, RefusalKind::NotFound);
    assert_eq!(upstream.accepted(), 0);
}

/// A client that does not wait for the answer gets no bytes that could be mistaken for the
/// service's.
#[tokio::test]
async fn a_refused_dial_that_did_not_wait_is_closed_without_bytes() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::tcp().await;
    let _tunnel = engine
        .publish_as(Properties::private("db"), upstream.addr())
        .await;
    let mut weak = engine.agent_config();
    weak.tokens = Token::new(&engine.token(json!({"permissions": [READ]}))).into();
    for (config, key) in [(engine.agent_config(), "nothing"), (weak, "db")] {
        let mut stream = dial_zero_rtt(&config, key).await.unwrap();
        // May fail already, because the engine does not wait for the data.
        stream.write_all(b"data").await.ok();
        let mut bytes = Vec::new();
        let ended = within("end", stream.read_to_end(&mut bytes)).await;
        assert!(ended.is_err(), "a clean end would look like the service's");
        assert_eq!(bytes, b"");
    }
    assert_eq!(upstream.accepted(), 0);
}

/// EN-11: datagrams are refused by name until they are implemented.
#[tokio::test]
async fn en_11_a_datagram_channel_is_not_available() {
    let engine = TestEngine::start().await;
    let mut connection = raw_messages::Wire::connect(&engine).await;
    let request = StreamReq {
        client_details: Some(raw_messages::details(&engine, json!({}))),
        tunnel_id_name: "db".to_owned(),
        zero_rtt: None,
        datagram_channel: Some(BoolValue { value: true }),
    };
    connection.send(wire::Kind::StreamReq(request)).await;
    let rest = connection.rest().await;
    let [wire::Kind::StreamRsp(answer)] = &rest[..] else {
        panic!("{rest:?}")
    };
    let Some(wire::message::StreamOutcome::Error(error)) = &answer.outcome else {
        panic!("{answer:?}")
    };
    assert_eq!(error.kind(), ErrorCode::FeatureNotAvailable);
    assert!(error.text().contains("datagram_channel"));
}

/// The agent cannot reach the service. The dialling client gets a reset.
#[tokio::test]
async fn a_service_that_is_down_resets_the_dialled_stream() {
    let engine = TestEngine::start().await;
    let nobody = ClosedPort::new();
    let _tunnel = engine
        .publish_as(Properties::private("db"), nobody.addr())
        .await;
    let dialler: Agent = engine.agent().await;
    let mut stream = within("stream", dialler.dial("db")).await.unwrap();
    let mut bytes = Vec::new();
    let ended = within("end", stream.read_to_end(&mut bytes)).await;
    assert!(ended.is_err(), "{} bytes", bytes.len());
}
