//! Limits on the memory that Engine API clients can occupy in an engine.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::client::SendRequest;
use serde_json::json;
use testing::{TestEngine, within};
use tokio_util::task::AbortOnDropHandle;
use types::permission::Permission;
use wire::message::TunnelProperties;

use crate::agent::raw_messages;
use crate::agent::raw_messages::PlainAgent;

/// The smallest configurable budget is 8 MiB. A list of these tunnels takes more than half a MiB.
const TUNNELS: usize = 10;

async fn inhabit(engine: &TestEngine) -> PlainAgent {
    let mut agent = PlainAgent::connect(engine).await;
    let labels: BTreeMap<_, _> = (0..14)
        .map(|number| (format!("k{number}"), "v".repeat(4096)))
        .collect();
    for number in 0..TUNNELS {
        let properties = TunnelProperties {
            labels: labels.clone().into_iter().collect(),
            ..raw_messages::http(&format!("web{number}"))
        };
        agent.open(properties).await.unwrap();
    }
    agent
}

struct Reader {
    sender: SendRequest<Bytes>,
    bearer: String,
    host: &'static str,
    _connection: AbortOnDropHandle<Result<(), h2::Error>>,
}

impl Reader {
    /// A client that reads 64 KiB of all its answers together, and the rest only on demand.
    async fn connect(engine: &TestEngine) -> Self {
        let config: Arc<_> = engine.ca().client(&["h2"]);
        let stream = engine.visitor().connect(engine.host(), &config).await;
        let (sender, connection) = h2::client::handshake(stream).await.unwrap();
        let permission = Permission::TunnelsResourcesReadOnly.as_str();
        let claims = json!({"permissions": [permission]});
        Self {
            sender,
            bearer: format!("Bearer {}", engine.token(claims)),
            host: engine.host(),
            _connection: AbortOnDropHandle::new(tokio::spawn(connection)),
        }
    }

    async fn get(&self, path: &str) -> http::Response<h2::RecvStream> {
        let request = http::Request::get(format!("https://{}{path}", self.host))
            .header("authorization", &self.bearer)
            .body(())
            .unwrap();
        let mut sender = self.sender.clone().ready().await.unwrap();
        let (answer, _) = sender.send_request(request, true).unwrap();
        within("answer", answer).await.unwrap()
    }

    /// Sends requests until one is refused. The earlier answers stay unread.
    async fn exhaust(&self, path: &str) -> Vec<http::Response<h2::RecvStream>> {
        let mut unread = Vec::new();
        for _ in 0..50 {
            let answer = self.get(path).await;
            if answer.status() == 503 {
                assert_eq!(answer.headers()["retry-after"], "5");
                return unread;
            }
            assert_eq!(answer.status(), 200);
            unread.push(answer);
        }
        panic!("{path} has no limit");
    }
}

/// The bytes of requested but unread lists and snapshots are limited.
#[tokio::test]
async fn unread_answers_have_a_limit() {
    let engine = TestEngine::start_with("limits: {max_buffered_bytes: 16777216}").await;
    // The limit of the streams is that of the process, and other tests run in it.
    transport::memory::set_limit(transport::memory::DEFAULT_LIMIT);
    let _agent = inhabit(&engine).await;
    let reader = Reader::connect(&engine).await;
    for path in ["/api/tunnels", "/api/sse"] {
        let unread = reader.exhaust(path).await;
        assert!((8..16).contains(&unread.len()), "{path}: {}", unread.len());
        // Small answers are still served.
        assert_eq!(reader.get("/api/auth").await.status(), 204);
        drop(unread);
        // The engine processes the resets one at a time.
        let room = async {
            loop {
                let list = reader.get("/api/tunnels").await;
                if list.status() == 200 {
                    break list;
                }
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        let mut list = within("room for a list", room).await;
        let mut whole = Vec::new();
        while let Some(piece) = within("piece", list.body_mut().data()).await {
            let piece = piece.unwrap();
            let flow = list.body_mut().flow_control();
            flow.release_capacity(piece.len()).unwrap();
            whole.extend_from_slice(&piece);
        }
        let whole: Vec<serde_json::Value> = serde_json::from_slice(&whole).unwrap();
        assert_eq!(whole.len(), TUNNELS);
    }
}

/// A client that does not read a list, or the first event of a stream, loses its stream.
#[tokio::test]
async fn an_unread_answer_is_aborted() {
    let engine = TestEngine::start_with("timeouts: {visitor_stall_seconds: 1}").await;
    let _agent = inhabit(&engine).await;
    let reader = Reader::connect(&engine).await;
    for path in ["/api/tunnels", "/api/sse"] {
        let mut unread = reader.get(path).await;
        assert_eq!(unread.status(), 200);
        let end = async {
            loop {
                match unread.body_mut().data().await {
                    Some(Ok(_)) => {}
                    end => break end,
                }
            }
        };
        let end = within("end of the answer", end).await;
        assert!(matches!(end, Some(Err(_))), "{path}: {end:?}");
    }
}
