//! Services with TLS that select a site by the server name and by `Host`.

use serde_json::{Value, json};

use super::inspect_tls::{service, tell};
use crate::installed::{RunningUp, alone};
use crate::local_platform::up::visitor;
use crate::program::{Home, RunningCommand};

/// Publishes the service with these flags, and returns the description of a MOVE in which the
/// destination has the public origin.
async fn moved(home: &Home, up: &RunningUp, target: &str, flags: &[&str]) -> (Value, String) {
    let forward = ["forward", target, "--hostname", "web", "-o", "json"];
    let mut running = home.start(&[&forward, flags].concat());
    let seen = request(&mut running, up).await;
    running.terminate().await;
    seen
}

async fn request(running: &mut RunningCommand, up: &RunningUp) -> (Value, String) {
    let online = running.json_where(|line| line["status"] == "online").await;
    let (client, url) = visitor(&up.ready, online["forwarding"].as_str().unwrap());
    let public = url.host_str().unwrap().to_owned();
    let destination = url.join("/b").unwrap().to_string();
    let method = reqwest::Method::from_bytes(b"MOVE").unwrap();
    let asked = client
        .request(method, url.join("/a").unwrap())
        .header("destination", destination);
    let answer = asked.send().await.unwrap().json().await.unwrap();
    (answer, public)
}

#[tokio::test]
async fn the_server_name_and_the_host_are_options() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let target = service(&["h2", "http/1.1"], tell).await;
    let address = target.strip_prefix("https://").unwrap();

    let (seen, _) = moved(&home, &up, &target, &["--host-header", "app.test:8443"]).await;
    assert_eq!(seen["name"], "app.test", "{seen}");
    assert_eq!(seen["host"], "app.test:8443", "{seen}");
    assert_eq!(seen["destination"], "https://app.test:8443/b", "{seen}");
    assert_eq!(seen["alpn"], "http/1.1", "{seen}");

    let flags = ["--host-header", "app.test", "--server-name", "front.test"];
    let (seen, _) = moved(&home, &up, &target, &flags).await;
    assert_eq!(
        (&seen["name"], &seen["host"]),
        (&json!("front.test"), &json!("app.test"))
    );

    // An address has no server name.
    let (seen, _) = moved(&home, &up, &target, &["--host-header", "rewrite"]).await;
    assert_eq!(seen["name"], Value::Null, "{seen}");
    assert_eq!(seen["host"], address, "{seen}");
    assert_eq!(seen["destination"], format!("{target}/b"), "{seen}");

    let (seen, public) = moved(&home, &up, &target, &["--server-name", "front.test"]).await;
    assert_eq!(seen["name"], "front.test", "{seen}");
    assert!(
        seen["host"].as_str().unwrap().starts_with(&public),
        "{seen}"
    );
    assert!(
        seen["destination"].as_str().unwrap().contains(&public),
        "{seen}"
    );

    // Without these options, the engine opens the session.
    let (seen, public) = moved(&home, &up, &target, &[]).await;
    assert_eq!(seen["name"], public, "{seen}");
    assert_eq!(seen["alpn"], "h2", "{seen}");
    up.stop().await;
}

/// The same keys in the file of `svc run`.
#[tokio::test]
async fn a_file_sets_the_server_name_and_the_host() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let target = service(&["http/1.1"], tell).await;
    let file = json!({"version": 1, "tunnels": {"web": {
        "target": target, "host_header": "app.test", "server_name": "front.test",
    }}});
    std::fs::write(home.path().join("svc.yaml"), file.to_string()).unwrap();
    let mut running = home.start(&["run", "-o", "json"]);
    let (seen, _) = request(&mut running, &up).await;
    assert_eq!(
        (&seen["name"], &seen["host"]),
        (&json!("front.test"), &json!("app.test"))
    );
    running.terminate().await;
    up.stop().await;
}

/// The inspector sees the requests, and repeats one with the same names.
#[tokio::test]
async fn requests_in_the_session_of_the_agent_are_inspected() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let target = service(&["http/1.1"], tell).await;
    let mut running = home.start(&[
        "forward",
        &target,
        "--host-header",
        "app.test",
        "--inspect=127.0.0.1:0",
        "-o",
        "json",
    ]);
    let online = running.json().await;
    let (client, url) = visitor(&up.ready, online["forwarding"].as_str().unwrap());
    let seen: Value = client.get(url).send().await.unwrap().json().await.unwrap();
    assert_eq!(seen["name"], "app.test", "{seen}");
    let page = online["inspector"].as_str().unwrap();
    let (page, token) = page.split_once('#').unwrap();
    let call = async |method: reqwest::Method, path: &str| -> Value {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let asked = client
            .request(method, format!("{page}{path}"))
            .json(&json!({}));
        asked
            .bearer_auth(token)
            .send()
            .await
            .unwrap()
            .json()
            .await
            .unwrap()
    };
    let list = call(reqwest::Method::GET, "api/exchanges").await;
    let first = &list["exchanges"][0];
    assert_eq!(
        (&first["method"], &first["status"]),
        (&json!("GET"), &json!(200)),
        "{list}"
    );
    let replayed = call(reqwest::Method::POST, "api/exchanges/1/replay").await;
    let body = format!("api/exchanges/{}/response/body", replayed["id"]);
    let again = call(reqwest::Method::GET, &body).await;
    assert_eq!(
        (&again["name"], &again["host"]),
        (&seen["name"], &seen["host"]),
        "{again}"
    );
    running.terminate().await;
    up.stop().await;
}

#[tokio::test]
async fn a_server_name_without_tls_is_a_usage_error() {
    let home = Home::new();
    let ended = home
        .run(&["forward", "9", "--server-name", "front.test"])
        .await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("https://"), "{ended:?}");
}
