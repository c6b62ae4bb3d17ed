//! Agents that break the protocol, flood, or do not read. One that never reads and one that falls
//! silent cost a wait of the real clock, so they stand side by side.

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
use crate::relay::Relay;
use crate::wired::{self, PlainAgent, Wire};

fn hello(engine: &TestEngine) -> Kind {
    Kind::OpenControlChannelReq(OpenControlChannelReq {
        client_details: Some(wired::details(engine, serde_json::json!({}))),
        liveness: None,
    })
}

/// Messages that begin a connection, within one: the channel ends, and says why.
#[tokio::test]
async fn a_message_out_of_order_ends_the_channel() {
    let site = Site::start().await;
    let engine = &site.engine;
    let first = || wired::details(engine, serde_json::json!({}));
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
        agent.open(wired::http("web")).await.unwrap();
        agent.channel.send(kind).await;
        let said = agent.channel.rest().await;
        assert!(
            matches!(said[..], [Kind::ServerMessage(_)]),
            "{case}: {said:?}"
        );
    }
    // And messages of a channel, before there is one.
    for (case, kind) in [
        ("a heartbeat", Kind::Heartbeat(Heartbeat::default())),
        (
            "a tunnel",
            Kind::OpenTunnelReq(OpenTunnelReq {
                request_id: "1".to_owned(),
                tunnel_properties: Some(wired::http("web")),
            }),
        ),
    ] {
        let mut connection = Wire::connect(engine).await;
        connection.send(kind).await;
        let said = connection.rest().await;
        assert!(
            matches!(said[..], [] | [Kind::OpenControlChannelRsp(_)]),
            "{case}: {said:?}"
        );
    }
    site.is_untouched().await;
}

/// Requests without end are answered up to the limit, then refused; ids of others do nothing.
#[tokio::test]
async fn an_agent_has_as_many_tunnels_as_it_may() {
    let site = Site::with("limits: {max_tunnels_per_client: 3}").await;
    let mut agent = PlainAgent::connect(&site.engine).await;
    for number in 0..3 {
        agent
            .open(wired::http(&format!("w{number}")))
            .await
            .unwrap();
    }
    for number in 3..200 {
        let refused = agent.open(wired::http(&format!("w{number}"))).await;
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
    site.is_untouched().await;
}

/// An agent that opens and closes tunnels without end is read more slowly; nothing else happens to
/// it.
#[tokio::test]
async fn an_agent_that_changes_without_end_is_slowed_down() {
    const BATCH: usize = 100;
    /// More than the 20,000 changes at once; the rest come 100 a second.
    const BATCHES: usize = 203;
    let site = Site::start().await;
    let mut agent = PlainAgent::connect(&site.engine).await;
    // Whether there is such a tunnel or not.
    let mut batch = Vec::new();
    for _ in 0..BATCH {
        let tunnel_id = "x".to_owned();
        let close = Kind::CloseTunnelReq(CloseTunnelReq { tunnel_id });
        wire::encode(&close.into(), &mut batch).unwrap();
    }
    let begun = Instant::now();
    for _ in 0..BATCHES {
        agent.channel.send_bytes(&batch).await;
        for _ in 0..BATCH {
            let answer = agent.channel.next().await;
            let is_answer = matches!(answer, Some(Kind::CloseTunnelRsp(_)));
            assert!(is_answer, "{answer:?}");
        }
    }
    let took = begun.elapsed();
    assert!(took >= Duration::from_millis(2_900), "{took:?}");
    agent.open(wired::http("web")).await.unwrap();
    site.is_untouched().await;
}

/// Properties too large, too many or of no use are refused one by one; the channel goes on.
#[tokio::test]
async fn properties_have_bounds() {
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
                ..wired::http("web")
            },
        ),
        (
            "many labels",
            TunnelProperties {
                labels: labels(1_000),
                ..wired::http("web")
            },
        ),
        (
            "a long label",
            TunnelProperties {
                labels: [("k".to_owned(), long.clone())].into(),
                ..wired::http("web")
            },
        ),
        (
            "a protocol that is none",
            TunnelProperties {
                protocol: Some("gopher".into()),
                ..wired::http("web")
            },
        ),
    ] {
        let refused = agent.open(properties).await;
        let code = refused.map(drop).map_err(|error| error.kind());
        assert_eq!(code, Err(ErrorCode::InvalidRequest), "{case}");
    }
    agent.open(wired::http("web")).await.unwrap();
    for (bytes, is_taken) in [(256, true), (257, false)] {
        let details = ClientDetails {
            agent: Some("x".repeat(bytes).into()),
            ..wired::details(&site.engine, serde_json::json!({}))
        };
        let mut channel = Wire::connect(&site.engine).await;
        let hello = channel.hello(Some(details), None).await;
        let refused = hello.err().map(|error| error.kind());
        let expected = (!is_taken).then_some(ErrorCode::InvalidRequest);
        assert_eq!(refused, expected, "{bytes} bytes of a detail");
    }
    site.is_untouched().await;
}

/// A standing connection is known by its secret, and good for one thing.
#[tokio::test]
async fn a_standing_connection_cannot_be_guessed_or_misused() {
    let site = Site::start().await;
    for secret in ["", "0", &"0".repeat(64), &"f".repeat(10_000)] {
        let mut connection = Wire::connect(&site.engine).await;
        let mut details = wired::details(&site.engine, serde_json::json!({}));
        details.token = Some(secret.into());
        let request = ProxyReq {
            client_details: Some(details),
            ..ProxyReq::default()
        };
        connection.send(Kind::ProxyReq(request)).await;
        assert_eq!(connection.rest().await, [], "{}", secret.len());
    }
    site.is_untouched().await;
}

