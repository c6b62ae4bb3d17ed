//! Agents that break the protocol, flood, or do not read. An agent that never reads and one that
//! falls silent cost a wait on the real clock, so both tests run in parallel.

use std::time::{Duration, Instant};

use client::{Agent, Properties, Target};
use testing::{TestEngine, TestTunnel, Upstream, within};
use tokio::io::AsyncWriteExt;
use wire::message::{
    ClientDetails, CloseTunnelReq, Heartbeat, OpenControlChannelReq, OpenTunnelReq, ProxyConnRsp,
    ProxyReq, StreamReq, TunnelProperties,
};
use wire::{ErrorCode, Kind};

use super::Site;
use crate::agent::raw_messages;
use crate::agent::raw_messages::{PlainAgent, Wire};
use crate::relay::Relay;

fn hello(engine: &TestEngine) -> Kind {
    Kind::OpenControlChannelReq(OpenControlChannelReq {
        client_details: Some(raw_messages::details(engine, serde_json::json!({}))),
        liveness: None,
    })
}

/// Messages that start a connection, sent within one. The channel ends with a reason.
#[tokio::test]
async fn a_message_out_of_order_ends_the_channel() {
    let site = Site::start().await;
    let engine = &site.engine;
    let first = || raw_messages::details(engine, serde_json::json!({}));
    for (case, kind) in [
        ("a second hello", hello(engine)),
        (
            "a dial",
            Kind::StreamReq(StreamReq {
                client_details: Some(first()),
                tunnel_id_name: "db".to_owned(),
                ..StreamReq::default()
            }),
        ),
        (
            "a data connection",
            Kind::ProxyReq(ProxyReq {
                client_details: Some(first()),
                ..ProxyReq::default()
            }),
        ),
    ] {
        let mut agent = PlainAgent::connect(engine).await;
        agent.open(raw_messages::http("web")).await.unwrap();
        agent.channel.send(kind).await;
        let messages = agent.channel.rest().await;
        assert!(
            matches!(messages[..], [Kind::ServerMessage(_)]),
            "{case}: {messages:?}"
        );
    }
    // Messages of a channel, sent before there is a channel.
    for (case, kind) in [
        ("a heartbeat", Kind::Heartbeat(Heartbeat::default())),
        (
            "a tunnel",
            Kind::OpenTunnelReq(OpenTunnelReq {
                request_id: "1".to_owned(),
                tunnel_properties: Some(raw_messages::http("web")),
            }),
        ),
    ] {
        let mut connection = Wire::connect(engine).await;
        connection.send(kind).await;
        let messages = connection.rest().await;
        assert!(
            matches!(messages[..], [] | [Kind::OpenControlChannelRsp(_)]),
            "{case}: {messages:?}"
        );
    }
    site.check_untouched().await;
}

/// An agent that keeps opening tunnels is served up to the limit and then refused. Ids of other
/// agents have no effect.
#[tokio::test]
async fn an_agent_has_a_limit_of_tunnels() {
    let site = Site::with("limits: {max_tunnels_per_client: 3}").await;
    let mut agent = PlainAgent::connect(&site.engine).await;
    for number in 0..3 {
        agent
            .open(raw_messages::http(&format!("w{number}")))
            .await
            .unwrap();
    }
    for number in 3..200 {
        let refused = agent.open(raw_messages::http(&format!("w{number}"))).await;
        assert_eq!(refused.unwrap_err().kind(), ErrorCode::CapacityExhausted);
    }
    let id = site.tunnel.online().tunnel_id.clone();
    let long = "0".repeat(10_000);
    for tunnel_id in [id.as_str(), "", "x", &long] {
        let close = CloseTunnelReq {
            tunnel_id: tunnel_id.to_owned(),
        };
        agent.channel.send(Kind::CloseTunnelReq(close)).await;
        let answer = agent.channel.next().await;
        assert!(
            matches!(answer, Some(Kind::CloseTunnelRsp(_))),
            "{answer:?}"
        );
    }
    site.check_untouched().await;
}

