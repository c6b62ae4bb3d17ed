//! `svc platform`.

use nix::sys::signal::Signal;
use serde_json::json;
use tokio::net::TcpSocket;

use crate::hosted::encoded;
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

/// Before the first start, and next to a running platform.
#[tokio::test]
async fn operators_are_created_and_listed_by_commands_that_end() {
    let home = Home::new();
    let base_url = configuration(&home, "");
    let admin = |more: &[&'static str]| {
        let config = ["-c", "platform.yaml", "-o", "json"];
        [&["platform", "admin"], more, &config].concat()
    };
    assert_eq!(home.run(&admin(&["list"])).await.json(), json!([]));
    let first = home
        .run(&admin(&["create", "ada@example.com"]))
        .await
        .json();
    assert_eq!(first["password"].as_str().unwrap().len(), 24, "{first}");

    let mut platform = home.start(&["platform", "-c", "platform.yaml", "-o", "json"]);
    platform.json().await;
    let second = home
        .run(&admin(&["create", "grace@example.com"]))
        .await
        .json();
    let list = home.run(&admin(&["list"])).await.json();
    let emails: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["email"])
        .collect();
    assert_eq!(emails, ["ada@example.com", "grace@example.com"], "{list}");
    assert_eq!(list[1]["status"], "active", "{list}");
    for operator in [first, second] {
        let signed_in = reqwest::Client::builder()
            .redirect(reqwest::redirect::Policy::none())
            .build()
            .unwrap()
            .post(format!("{base_url}/login"))
            .header("origin", &base_url)
            .header("content-type", "application/x-www-form-urlencoded")
            .body(format!(
                "email={}&password={}",
                encoded(operator["email"].as_str().unwrap()),
                encoded(operator["password"].as_str().unwrap())
            ));
        assert_eq!(signed_in.send().await.unwrap().status(), 303, "{operator}");
    }

    let again = home.run(&admin(&["create", "ada@example.com"])).await;
    assert_eq!(again.code, Some(4), "{again:?}");
    let bad = home.run(&admin(&["create", "ada"])).await;
    assert_eq!(bad.code, Some(2), "{bad:?}");
    let table = ["platform", "admin", "list", "-c", "platform.yaml"];
    let table = home.run(&table).await;
    assert!(table.stdout.starts_with("ada@example.com\t"), "{table:?}");
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
