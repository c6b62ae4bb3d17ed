//! `svc explain` with an engine alone. With a platform it is tested in `tests/e2e`.

use std::{fs, os::unix::fs::PermissionsExt as _};

use crate::installed::alone;
use crate::program::{CommandOutput, Home};

#[tokio::test]
async fn an_engine_alone_explains_what_is_visible_from_outside() {
    let home = Home::new();
    let up = alone(&home, &["--demo"]).await;
    let demo = ["explain", up.ready_field("demo_url"), "-o", "json"];
    let result = home.run(&demo).await.json();
    assert_eq!(result["visit"]["answer"]["status"], 200, "{result}");
    assert_eq!(result["visit"]["certificate"]["trusted"], true, "{result}");
    assert!(result.get("record").is_none() && result.get("next_step").is_none());

    let unknown_url = up.ready_field("demo_url").replace("//demo.", "//nobody.");
    let result = home
        .run(&["explain", &unknown_url, "-o", "json"])
        .await
        .json();
    assert_eq!(result["visit"]["answer"]["code"], "tunnel_not_found");
    assert!(
        result["unknown"]
            .as_str()
            .unwrap()
            .contains("keeps no records")
    );
    assert!(
        result["next_step"]
            .as_str()
            .unwrap()
            .contains("svc tunnels")
    );

    let reference = result["visit"]["answer"]["reference"].as_str().unwrap();
    let output = home.run(&["explain", reference]).await;
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("access log"), "{output:?}");
    up.stop().await;
}

/// The token of other commands belongs to the platform, while the address may belong to any server.
#[tokio::test]
async fn a_token_is_only_sent_to_the_address_it_was_given_for() {
    let home = Home::new();
    let up = alone(&home, &["--demo"]).await;
    let forward = [
        "forward",
        "9",
        "--name",
        "guarded",
        "--token-auth",
        "-o",
        "json",
    ];
    let mut agent = home.start(&forward);
    let url = agent.json().await["forwarding"]
        .as_str()
        .unwrap()
        .to_owned();
    let token = up.ready_field("token");
    let mut command = home.command(&["explain", &url, "-o", "json"]);
    command.env("SVC_TOKEN", token);
    let result = CommandOutput::of_command(command).await.json();
    assert_eq!(
        result["visit"]["answer"]["code"], "unauthenticated",
        "{result}"
    );
    assert!(result.get("token").is_none(), "{result}");

    let given = ["explain", &url, "--token", token, "-o", "json"];
    let result = home.run(&given).await.json();
    // Nothing listens on the port of the service.
    assert_eq!(result["visit"]["answer"]["status"], 502, "{result}");
    assert_eq!(result["token"]["boundary"], "none", "{result}");
    assert!(!result.to_string().contains(token));

    let clear = url.replace("https://", "http://");
    let output = home.run(&["explain", &clear, "--token", token]).await;
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("not sent without TLS"), "{output:?}");
    let strangers = home.run(&["explain", &url, "--ca-file", "none.pem"]).await;
    assert_eq!(strangers.code, Some(2), "{strangers:?}");
    up.stop().await;
}

#[tokio::test]
async fn a_missing_link_password_is_explained() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let file = home.path().join("visitors");
    fs::write(&file, "ann:correct horse\n").unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    let forward = ["forward", "9", "--name", "fair", "-o", "json"];
    let password = ["--basic-auth-file", file.to_str().unwrap()];
    let mut agent = home.start(&[&forward[..], &password].concat());
    let online = agent.json_where(|line| line["status"] == "online").await;
    let url = online["forwarding"].as_str().unwrap();
    let result = home.run(&["explain", url, "-o", "json"]).await.json();
    let answer = &result["visit"]["answer"];
    assert_eq!(answer["code"], "password_required", "{result}");
    let next = result["next_step"].as_str().unwrap_or_default();
    assert!(next.contains("--basic-auth-file"), "{result}");
    assert_eq!(agent.terminate().await.code, Some(0));
    up.stop().await;
}
