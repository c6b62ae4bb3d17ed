//! `svc platform`.

use nix::sys::signal::Signal;
use tokio::net::TcpSocket;

use crate::program::Home;

/// Writes a configuration with a leased port. Returns the port's address.
fn configuration(home: &Home, more: &str) -> String {
    let address = ports::lease_address();
    let yaml = format!(
        "platform:\n  base_url: http://{address}\n  listen_addr: {address}\n  data_dir: data\n  drain_seconds: 0\n{more}"
    );
    std::fs::write(home.path().join("platform.yaml"), yaml).unwrap();
    format!("http://{address}")
}

#[tokio::test]
async fn a_platform_prints_its_address_and_stops_in_order() {
    let home = Home::new();
    let base_url = configuration(&home, "");
    let args = ["platform", "-c", "platform.yaml", "--output", "json"];
    let first = [&args[..], &["--create-admin", "root@example.com"]].concat();
    let mut platform = home.start(&first);
    let ready = platform.json().await;
    assert_eq!(ready["base_url"], base_url);
    assert_eq!(ready["admin_email"], "root@example.com");
    assert_eq!(ready["admin_password"].as_str().unwrap().len(), 24);
    let document = reqwest::get(format!("{base_url}/api/openapi.json"))
        .await
        .unwrap();
    assert_eq!(document.status(), 200);
    let whoami = reqwest::get(format!("{base_url}/api/whoami"))
        .await
        .unwrap();
    assert_eq!(whoami.status(), 401);
    // An idle connection does not delay the exit.
    platform.signal(Signal::SIGTERM);
    let ended = platform.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    // The operator is created once. All other data is still there.
    let mut platform = home.start(&first);
    let ready = platform.json().await;
    assert_eq!(ready.get("admin_password"), None);
    assert_eq!(platform.terminate().await.code, Some(0));
}

/// Next to a running platform, and repeated: it starts one rotation.
#[tokio::test]
async fn a_rotation_of_the_keys_is_started_once() {
    let home = Home::new();
    configuration(&home, "");
    let args = ["platform", "-c", "platform.yaml", "--output", "json"];
    let mut platform = home.start(&args);
    platform.json().await;
    let rotate = [&args[..], &["--rotate-keys"]].concat();
    let mut rotations = Vec::new();
    for _ in 0..2 {
        let output = home.run(&rotate).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        let rotation: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(rotation["kid"].as_str().unwrap().len(), 43);
        assert!(rotation["signs_from"].as_str().unwrap().ends_with('Z'));
        rotations.push(rotation);
    }
    assert_eq!(rotations[0], rotations[1]);
    assert_eq!(platform.terminate().await.code, Some(0));
}

#[tokio::test]
async fn a_platform_configuration_is_checked_without_a_start() {
    let home = Home::new();
    configuration(&home, "  base_uri: https://svc.example.com\n");
    let check = ["platform", "-c", "platform.yaml", "--check"];
    let output = home.run(&check).await;
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(
        output.stderr.contains("base_uri") && output.stderr.contains("base_url"),
        "{output:?}"
    );
    configuration(&home, "");
    let output = home.run(&check).await;
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(0), "the configuration is valid\n")
    );
    assert!(!home.path().join("data").exists());
    let output = home.run(&["platform", "--check"]).await;
    assert!(output.stderr.contains("platform.base_url"), "{output:?}");
    let schema = home.run(&["platform", "--schema"]).await.json();
    assert!(schema["properties"]["platform"]["properties"]["base_url"].is_object());
}

/// A start reports why it has no database, without its address, which contains a password.
#[tokio::test]
async fn a_start_without_its_database_reports_the_cause() {
    let home = Home::new();
    // A port that is bound but does not listen.
    let closed = TcpSocket::new_v4().unwrap();
    closed.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let address = closed.local_addr().unwrap();
    configuration(
        &home,
        &format!("  database_url: postgres://svc:hidden@{address}/svc\n"),
    );
    let output = home.run(&["platform", "-c", "platform.yaml"]).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("refused"), "{output:?}");
    assert!(!output.stderr.contains("hidden"), "{output:?}");
}
