//! A gRPC client and a gRPC server, with a tunnel between them.

mod client;
mod server;

use std::time::Duration;

use anyhow::{Context as _, Result};
use e2e::{Agent, Svc};
use futures_util::stream;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::metadata::MetadataValue;
use tonic::{Code, Request};

use self::client::Client;
use self::server::{CallEvent, Server};

/// The only message type.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct Number {
    #[prost(int64, tag = "1")]
    value: i64,
}

/// A service, its tunnel, and a client that is connected through it.
struct Scene {
    server: Server,
    client: Client,
    _agent: Agent,
    _svc: Svc,
}

impl Scene {
    async fn set() -> Result<Self> {
        let server = Server::start().await?;
        let svc = Svc::engine()?;
        let flags = ["--http", "--http-version", "h2c"];
        let agent = Agent::forward(&svc, &server.address().to_string(), &flags)?;
        let client = Client::connect(&svc, agent.hostname()?).await?;
        Ok(Self {
            server,
            client,
            _agent: agent,
            _svc: svc,
        })
    }

    async fn seen(&mut self) -> Result<CallEvent> {
        let seen = tokio::time::timeout(WAIT_LIMIT, self.server.seen.recv());
        seen.await
            .context("the service received no event")?
            .context("it ended")
    }
}

#[tokio::test]
async fn a_call_has_an_answer_with_metadata_before_and_after() -> Result<()> {
    let mut scene = Scene::set().await?;
    let mut request = Request::new(Number { value: 21 });
    request
        .metadata_mut()
        .insert("x-given", "as it was".parse()?);
    let binary = MetadataValue::from_bytes(&[0, 255, 7]);
    request
        .metadata_mut()
        .insert_bin("x-given-bin", binary.clone());
    let answer = scene.client.double(request).await?;
    assert_eq!(answer.get_ref().value, 42);
    let metadata = answer.metadata();
    assert_eq!(metadata.get("x-given").context("no metadata")?, "as it was");
    assert_eq!(metadata.get_bin("x-given-bin"), Some(&binary));
    Ok(())
}

#[tokio::test]
async fn a_failure_arrives_as_a_trailer_with_its_details() -> Result<()> {
    let mut scene = Scene::set().await?;
    let refused = scene
        .client
        .double(Request::new(Number { value: -1 }))
        .await;
    let status = refused.err().context("it was answered")?;
    assert_eq!(status.code(), Code::OutOfRange);
    assert_eq!(status.message(), "below 0: ünfit");
    assert_eq!(status.details(), [0, 1, 2, 255]);

    // The same after messages.
    let mut numbers = scene
        .client
        .count(Request::new(Number { value: -3 }))
        .await?
        .into_inner();
    scene.server.numbers.send(Ok(1)).await?;
    assert_eq!(numbers.message().await?, Some(Number { value: 1 }));
    scene.server.numbers.send(Err(Code::DataLoss)).await?;
    let status = numbers.message().await.err().context("it went on")?;
    assert_eq!(status.code(), Code::DataLoss);
    let last = status.metadata().get("x-last").context("no metadata")?;
    assert_eq!(last, "said");
    Ok(())
}

#[tokio::test]
async fn messages_of_a_stream_arrive_one_by_one() -> Result<()> {
    let mut scene = Scene::set().await?;
    let mut numbers = scene
        .client
        .count(Request::new(Number { value: 0 }))
        .await?
        .into_inner();
    for value in 1..=20 {
        // The next one is not sent before this one has arrived.
        scene.server.numbers.send(Ok(value)).await?;
        let message = tokio::time::timeout(WAIT_LIMIT, numbers.message()).await??;
        assert_eq!(message, Some(Number { value }));
    }
    scene.server.end_numbers();
    assert_eq!(numbers.message().await?, None);
    Ok(())
}

#[tokio::test]
async fn a_client_stream_reaches_the_service_completely() -> Result<()> {
    let mut scene = Scene::set().await?;
    let numbers = stream::iter((1..=10_000).map(|value| Number { value }));
    let sum = scene.client.sum(Request::new(numbers)).await?;
    assert_eq!(sum.get_ref().value, 50_005_000);
    Ok(())
}

#[tokio::test]
async fn both_directions_alternate() -> Result<()> {
    let mut scene = Scene::set().await?;
    let (say, said) = mpsc::channel(1);
    let request = Request::new(ReceiverStream::new(said));
    // The answer starts before the first message.
    let mut replies = scene.client.echo(request).await?.into_inner();
    for value in 1..=20 {
        say.send(Number { value }).await?;
        let message = tokio::time::timeout(WAIT_LIMIT, replies.message()).await??;
        assert_eq!(message, Some(Number { value }));
    }
    drop(say);
    assert_eq!(replies.message().await?, None);
    Ok(())
}

#[tokio::test]
async fn many_streams_share_a_connection() -> Result<()> {
    let scene = Scene::set().await?;
    let calls = (0..100).map(|value| {
        let mut client = scene.client.clone();
        async move { client.double(Request::new(Number { value })).await }
    });
    let answers = futures_util::future::try_join_all(calls).await?;
    let values: Vec<i64> = answers
        .iter()
        .map(|answer| answer.get_ref().value)
        .collect();
    assert_eq!(values, (0..100).map(|value| 2 * value).collect::<Vec<_>>());
    Ok(())
}

#[tokio::test]
async fn the_service_receives_a_deadline_and_notices_its_end() -> Result<()> {
    let mut scene = Scene::set().await?;
    // The connection is established first, so that the call reaches the service long before its
    // deadline.
    scene
        .client
        .double(Request::new(Number { value: 1 }))
        .await?;
    let mut request = Request::new(Number { value: 0 });
    request.set_timeout(Duration::from_secs(10));
    let late = scene.client.hang(request).await;
    let code = late.err().context("it was answered")?.code();
    assert!(
        [Code::Cancelled, Code::DeadlineExceeded].contains(&code),
        "{code:?}"
    );
    let CallEvent::Begun { timeout } = scene.seen().await? else {
        anyhow::bail!("ended before it began");
    };
    assert_eq!(timeout.as_deref(), Some("10000000u"));
    assert_eq!(scene.seen().await?, CallEvent::Cancelled);
    Ok(())
}

#[tokio::test]
async fn the_service_notices_that_a_call_was_cancelled() -> Result<()> {
    let mut scene = Scene::set().await?;
    let mut numbers = scene
        .client
        .count(Request::new(Number { value: 0 }))
        .await?
        .into_inner();
    scene.server.numbers.send(Ok(1)).await?;
    assert_eq!(numbers.next().await.transpose()?, Some(Number { value: 1 }));
    drop(numbers);
    tokio::time::timeout(WAIT_LIMIT, scene.server.numbers.closed()).await?;

    let hanging = scene.client.clone().hang_forever();
    let hanging = tokio::spawn(hanging);
    assert_eq!(scene.seen().await?, CallEvent::Begun { timeout: None });
    hanging.abort();
    assert_eq!(scene.seen().await?, CallEvent::Cancelled);
    Ok(())
}

/// Longer than any step of these tests takes.
const WAIT_LIMIT: Duration = Duration::from_mins(1);
