//! The same session over each transport, at client and server.

use testing::within;

use super::link::{Link, Person};
use super::world::{A, SERVER, World};

/// A server with a WebSocket transport, like the published ones.
#[tokio::test]
async fn a_websocket_server_is_reached() {
    let mut world = World::with(|_| {}, true, "websocket").await;
    let (mut ann, mut shell, id) = world.session().await;
    let shown = world.wait_for_session(&id, |_| true).await;
    assert_eq!(shown["upstream_transport"], "websocket");
    ann.type_text("ls\r").await;
    shell.wait_for_input("ls\r").await;
    ann.wait_for_output("ls").await;
    shell.exits(4);
    ann.wait_for_close().await;
    assert_eq!(ann.closed.unwrap().return_code, 4);
    shell.wait_for_end().await;
}

/// A private server is dialled. Its sessions are managed as well, and other users can join them.
#[tokio::test]
async fn a_private_server_is_dialled() {
    for transport in ["plain", "websocket"] {
        let mut world = World::with(|_| {}, false, transport).await;
        assert_eq!(world.server.hostname, None);
        let dialler = world.engine.agent_at(A, &world.ann).await;
        let stream = within("a dial", dialler.dial(SERVER)).await.unwrap();
        let mut ann = Person::at(Link::plain(stream));
        ann.open(true).await;
        let mut shell = world.server.shell().await;
        let sessions = world.get("/api/webtty/sessions", &world.bob).await.1;
        assert_eq!(sessions[0]["downstream_transport"], "plain");
        let id = sessions[0]["id"].as_str().unwrap().to_owned();
        let (mut bob, _) = world.attach_and_join(&id, &world.bob).await;
        ann.type_text("ls\r").await;
        shell.wait_for_input("ls\r").await;
        bob.wait_for_output("ls").await;
        shell.exits(0);
        ann.wait_for_close().await;
        assert_eq!(ann.closed.unwrap().return_code, 0);
        bob.wait_for_close().await;
    }
}

/// A server with an unsupported transport is refused.
#[tokio::test]
async fn an_unsupported_transport_is_refused() {
    let world = World::with(|_| {}, true, "webtransport").await;
    assert_eq!(world.connect_client("", &world.ann).await.err(), Some(502));
    let (_, sessions) = world.get("/api/webtty/sessions", &world.ann).await;
    assert_eq!(sessions, serde_json::json!([]));
}
