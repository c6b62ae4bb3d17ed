//! Identity, names and takeover: the holder of a name, and the fate of its former holder.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use client::agent::AgentStatus;
use client::tunnel::CloseReason;
use client::{Agent, Properties, RefusalKind, Status, Target};
use engine::clock::ManualClock;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use jiff::Timestamp;
use serde_json::{Value, json};
use testing::{EventSource, RawVisitor, TestEngine, TestTunnel, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Notify, mpsc};
use wire::message::{CloseTunnelReq, CloseTunnelRsp, ServerMessage, TunnelProperties};
use wire::{ErrorCode, Kind};

use crate::agent::raw_messages;
use crate::agent::raw_messages::{PlainAgent, Wire};
use crate::relay::Relay;

async fn list(engine: &TestEngine, what: &str) -> Vec<Value> {
    let mut visitor = engine.visitor().http1(engine.host()).await;
    let bearer = format!("Authorization: Bearer {}\r\n", engine.token(json!({})));
    let target = format!("/api/{what}");
    visitor
        .request("GET", &target, engine.host(), &bearer)
        .await;
    let answer = visitor.answer().await;
    assert_eq!(answer.status, 200);
    answer.json().as_array().unwrap().clone()
}

async fn get(engine: &TestEngine, host: &str) -> (u16, String) {
    let answer = engine.visitor().http1(host).await.get("/", host).await;
    (answer.status, answer.text().to_owned())
}

/// A service that answers every request with its name and closes. Its port stays unused after it.
async fn named_service(name: &'static str) -> Upstream {
    Upstream::start_at(ports::lease(), move |mut stream, _| async move {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            if stream.read_buf(&mut head).await.unwrap_or(0) == 0 {
                return;
            }
        }
        let answer = format!(
            "HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{name}",
            name.len()
        );
        stream.write_all(answer.as_bytes()).await.ok();
        stream.shutdown().await.ok();
    })
    .await
}

/// The same over HTTP/2.
async fn named_h2c_service(name: &'static str) -> Upstream {
    Upstream::start_at(ports::lease(), move |stream, _| async move {
        let service = service_fn(move |request: Request<Incoming>| async move {
            // The whole request is read before the answer, because aborted requests are not tested
            // here.
            request.into_body().collect().await?;
            Ok::<_, hyper::Error>(Response::new(Full::<Bytes>::from(name)))
        });
        hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service)
            .await
            .ok();
    })
    .await
}

fn by_name(name: &str) -> TunnelProperties {
    TunnelProperties {
        name: Some(name.into()),
        publish: Some(false.into()),
        ..TunnelProperties::default()
    }
}

fn id(tunnel: &TunnelProperties) -> String {
    tunnel.id.clone().expect("an id").value
}

/// A name and a hostname have one holder. Only an agent with the same identity may take them over.
#[tokio::test]
async fn an_agent_of_the_same_identity_may_take_over_a_name() {
    let engine = TestEngine::start().await;
    let held: [fn(&str) -> TunnelProperties; 3] =
        [by_name, raw_messages::http, |label| TunnelProperties {
            hostname: Some(format!("{label}.t.engine.localhost").into()),
            ..raw_messages::http(label)
        }];
    for (number, held) in held.into_iter().enumerate() {
        let key = format!("key-{number}");
        let mut holder = PlainAgent::connect(&engine).await;
        let first = holder.open(held(&key)).await.unwrap();
        let again = holder.open(held(&key)).await.unwrap_err();
        assert_eq!(again.kind(), ErrorCode::InvalidRequest, "the same channel");
        for other in [
            json!({"userId": "usr_other"}),
            // Another kind of identity, even with the same text.
            json!({"clientId": "usr_tester"}),
        ] {
            let mut other = PlainAgent::connect_as(&engine, other).await;
            let refused = other.open(held(&key)).await.unwrap_err();
            assert_eq!(refused.kind(), ErrorCode::InvalidRequest, "{refused}");
        }
        // Another channel of the same identity, with another token.
        let mut second = PlainAgent::connect_as(&engine, json!({"type": "pat"})).await;
        let taken = second.open(held(&key)).await.unwrap();
        assert_ne!(id(&taken), id(&first));
        assert_eq!(
            holder.channel.next().await,
            Some(Kind::ServerMessage(ServerMessage {
                message: "taken_over".to_owned()
            }))
        );
        assert_eq!(
            holder.channel.next().await,
            Some(Kind::CloseTunnelRsp(CloseTunnelRsp {
                tunnel_id: id(&first)
            }))
        );
        // The channel itself stays open, and cannot close the tunnel that another channel holds
        // now.
        let close = Kind::CloseTunnelReq(CloseTunnelReq {
            tunnel_id: id(&taken),
        });
        holder.channel.send(close).await;
        assert!(matches!(
            holder.channel.next().await,
            Some(Kind::CloseTunnelRsp(_))
        ));
        holder.open(held(&format!("{key}-other"))).await.unwrap();
        let online = list(&engine, "tunnels").await;
        assert!(online.iter().any(|tunnel| tunnel["id"] == id(&taken)));
    }
}

