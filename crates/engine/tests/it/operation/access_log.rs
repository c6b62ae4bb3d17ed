//! The access log: the members that a record has, and the secrets that it never contains.

use bytes::Bytes;
use client::Properties;
use futures_util::StreamExt;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use testing::{H2Visitor, ScriptedUpstream, Step, TestEngine, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::agent::raw_messages;
use crate::support::{READ, STREAMS};

const TRACE: &str = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";
const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

/// Names of the members, spelled as in `docs/configuration.md`.
fn members(record: &Value) -> Vec<&str> {
    let members = record.as_object().unwrap().keys();
    members.map(String::as_str).collect()
}

/// Names of all members in the documentation's table.
fn documented() -> Vec<String> {
    let text = include_str!("../../../../../docs/configuration.md");
    let (_, section) = text.split_once("## The access log").unwrap();
    let (section, _) = section.split_once("\n## ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let names = rows.map(|row| row.split_once(" | ").unwrap().0);
    names
        .flat_map(|names| names.split(", "))
        .map(|name| name.trim_matches('`').to_owned())
        .collect()
}

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn each_request_leaves_one_record_without_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let engine = TestEngine::start_with(&format!("access_log: {{path: {log:?}}}\n")).await;
    let service = Upstream::http1().await;
    let properties = Properties::http().token_auth(true);
    let tunnel = engine.publish_as(properties, service.addr()).await;
    let host = tunnel.hostname();
    let token = engine.token(json!({"sourceCredentialId": "crd_1"}));
    let mut visitor = engine.visitor().http1(host).await;
    let target = format!("/a?svc.token={token}&b=private");
    visitor.request("GET", &target, host, TRACE).await;
    assert_eq!(visitor.answer().await.status, 200);
    for (token, status) in [
        (engine.token(json!({"permissions": [READ]})), 403),
        ("no.good.token".to_owned(), 401),
    ] {
        let bearer = format!("Authorization: Bearer {token}\r\n");
        visitor.request("GET", "/b", host, &bearer).await;
        assert_eq!(visitor.answer().await.status, status);
    }
    assert_eq!(visitor.get("/c?svc.token=x", host).await.status, 400);
    let mut visitor = engine.visitor().http1("nobody.t.engine.localhost").await;
    let answer = visitor.get("/d", "nobody.t.engine.localhost").await;
    assert_eq!(answer.status, 404);
    let tunnel_id = tunnel.online().tunnel_id.clone();
    let client_id = tunnel.online().client_id.clone();

    engine.stop().await;
    let text = std::fs::read_to_string(log).unwrap();
    assert!(!text.contains("private") && !text.contains("no.good.token"));
    for part in token.split('.') {
        assert!(!text.contains(part), "{part} in {text}");
    }
    let mut records: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    // The order is defined only for the requests of one connection.
    records.sort_by_key(|record| record["path"] == "/d");
    let lines: Vec<_> = records
        .iter()
        .map(|record| {
            let fields = ["path", "status", "rule", "outcome", "kind", "source_ip"];
            fields.map(|name| record[name].clone())
        })
        .collect();
    let refused = |path: &str, status: u16, rule: &str| {
        [json!(path), json!(status), json!(rule), json!("refused")]
    };
    let expected = [
        [json!("/a"), json!(200), json!("token"), json!("served")],
        refused("/b", 403, "permission"),
        refused("/b", 401, "token"),
        refused("/c", 400, "query_credential"),
        refused("/d", 404, "unknown"),
    ];
    let expected = expected.map(|[path, status, rule, outcome]| {
        [
            path,
            status,
            rule,
            outcome,
            json!("http"),
            json!("127.0.0.1"),
        ]
    });
    assert_eq!(lines, expected, "{text}");

    let served = &records[0];
    assert_eq!(served["trace_id"], TRACE_ID);
    assert_eq!(served["tunnel_id"], tunnel_id);
    assert_eq!(served["client_id"], client_id);
    assert_eq!(
        (&served["host"], &served["method"]),
        (&json!(host), &json!("GET"))
    );
    assert_eq!(served["user_id"], "usr_tester");
    assert_eq!(served["credential_id"], "crd_1");
    assert!(
        served["time"]
            .as_str()
            .unwrap()
            .parse::<jiff::Timestamp>()
            .is_ok()
    );
    let hop = |name: &str| served[name].as_f64().unwrap();
    assert!(hop("open_ms") <= hop("first_byte_ms") && hop("first_byte_ms") <= hop("total_ms"));
    assert!(served["bytes_out"].as_u64().unwrap() > 0);
    let mut ids: Vec<_> = records
        .iter()
        .map(|record| record["id"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), records.len());
    assert!(ids.iter().all(|id| id.len() == 24));

    let documented = documented();
    for record in &records {
        for name in members(record) {
            assert!(documented.iter().any(|known| known == name), "{name}");
        }
    }
    // A community engine does not look up the visitor's country (`geo.rs`).
    let mut here = documented.iter().filter(|name| *name != "country");
    assert!(here.all(|name| records.iter().any(|record| !record[name].is_null())));
}

#[tokio::test]
async fn each_dial_leaves_one_record_with_the_rule_that_decided() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let engine = TestEngine::start_with(&format!("access_log: {{path: {log:?}}}\n")).await;
    let service = Upstream::tcp().await;
    let tunnel = engine
        .publish_as(Properties::private("db"), service.addr())
        .await;
    let (mut stream, _) = raw_messages::dial(&engine, json!({}), "db").await.unwrap();
    let exchange = async {
        stream.write_all(b"abc").await.unwrap();
        stream.shutdown().await.unwrap();
        stream.read_to_end(&mut Vec::new()).await.unwrap();
    };
    within("echo", exchange).await;
    let elsewhere = json!({"tunnels": {"projects": ["other"]}});
    for (claims, name) in [
        (json!({"permissions": [READ]}), "db"),
        (json!({"permissions": [STREAMS]}), "nothing"),
        (json!({"resources": elsewhere}), "db"),
        (json!({"exp": 1}), "db"),
    ] {
        raw_messages::dial(&engine, claims, name).await.unwrap_err();
    }
    let tunnel_id = tunnel.online().tunnel_id.clone();

    engine.stop().await;
    let text = std::fs::read_to_string(log).unwrap();
    let mut lines: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .map(|record| {
            assert_eq!(record["kind"], "dial");
            ["rule", "outcome", "tunnel_id"].map(|name| record[name].as_str().map(str::to_owned))
        })
        .collect();
    let mut expected = [
        ("token", "served", Some(&tunnel_id)),
        ("permission", "refused", None),
        ("unknown", "refused", None),
        ("boundary", "refused", Some(&tunnel_id)),
        ("token", "refused", None),
    ]
    .map(|(rule, outcome, id)| [Some(rule.to_owned()), Some(outcome.to_owned()), id.cloned()]);
    // Each connection ends on its own, so the order is not defined.
    lines.sort_unstable();
    expected.sort_unstable();
    assert_eq!(lines, expected);
}

