//! Request limits per credential, per project, and per source that sends invalid tokens.

use std::sync::Arc;
use std::time::Duration;

use ::api::engine::{AUTH, Access, Method, OPERATIONS};
use engine::clock::ManualClock;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use jiff::Timestamp;
use serde_json::json;
use testing::{RawVisitor, ReceivedResponse, TestEngine};

use crate::world::{A, World};

const LIMITS: &str = "limits: {credential_requests_per_minute: 10, \
                      project_requests_per_minute: 12, invalid_tokens_per_minute: 10}";

/// A client that uses the Engine API over one connection.
struct Caller {
    connection: RawVisitor,
    host: String,
}

impl Caller {
    async fn from(world: &World, address: &str) -> Self {
        let host = format!("{A}.engine.localhost");
        let connection = world.visitor_from(address, &host).await;
        Self { connection, host }
    }

    async fn ask(&mut self, method: &str, path: &str, token: &str) -> ReceivedResponse {
        let bearer = format!("Authorization: Bearer {token}\r\nContent-Length: 0\r\n");
        let (connection, host) = (&mut self.connection, &self.host);
        connection.request(method, path, host, &bearer).await;
        connection.answer().await
    }

    async fn status(&mut self, token: &str) -> u16 {
        self.ask("GET", AUTH, token).await.status
    }

    /// Sends all requests that the credential has left, and returns their number.
    async fn exhaust(&mut self, token: &str) -> usize {
        for sent in 0..100 {
            match self.status(token).await {
                429 => return sent,
                status => assert!((200..=204).contains(&status), "{status}"),
            }
        }
        panic!("there is no limit");
    }
}

/// The answer to a request on a new connection.
async fn list_once(world: &World, token: &str) -> ReceivedResponse {
    let mut caller = Caller::from(world, "203.0.113.1").await;
    caller.ask("GET", "/api/tunnels", token).await
}

/// The limit covers every operation that authenticates its caller, including operations added
/// later.
#[tokio::test]
async fn no_operation_bypasses_the_rate_limit() {
    // A clock that stands still: no bucket gains a token.
    let now = Timestamp::now() + Duration::from_mins(1);
    let engine = TestEngine::start_at(LIMITS, &[], Arc::new(ManualClock::at(now))).await;
    let host = engine.host();
    let mut caller = Caller {
        connection: engine.visitor().http1(host).await,
        host: host.to_owned(),
    };
    let token = engine.token(json!({}));
    for operation in OPERATIONS {
        let method = match operation.method {
            Method::Get => "GET",
            Method::Post => "POST",
            Method::Delete => "DELETE",
        };
        caller.exhaust(&token).await;
        let path = operation.path.replace(['{', '}'], "");
        let answer = caller.ask(method, &path, &token).await;
        if operation.access == Access::Public {
            assert_eq!(answer.status, 200, "{}", operation.id);
            continue;
        }
        assert_eq!(answer.status, 429, "{}", operation.id);
        let wait: u32 = answer.header("retry-after").unwrap().parse().unwrap();
        assert!((1..=60).contains(&wait), "{}: {wait}", operation.id);
        let state = answer.header("ratelimit").unwrap();
        assert!(state.contains(r#""credential";r=0;"#), "{}", operation.id);
    }
}

/// One credential cannot use up the limit of its project. Credentials of other projects take
/// nothing from it.
#[tokio::test]
async fn all_credentials_of_a_project_share_a_limit() {
    let world = World::unhurried(LIMITS).await;
    world.platform.add_project("bbbbbbbb");
    world.platform.add_member("usr_eve", &["bbbbbbbb"]);
    let (_, strange) = world.platform.add_pat("usr_eve");
    let (_, second) = world.platform.add_pat("usr_ann");
    world.engine.wait_for_changes().await;
    // The engine waits for an update that makes the caller a member, but only as often as the rate
    // allows.
    let mut asked: FuturesUnordered<_> = (0..11).map(|_| list_once(&world, &strange)).collect();
    assert_eq!(asked.next().await.unwrap().status, 429);
    world.platform.add_member("usr_eve", &[A, "bbbbbbbb"]);
    while let Some(answer) = asked.next().await {
        assert_eq!(answer.status, 200);
        assert!(!answer.header("ratelimit").unwrap().contains("project"));
    }
    let mut caller = Caller::from(&world, "203.0.113.1").await;
    let answer = caller.ask("GET", "/api/tunnels", &world.token).await;
    assert_eq!(
        answer.header("ratelimit-policy").unwrap(),
        r#""credential";q=10;w=60, "project";q=12;w=60"#
    );
    let state = answer.header("ratelimit").unwrap();
    assert!(state.contains(r#""credential";r=9;t="#), "{state}");
    assert!(state.contains(r#""project";r=11;t="#), "{state}");
    assert_eq!(caller.exhaust(&world.token).await, 9);
    assert_eq!(caller.exhaust(&second).await, 2);
    // A bucket gains one token in 5 or 6 s.
    world.set_forward(Duration::from_secs(6));
    assert_eq!(caller.exhaust(&second).await, 1);
}

/// A source that tries many tokens is refused without verification. Tokens verified earlier are
/// still accepted from there, and tokens from other sources are not affected.
#[tokio::test]
async fn a_source_with_bad_tokens_is_refused_without_verification() {
    let world = World::with(LIMITS).await;
    let (_, unknown) = world.platform.add_pat("usr_ann");
    world.engine.wait_for_changes().await;
    let mut caller = Caller::from(&world, "203.0.113.1").await;
    assert_eq!(caller.status(&world.token).await, 204);
    let mut refused = 0;
    let limited = loop {
        let bad = format!("{}{refused}", world.token);
        match caller.ask("GET", AUTH, &bad).await {
            answer if answer.status == 401 => refused += 1,
            answer => break answer,
        }
        assert!(refused < 100, "there is no limit");
    };
    assert_eq!(limited.status, 429);
    assert!(limited.header("retry-after").is_some());
    assert!(refused >= 10, "{refused}");
    assert_eq!(caller.status(&world.token).await, 204);
    let mut neighbour = Caller::from(&world, "203.0.113.2").await;
    assert_eq!(neighbour.status(&unknown).await, 204);
    assert_eq!(caller.status(&unknown).await, 204, "verified by now");
}
