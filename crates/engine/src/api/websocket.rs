//! `/api/websocket`: the live stream over a WebSocket (EN-4).
//!
//! One JSON text frame for each event. The engine ignores the content of the client's frames. It
//! sends pings and closes a connection that was silent for three ping intervals. A client that
//! sends an invalid frame receives a close frame with the reason.

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
use super::answers::{BufferedBody, Charge};
use super::caller::Watcher;
use super::watch::{Watch, WatchEnd};
use crate::live::{Frame, LoadMetric, SubscriptionEnd};

pub(super) async fn watch<A: LoadMetric>(
    watcher: Watcher,
    State(api): State<Arc<Api<A>>>,
    uri: Uri,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Refusal> {
    let upgrade = upgrade.map_err(|_| Problem::upgrade_required())?;
    let mut watch = Watch::open(&api, watcher, &uri, ("", ""))?;
    let initial = watch
        .take_initial()
        .map(BufferedBody::into_bytes)
        .transpose()?;
    let counted = api.upgraded.token();
    Ok(upgrade
        .max_message_size(MAX_CLIENT_MESSAGE_BYTES)
        .max_frame_size(MAX_CLIENT_MESSAGE_BYTES)
        .on_upgrade(async move |socket| {
            serve(socket, initial, watch).await;
            drop(counted);
        }))
}

/// The first event of a wait.
enum SocketEvent {
    Frame(Frame),
    End(WatchEnd),
    Received,
    /// The client's close frame; the response to it is waiting to be sent.
    Closed,
    Violation(u16),
    Disconnected,
    Ping,
}

/// Sends `state.initial`, then the changes. The library keeps a buffer of the size of the largest
/// message, so a large one stays charged until the end.
async fn serve(mut socket: WebSocket, initial: Option<(Bytes, Option<Charge>)>, mut watch: Watch) {
    let (initial, _charge) = initial.unwrap_or_default();
    if !send(&mut socket, text(initial)).await {
        return;
    }
    let mut pings = interval_at(Instant::now() + PING_INTERVAL, PING_INTERVAL);
    pings.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_received = Instant::now();
    loop {
        // In no fixed order: neither many events nor a client that sends continuously may starve
        // the other.
        let step = tokio::select! {
            message = socket.recv() => match message {
                Some(Ok(Message::Close(_))) => SocketEvent::Closed,
                Some(Ok(_)) => SocketEvent::Received,
                Some(Err(error)) => {
                    violation(error).map_or(SocketEvent::Disconnected, SocketEvent::Violation)
                }
                None => SocketEvent::Disconnected,
            },
            next = watch.next() => match next {
                Ok(frame) => SocketEvent::Frame(frame),
                Err(end) => SocketEvent::End(end),
            },
            _ = pings.tick() => SocketEvent::Ping,
        };
        let message = match step {
            SocketEvent::Frame(frame) => text(frame.json()),
            SocketEvent::Ping if last_received.elapsed() >= SILENCE => return,
            SocketEvent::Ping => Message::Ping(Bytes::new()),
            SocketEvent::Received => {
                last_received = Instant::now();
                continue;
            }
            SocketEvent::Disconnected => return,
            SocketEvent::Closed => return finish(socket).await,
            SocketEvent::Violation(code) => return close(socket, code, "").await,
            SocketEvent::End(end) => return close(socket, code_of(end), &end.to_string()).await,
        };
        if !send(&mut socket, message).await {
            return;
        }
    }
}

/// Sends a message; returns false if the peer does not read. After the deadline further waiting is
/// useless, because the full queue would end the watcher as well.
async fn send(socket: &mut WebSocket, message: Message) -> bool {
    matches!(
        timeout(SEND_DEADLINE, socket.send(message)).await,
        Ok(Ok(()))
    )
}

fn code_of(end: WatchEnd) -> u16 {
    match end {
        WatchEnd::Token(_) => close_code::POLICY,
        WatchEnd::Events(SubscriptionEnd::TooSlow) => close_code::AGAIN,
        WatchEnd::Events(SubscriptionEnd::Stopped) => close_code::AWAY,
    }
}

/// The close code for a client's protocol error (RFC 6455, 7.4.1); `None` if the client is just
/// gone.
fn violation(error: axum::Error) -> Option<u16> {
    match *error.into_inner().downcast::<tungstenite::Error>().ok()? {
        tungstenite::Error::Protocol(_) => Some(close_code::PROTOCOL),
        tungstenite::Error::Utf8(_) => Some(close_code::INVALID),
        tungstenite::Error::Capacity(_) => Some(close_code::SIZE),
        _ => None,
    }
}

/// Sends a close frame with the reason (RFC 6455, 7.1.7), and waits briefly for the peer's own
/// close (7.1.1).
async fn close(mut socket: WebSocket, code: u16, reason: &str) {
    let frame = CloseFrame {
        code,
        reason: reason.into(),
    };
    if send(&mut socket, Message::Close(Some(frame))).await {
        finish(socket).await;
    }
}

/// Sends the response to a close frame (RFC 6455, 5.5.1) or waits for the peer's.
async fn finish(mut socket: WebSocket) {
    let answer = async { while let Some(Ok(_)) = socket.recv().await {} };
    // The connection ends here, with or without a response.
    timeout(CLOSE_DEADLINE, answer).await.unwrap_or_default();
}

fn text(json: Bytes) -> Message {
    // Serialized JSON is UTF-8.
    Message::Text(Utf8Bytes::try_from(json).unwrap_or_default())
}

/// A third of the shortest common idle limit of proxies.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// The time of three pings; it is checked when the next one is due.
const SILENCE: Duration = Duration::from_mins(1);
/// Equal to the engine's limit for a peer that reads nothing.
const SEND_DEADLINE: Duration = Duration::from_secs(10);
/// A round trip on a bad line: a stopping engine waits for this.
const CLOSE_DEADLINE: Duration = Duration::from_secs(2);
/// Clients need not send anything.
const MAX_CLIENT_MESSAGE_BYTES: usize = 4 * 1024;
