//! Moves to another process of the engine.

use std::fs;
use std::time::{Duration, Instant};

use svc_client::{Agent, CloseReason, Properties, RefusalKind, Status, Tunnel};
use wire::{
    Error, ErrorCode, Kind,
    message::{CloseTunnelRsp, MoveReq, ProxyConnReq, ServerMessage},
};

use super::{
    fake::{FakeEngine, Peer},
    until,
};

fn move_req() -> Kind {
    Kind::MoveReq(MoveReq {
        process: "0123456789abcdef".to_owned(),
    })
}

/// A visitor of a tunnel.
fn visitor(tunnel_id: &str) -> Kind {
    Kind::ProxyConnReq(ProxyConnReq {
        tunnel_id: tunnel_id.to_owned(),
        stream_id: "0123456789abcdef01234567".to_owned(),
        secret: Some("one-time".into()),
        source_ip: None,
        proxy_endpoint: None,
    })
}

/// An agent with the online tunnel `t-1`, which is asked to move, and its channel.
async fn asked_to_move() -> (FakeEngine, Agent, Tunnel, Peer) {
    let engine = FakeEngine::start().await;
    let agent = engine.agent();
    let tunnel = agent.open(Properties::http().named("demo"));
    let mut earlier = engine.control_with_tunnel().await;
    until(&tunnel, |status| matches!(status, Status::Online(_))).await;
    earlier.send(move_req()).await;
    (engine, agent, tunnel, earlier)
}

#[tokio::test]
async fn an_agent_is_online_at_the_new_process_before_it_reports_so() {
    let (engine, agent, tunnel, mut earlier) = asked_to_move().await;
    let mut next = engine.control().await;
    let request = next.tunnel_request().await;
    // Before the grant, the earlier channel reports no move: its next message is this refusal.
    earlier.send(visitor("unknown")).await;
    let refusal = earlier.next().await;
    assert!(matches!(refusal, Kind::ProxyConnRsp(_)), "{refusal:?}");
    next.grant(&request, "t-2").await;
    let answer = earlier.next().await;
    assert!(matches!(answer, Kind::MoveRsp(_)), "{answer:?}");
    until(
        &tunnel,
        |status| matches!(status, Status::Online(online) if online.tunnel_id == "t-2"),
    )
    .await;

    // The end of the earlier channel and of its tunnels is not the end of the tunnel.
    let tunnel_id = "t-1".to_owned();
    let closed = Kind::CloseTunnelRsp(CloseTunnelRsp { tunnel_id });
    earlier.send(closed).await;
    drop(earlier);
    // Another tunnel is requested only on the new channel.
    let _second = agent.open(Properties::http().named("second"));
    let request = next.tunnel_request().await;
    next.grant(&request, "t-3").await;
    let status = tunnel.status().borrow().clone();
    assert!(
        matches!(&status, Status::Online(online) if online.tunnel_id == "t-2"),
        "{status:?}"
    );
}

#[tokio::test]
async fn an_agent_that_cannot_reach_the_new_process_tries_again() {
    let (engine, _agent, tunnel, mut earlier) = asked_to_move().await;
    engine.drop_next().await;
    let mut next = engine.control().await;
    let status = tunnel.status().borrow().clone();
    assert!(
        matches!(&status, Status::Online(online) if online.tunnel_id == "t-1"),
        "{status:?}"
    );
    let request = next.tunnel_request().await;
    next.grant(&request, "t-2").await;
    let answer = earlier.next().await;
    assert!(matches!(answer, Kind::MoveRsp(_)), "{answer:?}");
}

/// The tunnel is requested again on the new channel only. The earlier one has nothing to do meanwhile.
#[tokio::test]
async fn an_earlier_channel_is_idle_while_a_tunnel_waits_for_its_next_request() {
    let engine = FakeEngine::start().await;
    let agent = engine.agent();
    let tunnel = agent.open(Properties::http());
    let mut earlier = engine.control().await;
    let request = earlier.tunnel_request().await;
    let unavailable = Error::service_unavailable("the engine is being replaced");
    earlier.refuse_tunnel(&request, unavailable).await;
    earlier.send(move_req()).await;
    let mut next = engine.control().await;
    let request = next.tunnel_request().await;
    next.grant(&request, "t-2").await;
    until(&tunnel, |status| matches!(status, Status::Online(_))).await;

    // The second one follows a second after the first one, when the wait is over.
    for _ in 0..2 {
        heartbeat(&mut earlier).await;
    }
    let (cpu_before, began) = (cpu_time(), Instant::now());
    // A late heartbeat is followed by the next one immediately.
    while began.elapsed() < Duration::from_secs(1) {
        heartbeat(&mut earlier).await;
    }
    let cpu = cpu_time().saturating_sub(cpu_before);
    let lasted = began.elapsed();
    assert!(cpu < lasted / 20, "{cpu:?} of CPU time in {lasted:?}");
}

