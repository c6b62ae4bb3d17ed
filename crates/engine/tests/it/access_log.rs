//! The access log: one line of JSON for each request.

use client::Properties;
use jiff::Timestamp;
use serde_json::{Value, json};
use testing::{ScriptedUpstream, TestEngine, TestTunnel, Upstream};

use crate::support::READ;

fn bearer(token: &str) -> String {
    format!("Authorization: Bearer {token}\r\n")
}

/// ED-1: one record a request, which says who decided and how long it took, and holds no secret.
#[tokio::test]
async fn ed_1_the_access_log_has_a_record_for_each_request() {
    let logs = tempfile::tempdir().unwrap();
    let path = logs.path().join("access.log");
    let engine = TestEngine::start_with(&format!("access_log: {{path: {path:?}}}")).await;
    let upstream = Upstream::http1().await;
    let guarded = Properties {
        token_auth: Some(true),
        ..Properties::http()
    };
    let broken = ScriptedUpstream::cuts_the_head().await;
    let tunnel: TestTunnel = engine.publish_as(guarded, upstream.addr()).await;
    let failing = engine.publish(broken.addr()).await;
    let good = engine.token(json!({}));
    let weak = engine.token(json!({"permissions": [READ]}));
    let host = tunnel.hostname().to_owned();
    let failing_host = failing.hostname().to_owned();
    let visits = [
        (
            &host,
            format!("/bytes/1000?a=hush&svc.token={good}"),
            String::new(),
        ),
        (&host, "/a?hush".to_owned(), bearer(&good)),
        (&host, "/b?hush".to_owned(), bearer(&weak)),
        (&host, "/c?hush".to_owned(), bearer("hush.hush.hush")),
        (&host, "/d?svc.token=hush".to_owned(), bearer(&good)),
        (&host, "/e?hush".to_owned(), String::new()),
        (&failing_host, "/f?hush".to_owned(), String::new()),
    ];
    for (host, target, fields) in &visits {
        let mut visitor = engine.visitor().http1(host).await;
        visitor.request("GET", target, host, fields).await;
        visitor.answer().await;
    }
    let tunnel_id = tunnel.online().tunnel_id.clone();
    tunnel.close().await;
    failing.close().await;
    engine.stop().await;

    let log = std::fs::read_to_string(&path).unwrap();
    for secret in [good.as_str(), &weak, "hush", "?", "svc.token"] {
        assert!(!log.contains(secret), "{secret} is in {log}");
    }
    let records: Vec<Value> = log
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(records.len(), visits.len());
    let mut ids: Vec<_> = records
        .iter()
        .map(|record| record["id"].as_str().unwrap())
        .collect();
    assert!(ids.iter().all(|id| id.len() == 24), "{ids:?}");
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), records.len());
    let expected = [
        ("/bytes/1000", 200, "token", "served"),
        ("/a", 200, "token", "served"),
        ("/b", 403, "permission", "refused"),
        ("/c", 401, "token", "refused"),
        ("/d", 400, "query_credential", "refused"),
        ("/e", 401, "token", "refused"),
        ("/f", 502, "public", "failed"),
    ];
    // A record is written when its visit has ended, which may be after the next one's begin.
    for (path, status, rule, outcome) in expected {
        let record = records.iter().find(|record| record["path"] == path);
        let record = record.unwrap_or_else(|| panic!("no record of {path} in {log}"));
        let told = (
            record["status"].as_u64().unwrap(),
            record["rule"].as_str().unwrap(),
            record["outcome"].as_str().unwrap(),
        );
        assert_eq!(told, (status, rule, outcome), "{record}");
        assert_eq!(
            (&record["kind"], &record["method"]),
            (&"http".into(), &"GET".into())
        );
        assert_eq!(record["source_ip"], "127.0.0.1");
        assert!(
            record["time"]
                .as_str()
                .unwrap()
                .parse::<Timestamp>()
                .is_ok()
        );
        assert!(record["total_ms"].as_f64().unwrap() > 0.0);
        assert_eq!(
            record["reason"].is_string(),
            outcome != "served",
            "{record}"
        );
        if outcome == "served" {
            assert_eq!(record["tunnel_id"], tunnel_id);
            assert_eq!(record["host"], host);
            assert_eq!(record["user_id"], "usr_tester");
            let open = record["open_ms"].as_f64().unwrap();
            let first_byte = record["first_byte_ms"].as_f64().unwrap();
            assert!(open <= first_byte && first_byte <= record["total_ms"].as_f64().unwrap());
            assert!(record["bytes_out"].as_u64().unwrap() > 0);
        } else {
            assert!(record["first_byte_ms"].is_null(), "{record}");
        }
    }
}