/// Size in bytes of a body in the tests below.
const SENT: usize = 200_000;

/// An HTTP/2 service that reports when it has received part of a body, and never answers.
async fn reporting_service(report_sender: mpsc::UnboundedSender<()>) -> Upstream {
    Upstream::start(move |stream, _| {
        let report_sender = report_sender.clone();
        async move {
            let mut connection = h2::server::handshake(stream).await.unwrap();
            let mut requests = JoinSet::new();
            while let Some(Ok((request, answer))) = connection.accept().await {
                let report_sender = report_sender.clone();
                requests.spawn(async move {
                    let mut body = request.into_body();
                    let mut seen = 0;
                    while let Some(Ok(data)) = body.data().await {
                        seen += data.len();
                        body.flow_control().release_capacity(data.len()).unwrap();
                        if seen == SENT {
                            report_sender.send(()).ok();
                        }
                    }
                    drop(answer);
                });
            }
        }
    })
    .await
}

/// Sends part of a body and disconnects once the service has received it.
async fn disconnect_midway(engine: &TestEngine, host: &str, got: impl AsyncFn()) {
    let length = SENT + 1;
    let mut visitor = engine.visitor().http1(host).await;
    let field = format!("Content-Length: {length}\r\n");
    visitor.request("POST", "/http1", host, &field).await;
    visitor.send(vec![7; SENT]).await;
    got().await;
    drop(visitor);

    let (frames, mut body) = mpsc::unbounded_channel();
    frames
        .send(Frame::data(Bytes::from(vec![7; SENT])))
        .unwrap();
    let body = futures_util::stream::poll_fn(move |cx| body.poll_recv(cx)).map(Ok);
    let request = hyper::Request::post(format!("https://{host}/h2"))
        .header("content-length", length)
        .body(StreamBody::new(body).boxed_unsync());
    let mut visitor = engine.visitor().h2(host).await;
    let answer = tokio::spawn(async move { visitor.send(request.unwrap()).await });
    got().await;
    answer.abort();
}

