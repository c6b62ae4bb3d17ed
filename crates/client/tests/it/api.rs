//! Engine API requests of a client.

use svc_client::{
    ConnectError,
    api::{Api, ApiError, ListQuery},
    error::Step,
};
use tokio::time::Instant;

use super::fake::FakeEngine;

/// The engine accepts the request and does not answer.
#[tokio::test(start_paused = true)]
async fn the_head_of_an_answer_has_a_timeout() {
    let engine = FakeEngine::speaking(b"http/1.1").await;
    let api = Api::new(&engine.config()).unwrap();
    // The paused clock advances only while no task is runnable, that is, once the request has
    // arrived.
    let (clock, dropped) = std::sync::mpsc::channel::<()>();
    tokio::task::spawn_blocking(move || dropped.recv());
    let started_at = Instant::now();
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
    assert_eq!(started_at.elapsed().as_secs(), 15);
}
