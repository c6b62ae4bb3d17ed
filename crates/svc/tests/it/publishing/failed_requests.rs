//! Requests that fail, because nothing listens on the target.

use reqwest::StatusCode;
use serde_json::{Value, json};

use crate::installed::{alone, up};
use crate::local_platform::up::visitor;
use crate::program::{Home, soon};
use crate::publishing::panel::TerminalSession;

/// The address that a panel shows.
fn shown_address(text: &str) -> String {
    let start = text.find("https://web.t.engine.localhost:").unwrap();
    let address = text[start..].split_whitespace().next().unwrap();
    address.to_owned()
}

#[tokio::test]
async fn the_panel_lists_and_counts_failed_requests() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let port = ports::lease().to_string();
    let forward = ["forward", &port, "--hostname", "web"];
    let mut terminal = TerminalSession::start(&home, &forward, 160, 30);
    terminal.until_text("nothing listens on localhost:").await;
    let (client, url) = visitor(&up.ready, &shown_address(&terminal.text()));
    let url = url.join("/orders?a=b").unwrap();
    let answer = client.get(url).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::BAD_GATEWAY);
    terminal
        .until(|screen| {
            let text = screen.contents();
            text.lines().any(|line| {
                let names = ["GET", "/orders?a=b", "is not reachable"];
                names.iter().all(|name| line.contains(name))
            })
        })
        .await;
    terminal.until_text("1 total, 0 open, 1 failed").await;
    terminal.press("q");
    let (code, left) = terminal.ended().await;
    assert_eq!(code, Some(0), "{left}");
    assert!(left.contains("1 visit, 1 failed"), "{left}");
    up.stop().await;
}

/// The usage of the project when it has so many failed requests.
async fn usage_with_failures(home: &Home, count: u64) -> Value {
    loop {
        let usage = home.run(&["project", "usage", "-o", "json"]).await.json();
        if usage["total"]["failedStreams"] == count {
            return usage;
        }
    }
}

/// Method and path of each request in the inspector at this address, sorted by path. Each of them has
/// failed, because its service is not reachable.
async fn inspected_failures(address: &str) -> Vec<(Value, Value)> {
    let (page, token) = address.split_once('#').unwrap();
    let inspector = reqwest::Client::builder().no_proxy().build().unwrap();
    let list = inspector
        .get(format!("{page}api/exchanges"))
        .bearer_auth(token);
    let list: Value = list.send().await.unwrap().json().await.unwrap();
    let exchanges = list["exchanges"]
        .as_array()
        .unwrap_or_else(|| panic!("{list}"));
    let mut seen: Vec<_> = exchanges
        .iter()
        .map(|one| {
            let error = one["error"].as_str().unwrap_or_default();
            assert!(error.contains("is not reachable"), "{one}");
            assert_eq!(one["status"], Value::Null, "{one}");
            (one["method"].clone(), one["path"].clone())
        })
        .collect();
    seen.sort_by_key(|(_, path)| path.to_string());
    seen
}

#[tokio::test]
async fn failed_requests_are_in_the_inspector_the_request_log_the_usage_and_the_metrics() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let port = ports::lease().to_string();
    let plain = port.clone();
    let encrypted = format!("https://localhost:{port}");
    for (name, target) in [("plain", &plain), ("encrypted", &encrypted)] {
        let args = [
            "forward",
            target,
            "--hostname",
            name,
            "--inspect=127.0.0.1:0",
            "-o",
            "json",
        ];
        let mut agent = home.start(&args);
        let online = agent.json().await;
        agent.wait_for_stderr("nothing listens on").await;
        let (client, url) = visitor(&up.ready, online["forwarding"].as_str().unwrap());
        let got = client.get(url.join("/got").unwrap()).send().await.unwrap();
        assert_eq!(got.status(), StatusCode::BAD_GATEWAY);
        let posted = client.post(url.join("/posted").unwrap()).body("text");
        let posted = posted.send().await.unwrap();
        assert_eq!(posted.status(), StatusCode::BAD_GATEWAY);

        let seen = inspected_failures(online["inspector"].as_str().unwrap()).await;
        let expected = [
            (json!("GET"), json!("/got")),
            (json!("POST"), json!("/posted")),
        ];
        assert_eq!(seen, expected, "{name}");
        let ended = agent.terminate().await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }

    let failed = ["project", "logs", "--outcome", "failed", "-o", "json"];
    let reported = async {
        loop {
            let list = home.run(&failed).await.json();
            if list["logs"].as_array().unwrap().len() == 4 {
                return list;
            }
        }
    };
    let list = soon("four failed requests in the log", reported).await;
    for log in list["logs"].as_array().unwrap() {
        let summary = &log["payload"];
        assert_eq!(summary["response"]["outcome"], "failed", "{summary}");
        let reason = summary["routing"]["explanation"]["reason"].as_str();
        let reason = reason.unwrap_or_else(|| panic!("{summary}"));
        assert!(reason.contains("is not reachable"), "{summary}");
    }
    let counted = soon(
        "failed requests in the usage",
        usage_with_failures(&home, 4),
    );
    let usage = counted.await;
    assert_eq!(usage["total"]["streams"], 4, "{usage}");
    let metrics = format!("{}/metrics", up.ready_field("metrics_url"));
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let metrics = client.get(metrics).send().await.unwrap();
    let metrics = metrics.text().await.unwrap();
    let count = r#"svc_streams_total{kind="http",outcome="failed"} 4"#;
    assert!(metrics.contains(count), "{metrics}");
    up.stop().await;
}