/// One request may name values that two tunnels hold. It gets both or nothing.
#[tokio::test]
async fn a_name_and_a_hostname_are_taken_together_or_not_at_all() {
    let engine = TestEngine::start().await;
    let mut mine = PlainAgent::connect(&engine).await;
    let mut other = PlainAgent::connect_as(&engine, json!({"userId": "usr_other"})).await;
    let named = mine.open(by_name("both")).await.unwrap();
    other.open(raw_messages::http("both")).await.unwrap();
    let both = || TunnelProperties {
        name: Some("both".into()),
        ..raw_messages::http("both")
    };
    let mut taker = PlainAgent::connect(&engine).await;
    let refused = taker.open(both()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorCode::InvalidRequest);
    let online = list(&engine, "tunnels").await;
    assert!(online.iter().any(|tunnel| tunnel["id"] == id(&named)));
    assert_eq!(online.len(), 2, "no tunnel was taken over");

    drop(other);
    let mut hostname = PlainAgent::connect(&engine).await;
    let taken = within("the name of who left", async {
        loop {
            if let Ok(taken) = hostname.open(raw_messages::http("both")).await {
                return taken;
            }
        }
    });
    let taken = taken.await;
    taker.open(both()).await.unwrap();
    for (agent, displaced) in [(&mut mine, &named), (&mut hostname, &taken)] {
        assert!(matches!(
            agent.channel.next().await,
            Some(Kind::ServerMessage(_))
        ));
        let closed = CloseTunnelRsp {
            tunnel_id: id(displaced),
        };
        assert_eq!(
            agent.channel.next().await,
            Some(Kind::CloseTunnelRsp(closed))
        );
    }
    assert_eq!(list(&engine, "tunnels").await.len(), 1);
}

/// The engine still counts an agent as connected if its machine sleeps or its network is gone. A
/// takeover does not wait for such an agent.
#[tokio::test]
async fn a_takeover_does_not_wait_for_an_agent_that_is_frozen() {
    let engine = TestEngine::start().await;
    let relay = Relay::start(&engine).await;
    let connecting = Wire::connect_through(&engine, relay.addr());
    let mut old = PlainAgent::over(connecting.await, &engine, json!({}), None).await;
    old.open(raw_messages::http("web")).await.unwrap();
    relay.freeze(1);
    let service = named_service("new").await;
    let requested = Properties::http().hostname("web");
    let new = engine.publish_as(requested, service.addr()).await;
    assert_eq!(get(&engine, new.hostname()).await, (200, "new".to_owned()));
    let clients = list(&engine, "clients").await;
    assert!(
        clients.iter().any(|client| client["id"] == old.client_id),
        "the old one was not waited for: it is still here"
    );
}

/// Two agents of one identity never fight for a name.
#[tokio::test]
async fn a_displaced_agent_does_not_reclaim_its_tunnel() {
    let engine = TestEngine::start().await;
    let relay = Relay::start(&engine).await;
    let services = (named_service("old").await, named_service("new").await);
    let requested = || Properties::http().named("web").hostname("web");
    let old = Agent::connect(relay.agent_config(&engine)).await.unwrap();
    let mut displaced = old.open(requested());
    let mut kept = old.open(Properties::private("kept"));
    within("tunnel", displaced.online()).await.unwrap();
    let before = within("tunnel", kept.online()).await.unwrap();
    let target: Target = services.0.addr().to_string().parse().unwrap();
    let forwarding = tokio::spawn(async move { displaced.forward(target).await });
    let host = "web.t.engine.localhost";
    assert_eq!(get(&engine, host).await, (200, "old".to_owned()));

    let new = engine.publish_as(requested(), services.1.addr()).await;
    let closed = within("end of the tunnel", forwarding).await.unwrap();
    let CloseReason::Refused(refusal) = closed else {
        panic!("{closed:?}")
    };
    assert_eq!(refusal.kind, RefusalKind::TakenOver);
    assert_eq!(get(&engine, host).await, (200, "new".to_owned()));

    // Not even when it has lost its channel and restores all of its tunnels.
    relay.cut(1);
    let mut status = kept.status();
    let back = status.wait_for(
        |status| matches!(status, Status::Online(now) if now.tunnel_id != before.tunnel_id),
    );
    within("reconnect", back).await.unwrap();
    let online = list(&engine, "tunnels").await;
    let web: Vec<_> = online
        .iter()
        .filter(|tunnel| tunnel["name"] == "web")
        .collect();
    assert_eq!(web.len(), 1);
    assert_eq!(web[0]["id"], new.online().tunnel_id);
    assert_eq!(get(&engine, host).await, (200, "new".to_owned()));
}

