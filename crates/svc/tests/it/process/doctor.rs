//! `svc doctor`, where all is well and where something is not.

use serde_json::{Value, json};

use crate::installed::{alone, secret, up};
use crate::program::{CommandOutput, Home};

/// The status of a check in the JSON output.
fn status<'a>(findings: &'a Value, name: &str) -> &'a str {
    let checks = findings["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == name);
    check
        .and_then(|check| check["status"].as_str())
        .unwrap_or("absent")
}

fn findings(output: &CommandOutput) -> Value {
    serde_json::from_str(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

#[tokio::test]
async fn all_checks_pass_next_to_a_running_installation() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let ended = home.run(&["doctor", "--output", "json"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let found = findings(&ended);
    assert_eq!(found["summary"]["fail"], 0, "{found}");
    for name in ALL {
        assert_eq!(status(&found, name), "pass", "{name}: {found}");
    }

    let ended = home
        .run(&["doctor", "--output", "json", "--token", "a.b.c"])
        .await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let found = findings(&ended);
    for name in ["control_plane_auth", "token"] {
        assert_eq!(status(&found, name), "fail", "{name}: {found}");
    }
    assert_eq!(status(&found, "engine"), "pass", "it is the token: {found}");
    assert!(!ended.stdout.contains(up.ready_field("token")) && !ended.stdout.contains("a.b.c"));
    up.stop().await;
}

#[tokio::test]
async fn an_engine_alone_has_no_platform_checks() {
    let home = Home::new();
    let alone = alone(&home, &[]).await;
    let ended = home.run(&["doctor", "--output", "json"]).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let found = findings(&ended);
    assert_eq!(status(&found, "token"), "pass", "{found}");
    for name in ["control_plane_auth", "control_plane"] {
        assert_eq!(status(&found, name), "skip", "{name}: {found}");
    }
    alone.stop().await;
}

#[tokio::test]
async fn an_unreachable_engine_is_the_first_failure() {
    let home = Home::new();
    let engine = format!("127.0.0.1:{}", ports::lease());
    let output = home
        .run(&["doctor", "--engine", &engine, "--token", "a.b.c"])
        .await;
    assert_eq!(output.code, Some(1), "{output:?}");
    let last = output.stdout.lines().last().unwrap_or_default();
    assert!(last.starts_with("tcp\tfail\t"), "{output:?}");
    assert!(last.contains("\tis the engine running"), "{output:?}");
    assert!(output.stderr.contains("a check failed"), "{output:?}");
}

/// Wrong name and unknown issuer, the two errors of trust.
#[tokio::test]
async fn the_reasons_of_an_untrusted_certificate_are_distinguished() {
    let home = Home::new();
    let alone = alone(&home, &[]).await;
    let engine = alone.ready_field("engine_url").to_owned();
    let (_, port) = engine.rsplit_once(':').unwrap();
    let ca_file = alone.ready_field("ca_file");
    let tls = |found: &Value| {
        let checks = found["checks"].as_array().unwrap();
        let check = checks.iter().find(|check| check["name"] == "tls").unwrap();
        assert_eq!(check["status"], "fail", "{found}");
        assert!(check["next_step"].is_string(), "{found}");
        check["message"].as_str().unwrap().to_owned()
    };
    let here = format!("other.localhost:{port}");
    let mut args = vec![
        "doctor", "-o", "json", "--token", "a.b.c", "--engine", &here,
    ];
    let strange = findings(&home.run(&args).await);
    assert!(tls(&strange).contains("svc development CA"), "{strange}");
    args.extend(["--ca-file", ca_file]);
    let other = findings(&home.run(&args).await);
    assert!(tls(&other).contains("not for other.localhost"), "{other}");

    // A port on which another service answers.
    let metrics = alone
        .ready_field("metrics_url")
        .trim_start_matches("http://");
    let args = [
        "doctor", "-o", "json", "--token", "a.b.c", "--engine", metrics,
    ];
    let wrong = findings(&home.run(&args).await);
    assert!(tls(&wrong).contains("does not speak TLS"), "{wrong}");
    alone.stop().await;
}

/// The engine of a flag may belong to another installation than the platform of the context.
#[tokio::test]
async fn a_token_for_another_engine_is_not_sent_to_the_platform_of_the_context() {
    let home = Home::new();
    let platform = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", platform.local_addr().unwrap());
    let set = [
        "context",
        "set",
        "work",
        "--engine",
        "engine.example:443",
        "--api-url",
        &address,
    ];
    let stored = home.run(&set).await;
    assert_eq!(stored.code, Some(0), "{stored:?}");
    let engine = format!("127.0.0.1:{}", ports::lease());
    let args = [
        "doctor",
        "--context",
        "work",
        "-o",
        "json",
        "--token",
        "a.b.c",
        "--engine",
        &engine,
    ];
    let found = findings(&home.run(&args).await);
    assert_eq!(status(&found, "control_plane_auth"), "skip", "{found}");
    // No connection was made.
    platform.set_nonblocking(true).unwrap();
    assert!(platform.accept().is_err(), "{found}");
}

#[tokio::test]
async fn a_token_without_publish_permission_is_not_a_failure() {
    let home = Home::new();
    let alone = alone(&home, &[]).await;
    let secret = secret(&home);
    let reader = ["--permission", "tunnels.resources.read-only"];
    let mint = ["token", "mint", "--secret", &secret, "--type", "app"];
    let token = home.run(&[&mint[..], &reader].concat()).await.stdout;
    let output = home
        .run(&["doctor", "-o", "json", "--token", token.trim()])
        .await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let found = findings(&output);
    assert_eq!(status(&found, "tunnel"), "skip", "{found}");
    assert_eq!(status(&found, "permissions"), "warn", "{found}");
    assert_eq!(status(&found, "engine_tunnels"), "pass", "{found}");

    let output = home.run(&["doctor", "--no-tunnel"]).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stdout.contains("tunnel\tskip\t"), "{output:?}");
    assert!(!output.stdout.contains("tunnel_latency"), "{output:?}");
    alone.stop().await;
}

/// Beside an engine with its own configuration, without a context.
#[tokio::test]
async fn the_certificates_of_an_engine_are_checked_by_its_configuration() {
    let home = Home::new();
    let file = home.path().join("engine.yaml");
    let state = home.path().join("acme");
    let config = json!({
        "engine": {"host": "engine.example.com"},
        "tls": {"listen_addr": "127.0.0.1:0"},
        "auth": {"jwt": {"token_jwt_secret": "0123456789abcdef0123456789abcdef"}},
        "certs": {"static": {"enabled": false}, "acme": {
            "directory": "https://ca.example/directory",
            "terms_agreed": true,
            "state_dir": state,
        }},
    });
    std::fs::write(&file, config.to_string()).unwrap();
    let file = file.to_str().unwrap();
    let run = async || {
        let args = ["doctor", "--engine-file", file, "--output", "json"];
        let ended = home.run(&args).await;
        (ended.code, findings(&ended))
    };
    let (code, found) = run().await;
    assert_eq!(code, Some(0), "{found}");
    for (name, expected) in [
        ("certificates", "warn"),
        ("caa", "skip"),
        ("settings", "skip"),
    ] {
        assert_eq!(status(&found, name), expected, "{name}: {found}");
    }
    std::fs::create_dir(&state).unwrap();
    std::fs::write(state.join("problem.txt"), "rateLimited: wait").unwrap();
    let (_, found) = run().await;
    assert!(
        found
            .to_string()
            .contains("engine.example.com: rateLimited: wait"),
        "{found}"
    );
    std::fs::write(file, "engine: {host: 1}").unwrap();
    let (code, found) = run().await;
    assert_eq!(code, Some(1), "{found}");
    assert_eq!(status(&found, "certificates"), "fail", "{found}");
}

/// In the order in which commands need them.
const ALL: [&str; 18] = [
    "context",
    "control_plane_auth",
    "dns",
    "tcp",
    "tls",
    "alpn",
    "clock",
    "engine",
    "token",
    "control_plane",
    "engine_tunnels",
    "engine_clients",
    "tunnel",
    "tunnel_latency",
    "tunnel_headers",
    "tunnel_streaming",
    "tunnel_websocket",
    "tunnel_upload",
];