/// CPU time of this thread, on which the agent runs as well. It does not depend on other programs.
fn cpu_time() -> Duration {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    let nanoseconds = text.split(' ').next().unwrap().parse().unwrap();
    Duration::from_nanos(nanoseconds)
}

/// Waits for the next heartbeat of a channel.
async fn heartbeat(channel: &mut Peer) {
    while !matches!(channel.next_of_any_kind().await, Kind::Heartbeat(_)) {}
}

#[tokio::test]
async fn a_tunnel_that_is_closed_after_a_move_accepts_no_visitor_of_the_old_process() {
    let (engine, _agent, tunnel, mut earlier) = asked_to_move().await;
    let mut next = engine.control().await;
    let request = next.tunnel_request().await;
    next.grant(&request, "t-2").await;
    let answer = earlier.next().await;
    assert!(matches!(answer, Kind::MoveRsp(_)), "{answer:?}");

    let closing = tokio::spawn(tunnel.close());
    let close = next.next().await;
    assert!(
        matches!(&close, Kind::CloseTunnelReq(close) if close.tunnel_id == "t-2"),
        "{close:?}"
    );
    earlier.send(visitor("t-1")).await;
    let answer = earlier.next().await;
    let Kind::ProxyConnRsp(answer) = answer else {
        panic!("{answer:?}");
    };
    assert_eq!(answer.error.unwrap().kind(), ErrorCode::TunnelNotFound);
    closing.abort();
}

/// A caller closed the tunnel `t-1` at the old process.
async fn close_by_caller(earlier: &mut Peer) {
    let message = ServerMessage::CLOSED_BY_CALLER.to_owned();
    let announced = Kind::ServerMessage(ServerMessage { message });
    earlier.send(announced).await;
    let tunnel_id = "t-1".to_owned();
    let closed = Kind::CloseTunnelRsp(CloseTunnelRsp { tunnel_id });
    earlier.send(closed).await;
}

/// Waits until the tunnel has ended because a caller closed it.
async fn closed_by_caller(tunnel: &Tunnel) {
    let status = until(tunnel, |status| matches!(status, Status::Closed(_))).await;
    let Status::Closed(CloseReason::Refused(refusal)) = status else {
        panic!("{status:?}")
    };
    assert_eq!(refusal.kind, RefusalKind::ClosedByCaller);
}

#[tokio::test]
async fn a_tunnel_that_the_old_process_closes_is_not_requested_from_the_new_one() {
    let (engine, agent, tunnel, mut earlier) = asked_to_move().await;
    let mut next = engine.accept().await;
    let hello = next.hello().await;
    close_by_caller(&mut earlier).await;
    // The refusal follows the end of the tunnel, because the agent handles messages in order.
    earlier.send(visitor("unknown")).await;
    let refusal = earlier.next().await;
    assert!(matches!(refusal, Kind::ProxyConnRsp(_)), "{refusal:?}");
    let _other = agent.open(Properties::http().named("other"));
    next.welcome(&hello).await;
    let request = next.tunnel_request().await;
    let name = request.tunnel_properties.clone().unwrap().name;
    assert_eq!(name.map(|name| name.value).as_deref(), Some("other"));
    closed_by_caller(&tunnel).await;
    // The move succeeds without that tunnel.
    next.grant(&request, "t-2").await;
    let answer = earlier.next().await;
    assert!(matches!(answer, Kind::MoveRsp(_)), "{answer:?}");
}

#[tokio::test]
async fn a_tunnel_that_the_old_process_closes_late_is_closed_at_the_new_one() {
    let (engine, _agent, tunnel, mut earlier) = asked_to_move().await;
    let mut next = engine.control().await;
    let request = next.tunnel_request().await;
    close_by_caller(&mut earlier).await;
    next.grant(&request, "t-2").await;
    let close = next.next().await;
    let Kind::CloseTunnelReq(close) = close else {
        panic!("{close:?}")
    };
    assert_eq!(close.tunnel_id, "t-2");
    let tunnel_id = close.tunnel_id;
    next.send(Kind::CloseTunnelRsp(CloseTunnelRsp { tunnel_id }))
        .await;
    closed_by_caller(&tunnel).await;
}

#[tokio::test]
async fn an_engine_that_moves_an_agent_repeatedly_loses_it() {
    let engine = FakeEngine::start().await;
    let _agent = engine.agent();
    let mut earlier = Vec::new();
    for _ in 0..8 {
        let mut channel = engine.control().await;
        channel.send(move_req()).await;
        earlier.push(channel);
    }
    let mut last = engine.control().await;
    last.send(move_req()).await;
    last.closed().await;
}