/// An agent that asks and asks and never reads is gone when the engine has waited long enough;
/// meanwhile it costs what fits its connection.
#[tokio::test]
async fn an_agent_that_never_reads_is_let_go() {
    let site = Site::start().await;
    let mut agent = PlainAgent::connect(&site.engine).await;
    agent.open(wired::http("deaf")).await.unwrap();
    let mut frame = Vec::new();
    let close = CloseTunnelReq {
        tunnel_id: "0".repeat(30_000),
    };
    wire::encode(&Kind::CloseTunnelReq(close).into(), &mut frame).unwrap();
    let mut stream = agent.channel.into_stream();
    let flooding = async {
        // Each is answered at the same length, into a connection that nobody empties.
        while stream.write_all(&frame).await.is_ok() {}
    };
    let host = "deaf.t.engine.localhost";
    let gone = async {
        loop {
            // Others are served all the while.
            site.serves_others().await;
            let mut visitor = site.engine.visitor().http1(host).await;
            visitor.request("HEAD", "/", host, "").await;
            let asking = visitor.head();
            // As long as it counts as there, its visitor waits.
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
    site.is_untouched().await;
}

/// A visitor who waits for a stream that the agent never brings hears of it in time, and so do
/// diallers; the agent's other work goes on.
#[tokio::test]
async fn an_agent_that_brings_nothing_costs_its_own_visitors_alone() {
    let site = Site::with("timeouts: {stream_request_seconds: 1}").await;
    let mut idle = PlainAgent::connect(&site.engine).await;
    idle.open(wired::http("idle")).await.unwrap();
    let host = "idle.t.engine.localhost";
    let mut visitor = site.engine.visitor().http1(host).await;
    visitor.request("GET", "/", host, "").await;
    let asked = idle.asked().await;
    site.serves_all().await;
    // It ends with its channel, at once.
    drop(idle);
    let answer = visitor.answer().await;
    assert_eq!(answer.status, 502);
    let secret = asked.secret.unwrap().value;
    let late = wired::bring(&site.engine, &asked.stream_id, &secret, false).await;
    assert!(late.is_err());
    let service = Upstream::http1().await;
    let tunnel = site.engine.publish(service.addr()).await;
    let host = tunnel.hostname();
    let answer = site.engine.visitor().http1(host).await.get("/", host).await;
    assert_eq!(answer.status, 200);
}

/// A visitor whose stream was asked of an agent that loses the tunnel in that moment gets the one
/// of the new holder; not where the new tunnel has other settings, for which it was not judged.
#[tokio::test]
async fn a_visitor_in_the_middle_of_a_takeover_is_served_by_the_new_holder() {
    let site = Site::start().await;
    let host = "web.t.engine.localhost";
    for h2 in [false, true] {
        for guarded in [false, true] {
            let mut old = PlainAgent::connect(&site.engine).await;
            old.open(wired::http("web")).await.unwrap();
            let visitor = site.engine.visitor();
            let visit = tokio::spawn(async move {
                if h2 {
                    visitor.h2(host).await.get("/", host).await
                } else {
                    visitor.http1(host).await.get("/", host).await
                }
            });
            let asked = old.asked().await;
            let mut new = PlainAgent::connect(&site.engine).await;
            let settings = TunnelProperties {
                token_auth: guarded.then(|| true.into()),
                ..wired::http("web")
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
            let asked = new.asked().await;
            let secret = asked.secret.unwrap().value;
            let brought = wired::bring(&site.engine, &asked.stream_id, &secret, true).await;
            let mut stream = brought.unwrap().into_stream();
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nnew";
            stream.write_all(answer).await.unwrap();
            stream.flush().await.unwrap();
            let answer = visit.await.unwrap();
            assert_eq!((answer.status, answer.text()), (200, "new"), "h2: {h2}");
        }
    }
}

/// An agent whose network takes everything and answers nothing, and says so to nobody: its visitors
/// are told in time, and so is everybody when it has been silent for long enough.
#[tokio::test]
async fn an_agent_that_vanished_without_a_word_costs_its_own_visitors_alone() {
    let site = Site::with("timeouts: {stream_request_seconds: 1}").await;
    let engine = &site.engine;
    let relay = Relay::start(engine).await;
    let agent = Agent::connect(relay.agent_config(engine)).await.unwrap();
    let service = Upstream::http1().await;
    let target: Target = service.addr().to_string().parse().unwrap();
    let tunnel = TestTunnel::open(agent, Properties::http(), target).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    assert_eq!(visitor.get("/", host).await.status, 200);
    relay.freeze_all();
    // On the connection that served the last one, and on whatever is tried next.
    for _ in 0..3 {
        let mut visitor = engine.visitor().http1(host).await;
        let answer = visitor.get("/", host).await;
        assert_eq!(answer.status, 504, "{}", answer.text());
        site.serves_others().await;
    }
    let offline = async {
        loop {
            let mut visitor = engine.visitor().http1(host).await;
            let status = visitor.get("/", host).await.status;
            if status == 503 {
                return;
            }
            // Whoever waits in the moment in which it is given up.
            assert!([502, 504].contains(&status), "{status}");
        }
    };
    tokio::time::timeout(Duration::from_mins(1), offline)
        .await
        .expect("it counts as gone");
    site.serves_all().await;
}

/// Two agents share a name, and one of them dies while visitors come: what the service may be asked
/// twice is answered by the other one.
#[tokio::test]
async fn of_two_agents_on_one_name_one_dies_unnoticed() {
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
        // In the middle of them.
        let first = visitors.join_next().await.unwrap();
        drop(relay);
        let mut statuses = vec![first.unwrap()];
        while let Some(status) = visitors.join_next().await {
            statuses.push(status.unwrap());
        }
        assert_eq!(statuses, [200; 40]);
    }
    site.serves_all().await;
}
