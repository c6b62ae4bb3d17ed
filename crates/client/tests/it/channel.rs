//! The control channel: hello, heartbeats, loss and reconnection, takeover, close.

use std::time::{Duration, Instant};

use svc_client::{
    CloseReason, Properties, RefusalKind, Status, agent::AgentStatus, properties::LinkPassword,
};
use tokio::time::timeout;
use wire::{
    Error, Kind,
    message::{
        CloseControlChannelRsp, CloseTunnelRsp, ControlChannelLiveness, ControlChannelOutcome,
        Heartbeat, OpenControlChannelRsp, PoolReq, ServerMessage, text,
    },
};

use super::{
    fake::{FakeEngine, Peer, SOON},
    until,
};

#[tokio::test]
async fn an_agent_identifies_itself_and_its_tunnel_comes_online() {
    let engine = FakeEngine::start().await;
    let mut config = engine.config();
    config.labels.insert("site".to_owned(), "bern".to_owned());
    let agent = svc_client::Agent::start(config).unwrap();
    let mut tunnel = agent.open(Properties::http().named("demo"));

    let mut channel = engine.accept().await;
    let hello = channel.hello().await;
    let details = hello.client_details.clone().unwrap();
    assert_eq!(text(details.os.as_ref()), Some(std::env::consts::OS));
    assert_eq!(details.labels["site"], "bern");
    assert_eq!(
        details.extensions,
        ["pool/1", "lane/2", "exchange/1", "move/1"]
    );
    assert_eq!(hello.liveness.unwrap().heartbeat_interval_ms, 1000);
    channel.welcome(&hello).await;
    let request = channel.tunnel_request().await;
    assert_eq!(
        text(request.tunnel_properties.as_ref().unwrap().name.as_ref()),
        Some("demo")
    );
    channel.grant(&request, "t-1").await;

    let online = timeout(SOON, tunnel.online()).await.unwrap().unwrap();
    assert_eq!(
        (online.tunnel_id.as_str(), online.client_id.as_str()),
        ("t-1", "cli_1")
    );
    assert_eq!(
        online.forwarding,
        format!(
            "https://demo.t.engine.localhost:{}",
            engine.config().engine.port()
        )
    );
    assert_eq!(agent.online().await.unwrap(), "cli_1");
}

/// Properties with a short lifetime are created again for each connection.
#[tokio::test]
async fn properties_are_renewed_after_a_reconnect() {
    let engine = FakeEngine::start().await;
    let agent = engine.agent();
    let turn = std::sync::atomic::AtomicU32::new(1);
    let renew = move |properties: &mut Properties| {
        let turn = turn.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        properties
            .labels
            .insert("turn".to_owned(), turn.to_string());
    };
    let _tunnel = agent.open_renewed(Properties::http(), renew);
    for turn in ["1", "2"] {
        let mut channel = engine.control().await;
        let request = channel.tunnel_request().await;
        assert_eq!(request.tunnel_properties.unwrap().labels["turn"], turn);
        // Dropped here, so the agent reconnects.
    }
}

/// EN-9: an assigned name is requested again after a reconnect, as long as it is available.
#[tokio::test]
async fn an_assigned_name_is_requested_again_and_dropped_when_it_is_refused() {
    let engine = FakeEngine::start().await;
    let agent = engine.agent();
    let mut tunnel = agent.open(Properties::http());
    let name = |request: &wire::message::OpenTunnelReq| {
        let properties = request.tunnel_properties.as_ref().unwrap();
        text(properties.hostname.as_ref()).map(str::to_owned)
    };
    let mut channel = engine.control().await;
    let request = channel.tunnel_request().await;
    assert_eq!(name(&request), None);
    channel.grant(&request, "t-1").await;
    let online = timeout(SOON, tunnel.online()).await.unwrap().unwrap();
    let drawn = online.properties.hostname.clone();
    assert!(drawn.is_some());

    drop(channel);
    let mut channel = engine.control().await;
    let request = channel.tunnel_request().await;
    assert_eq!(name(&request), drawn);
    channel
        .refuse_tunnel(&request, Error::unauthorized("somebody else has it"))
        .await;
    let request = channel.tunnel_request().await;
    assert_eq!(name(&request), None);
    channel.grant(&request, "t-2").await;
    let mut status = tunnel.status();
    let again =
        |status: &Status| matches!(status, Status::Online(online) if online.tunnel_id == "t-2");
    timeout(SOON, status.wait_for(again))
        .await
        .unwrap()
        .unwrap();
}

