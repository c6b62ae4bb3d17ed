//! A managed engine: updates of the platform take effect and survive its absence, and the engine
//! reports events to the platform.

mod closed_tunnels;
mod domains;
mod isolation;
mod reporting;
mod reserved_ports;
pub(crate) mod revoked;
mod servers;
mod tokens;
mod unknown_names;
mod updates;

use client::{Agent, Properties, Target};
use testing::{FakePlatform, RawVisitor, ReceivedResponse, TestEngine, TestTunnel, Upstream};

/// Endpoints of the two projects of these tests.
const A: &str = "aaaaaaaa";
const B: &str = "bbbbbbbb";

/// A platform with two projects, each with a user who may do everything there: `usr_ann` in the
/// first, `usr_ben` in the second. Each user has a token.
struct TwoProjects {
    platform: FakePlatform,
    ann: String,
    ben: String,
}

impl TwoProjects {
    async fn start() -> Self {
        let platform = FakePlatform::start().await;
        for (endpoint, user) in [(A, "usr_ann"), (B, "usr_ben")] {
            platform.add_project(endpoint);
            platform.add_member(user, &[endpoint]);
        }
        let (_, ann) = platform.add_pat("usr_ann");
        let (_, ben) = platform.add_pat("usr_ben");
        Self { platform, ann, ben }
    }
}

/// The host name of a project.
fn host(endpoint: &str) -> String {
    format!("{endpoint}.engine.localhost")
}

/// Sends a request to a project's Engine API.
async fn get(engine: &TestEngine, endpoint: &str, path: &str, token: &str) -> ReceivedResponse {
    let mut caller = ask(engine, endpoint, path, token).await;
    caller.answer().await
}

/// As [`get`], without waiting for the answer.
async fn ask(engine: &TestEngine, endpoint: &str, path: &str, token: &str) -> RawVisitor {
    let host = host(endpoint);
    let mut caller = engine.visitor().http1(&host).await;
    let bearer = format!("Authorization: Bearer {token}\r\n");
    caller.request("GET", path, &host, &bearer).await;
    caller
}

/// Opens the event stream of a project and reads the snapshot.
async fn watch(engine: &TestEngine, endpoint: &str, token: &str) -> RawVisitor {
    let mut watcher = ask(engine, endpoint, "/api/sse", token).await;
    assert_eq!(watcher.head().await.status, 200);
    let first = watcher.chunk().await.unwrap();
    assert!(first.starts_with(b"data: "), "{}", first.escape_ascii());
    watcher
}

/// Opens a tunnel to a service.
async fn publish(agent: Agent, properties: Properties, service: &Upstream) -> TestTunnel {
    let target: Target = service.addr().to_string().parse().unwrap();
    TestTunnel::open(agent, properties, target).await
}

/// Visits a published tunnel.
async fn visit(engine: &TestEngine, tunnel: &TestTunnel, target: &str) -> ReceivedResponse {
    let host = tunnel.hostname();
    engine.visitor().http1(host).await.get(target, host).await
}
