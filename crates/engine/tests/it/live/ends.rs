//! Every end has a reason.

use std::sync::Arc;

use engine::clock::{ManualClock, SystemClock};
use engine::live::LiveLimits;
use jiff::Timestamp;
use serde_json::json;

use super::{Stream, TRANSPORTS};
use crate::support::{NOW, READ, TestApi, auth, keyring, manual_clock, pat, token};

#[tokio::test]
async fn a_stream_ends_with_its_token() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_second(NOW).unwrap()));
    let time = Arc::<ManualClock>::clone(&clock);
    let api = TestApi::with(time, LiveLimits::default(), false).await;
    let query = format!(
        "svc.token={}",
        token(&auth(NOW, 2, json!({"permissions": [READ]})))
    );
    let mut streams = Vec::new();
    for path in TRANSPORTS {
        streams.push(Stream::open(&api, path, &query, None).await.ok().unwrap());
    }
    // Not before its time.
    clock.advance(1);
    api.client("ann", json!({}));
    for stream in &mut streams {
        assert_eq!(stream.next().await.unwrap()["type"], "state.initial");
        assert_eq!(stream.next().await.unwrap()["type"], "client.created");
    }
    clock.advance(1);
    for stream in &mut streams {
        assert_eq!(stream.next().await.unwrap_err(), "the token has expired");
    }
}

#[tokio::test]
async fn a_stream_ends_when_its_token_is_revoked_and_no_other_does() {
    for path in TRANSPORTS {
        let api = TestApi::start().await;
        let (revoked, kept) = (
            token(&pat()),
            token(&json!({"type": "pat", "userId": "bob"})),
        );
        let mut ends = Stream::open(&api, path, "", Some(&revoked))
            .await
            .ok()
            .unwrap();
        let mut stays = Stream::open(&api, path, "", Some(&kept))
            .await
            .ok()
            .unwrap();
        stays.next().await.unwrap();
        api.tokens
            .set_revoked([::credentials::digest(&revoked)].into());
        assert_eq!(ends.end().await, "the token is no longer valid");
        api.client("ann", json!({}));
        assert_eq!(stays.next().await.unwrap()["type"], "client.created");
        assert_eq!(
            Stream::open(&api, path, "", Some(&revoked)).await.err(),
            Some(401)
        );
        // Removing a signing key revokes its tokens.
        api.tokens
            .replace_keys(::credentials::Keyring::new())
            .unwrap();
        assert_eq!(stays.end().await, "the token is no longer valid");
        api.tokens.replace_keys(keyring()).unwrap();
    }
}

/// The server's tasks cannot run while this task changes the state without waiting.
#[tokio::test]
async fn a_slow_event_stream_is_closed_with_a_reason() {
    for path in TRANSPORTS {
        let limits = LiveLimits {
            watcher_queue: 2,
            ..LiveLimits::default()
        };
        let api = TestApi::with(manual_clock(), limits, false).await;
        let mut stream = Stream::watch(&api, path, &json!({})).await;
        stream.next().await.unwrap();
        for _ in 0..5 {
            api.client("ann", json!({}));
        }
        assert_eq!(stream.next().await.unwrap()["type"], "client.created");
        assert_eq!(
            stream.end().await,
            "too slow: events arrived faster than they were read"
        );
    }
}

#[tokio::test]
async fn a_stopping_engine_closes_event_streams_with_a_reason() {
    for path in TRANSPORTS {
        let api = TestApi::start().await;
        let mut stream = Stream::watch(&api, path, &json!({})).await;
        stream.next().await.unwrap();
        api.live.end_subscriptions();
        assert_eq!(stream.end().await, "the engine is stopping");
    }
}

#[tokio::test]
async fn one_stream_more_than_the_limit_is_503_and_a_slot_is_freed() {
    let limits = LiveLimits {
        watchers: 1,
        ..LiveLimits::default()
    };
    let api = TestApi::with(Arc::new(SystemClock), limits, false).await;
    let stream = Stream::watch(&api, "/api/websocket", &json!({})).await;
    let response = api.get("/api/sse").send().await.unwrap();
    assert_eq!(response.status(), 503);
    assert_eq!(response.headers()["retry-after"], "10");
    drop(stream);
    while api.live.counts().watchers > 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(api.get("/api/sse").send().await.unwrap().status(), 200);
}