/// Bytes that a service received are counted for both HTTP versions and for every outcome.
#[tokio::test]
async fn bytes_to_a_service_are_logged_with_and_without_an_answer() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let engine = TestEngine::start_with(&format!("access_log: {{path: {log:?}}}\n")).await;
    let answers = Upstream::h2c().await;
    let answers = engine.publish_h2c(answers.addr()).await;
    let host = answers.hostname();
    let mut visitor = engine.visitor().http1(host).await;
    let field = format!("Content-Length: {SENT}\r\n");
    visitor.request("POST", "/http1", host, &field).await;
    visitor.send(vec![b'7'; SENT]).await;
    assert_eq!(visitor.answer().await.status, 200);
    let request = hyper::Request::post(format!("https://{host}/h2"))
        .body(H2Visitor::full(vec![b'7'; SENT]))
        .unwrap();
    let answer = engine.visitor().h2(host).await.send(request).await;
    assert!(H2Visitor::collect(answer.unwrap()).await.is_complete);

    let (report_sender, reports) = mpsc::unbounded_channel();
    let takes = reporting_service(report_sender).await;
    let tunnel = engine.publish_h2c(takes.addr()).await;
    let reports = tokio::sync::Mutex::new(reports);
    let got = async || {
        within("the body", reports.lock().await.recv())
            .await
            .unwrap();
    };
    disconnect_midway(&engine, tunnel.hostname(), got).await;
    let script = vec![Step::ReadHead, Step::ReadBytes(SENT), Step::KeepOpen];
    let takes = ScriptedUpstream::start(move |_| script.clone()).await;
    let tunnel = engine.publish(takes.addr()).await;
    let got = async || {
        takes.head().await;
        takes.report().await;
    };
    disconnect_midway(&engine, tunnel.hostname(), got).await;

    engine.stop().await;
    let text = std::fs::read_to_string(log).unwrap();
    let records = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let records: Vec<Value> = records.collect();
    assert_eq!(records.len(), 6, "{text}");
    for record in records {
        // In HTTP/1.1 the head is counted when it is written.
        let bytes = record["bytes_in"].as_u64().unwrap();
        assert!((200_000..201_000).contains(&bytes), "{record}");
    }
}

/// A failed service is not logged as a visitor that disconnected.
#[tokio::test]
async fn a_failed_service_is_logged_as_failed() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let engine = TestEngine::start_with(&format!("access_log: {{path: {log:?}}}\n")).await;
    let service = ScriptedUpstream::closes_unanswered().await;
    let tunnel = engine.publish(service.addr()).await;
    let host = tunnel.hostname();
    let answer = engine.visitor().http1(host).await.get("/", host).await;
    assert_eq!(answer.status, 502);
    let service = ScriptedUpstream::never_answers().await;
    let properties = Properties::http().time_to_first_byte_seconds(1);
    let tunnel = engine.publish_as(properties, service.addr()).await;
    let host = tunnel.hostname();
    let mut visitor = engine.visitor().h2(host).await;
    // Its answer arrives after the SETTINGS frame of the edge, which allows WebSockets.
    assert_eq!(visitor.get("/", host).await.status, 504);
    let refused = visitor.websocket("/", host).await.unwrap_err();
    assert_eq!(refused.as_u16(), 504);

    engine.stop().await;
    let text = std::fs::read_to_string(log).unwrap();
    let lines = text.lines().map(|line| {
        let record: Value = serde_json::from_str(line).unwrap();
        assert_eq!(record["outcome"], "failed", "{record}");
        record["reason"].as_str().unwrap().to_owned()
    });
    let lines: Vec<_> = lines.collect();
    let late = "no answer in time";
    assert_eq!(lines, ["the service closed", late, late]);
}