/// The next request of a connected visitor reaches the new holder.
#[tokio::test]
async fn a_visitor_stays_connected_through_a_takeover() {
    let engine = TestEngine::start().await;
    let services = (Upstream::http1().await, Upstream::http1().await);
    let requested = || Properties::http().hostname("web");
    let old = engine.publish_as(requested(), services.0.addr()).await;
    let host = old.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    assert_eq!(visitor.get("/", host).await.status, 200);
    let _new = engine.publish_as(requested(), services.1.addr()).await;
    assert_eq!(visitor.get("/", host).await.status, 200);
    assert_eq!((services.0.accepted(), services.1.accepted()), (1, 1));
}

/// Waits until the engine has noticed the end of a channel.
async fn is_gone(engine: &TestEngine, client_id: &str) {
    let gone = async {
        while list(engine, "clients")
            .await
            .iter()
            .any(|client| client["id"] == client_id)
        {
            tokio::task::yield_now().await;
        }
    };
    within("end of the channel", gone).await;
}

/// EN-9: an accepted stream stays open until it ends on its own.
#[tokio::test]
async fn en_9_accepted_streams_outlive_the_control_channel_and_a_takeover() {
    let engine = TestEngine::start().await;
    let relay = Relay::start(&engine).await;
    let source = EventSource::start().await;
    let agent = Agent::connect(relay.agent_config(&engine)).await.unwrap();
    let target: Target = source.upstream.addr().to_string().parse().unwrap();
    let tunnel = TestTunnel::open(agent, Properties::http().named("live"), target).await;
    let host = tunnel.hostname().to_owned();
    let mut visitor = engine.visitor().http1(&host).await;
    visitor.request("GET", "/", &host, "").await;
    assert_eq!(visitor.head().await.status, 200);
    expect(&mut visitor, &source.send("before")).await;

    let first = tunnel.online().client_id.clone();
    let mut status = tunnel.agent().status();
    relay.cut(1);
    let back = status.wait_for(
        |status| matches!(status, AgentStatus::Online { client_id, .. } if *client_id != first),
    );
    within("reconnect", back).await.unwrap();
    expect(&mut visitor, &source.send("with a new channel")).await;

    let other = Upstream::http1().await;
    let _taking = engine
        .publish_as(Properties::http().named("live"), other.addr())
        .await;
    expect(&mut visitor, &source.send("after a takeover")).await;
    source.end();
    assert_eq!(visitor.chunk().await.unwrap(), b"", "and ends normally");
}

/// EN-9: this also holds for a stream with more data than a lane carries, to which no connection
/// can be added any more because the channel broke or the agent said goodbye.
#[tokio::test]
async fn en_9_large_answers_outlive_the_control_channel() {
    for says_goodbye in [false, true] {
        let engine = TestEngine::start().await;
        let relay = Relay::start(&engine).await;
        let agent = Agent::connect(relay.agent_config(&engine)).await.unwrap();
        let go = Arc::new(Notify::new());
        let (requested, mut hears) = mpsc::unbounded_channel();
        let service = {
            let go = Arc::clone(&go);
            Upstream::start(move |mut stream, _| {
                let (go, requested) = (Arc::clone(&go), requested.clone());
                async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        stream.read_buf(&mut head).await.unwrap();
                    }
                    requested.send(()).unwrap();
                    go.notified().await;
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n");
                    stream.write_all(answer.as_bytes()).await.unwrap();
                    stream.write_all(&vec![b'x'; LARGE]).await.unwrap();
                    stream.read_u8().await.ok();
                }
            })
            .await
        };
        let target: Target = service.addr().to_string().parse().unwrap();
        let tunnel = TestTunnel::open(agent, Properties::http().named("live"), target).await;
        let host = tunnel.hostname().to_owned();
        let mut visitor = engine.visitor().http1(&host).await;
        visitor.request("GET", "/", &host, "").await;
        within("the request", hears.recv()).await.unwrap();

        let client_id = tunnel.online().client_id.clone();
        let closing = async {
            if says_goodbye {
                assert!(tunnel.agent().close(Duration::from_mins(1)).await);
            } else {
                relay.cut(1);
            }
        };
        let answered = async {
            is_gone(&engine, &client_id).await;
            go.notify_one();
            let answer = visitor.answer().await;
            assert_eq!((answer.status, answer.body.len()), (200, LARGE));
            drop(visitor);
        };
        within("both", async { tokio::join!(closing, answered) }).await;
    }
}

