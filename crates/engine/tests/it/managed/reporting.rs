//! Reports of the engine to the platform.

use std::sync::Arc;

use api::link::{Record, StreamRecord, UsageRecord};
use client::{Properties, Target};
use engine::clock::{Clock as _, ManualClock};
use jiff::Timestamp;
use serde_json::json;
use testing::{
    ClosedPort, FakePlatform, H2Visitor, RawVisitor, ScriptedUpstream, TestEngine, TestTunnel,
    Upstream, within,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::Kind;
use wire::message::{ClientDetails, Heartbeat};

use super::{A, TwoProjects, get, host, publish, visit};
use crate::agent::raw_messages::Wire;

fn stream(record: &Record) -> Option<StreamRecord> {
    match record {
        Record::Stream(stream) => Some(StreamRecord::clone(stream)),
        _ => None,
    }
}

/// The times at which a credential was used, as reported.
fn uses(platform: &FakePlatform, credential: &str) -> Vec<Timestamp> {
    let records = platform.records();
    let uses = records.iter().filter_map(|record| match record {
        Record::CredentialUse(used) if used.credential_id == credential => Some(used.used_at),
        _ => None,
    });
    uses.collect()
}

fn usage(platform: &FakePlatform) -> Vec<UsageRecord> {
    let records = platform.records();
    let usage = records.iter().filter_map(|record| match record {
        Record::Usage(usage) => Some(usage.clone()),
        _ => None,
    });
    usage.collect()
}

#[tokio::test]
async fn a_visit_is_an_access_record_without_its_secrets() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let service = Upstream::http1().await;
    let agent = engine.agent_at(A, &ann).await;
    let properties = Properties::http().token_auth(true);
    let tunnel = publish(agent, properties, &service).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    let trace_id = "4bf92f3577b34da6a3ce929d0e0e4736";
    let trace = format!("traceparent: 00-{trace_id}-00f067aa0ba902b7-01\r\n");
    let fields = format!("Authorization: Bearer {ann}\r\n{trace}");
    visitor
        .request("GET", "/echo?color=red", host, &fields)
        .await;
    assert_eq!(visitor.answer().await.status, 200);
    drop(visitor);
    let record = platform.wait_for_record(stream).await;
    assert_eq!(record.project_id, "prj_aaaaaaaa");
    assert_eq!(record.outcome, "connected");
    assert_eq!(record.user_id.as_deref(), Some("usr_ann"));
    assert_eq!(
        record.tunnel_id.as_deref(),
        Some(&*tunnel.online().tunnel_id)
    );
    assert_eq!(record.stream_id.len(), 24);
    let summary = &record.summary;
    assert_eq!(summary["workspace_id"], "wks_aaaaaaaa");
    assert_eq!(summary["cluster_id"], "engine.localhost");
    assert_eq!(summary["request"]["http"]["request"]["path"], "/echo");
    assert_eq!(summary["request"]["http"]["trace_id"], trace_id);
    assert_eq!(summary["request"]["downstream"]["ip"], "127.0.0.1");
    assert_eq!(
        summary["firewall"]["rule"],
        json!({"kind": "token", "source": "authorization", "tokenType": "pat"})
    );
    let text = summary.to_string();
    assert!(!text.contains("red") && !text.contains(&ann), "{text}");

    // One refused visit, and one to an unknown name.
    let refused = visit(&engine, &tunnel, "/").await;
    assert_eq!(refused.status, 401);
    let outcome = |wanted: &'static str| {
        move |record: &Record| stream(record).filter(|stream| stream.outcome == wanted)
    };
    let denied = platform.wait_for_record(outcome("denied")).await;
    assert_eq!(denied.summary["firewall"]["decision"], "denied");
    let nothing = "nothing-aaaaaaaa.t.engine.localhost";
    engine
        .visitor()
        .http1(nothing)
        .await
        .get("/", nothing)
        .await;
    let lost = platform.wait_for_record(outcome("failed")).await;
    assert_eq!(lost.project_id, "prj_aaaaaaaa");
    assert_eq!(lost.tunnel_id, None);
    assert_eq!(lost.summary["response"]["failure"]["kind"], "not_found");
}

