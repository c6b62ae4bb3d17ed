//! The access log: what a record says, and what it never says.

use client::Properties;
use serde_json::{Value, json};
use testing::{TestEngine, Upstream, within};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::support::{READ, STREAMS};
use crate::wired;

/// Names of the members, as `docs/configuration.md` has them.
fn members(record: &Value) -> Vec<&str> {
    let members = record.as_object().unwrap().keys();
    members.map(String::as_str).collect()
}

/// Names of all members in the documentation's table.
fn documented() -> Vec<String> {
    let text = include_str!("../../../../docs/configuration.md");
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
async fn each_request_leaves_one_record_without_secrets() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("access.log");
    let engine = TestEngine::start_with(&format!("access_log: {{path: {log:?}}}\n")).await;
    let service = Upstream::http1().await;
    let properties = Properties {
        token_auth: Some(true),
        ..Properties::http()
    };
    let tunnel = engine.publish_as(properties, service.addr()).await;
    let host = tunnel.hostname();
    let token = engine.token(json!({"sourceCredentialId": "crd_1"}));
    let mut visitor = engine.visitor().http1(host).await;
    let target = format!("/a?svc.token={token}&b=private");
    assert_eq!(visitor.get(&target, host).await.status, 200);
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
    let records: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let said: Vec<_> = records
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
    assert_eq!(said, expected, "{text}");

    let served = &records[0];
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
    // Where a visitor is, nobody asks on a community engine (`geo.rs`).
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
    let (mut stream, _) = wired::dial(&engine, json!({}), "db").await.unwrap();
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
        wired::dial(&engine, claims, name).await.unwrap_err();
    }
    let tunnel_id = tunnel.online().tunnel_id.clone();

    engine.stop().await;
    let text = std::fs::read_to_string(log).unwrap();
    let mut said: Vec<_> = text
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
    // Each connection ends by itself, so the order is open.
    said.sort_unstable();
    expected.sort_unstable();
    assert_eq!(said, expected);
}