/// More than a lane carries for one stream.
const LARGE: usize = 5 * 1024 * 1024;

/// EN-9: the same for an agent without extensions that does not reconnect.
#[tokio::test]
async fn en_9_streams_of_plain_agents_outlive_their_channel() {
    let engine = TestEngine::start().await;
    let mut agent = PlainAgent::connect(&engine).await;
    agent.open(by_name("db")).await.unwrap();
    let bringing = async {
        let request = agent.next_stream_request().await;
        let secret = request.secret.unwrap().value;
        raw_messages::bring(&engine, &request.stream_id, &secret, true).await
    };
    let dialling = raw_messages::dial(&engine, json!({}), "db");
    let (dialled, brought) = tokio::join!(dialling, bringing);
    let (mut dialler, _) = dialled.unwrap();
    let mut service = brought.unwrap().into_stream();
    let client_id = agent.client_id.clone();
    drop(agent);
    is_gone(&engine, &client_id).await;
    let exchanging = async {
        dialler.write_all(b"still").await.unwrap();
        let mut bytes = [0; 5];
        service.read_exact(&mut bytes).await.unwrap();
        service.write_all(&bytes).await.unwrap();
        dialler.read_exact(&mut bytes).await.unwrap();
        bytes
    };
    assert_eq!(&within("echo", exchanging).await, b"still");
    let refused = raw_messages::dial(&engine, json!({}), "db")
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorCode::TunnelNotFound);
}

/// A hostname that was online within the last ten minutes is offline. Any other one is not found.
#[tokio::test]
async fn an_offline_hostname_is_not_reported_as_unknown() {
    let now = Timestamp::now();
    let clock = Arc::new(ManualClock::at(now));
    let engine = TestEngine::start_at("", &[], Arc::<ManualClock>::clone(&clock)).await;
    let upstream = Upstream::http1().await;
    let tunnel = engine.publish(upstream.addr()).await;
    let host = tunnel.hostname().to_owned();
    let private = engine
        .publish_as(Properties::private("db"), upstream.addr())
        .await;
    assert_eq!(get(&engine, &host).await.0, 200);
    tunnel.close().await;
    private.close().await;
    for (later, status) in [(0, 503), (599, 503), (600, 404)] {
        clock.set(now + Duration::from_secs(later));
        let mut visitor = engine.visitor().http1(&host).await;
        let answer = visitor.get("/", &host).await;
        assert_eq!(answer.status, status, "after {later} s");
        assert_eq!(answer.header("retry-after").is_some(), status == 503);
    }
    assert_eq!(get(&engine, "never.t.engine.localhost").await.0, 404);
    // Visitors cannot see names of private tunnels.
    assert_eq!(get(&engine, "db.t.engine.localhost").await.0, 404);
}

async fn expect(visitor: &mut RawVisitor, event: &str) {
    assert_eq!(visitor.chunk().await.unwrap(), event.as_bytes());
}

/// Agents that all request a shared name serve it together. A visitor does not notice that the
/// service of one of them is down.
#[tokio::test]
async fn agents_that_share_a_name_serve_it_together() {
    let services = (named_service("one").await, named_service("two").await);
    serve_it_together(None, services).await;
}

#[tokio::test]
async fn agents_of_http_2_services_that_share_a_name_serve_it_together() {
    let services = (
        named_h2c_service("one").await,
        named_h2c_service("two").await,
    );
    serve_it_together(Some("h2c"), services).await;
}