#[tokio::test]
async fn the_certificate_of_the_engine_itself_is_reported() {
    let TwoProjects { platform, .. } = TwoProjects::start().await;
    let _engine = TestEngine::managed(&platform).await;
    let certificates = |record: &Record| match record {
        Record::EngineCertificates(record) => Some(record.certificates.clone()),
        _ => None,
    };
    let reported = platform.wait_for_record(certificates).await;
    let [own] = &reported[..] else {
        panic!("one certificate: {reported:?}");
    };
    assert_eq!(own.source, "files");
    assert!(own.names.iter().any(|name| name == "*.t.engine.localhost"));
    assert!(own.expires_at.is_some());
    assert_eq!((&own.problem, own.next_attempt_at), (&None, None));
}

#[tokio::test]
async fn changes_are_reported_in_order_and_completely() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let service = Upstream::tcp().await;
    let agent = engine.agent_at(A, &ann).await;
    let tunnel = publish(agent, Properties::private("db"), &service).await;
    engine.stop().await;
    drop(tunnel);
    let records = platform.records();
    let events = records.iter().filter_map(|record| match record {
        Record::Event(event) => Some(event),
        _ => None,
    });
    let mut kinds = Vec::new();
    for event in events {
        assert_eq!(event.project_id, "prj_aaaaaaaa");
        assert_eq!(event.event["project_id"], "prj_aaaaaaaa");
        kinds.push(event.event["type"].as_str().unwrap());
    }
    let expected = [
        "client.created",
        "tunnel.created",
        "tunnel.deleted",
        "client.deleted",
    ];
    assert_eq!(kinds, expected);
}

/// A clock shortly before the hour, when usage is reported every second.
fn before_the_hour() -> (Arc<ManualClock>, Timestamp) {
    let now = Timestamp::now().as_second();
    let hour = now - now.rem_euclid(3600);
    let at = |second| Timestamp::from_second(second).unwrap();
    (Arc::new(ManualClock::at(at(hour + 3599))), at(hour))
}

#[tokio::test]
async fn usage_is_reported_during_a_long_stream_and_adds_up() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let (clock, hour) = before_the_hour();
    let engine = TestEngine::managed_at(&platform, None, "", clock).await;
    engine.wait_for_changes().await;
    let service = Upstream::tcp().await;
    let agent = engine.agent_at(A, &ann).await;
    let _tunnel = publish(agent.clone(), Properties::private("db"), &service).await;
    let mut stream = within("stream", agent.dial("db")).await.unwrap();
    let sent = vec![7; 200_000];
    let mut back = vec![0; sent.len()];
    let (mut reader, mut writer) = tokio::io::split(&mut stream);
    let exchange = async { tokio::join!(writer.write_all(&sent), reader.read_exact(&mut back)) };
    let (written, read) = within("echo", exchange).await;
    written.unwrap();
    read.unwrap();
    let running = platform.wait_for_record(|record| match record {
        Record::Usage(usage) if usage.downstream_bytes >= 64 * 1024 => Some(usage.clone()),
        _ => None,
    });
    let running = running.await;
    assert_eq!(
        (running.project_id.as_str(), running.hour),
        ("prj_aaaaaaaa", hour)
    );
    // A report between the connection of the agent and its tunnel has another number of tunnels.
    let online = platform.wait_for_record(|record| match record {
        Record::Inventory(online) if (online.clients, online.tunnels) == (1, 1) => Some(()),
        _ => None,
    });
    online.await;
    drop(stream);
    engine.stop().await;
    let all = usage(&platform);
    let sum = |count: fn(&UsageRecord) -> u64| all.iter().map(count).sum::<u64>();
    assert_eq!(sum(|usage| usage.streams), 1);
    assert_eq!(sum(|usage| usage.failed_streams), 0);
    assert_eq!(sum(|usage| usage.upstream_bytes), 200_000);
    assert_eq!(sum(|usage| usage.downstream_bytes), 200_000);
}

