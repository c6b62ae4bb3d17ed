//! `/api/websocket`: the live stream over a WebSocket (EN-4).
//!
//! One JSON text frame for each event. Nothing that the client says matters but that it speaks:
//! pings are sent, and one who has been silent for three of them is gone.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::response::Response;
use bytes::Bytes;
use daemon::problem::Refusal;
use http::Uri;
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout};
use types::problem::Problem;

use super::Api;
use super::caller::Watcher;
use super::watch::{End, Watch};
use crate::live::{Ended, Frame};

pub(super) async fn watch<A: Send + Sync + 'static>(
    watcher: Watcher,
    State(api): State<Arc<Api<A>>>,
    uri: Uri,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let upgrade = upgrade.map_err(|_| Problem::upgrade_required())?;
    let watch = Watch::open(&api, watcher, &uri)?;
    let counted = api.upgraded.token();
    Ok(upgrade
        .max_message_size(MAX_CLIENT_MESSAGE_BYTES)
        .max_frame_size(MAX_CLIENT_MESSAGE_BYTES)
        .on_upgrade(async move |socket| {
            serve(socket, watch).await;
            drop(counted);
        }))
}

/// What happened first.
enum Step {
    Frame(Frame),
    End(End),
    Heard,
    Gone,
    Ping,
}

async fn serve(mut socket: WebSocket, mut watch: Watch) {
    let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    loop {
        // In no fixed order: neither many events nor a client that talks without end may keep the
        // other from being seen.
        let step = tokio::select! {
            message = socket.recv() => match message {
                Some(Ok(Message::Close(_)) | Err(_)) | None => Step::Gone,
                Some(Ok(_)) => Step::Heard,
            },
            next = watch.next() => match next {
                Ok(frame) => Step::Frame(frame),
                Err(end) => Step::End(end),
            },
            _ = pings.tick() => Step::Ping,
        };
        let message = match step {
            Step::Frame(frame) => text(&frame),
            Step::Ping if heard.elapsed() > SILENCE => return,
            Step::Ping => Message::Ping(Bytes::new()),
            Step::Heard => {
                heard = Instant::now();
                continue;
            }
            Step::Gone => return,
            Step::End(end) => return close(socket, end).await,
        };
        if !send(&mut socket, message).await {
            return;
        }
    }
}

/// Sends, or finds that the peer does not read. What a socket does not take within the deadline
/// is not worth waiting for: the queue behind it would end the watcher as well.
async fn send(socket: &mut WebSocket, message: Message) -> bool {
    matches!(
        timeout(SEND_DEADLINE, socket.send(message)).await,
        Ok(Ok(()))
    )
}

/// Says why, and waits a moment for the peer's own close (RFC 6455, 7.1.1).
async fn close(mut socket: WebSocket, end: End) {
    let code = match end {
        End::Token(_) => close_code::POLICY,
        End::Events(Ended::TooSlow) => close_code::AGAIN,
        End::Events(Ended::Stopped) => close_code::AWAY,
    };
    let frame = CloseFrame {
        code,
        reason: end.to_string().into(),
    };
    if !send(&mut socket, Message::Close(Some(frame))).await {
        return;
    }
    let answer = async { while let Some(Ok(_)) = socket.recv().await {} };
    // Whether it answers or not, the connection ends here.
    timeout(CLOSE_DEADLINE, answer).await.unwrap_or_default();
}

fn text(frame: &Frame) -> Message {
    // JSON of ours is UTF-8.
    Message::Text(Utf8Bytes::try_from(frame.json()).unwrap_or_default())
}

/// A third of the shortest idle limit that is common on the way.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Three pings without a word.
const SILENCE: Duration = Duration::from_mins(1);
/// As long as an engine waits for a peer that takes nothing.
const SEND_DEADLINE: Duration = Duration::from_secs(10);
/// A round trip on a bad line: a stopping engine waits for this.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);
/// Clients have nothing to say here.
const MAX_CLIENT_MESSAGE_BYTES: usize = 4 * 1024;
