//! Limits on the size and timing of messages from users and servers. The times are those of the
//! real clock.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tty::message::{Heartbeat, Kind};

use super::server::SILENT;
use super::world::World;

/// A list nested to this depth.
fn nested(depth: usize) -> Value {
    (0..depth).fold(json!(1), |inner, _| json!([inner]))
}

#[tokio::test]
async fn a_body_has_a_maximum_size_and_depth() {
    let mut world = World::start().await;
    let (_ann, _shell, id) = world.session().await;
    let path = format!("/api/webtty/sessions/{id}/participants");
    let most = 16 * 1024;
    for (len, status) in [(most, 200), (most + 1, 413)] {
        let (front, back) = ("{\"role\": \"spectator\"", "}");
        let room = " ".repeat(len - front.len() - back.len());
        let body = format!("{front}{room}{back}");
        let answer = world.call_raw("POST", &path, &world.bob, &body).await;
        assert_eq!(answer.0, status, "{len}: {}", answer.1);
    }
    let (_bob, participant) = world.attach_and_join(&id, &world.bob).await;
    // In addition to the two objects around it.
    for (depth, status) in [(7, 400), (6, 201)] {
        let more = json!({"metadata": {"a": nested(depth)}});
        let answer = world
            .request_control(&id, &participant, &world.bob, more)
            .await;
        assert_eq!(answer.0, status, "{depth}: {}", answer.1);
        let detail = answer.1["detail"].as_str().unwrap_or_default();
        assert_eq!(detail.contains("nested too deeply"), status == 400);
    }
}

#[tokio::test]
async fn the_last_64_participants_of_an_ended_session_are_kept() {
    let mut world = World::start().await;
    let (mut ann, shell, id) = world.session().await;
    let mut attached = Vec::new();
    for _ in 0..70 {
        attached.push(world.request_attach(&id, &world.bob).await.0);
    }
    let path = format!("/api/webtty/sessions/{id}/participants");
    let (_, running) = world.get(&path, &world.ann).await;
    assert_eq!(running.as_array().unwrap().len(), 71);
    shell.exits(0);
    ann.wait_for_close().await;
    world
        .wait_for_session(&id, |shown| shown["status"] == "closed")
        .await;
    let (status, kept) = world.get(&path, &world.ann).await;
    assert_eq!(status, 200);
    let kept: Vec<_> = kept
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(kept, attached[70 - 64..]);
}

/// A client without a grant is disconnected after five seconds, and a client that has sent a
/// heartbeat after thirty seconds without another.
async fn a_silent_participant_is_hung_up_on() {
    let mut world = World::start().await;
    let (_ann, _shell, id) = world.session().await;
    let (participant, _) = world.request_attach(&id, &world.bob).await;
    let (mut beating, _) = world.attach_and_join(&id, &world.bob).await;
    let started_at = Instant::now();
    let mut mute = world
        .connect_participant(&id, &participant, None)
        .await
        .unwrap();
    let shows_nothing = async {
        mute.wait_for_close().await;
        let error = mute.error.as_deref();
        assert_eq!(error, Some("no grant was received in time"));
        assert!(started_at.elapsed() >= Duration::from_secs(5));
    };
    let falls_silent = async {
        beating.send(Kind::Heartbeat(Heartbeat::default())).await;
        beating.wait_for_close().await;
        assert!(started_at.elapsed() >= Duration::from_secs(30));
    };
    tokio::join!(shows_nothing, falls_silent);
    let (_, all) = world
        .get(&format!("/api/webtty/sessions/{id}"), &world.ann)
        .await;
    assert_eq!(all["status"], "active", "the session is active");
}

async fn a_server_that_opens_no_websocket_is_given_up() {
    let world = World::with(|_| {}, true, SILENT).await;
    let started_at = Instant::now();
    assert_eq!(world.connect_client("", &world.ann).await.err(), Some(504));
    assert!(started_at.elapsed() >= Duration::from_secs(10));
}

/// Both cases run in parallel, since each takes its time.
#[tokio::test]
async fn silent_clients_are_disconnected() {
    tokio::join!(
        Box::pin(a_silent_participant_is_hung_up_on()),
        Box::pin(a_server_that_opens_no_websocket_is_given_up()),
    );
}