/// The request log, the usage and the metrics count the same visits as failed.
#[tokio::test]
async fn a_service_that_is_not_reached_is_a_failed_visit_everywhere() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let closed = ClosedPort::new();
    let agent = engine.agent_at(A, &ann).await;
    let target: Target = closed.addr().to_string().parse().unwrap();
    let tunnel = TestTunnel::open(agent, Properties::http(), target).await;
    assert_eq!(visit(&engine, &tunnel, "/a").await.status, 502);
    let host = tunnel.hostname().to_owned();
    // A service that accepts and closes was reached, and has failed as well.
    let breaking = ScriptedUpstream::closes_unanswered().await;
    let agent = engine.agent_at(A, &ann).await;
    let target: Target = breaking.addr().to_string().parse().unwrap();
    let broken = TestTunnel::open(agent, Properties::http(), target).await;
    assert_eq!(visit(&engine, &broken, "/b").await.status, 502);
    // The tunnel is offline.
    tunnel.close().await;
    let mut visitor = engine.visitor().http1(&host).await;
    visitor.request("GET", "/c", &host, "").await;
    assert_eq!(visitor.answer().await.status, 503);
    engine.stop().await;

    let streams = platform.records();
    let mut streams: Vec<_> = streams.iter().filter_map(stream).collect();
    let path = |stream: &StreamRecord| {
        let path = &stream.summary["request"]["http"]["request"]["path"];
        path.as_str().unwrap().to_owned()
    };
    streams.sort_by_key(path);
    let seen: Vec<_> = streams
        .iter()
        .map(|stream| (path(stream), stream.outcome.as_str()))
        .collect();
    let failed = |path: &str| (path.to_owned(), "failed");
    assert_eq!(seen, [failed("/a"), failed("/b"), failed("/c")]);
    let routing = |index: usize| &streams[index].summary["routing"]["outcome"];
    assert_eq!(
        (routing(0), routing(1), routing(2)),
        (&json!("not_routed"), &json!("routed"), &json!("not_routed"))
    );
    let all = usage(&platform);
    let sum = |count: fn(&UsageRecord) -> u64| all.iter().map(count).sum::<u64>();
    assert_eq!(sum(|usage| usage.streams), 3);
    assert_eq!(sum(|usage| usage.failed_streams), 3);
}

/// Bytes that the library sends in its own task are metered as well.
#[tokio::test]
async fn usage_of_uploads_to_an_http_2_service_adds_up() {
    const SENT: usize = 200_000;
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let service = Upstream::h2c().await;
    let agent = engine.agent_at(A, &ann).await;
    let h2c = Properties::http().http_version("h2c");
    let tunnel = publish(agent, h2c, &service).await;
    let host = tunnel.hostname();
    let body = vec![b'7'; SENT];
    let mut visitor = engine.visitor().http1(host).await;
    let length = format!("Content-Length: {SENT}\r\n");
    visitor.request("POST", "/mirror", host, &length).await;
    let mirrored = visitor.exchange(&body).await;
    assert_eq!(mirrored.body.len(), SENT);
    let request = hyper::Request::post(format!("https://{host}/mirror"));
    let request = request.body(H2Visitor::full(body)).unwrap();
    let answer = engine.visitor().h2(host).await.send(request).await;
    let mirrored = H2Visitor::collect(answer.unwrap()).await;
    assert_eq!(mirrored.body.len(), SENT);
    engine.stop().await;
    let sent: u64 = usage(&platform)
        .iter()
        .map(|usage| usage.upstream_bytes)
        .sum();
    assert_eq!(sent, 2 * SENT as u64);
}

