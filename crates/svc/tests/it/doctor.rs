//! `svc doctor`, where all is well and where something is not.

use serde_json::Value;

use super::{
    installed::{alone, free_port, up},
    program::{Ended, Home},
};

/// The status of a check, of those that were written as JSON.
fn status<'a>(findings: &'a Value, name: &str) -> &'a str {
    let checks = findings["checks"].as_array().unwrap();
    let check = checks.iter().find(|check| check["name"] == name);
    check
        .and_then(|check| check["status"].as_str())
        .unwrap_or("absent")
}

fn findings(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

#[tokio::test]
async fn all_is_well_beside_a_running_installation() {
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
    assert!(!ended.stdout.contains(up.said("token")) && !ended.stdout.contains("a.b.c"));
    up.stop().await;
}

#[tokio::test]
async fn an_engine_alone_has_no_platform_to_lose() {
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
async fn an_engine_that_is_not_there_is_the_first_to_fail() {
    let home = Home::new();
    let engine = format!("127.0.0.1:{}", free_port());
    let ended = home
        .run(&["doctor", "--engine", &engine, "--token", "a.b.c"])
        .await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let last = ended.stdout.lines().last().unwrap_or_default();
    assert!(last.starts_with("engine\tfail\t"), "{ended:?}");
    assert!(ended.stderr.contains("a check failed"), "{ended:?}");
}

/// In the order in which commands need them.
const ALL: [&str; 7] = [
    "context",
    "control_plane_auth",
    "engine",
    "token",
    "control_plane",
    "engine_tunnels",
    "engine_clients",
];