/// An agent that opens and closes tunnels without end is read more slowly. Nothing else happens to
/// it.
#[tokio::test]
async fn an_agent_with_endless_changes_is_slowed_down() {
    const BATCH: usize = 100;
    /// More than the burst of 20,000 changes. The rest are accepted at 100 per second.
    const BATCHES: usize = 203;
    let site = Site::start().await;
    let mut agent = PlainAgent::connect(&site.engine).await;
    // Closing a tunnel counts whether it exists or not.
    let mut batch = Vec::new();
    for _ in 0..BATCH {
        let tunnel_id = "x".to_owned();
        let close = Kind::CloseTunnelReq(CloseTunnelReq { tunnel_id });
        wire::encode(&close.into(), &mut batch).unwrap();
    }
    let started_at = Instant::now();
    for _ in 0..BATCHES {
        agent.channel.send_bytes(&batch).await;
        for _ in 0..BATCH {
            let answer = agent.channel.next().await;
            let is_answer = matches!(answer, Some(Kind::CloseTunnelRsp(_)));
            assert!(is_answer, "{answer:?}");
        }
    }
    let took = started_at.elapsed();
    assert!(took >= Duration::from_millis(2_900), "{took:?}");
    agent.open(raw_messages::http("web")).await.unwrap();
    site.check_untouched().await;
}

/// Properties that are too large, too many or useless are refused one by one. The channel stays
/// open.
#[tokio::test]
async fn properties_have_limits() {
    let site = Site::start().await;
    let mut agent = PlainAgent::connect(&site.engine).await;
    let long = "x".repeat(5_000);
    let labels = |count: usize| {
        (0..count)
            .map(|number| (format!("k{number}"), "v".to_owned()))
            .collect()
    };
    for (case, properties) in [
        (
            "a long name",
            TunnelProperties {
                name: Some(long.clone().into()),
                ..raw_messages::http("web")
            },
        ),
        (
            "many labels",
            TunnelProperties {
                labels: labels(1_000),
                ..raw_messages::http("web")
            },
        ),
        (
            "a long label",
            TunnelProperties {
                labels: [("k".to_owned(), long.clone())].into(),
                ..raw_messages::http("web")
            },
        ),
        (
            "a protocol that is none",
            TunnelProperties {
                protocol: Some("gopher".into()),
                ..raw_messages::http("web")
            },
        ),
    ] {
        let refused = agent.open(properties).await;
        let code = refused.map(drop).map_err(|error| error.kind());
        assert_eq!(code, Err(ErrorCode::InvalidRequest), "{case}");
    }
    agent.open(raw_messages::http("web")).await.unwrap();
    for (bytes, is_taken) in [(256, true), (257, false)] {
        let details = ClientDetails {
            agent: Some("x".repeat(bytes).into()),
            ..raw_messages::details(&site.engine, serde_json::json!({}))
        };
        let mut channel = Wire::connect(&site.engine).await;
        let hello = channel.hello(Some(details), None).await;
        let refused = hello.err().map(|error| error.kind());
        let expected = (!is_taken).then_some(ErrorCode::InvalidRequest);
        assert_eq!(refused, expected, "{bytes} bytes of a detail");
    }
    site.check_untouched().await;
}

/// A standing connection is identified by its secret and usable for one purpose.
#[tokio::test]
async fn a_standing_connection_cannot_be_guessed_or_misused() {
    let site = Site::start().await;
    for secret in ["", "0", &"0".repeat(64), &"f".repeat(10_000)] {
        let mut connection = Wire::connect(&site.engine).await;
        let mut details = raw_messages::details(&site.engine, serde_json::json!({}));
        details.token = Some(secret.into());
        let request = ProxyReq {
            client_details: Some(details),
            ..ProxyReq::default()
        };
        connection.send(Kind::ProxyReq(request)).await;
        assert_eq!(connection.rest().await, [], "{}", secret.len());
    }
    site.check_untouched().await;
}