/// An engine that ignores the field would forward visitors' own headers with these names.
#[tokio::test]
async fn an_engine_without_identities_is_refused_and_its_tunnel_closed() {
    let engine = FakeEngine::start().await;
    let agent = engine.agent();
    let identity = vec!["email=remote-user".to_owned()];
    let mut tunnel = agent.open(Properties::http().svc_auth(true).identity(identity.clone()));
    let mut channel = engine.control().await;
    let mut request = channel.tunnel_request().await;
    let requested = request.tunnel_properties.as_mut().unwrap();
    assert_eq!(std::mem::take(&mut requested.identity), identity);
    channel.grant(&request, "t-1").await;
    let error = timeout(SOON, tunnel.online()).await.unwrap().unwrap_err();
    assert_eq!(error.refusal().unwrap().kind, RefusalKind::NotAvailable);
    assert!(
        error.to_string().contains("does not support `identity`"),
        "{error}"
    );
    let Kind::CloseTunnelReq(close) = channel.next().await else {
        panic!("the tunnel stays open");
    };
    assert_eq!(close.tunnel_id, "t-1");
}

/// An engine that ignores the field would admit every visitor.
#[tokio::test]
async fn an_engine_without_link_passwords_is_refused_and_its_tunnel_closed() {
    let engine = FakeEngine::start().await;
    let agent = engine.agent();
    let entry = LinkPassword::new("ann", "$argon2id$v=19$m=8,t=1,p=1$c2FsdA$aGFzaA");
    let mut tunnel = agent.open(Properties::http().link_passwords(vec![entry]));
    let mut channel = engine.control().await;
    let mut request = channel.tunnel_request().await;
    let requested = request.tunnel_properties.as_mut().unwrap();
    let sent = std::mem::take(&mut requested.basic_auth);
    assert_eq!(sent.len(), 1);
    assert_eq!(sent[0].user, "ann");
    channel.grant(&request, "t-1").await;
    let error = timeout(SOON, tunnel.online()).await.unwrap().unwrap_err();
    assert_eq!(error.refusal().unwrap().kind, RefusalKind::NotAvailable);
    assert!(
        error.to_string().contains("does not support `basic_auth`"),
        "{error}"
    );
    let Kind::CloseTunnelReq(close) = channel.next().await else {
        panic!("the tunnel stays open");
    };
    assert_eq!(close.tunnel_id, "t-1");
}

#[tokio::test]
async fn a_refused_hello_ends_the_agent_and_its_tunnels() {
    let engine = FakeEngine::start().await;
    let agent = engine.agent();
    let mut tunnel = agent.open(Properties::http());
    let mut channel = engine.accept().await;
    channel.hello().await;
    channel
        .send(Kind::OpenControlChannelRsp(OpenControlChannelRsp {
            outcome: Some(ControlChannelOutcome::Error(Error::unauthorized(
                "the token is bad",
            ))),
        }))
        .await;
    let error = timeout(SOON, tunnel.online()).await.unwrap().unwrap_err();
    assert_eq!(error.refusal().unwrap().kind, RefusalKind::Unauthorized);
    assert_eq!(error.to_string(), "the token is bad");
    let mut status = agent.status();
    let ended = |status: &AgentStatus| matches!(status, AgentStatus::Ended(Some(_)));
    timeout(SOON, status.wait_for(ended))
        .await
        .unwrap()
        .unwrap();
}

#[tokio::test]
async fn heartbeats_start_immediately_and_increase() {
    let engine = FakeEngine::start().await;
    let mut config = engine.config();
    config.heartbeat = Duration::from_millis(100);
    let _agent = svc_client::Agent::start(config).unwrap();
    let mut channel = engine.control().await;
    for expected in 1..=3 {
        let Kind::Heartbeat(heartbeat) = channel.next_of_any_kind().await else {
            panic!("not a heartbeat");
        };
        assert_eq!(heartbeat.sequence, expected);
        let acknowledgement = heartbeat.sequence;
        channel
            .send(Kind::Heartbeat(Heartbeat {
                sequence: 0,
                acknowledgement,
            }))
            .await;
    }
}

#[tokio::test]
async fn a_silent_engine_is_dropped_after_the_timeout_and_tried_again() {
    let engine = FakeEngine::start().await;
    let agent = engine.agent();
    let tunnel = agent.open(Properties::http());
    let mut channel = engine.accept().await;
    let hello = channel.hello().await;
    let liveness = ControlChannelLiveness {
        heartbeat_interval_ms: 1000,
        heartbeat_timeout_ms: 1000,
    };
    // The connection stays open and silent from here on.
    channel.welcome_with(&hello, Some(liveness)).await;
    until(&tunnel, |status| {
        matches!(status, Status::Disconnected { .. })
    })
    .await;
    let _channel = engine.control_with_tunnel().await;
    until(&tunnel, |status| matches!(status, Status::Online(_))).await;
}

