//! WebSocket clients that send nothing or read nothing, on a manual clock.

use std::time::Duration;

use futures_util::StreamExt as _;
use serde_json::json;
use tokio::io::{AsyncReadExt as _, DuplexStream};
use tokio::time::{Instant, sleep};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::support::{TestApi, pat, token};

/// More than any test sends.
const ROOM: usize = 1024 * 1024;

/// The first byte of a ping.
const PING: u8 = 0x89;

/// Opens an event stream over a connection with a buffer of `room` bytes. Nothing but the answer to
/// the upgrade is read.
async fn watch(api: &TestApi, room: usize) -> WebSocketStream<DuplexStream> {
    let mut request = "ws://engine/api/websocket".into_client_request().unwrap();
    let bearer = format!("Bearer {}", token(&pat()));
    let fields = request.headers_mut();
    fields.insert("authorization", bearer.parse().unwrap());
    let opening = tokio_tungstenite::client_async(request, api.in_memory(room));
    opening.await.unwrap().0
}

/// Seconds until the engine has ended all WebSockets.
async fn ends(api: &TestApi) -> u64 {
    let started_at = Instant::now();
    api.upgraded.close();
    api.upgraded.wait().await;
    started_at.elapsed().as_secs()
}

#[tokio::test(start_paused = true)]
async fn the_engine_closes_a_silent_websocket_client_after_a_minute() {
    let api = TestApi::start().await;
    let mut silent = watch(&api, ROOM).await;
    assert_eq!(ends(&api).await, 60);
    let mut said = Vec::new();
    silent.get_mut().read_to_end(&mut said).await.unwrap();
    let pings = said.split(|byte| *byte == PING).count() - 1;
    assert_eq!(pings, 2, "{}", said.escape_ascii());
}

#[tokio::test(start_paused = true)]
async fn a_websocket_client_that_answers_pings_stays_connected() {
    let api = TestApi::start().await;
    let mut client = watch(&api, ROOM).await;
    let ended = async { while let Some(Ok(_)) = client.next().await {} };
    tokio::select! {
        () = ended => panic!("the engine closed it"),
        () = sleep(Duration::from_mins(30)) => {}
    }
}

#[tokio::test(start_paused = true)]
async fn a_websocket_client_that_reads_no_frame_for_ten_seconds_is_disconnected() {
    let api = TestApi::start().await;
    let owners: Vec<_> = (0..10).map(|_| api.client("ann", json!({}))).collect();
    let _stuck = watch(&api, 512).await;
    assert_eq!(ends(&api).await, 10);
    drop(owners);
}

#[tokio::test(start_paused = true)]
async fn the_engine_waits_two_seconds_for_the_answer_to_a_close() {
    let api = TestApi::start().await;
    let _silent = watch(&api, ROOM).await;
    api.live.end_subscriptions();
    assert_eq!(ends(&api).await, 2);
}
