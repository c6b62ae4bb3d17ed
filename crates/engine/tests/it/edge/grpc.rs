//! gRPC through the engine: real calls of all four kinds.

use futures_util::{StreamExt, stream};
use testing::grpc::{Client, Number};
use testing::{ClosedPort, TestEngine, TestTunnel, Upstream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::Code;
use tonic::metadata::MetadataMap;

async fn client(engine: &TestEngine, tunnel: &TestTunnel) -> Client {
    Client::connect(
        engine.addr(),
        tunnel.hostname(),
        &engine.ca().client(&["h2"]),
    )
    .await
}

#[tokio::test]
async fn calls_of_all_kinds_pass() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::grpc().await;
    let tunnel = engine.publish_h2c(upstream.addr()).await;
    let mut client = client(&engine, &tunnel).await;

    let mut metadata = MetadataMap::new();
    metadata.insert("x-given", "1".parse().unwrap());
    let (value, metadata) = client.double(21, metadata).await.unwrap();
    assert_eq!(value, 42);
    assert_eq!(metadata.get("x-returned").unwrap(), "1");

    let counted: Vec<_> = client
        .count(1_000)
        .await
        .unwrap()
        .map(Result::unwrap)
        .collect()
        .await;
    assert!(counted.iter().map(|number| number.value).eq(1..=1_000));

    assert_eq!(client.sum(stream::iter(1..=1_000)).await.unwrap(), 500_500);
}

#[tokio::test]
async fn both_directions_of_a_call_stream_at_the_same_time() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::grpc().await;
    let tunnel = engine.publish_h2c(upstream.addr()).await;
    let mut client = client(&engine, &tunnel).await;
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut echoed = client
        .echo(UnboundedReceiverStream::new(receiver))
        .await
        .unwrap();
    for value in 0..50 {
        sender.send(value).unwrap();
        assert_eq!(echoed.message().await.unwrap(), Some(Number { value }));
    }
    drop(sender);
    assert_eq!(echoed.message().await.unwrap(), None);
}

#[tokio::test]
async fn a_status_without_a_message_passes() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::grpc().await;
    let tunnel = engine.publish_h2c(upstream.addr()).await;
    let mut client = client(&engine, &tunnel).await;
    let refused = client.double(-1, MetadataMap::new()).await.unwrap_err();
    assert_eq!(
        (refused.code(), refused.message()),
        (Code::OutOfRange, "below 0")
    );
}

#[tokio::test]
async fn a_call_whose_service_disconnects_fails() {
    let engine = TestEngine::start().await;
    let upstream = Upstream::grpc().await;
    let tunnel = engine.publish_h2c(upstream.addr()).await;
    let mut client = client(&engine, &tunnel).await;
    let (sender, receiver) = mpsc::unbounded_channel();
    let mut echoed = client
        .echo(UnboundedReceiverStream::new(receiver))
        .await
        .unwrap();
    sender.send(1).unwrap();
    assert_eq!(echoed.message().await.unwrap(), Some(Number { value: 1 }));
    drop(upstream);
    // The code does not matter, as long as the call does not end successfully.
    let ended = echoed.message().await.unwrap_err();
    assert_ne!(ended.code(), Code::Ok);
}

#[tokio::test]
async fn a_call_without_a_service_fails() {
    let engine = TestEngine::start().await;
    let nobody = ClosedPort::new();
    let tunnel = engine.publish_h2c(nobody.addr()).await;
    let mut client = client(&engine, &tunnel).await;
    let failed = client.double(1, MetadataMap::new()).await.unwrap_err();
    assert_ne!(failed.code(), Code::Ok);
}
