//! The Engine API, asked by a client.

use svc_client::{
    ConnectError,
    api::{Api, ApiError, ListQuery},
    error::Step,
};
use tokio::time::Instant;

use super::fake::FakeEngine;

/// The engine takes the request and answers nothing.
#[tokio::test(start_paused = true)]
async fn the_head_of_an_answer_has_a_time() {
    let engine = FakeEngine::speaking(b"http/1.1").await;
    let api = Api::new(&engine.config()).unwrap();
    // The clock goes on by itself only while nothing blocks: when the request has come.
    let (clock, dropped) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || dropped.recv());
    let began = Instant::now();
    let silent = async {
        let stream = engine.asked().await;
        drop(clock);
        stream
    };
    let query = ListQuery::default();
    let (answer, _stream) = tokio::join!(api.clients(&query), silent);
    assert!(
        matches!(
            answer,
            Err(ApiError::Connect(ConnectError::TimedOut(Step::Exchange)))
        ),
        "{answer:?}"
    );
    assert_eq!(began.elapsed().as_secs(), 15);
}