/// A process that was suspended until the deadline of the engine reads the messages that arrived
/// before it. The deadline and the data are noticed at the same time, so the order is tried more
/// than once.
#[tokio::test]
async fn an_engine_is_not_silent_while_its_messages_are_unread() {
    let engine = FakeEngine::start().await;
    let silence = Duration::from_secs(1);
    let liveness = ControlChannelLiveness {
        heartbeat_interval_ms: 1000,
        heartbeat_timeout_ms: 1000,
    };
    for _ in 0..4 {
        let agent = engine.agent();
        let mut channel = engine.accept().await;
        let hello = channel.hello().await;
        channel.welcome_with(&hello, Some(liveness)).await;
        expect_heartbeat(&mut channel, 1).await;
        let message = "an unread message".to_owned();
        channel
            .send(Kind::ServerMessage(ServerMessage { message }))
            .await;
        // The agent and this test share a thread, so neither runs here.
        let suspended_at = Instant::now();
        while suspended_at.elapsed() <= silence {
            std::hint::spin_loop();
        }
        expect_heartbeat(&mut channel, 2).await;
        drop(agent);
    }
}

async fn expect_heartbeat(channel: &mut Peer, sequence: u64) {
    let expected = Heartbeat {
        sequence,
        acknowledgement: 0,
    };
    assert_eq!(channel.next_of_any_kind().await, Kind::Heartbeat(expected));
}

#[tokio::test]
async fn after_a_loss_every_tunnel_is_restored() {
    let engine = FakeEngine::start().await;
    let agent = engine.agent();
    let first = agent.open(Properties::http().named("first"));
    let second = agent.open(Properties::tcp().named("second"));
    for round in 0..3 {
        let mut channel = engine.control().await;
        for id in ["t-1", "t-2"] {
            let request = channel.tunnel_request().await;
            channel.grant(&request, &format!("{id}-{round}")).await;
        }
        for (tunnel, id) in [(&first, "t-1"), (&second, "t-2")] {
            let wanted = format!("{id}-{round}");
            until(
                tunnel,
                |status| matches!(status, Status::Online(online) if online.tunnel_id == wanted),
            )
            .await;
        }
        drop(channel);
        let lost = until(&first, |status| {
            matches!(status, Status::Disconnected { .. })
        })
        .await;
        let Status::Disconnected { retry_in, .. } = lost else {
            unreachable!()
        };
        assert!(
            round > 0 || retry_in <= Duration::from_millis(100),
            "{retry_in:?}"
        );
    }
}

#[tokio::test]
async fn a_tunnel_that_the_engine_cannot_serve_now_is_retried() {
    let engine = FakeEngine::start().await;
    let agent = engine.agent();
    let tunnel = agent.open(Properties::http());
    let mut channel = engine.control().await;
    let request = channel.tunnel_request().await;
    channel
        .refuse_tunnel(&request, Error::service_unavailable("starting"))
        .await;
    until(&tunnel, |status| {
        matches!(status, Status::Disconnected { .. })
    })
    .await;
    let request = channel.tunnel_request().await;
    channel.grant(&request, "t-1").await;
    until(&tunnel, |status| matches!(status, Status::Online(_))).await;
}

#[tokio::test]
async fn a_refused_tunnel_ends_and_the_others_continue() {
    let engine = FakeEngine::start().await;
    let agent = engine.agent();
    let mut refused = agent.open(Properties::http().challenge_mode(true));
    let mut channel = engine.control().await;
    let request = channel.tunnel_request().await;
    channel
        .refuse_tunnel(&request, Error::feature_not_available("challenge_mode"))
        .await;
    let error = timeout(SOON, refused.online()).await.unwrap().unwrap_err();
    assert_eq!(error.refusal().unwrap().kind, RefusalKind::NotAvailable);
    assert!(error.to_string().contains("challenge_mode"), "{error}");

    let other = agent.open(Properties::http());
    let request = channel.tunnel_request().await;
    channel.grant(&request, "t-2").await;
    until(&other, |status| matches!(status, Status::Online(_))).await;
}

#[tokio::test]
async fn a_tunnel_that_was_taken_over_is_not_requested_again() {
    is_not_requested_again(ServerMessage::TAKEN_OVER, RefusalKind::TakenOver).await;
}

#[tokio::test]
async fn a_tunnel_that_a_caller_of_the_api_closed_is_not_requested_again() {
    is_not_requested_again(ServerMessage::CLOSED_BY_CALLER, RefusalKind::ClosedByCaller).await;
}

