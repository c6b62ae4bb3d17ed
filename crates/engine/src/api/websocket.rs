//! `/api/websocket`: the live stream over a WebSocket (EN-4).
//!
//! One JSON text frame for each event. The engine ignores the content of the client's frames. It sends
//! pings and closes a connection that was silent for three ping intervals. A client that sends an
//! invalid frame receives a close frame with the reason.

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
use tokio_tungstenite::tungstenite;
use types::problem::Problem;

use super::Api;
use super::answers::{Answer, Charge};
use super::caller::Watcher;
use super::watch::{End, Watch};
use crate::live::{Frame, LoadMetric, SubscriptionEnd};

pub(super) async fn watch<A: LoadMetric>(
    watcher: Watcher,
    State(api): State<Arc<Api<A>>>,
    uri: Uri,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let upgrade = upgrade.map_err(|_| Problem::upgrade_required())?;
    let mut watch = Watch::open(&api, watcher, &uri, ("", ""))?;
    let initial = watch.take_initial().map(Answer::whole).transpose()?;
    let counted = api.upgraded.token();
    Ok(upgrade
        .max_message_size(MAX_CLIENT_MESSAGE_BYTES)
        .max_frame_size(MAX_CLIENT_MESSAGE_BYTES)
        .on_upgrade(async move |socket| {
            serve(socket, initial, watch).await;
            drop(counted);
        }))
}

/// What happened first.
enum Step {
    Frame(Frame),
    End(End),
    Heard,
    /// The client's own close; what answers it is waiting to be sent.
    Closed,
    Violation(u16),
    Gone,
    Ping,
}

/// Sends `state.initial`, then what changes. The library keeps a buffer of the size of the largest
/// message, so that of a large one stays charged to the end.
async fn serve(mut socket: WebSocket, initial: Option<(Bytes, Option<Charge>)>, mut watch: Watch) {
    let (initial, _charge) = initial.unwrap_or_default();
    if !send(&mut socket, text(initial)).await {
        return;
    }
    let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    loop {
        // In no fixed order: neither many events nor a client that talks without end may keep the
        // other from being seen.
        let step = tokio::select! {
            message = socket.recv() => match message {
                Some(Ok(Message::Close(_))) => Step::Closed,
                Some(Ok(_)) => Step::Heard,
                Some(Err(error)) => violation(error).map_or(Step::Gone, Step::Violation),
                None => Step::Gone,
            },
            next = watch.next() => match next {
                Ok(frame) => Step::Frame(frame),
                Err(end) => Step::End(end),
            },
            _ = pings.tick() => Step::Ping,
        };
        let message = match step {
            Step::Frame(frame) => text(frame.json()),
            Step::Ping if heard.elapsed() >= SILENCE => return,
            Step::Ping => Message::Ping(Bytes::new()),
            Step::Heard => {
                heard = Instant::now();
                continue;
            }
            Step::Gone => return,
            Step::Closed => return finish(socket).await,
            Step::Violation(code) => return close(socket, code, "").await,
            Step::End(end) => return close(socket, code_of(end), &end.to_string()).await,
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

fn code_of(end: End) -> u16 {
    match end {
        End::Token(_) => close_code::POLICY,
        End::Events(SubscriptionEnd::TooSlow) => close_code::AGAIN,
        End::Events(SubscriptionEnd::Stopped) => close_code::AWAY,
    }
}

/// What is wrong with what the client sent (RFC 6455, 7.4.1); `None` where it is just gone.
fn violation(error: axum::Error) -> Option<u16> {
    match *error.into_inner().downcast::<tungstenite::Error>().ok()? {
        tungstenite::Error::Protocol(_) => Some(close_code::PROTOCOL),
        tungstenite::Error::Utf8(_) => Some(close_code::INVALID),
        tungstenite::Error::Capacity(_) => Some(close_code::SIZE),
        _ => None,
    }
}

/// Says why (RFC 6455, 7.1.7), and waits a moment for the peer's own close (7.1.1).
async fn close(mut socket: WebSocket, code: u16, reason: &str) {
    let frame = CloseFrame {
        code,
        reason: reason.into(),
    };
    if send(&mut socket, Message::Close(Some(frame))).await {
        finish(socket).await;
    }
}

/// Sends the answer to a close (RFC 6455, 5.5.1) or waits for the peer's.
async fn finish(mut socket: WebSocket) {
    let answer = async { while let Some(Ok(_)) = socket.recv().await {} };
    // Whether it answers or not, the connection ends here.
    timeout(CLOSE_DEADLINE, answer).await.unwrap_or_default();
}

fn text(json: Bytes) -> Message {
    // JSON of ours is UTF-8.
    Message::Text(Utf8Bytes::try_from(json).unwrap_or_default())
}

/// A third of the shortest idle limit that is common on the way.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// As long as three pings take; it is looked at when the next one is due.
const SILENCE: Duration = Duration::from_mins(1);
/// As long as an engine waits for a peer that takes nothing.
const SEND_DEADLINE: Duration = Duration::from_secs(10);
/// A round trip on a bad line: a stopping engine waits for this.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);
/// Clients have nothing to say here.
const MAX_CLIENT_MESSAGE_BYTES: usize = 4 * 1024;