/// An agent that sends requests and never reads is disconnected after a timeout. Until then it only
/// occupies the buffers of its connection.
#[tokio::test]
async fn an_agent_that_never_reads_is_disconnected() {
    let site = Site::start().await;
    let mut agent = PlainAgent::connect(&site.engine).await;
    agent.open(raw_messages::http("deaf")).await.unwrap();
    let mut frame = Vec::new();
    let close = CloseTunnelReq {
        tunnel_id: "0".repeat(30_000),
    };
    wire::encode(&Kind::CloseTunnelReq(close).into(), &mut frame).unwrap();
    let mut stream = agent.channel.into_stream();
    let flooding = async {
        // Each request gets an answer of the same length, on a connection that the agent does not
        // read.
        while stream.write_all(&frame).await.is_ok() {}
    };
    let host = "deaf.t.engine.localhost";
    let gone = async {
        loop {
            // Other tunnels are served in the meantime.
            site.check_other_tunnel().await;
            let mut visitor = site.engine.visitor().http1(host).await;
            visitor.request("HEAD", "/", host, "").await;
            let asking = visitor.head();
            // Its visitor waits until the agent counts as offline.
            let answer = tokio::time::timeout(Duration::from_millis(200), asking).await;
            if answer.is_ok_and(|head| head.status == 503) {
                break;
            }
        }
    };
    tokio::select! {
        () = within("end of the channel", gone) => {}
        () = flooding => {}
    }
    site.check_untouched().await;
}

/// A visitor gets an error in time if the agent never opens the requested stream, and so does a
/// dialling client. The agent's other streams continue.
#[tokio::test]
async fn an_agent_that_opens_no_streams_affects_only_its_own_visitors() {
    let site = Site::start().await;
    let mut idle = PlainAgent::connect(&site.engine).await;
    idle.open(raw_messages::http("idle")).await.unwrap();
    let host = "idle.t.engine.localhost";
    let mut visitor = site.engine.visitor().http1(host).await;
    visitor.request("GET", "/", host, "").await;
    let asked = idle.next_stream_request().await;
    site.check_both_tunnels().await;
    // The wait ends immediately when the channel closes.
    drop(idle);
    let answer = visitor.answer().await;
    assert_eq!(answer.status, 502);
    let secret = asked.secret.unwrap().value;
    let late = raw_messages::bring(&site.engine, &asked.stream_id, &secret, false).await;
    assert!(late.is_err());
    let service = Upstream::http1().await;
    let tunnel = site.engine.publish(service.addr()).await;
    let host = tunnel.hostname();
    let answer = site.engine.visitor().http1(host).await.get("/", host).await;
    assert_eq!(answer.status, 200);
}

/// The engine has requested a visitor's stream from an agent that loses the tunnel at that moment.
/// The visitor gets a stream of the new holder, unless the new tunnel has other settings, for which
/// the visitor was not checked.
#[tokio::test]
async fn a_visitor_during_a_takeover_is_served_by_the_new_holder() {
    let site = Site::start().await;
    let host = "web.t.engine.localhost";
    for h2 in [false, true] {
        for guarded in [false, true] {
            let mut old = PlainAgent::connect(&site.engine).await;
            old.open(raw_messages::http("web")).await.unwrap();
            let visitor = site.engine.visitor();
            let visit = tokio::spawn(async move {
                if h2 {
                    visitor.h2(host).await.get("/", host).await
                } else {
                    visitor.http1(host).await.get("/", host).await
                }
            });
            let asked = old.next_stream_request().await;
            let mut new = PlainAgent::connect(&site.engine).await;
            let settings = TunnelProperties {
                token_auth: guarded.then(|| true.into()),
                ..raw_messages::http("web")
            };
            new.open(settings).await.unwrap();
            let refusal = ProxyConnRsp {
                stream_id: asked.stream_id,
                error: Some(wire::Error::invalid_stream("not mine any more")),
            };
            old.channel.send(Kind::ProxyConnRsp(refusal)).await;
            if guarded {
                assert_eq!(visit.await.unwrap().status, 502, "h2: {h2}");
                continue;
            }
            let asked = new.next_stream_request().await;
            let secret = asked.secret.unwrap().value;
            let brought = raw_messages::bring(&site.engine, &asked.stream_id, &secret, true).await;
            let mut stream = brought.unwrap().into_stream();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nnew";
            stream.write_all(answer).await.unwrap();
            stream.flush().await.unwrap();
            let answer = visit.await.unwrap();
            assert_eq!((answer.status, answer.text()), (200, "new"), "h2: {h2}");
        }
    }
}