/// Services `one` and `two` have the same name, and the first of them dies.
async fn serve_it_together(http_version: Option<&str>, services: (Upstream, Upstream)) {
    let engine = TestEngine::start().await;
    let requested = || {
        let mut requested = Properties::http().named("web").share(true);
        requested.http_version = http_version.map(Into::into);
        requested
    };
    let one = engine.publish_as(requested(), services.0.addr()).await;
    let two = engine.publish_as(requested(), services.1.addr()).await;
    assert_eq!(
        one.hostname(),
        two.hostname(),
        "the name brings the address"
    );
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..4 {
        seen.insert(get(&engine, one.hostname()).await);
    }
    let of = |name: &str| (200, name.to_owned());
    assert_eq!(seen, [of("one"), of("two")].into());

    drop(services.0);
    for _ in 0..3 {
        assert_eq!(get(&engine, one.hostname()).await, of("two"));
        let mut visitor = engine.visitor().h2(one.hostname()).await;
        let answer = visitor.get("/", one.hostname()).await;
        assert_eq!((answer.status, answer.text().to_owned()), of("two"));
    }
    one.close().await;
    assert_eq!(get(&engine, two.hostname()).await, of("two"));
}

/// After a failure, a request that must not be repeated goes to the healthy service.
#[tokio::test]
async fn a_failed_http_2_service_gets_no_new_requests_immediately() {
    let engine = TestEngine::start_unhurried("").await;
    let (well, dead) = (
        named_h2c_service("well").await,
        named_h2c_service("dead").await,
    );
    let requested = || {
        Properties::http()
            .named("web")
            .share(true)
            .http_version("h2c")
    };
    let tunnel = engine.publish_as(requested(), well.addr()).await;
    let _other = engine.publish_as(requested(), dead.addr()).await;
    drop(dead);
    let host = tunnel.hostname();
    let mut failed = [0, 0];
    for _ in 0..4 {
        let mut visitor = engine.visitor().http1(host).await;
        visitor
            .request("POST", "/", host, "Content-Length: 4\r\n")
            .await;
        visitor.send("body").await;
        failed[0] += usize::from(visitor.answer().await.status == 502);
        let request = Request::post(format!("https://{host}/"))
            .body(testing::H2Visitor::full("body"))
            .unwrap();
        let answer = engine.visitor().h2(host).await.send(request).await.unwrap();
        failed[1] += usize::from(answer.status().as_u16() == 502);
    }
    assert!(failed[0] + failed[1] <= 1, "{failed:?}");
}

/// A token reaches only one of the two tunnels. Its visitor is not served by the other one when the
/// first is down, because the boundary is checked for each of them.
#[tokio::test]
async fn a_boundary_is_checked_for_each_tunnel_of_a_shared_name() {
    let engine = TestEngine::start().await;
    let services = (named_service("blue").await, named_service("green").await);
    let requested = |colour: &str| {
        Properties::http()
            .named("web")
            .share(true)
            .token_auth(true)
            .labels([("colour".to_owned(), colour.to_owned())].into())
    };
    let blue = engine
        .publish_as(requested("blue"), services.0.addr())
        .await;
    let _green = engine
        .publish_as(requested("green"), services.1.addr())
        .await;
    let host = blue.hostname();
    let reaching = |labels: serde_json::Value| {
        let connect = serde_json::json!({"filters": {"labels": labels}});
        let resources =
            serde_json::json!({"tunnels": {"scopes": {"tunnels": {"connect": connect}}}});
        engine.token(serde_json::json!({"resources": resources}))
    };
    let one = reaching(serde_json::json!({"colour": "blue"}));
    let both = engine.token(serde_json::json!({}));
    let statuses = async |token: &str| {
        let mut statuses = std::collections::BTreeSet::new();
        for _ in 0..4 {
            let mut visitor = engine.visitor().http1(host).await;
            let bearer = format!("Authorization: Bearer {token}\r\n");
            visitor.request("GET", "/", host, &bearer).await;
            statuses.insert(visitor.answer().await.status);
            let mut visitor = engine.visitor().h2(host).await;
            let request = Request::get(format!("https://{host}/"))
                .header("authorization", format!("Bearer {token}"))
                .body(testing::H2Visitor::empty());
            let response = visitor.send(request.unwrap()).await.unwrap();
            statuses.insert(response.status().as_u16());
        }
        statuses
    };
    assert_eq!(statuses(&both).await, [200].into());
    assert_eq!(statuses(&one).await, [200, 403].into());
    drop(services.0);
    assert_eq!(statuses(&both).await, [200].into());
    let down = statuses(&one).await;
    assert!(down.is_subset(&[403, 502].into()), "{down:?}");
}
