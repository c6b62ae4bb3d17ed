//! Dialling a private tunnel: the client, against a fake engine.

use svc_client::RefusalKind;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::{
    Error, Kind,
    message::{StreamOutcome, StreamReq, StreamRsp},
};

use super::fake::{FakeEngine, Peer};

async fn request(peer: &mut Peer) -> StreamReq {
    match peer.next().await {
        Kind::StreamReq(request) => request,
        other => panic!("not a dial: {other:?}"),
    }
}

#[tokio::test]
async fn a_private_tunnel_is_dialled_by_name() {
    let engine = FakeEngine::start().await;
    let config = engine.config();
    let dialled = tokio::spawn(async move { svc_client::dial(&config, "db").await });
    let mut peer = engine.accept().await;
    let request = request(&mut peer).await;
    assert_eq!(request.tunnel_id_name, "db");
    assert_eq!(
        request.client_details.unwrap().token.unwrap().value,
        "a.b.c"
    );
    assert!(!request.zero_rtt.unwrap().value);
    let outcome = Some(StreamOutcome::StreamId(
        "0123456789abcdef01234567".to_owned(),
    ));
    peer.send(Kind::StreamRsp(StreamRsp { outcome })).await;
    // The bytes of the stream follow the response immediately, perhaps in the same TLS record.
    peer.io.write_all(b"welcome").await.unwrap();
    let mut stream = dialled.await.unwrap().unwrap();
    assert_eq!(stream.stream_id(), "0123456789abcdef01234567");
    let mut bytes = [0; 7];
    stream.read_exact(&mut bytes).await.unwrap();
    assert_eq!(&bytes, b"welcome");
}

#[tokio::test]
async fn a_refused_dial_returns_the_reason() {
    for (error, kind) in [
        (
            Error::tunnel_not_found("no tunnel `db`"),
            RefusalKind::NotFound,
        ),
        (
            Error::unauthorized("the boundary excludes it"),
            RefusalKind::Unauthorized,
        ),
    ] {
        let engine = FakeEngine::start().await;
        let config = engine.config();
        let dialled = tokio::spawn(async move { svc_client::dial(&config, "db").await });
        let mut peer = engine.accept().await;
        request(&mut peer).await;
        let outcome = Some(StreamOutcome::Error(error));
        peer.send(Kind::StreamRsp(StreamRsp { outcome })).await;
        assert_eq!(
            dialled.await.unwrap().unwrap_err().refusal().unwrap().kind,
            kind
        );
    }
}

#[tokio::test]
async fn with_zero_rtt_bytes_are_sent_with_the_request() {
    let engine = FakeEngine::start().await;
    let config = engine.config();
    let dialled = tokio::spawn(async move {
        let mut stream = svc_client::dial::dial_zero_rtt(&config, "db")
            .await
            .unwrap();
        stream.write_all(b"at once").await.unwrap();
        stream.shutdown().await.unwrap();
        stream
    });
    let mut peer = engine.accept().await;
    assert!(request(&mut peer).await.zero_rtt.unwrap().value);
    let mut bytes = Vec::new();
    peer.io.read_to_end(&mut bytes).await.unwrap();
    assert_eq!(bytes, b"at once");
    drop(dialled.await.unwrap());
}