#[tokio::test]
async fn reports_of_an_outage_are_delivered_when_the_platform_is_back() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let engine = TestEngine::managed(&platform).await;
    let service = Upstream::http1().await;
    let agent = engine.agent_at(A, &ann).await;
    let tunnel = publish(agent, Properties::http(), &service).await;
    platform.set_unavailable(true);
    let host = tunnel.hostname();
    let mut visitor: RawVisitor = engine.visitor().http1(host).await;
    for _ in 0..3 {
        assert_eq!(visitor.get("/", host).await.status, 200);
    }
    platform.lose_receipts(2);
    platform.set_unavailable(false);
    engine.stop().await;
    let streams: Vec<_> = platform.records().iter().filter_map(stream).collect();
    assert_eq!(streams.len(), 3, "each once");
}

/// The uses of a token within a minute are reported once.
#[tokio::test]
async fn uses_of_tokens_are_reported_once_a_minute() {
    let TwoProjects { platform, ann, .. } = TwoProjects::start().await;
    let (clock, hour) = before_the_hour();
    let engine =
        TestEngine::managed_at(&platform, None, "", Arc::<ManualClock>::clone(&clock)).await;
    engine.wait_for_changes().await;
    let (id, token) = platform.add_pat("usr_ann");
    let (unused, _) = platform.add_pat("usr_ann");
    engine.wait_for_changes().await;
    let start = clock.now();
    for _ in 0..3 {
        assert_eq!(get(&engine, A, "/api/tunnels", &token).await.status, 200);
    }
    let reported = |wanted: Timestamp| {
        let id = id.clone();
        platform.wait_for_record(move |record| match record {
            Record::CredentialUse(used) if used.credential_id == id && used.used_at == wanted => {
                Some(())
            }
            _ => None,
        })
    };
    reported(start).await;
    clock.advance(59);
    assert_eq!(get(&engine, A, "/api/tunnels", &token).await.status, 200);
    clock.advance(1);
    assert_eq!(get(&engine, A, "/api/tunnels", &token).await.status, 200);
    // Just before the next hour, reports are frequent again.
    clock.set(hour + jiff::SignedDuration::from_secs(2 * 3600 - 1));
    let again = clock.now();
    assert_eq!(get(&engine, A, "/api/tunnels", &token).await.status, 200);
    engine.stop().await;
    let minute = start + jiff::SignedDuration::from_secs(60);
    let times = uses(&platform, &id);
    assert!(times.starts_with(&[start]), "{times:?}");
    assert!(times.contains(&again), "{times:?}");
    let first_minute = times.iter().filter(|at| **at < minute).count();
    assert_eq!(first_minute, 1, "{times:?}");
    assert_eq!(uses(&platform, &unused), []);
    drop(ann);
}

/// The heartbeats of an agent are uses of its token, so that a token of an agent that has been
/// connected for weeks does not look unused.
#[tokio::test]
async fn a_connected_agent_uses_its_token() {
    let TwoProjects { platform, .. } = TwoProjects::start().await;
    let (clock, _) = before_the_hour();
    let engine =
        TestEngine::managed_at(&platform, None, "", Arc::<ManualClock>::clone(&clock)).await;
    let (id, token) = platform.add_pat("usr_ann");
    engine.wait_for_changes().await;
    let mut agent = Wire::connect_as(&engine, engine.addr(), &host(A)).await;
    let details = ClientDetails {
        agent: Some("plain-agent".into()),
        token: Some(token.into()),
        protocol_version: Some("1.4.5".into()),
        ..ClientDetails::default()
    };
    agent.hello(Some(details), Some(5_000)).await.unwrap();
    clock.advance(30 * 24 * 3600);
    let heartbeat = Heartbeat {
        sequence: 1,
        acknowledgement: 0,
    };
    agent.send(Kind::Heartbeat(heartbeat)).await;
    let acknowledged = Heartbeat {
        sequence: 0,
        acknowledgement: 1,
    };
    assert_eq!(agent.next().await, Some(Kind::Heartbeat(acknowledged)));
    engine.stop().await;
    assert_eq!(uses(&platform, &id).last(), Some(&clock.now()));
}