/// The engine announces a reason and closes a tunnel. The agent requests only another one, also on
/// its next channel.
async fn is_not_requested_again(announced: &str, kind: RefusalKind) {
    let engine = FakeEngine::start().await;
    let agent = engine.agent();
    let tunnel = agent.open(Properties::http().named("closed"));
    let mut channel = engine.control_with_tunnel().await;
    channel
        .send(Kind::ServerMessage(ServerMessage {
            message: announced.to_owned(),
        }))
        .await;
    channel
        .send(Kind::CloseTunnelRsp(CloseTunnelRsp {
            tunnel_id: "t-1".to_owned(),
        }))
        .await;
    let status = until(&tunnel, |status| matches!(status, Status::Closed(_))).await;
    let Status::Closed(CloseReason::Refused(refusal)) = status else {
        panic!("{status:?}")
    };
    assert_eq!(refusal.kind, kind);

    drop(channel);
    let _other = agent.open(Properties::http().named("other"));
    let mut channel = engine.control().await;
    let request = channel.tunnel_request().await;
    assert_eq!(
        text(request.tunnel_properties.unwrap().name.as_ref()),
        Some("other")
    );
}

#[tokio::test]
async fn a_dropped_tunnel_is_closed_at_the_engine() {
    let engine = FakeEngine::start().await;
    let agent = engine.agent();
    let tunnel = agent.open(Properties::http());
    let mut channel = engine.control_with_tunnel().await;
    until(&tunnel, |status| matches!(status, Status::Online(_))).await;
    let closing = tokio::spawn(tunnel.close());
    let Kind::CloseTunnelReq(close) = channel.next().await else {
        panic!("not a close")
    };
    assert_eq!(close.tunnel_id, "t-1");
    channel
        .send(Kind::CloseTunnelRsp(CloseTunnelRsp {
            tunnel_id: close.tunnel_id,
        }))
        .await;
    timeout(SOON, closing).await.unwrap().unwrap();
}

#[tokio::test]
async fn an_agent_that_closes_sends_a_goodbye_and_waits_for_the_confirmation() {
    let engine = FakeEngine::start().await;
    let agent = engine.agent();
    let tunnel = agent.open(Properties::http());
    let mut channel = engine.control_with_tunnel().await;
    let closing = tokio::spawn(async move { agent.close(SOON).await });
    let Kind::CloseControlChannelReq(_) = channel.next().await else {
        panic!("not a close")
    };
    channel
        .send(Kind::CloseControlChannelRsp(CloseControlChannelRsp {}))
        .await;
    assert!(timeout(SOON, closing).await.unwrap().unwrap());
    until(&tunnel, |status| {
        *status == Status::Closed(CloseReason::Asked)
    })
    .await;
    channel.closed().await;
}

#[tokio::test]
async fn an_untrusted_engine_does_not_receive_the_token() {
    let engine = FakeEngine::start().await;
    let mut config = engine.config();
    config.trust = svc_client::Trust::Roots(vec![]);
    let agent = svc_client::Agent::start(config).unwrap();
    let failed = |status: &AgentStatus| matches!(status, AgentStatus::Disconnected { .. });
    let mut status = agent.status();
    let refused = tokio::spawn(async move { engine.accept_failing().await });
    let seen = timeout(SOON, status.wait_for(failed))
        .await
        .unwrap()
        .unwrap()
        .clone();
    let AgentStatus::Disconnected { error, .. } = seen else {
        unreachable!()
    };
    assert!(error.contains("TLS handshake"), "{error}");
    refused.await.unwrap();
}

#[tokio::test]
async fn a_channel_without_a_data_path_is_dropped_and_tried_again() {
    let engine = FakeEngine::start().await;
    let agent = engine.agent();
    let tunnel = agent.open(Properties::http());
    let mut channel = engine.control_with_tunnel().await;
    until(&tunnel, |status| matches!(status, Status::Online(_))).await;
    let request = PoolReq {
        secret: "pool".to_owned(),
        count: 5,
        idle_timeout_ms: 60_000,
    };
    channel.send(Kind::PoolReq(request)).await;
    for _ in 0..5 {
        engine.drop_next().await;
    }
    let lost = until(&tunnel, |status| {
        matches!(status, Status::Disconnected { .. })
    })
    .await;
    let Status::Disconnected { error, .. } = lost else {
        unreachable!()
    };
    assert!(error.contains("data connection"), "{error}");
    let _channel = engine.control_with_tunnel().await;
    until(&tunnel, |status| matches!(status, Status::Online(_))).await;
}