/// A network whose connections can be frozen, and a tunnel behind it that has served a request. The
/// time limit of its requests is long enough for that one.
async fn freezable(site: &Site, heartbeat: Duration) -> (Relay, TestTunnel) {
    let engine = &site.engine;
    let relay = Relay::start(engine).await;
    let mut config = relay.agent_config(engine);
    config.heartbeat = heartbeat;
    let agent = Agent::connect(config).await.unwrap();
    let target: Target = site.service.addr().to_string().parse().unwrap();
    let properties = Properties::http().time_to_first_byte_seconds(10);
    let tunnel = TestTunnel::open(agent, properties, target).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    assert_eq!(visitor.get("/", host).await.status, 200);
    (relay, tunnel)
}

/// An agent whose network accepts all data and never answers. Its visitors get an error in time. The
/// engine does not notice the silence of the agent meanwhile.
#[tokio::test]
async fn an_agent_that_vanishes_silently_affects_only_its_own_visitors() {
    let site = Site::start().await;
    let engine = &site.engine;
    let (relay, tunnel) = freezable(&site, Duration::from_mins(5)).await;
    let host = tunnel.hostname();
    relay.freeze_all();
    // The first request uses the connection that served the last one. The others try new ones.
    let visit = async || {
        let mut visitor = engine.visitor().http1(host).await;
        let answer = visitor.get("/", host).await;
        assert_eq!(answer.status, 504, "{}", answer.text());
    };
    tokio::join!(visit(), visit(), visit(), site.check_other_tunnel());
    site.check_both_tunnels().await;
}

/// The tunnel of an agent whose network is frozen goes offline after the agent has been silent for
/// long enough.
#[tokio::test]
async fn an_agent_that_vanishes_silently_goes_offline() {
    let site = Site::start().await;
    let engine = &site.engine;
    let (relay, tunnel) = freezable(&site, Duration::from_secs(1)).await;
    let host = tunnel.hostname();
    relay.freeze_all();
    let offline = async {
        loop {
            let mut visitor = engine.visitor().http1(host).await;
            let status = visitor.get("/", host).await.status;
            if status == 503 {
                return;
            }
            // A visitor that waits at the moment in which the agent is disconnected.
            assert!([502, 504].contains(&status), "{status}");
        }
    };
    within("the agent is offline", offline).await;
    site.check_both_tunnels().await;
}

/// Two agents share a name, and one of them dies while visitors arrive. The other one answers the
/// requests that may be repeated.
#[tokio::test]
async fn the_remaining_agent_serves_after_an_unnoticed_failure_of_the_other() {
    let site = Site::start().await;
    let engine = &site.engine;
    let service = Upstream::http1().await;
    let shared = || Properties::http().named("web").share(true);
    let target: Target = service.addr().to_string().parse().unwrap();
    let lasting = engine.publish_as(shared(), service.addr()).await;
    let host = lasting.hostname();
    for _ in 0..5 {
        let relay = Relay::start(engine).await;
        let agent = Agent::connect(relay.agent_config(engine)).await.unwrap();
        let _dying = TestTunnel::open(agent, shared(), target.clone()).await;
        let mut visitors = tokio::task::JoinSet::new();
        for number in 0..40 {
            let (visitor, host) = (engine.visitor(), host.to_owned());
            visitors.spawn(async move {
                if number % 2 == 0 {
                    visitor.http1(&host).await.get("/", &host).await.status
                } else {
                    visitor.h2(&host).await.get("/", &host).await.status
                }
            });
        }
        // One agent dies while requests are in flight.
        let first = visitors.join_next().await.unwrap();
        drop(relay);
        let mut statuses = vec![first.unwrap()];
        while let Some(status) = visitors.join_next().await {
            statuses.push(status.unwrap());
        }
        assert_eq!(statuses, [200; 40]);
    }
    site.check_both_tunnels().await;
}
