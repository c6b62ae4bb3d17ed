//! A tunnel that a caller of the Engine API closes: the messages to its agent, and what the agent does.

use client::{Agent, CloseReason, Properties, RefusalKind, Status};
use serde_json::json;
use testing::{RawVisitor, TestEngine, within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use wire::Kind;
use wire::message::{CloseTunnelRsp, ServerMessage};

use crate::agent::raw_messages;
use crate::agent::raw_messages::PlainAgent;
use crate::managed::revoked::{
    Duplex, assert_open, endless, ends, open, start_request, tcp_ports, tcp_visitor,
};
use crate::relay::Relay;

async fn call(engine: &TestEngine, method: &str, path: &str) -> RawVisitor {
    let mut caller = engine.visitor().http1(engine.host()).await;
    let bearer = format!("Authorization: Bearer {}\r\n", engine.token(json!({})));
    caller.request(method, path, engine.host(), &bearer).await;
    caller
}

async fn close(engine: &TestEngine, id: &str) -> u16 {
    let mut caller = call(engine, "DELETE", &format!("/api/tunnels/{id}")).await;
    caller.answer().await.status
}

async fn names(engine: &TestEngine) -> Vec<String> {
    let mut caller = call(engine, "GET", "/api/tunnels").await;
    let listed = caller.answer().await.json();
    let tunnels = listed.as_array().unwrap().iter();
    tunnels
        .map(|tunnel| tunnel["name"].as_str().unwrap_or_default().to_owned())
        .collect()
}

/// The protocol has a message for the end of a tunnel that its agent did not request. An agent of
/// another maker may open the tunnel again.
#[tokio::test]
async fn an_agent_is_notified_that_its_tunnel_is_closed_and_its_channel_stays() {
    let engine = TestEngine::start().await;
    let mut agent = PlainAgent::connect(&engine).await;
    let opened = agent.open(raw_messages::http("web")).await.unwrap();
    let tunnel_id = opened.id.unwrap().value;
    assert_eq!(close(&engine, &tunnel_id).await, 204);
    let host = "web.t.engine.localhost";
    let visit = engine.visitor().http1(host).await.get("/", host).await;
    assert_eq!(visit.status, 503, "offline");
    let message = ServerMessage::CLOSED_BY_CALLER.to_owned();
    assert_eq!(
        agent.channel.next().await,
        Some(Kind::ServerMessage(ServerMessage { message }))
    );
    assert_eq!(
        agent.channel.next().await,
        Some(Kind::CloseTunnelRsp(CloseTunnelRsp { tunnel_id }))
    );
    agent.open(raw_messages::http("web")).await.unwrap();
}

/// Our agent reports the reason and does not open the tunnel again, not even on its next channel,
/// on which it restores its other tunnel.
#[tokio::test]
async fn our_agent_does_not_open_a_closed_tunnel_again() {
    let engine = TestEngine::start().await;
    let relay = Relay::start(&engine).await;
    let agent = Agent::connect(relay.agent_config(&engine)).await.unwrap();
    let mut web = agent.open(Properties::private("web"));
    let mut kept = agent.open(Properties::private("kept"));
    let online = within("tunnel", web.online()).await.unwrap();
    let before = within("tunnel", kept.online()).await.unwrap();
    assert_eq!(close(&engine, &online.tunnel_id).await, 204);
    let mut status = web.status();
    let closed = status.wait_for(|status| matches!(status, Status::Closed(_)));
    let closed = within("end of the tunnel", closed).await.unwrap().clone();
    let Status::Closed(CloseReason::Refused(refusal)) = closed else {
        panic!("{closed:?}")
    };
    assert_eq!(refusal.kind, RefusalKind::ClosedByCaller);

    relay.cut(1);
    let mut status = kept.status();
    let back = status.wait_for(
        |status| matches!(status, Status::Online(now) if now.tunnel_id != before.tunnel_id),
    );
    within("reconnect", back).await.unwrap();
    assert_eq!(names(&engine).await, ["kept"]);
}

/// EN-7: the visits of a closed tunnel end without a platform, too. Those of another tunnel stay.
#[tokio::test]
async fn en_7_visits_of_a_closed_tunnel_end_without_a_platform() {
    let engine = TestEngine::start_with(&tcp_ports()).await;
    let agent = engine.agent().await;
    let service = endless().await;
    let web = open(agent.clone(), Properties::http(), &service).await;
    let tcp = open(agent.clone(), Properties::tcp(), &service).await;
    let private = open(agent.clone(), Properties::private("db"), &service).await;
    let other = open(agent, Properties::http(), &service).await;
    let dialler = engine.agent().await;
    let mut socket = tcp_visitor(&engine, &tcp).await;
    let mut dialled = within("a dial", dialler.dial("db")).await.unwrap();
    for stream in [&mut socket as &mut dyn Duplex, &mut dialled] {
        stream.write_all(b"x").await.unwrap();
        let mut ready = [0; 5];
        within("the service", stream.read_exact(&mut ready))
            .await
            .unwrap();
    }
    let download = start_request(&engine, web.hostname(), "/", None).await;
    let upgrade = start_request(&engine, web.hostname(), "/upgrade", None).await;
    let mut stays = start_request(&engine, other.hostname(), "/upgrade", None).await;
    let mut h2 = engine.visitor().h2(web.hostname()).await;
    let request = http::Request::get(format!("https://{}/", web.hostname()))
        .body(testing::H2Visitor::empty())
        .unwrap();
    let stream = h2.send(request).await.unwrap();
    assert_eq!(stream.status(), 200);
    for tunnel in [&web, &tcp, &private] {
        assert_eq!(close(&engine, &tunnel.online().tunnel_id).await, 204);
    }
    ends(download).await;
    ends(upgrade).await;
    assert!(!testing::H2Visitor::collect(stream).await.is_complete);
    for stream in [&mut socket as &mut dyn Duplex, &mut dialled] {
        let mut rest = Vec::new();
        // Either a reset or a close is an end.
        within("the end", stream.read_to_end(&mut rest)).await.ok();
    }
    assert_open(&mut stays).await;
}
