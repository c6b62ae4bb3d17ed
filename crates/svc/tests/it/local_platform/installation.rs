//! `svc up` as a whole: its output, its files, its shutdown.

use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::hosted::encoded;
use crate::installed::{alone, tcp_ports, up};
use crate::program::{Home, RunningCommand};

#[tokio::test]
async fn one_line_of_json_contains_all_addresses() {
    let home = Home::new();
    let up = up(&home, &["--demo"]).await;
    let ready = &up.ready;
    insta::assert_json_snapshot!("ready", ready, {
        ".base_url" => "http://localhost:[port]",
        ".turn_urls[]" => insta::dynamic_redaction(|url, _| {
            let url = url.as_str().unwrap_or_default();
            let (before, rest) = url.split_once("127.0.0.1:").unwrap_or_default();
            let (_, after) = rest.split_once('?').unwrap_or_default();
            format!("{before}127.0.0.1:[port]?{after}")
        }),
        ".engine_url" => "https://[endpoint].engine.localhost:[port]",
        ".metrics_url" => "http://127.0.0.1:[port]",
        ".demo_url" => "https://demo-[endpoint].t.engine.localhost:[port]",
        ".workspace_id" => "[id]",
        ".project_id" => "[id]",
        ".project_endpoint" => "[endpoint]",
        ".admin_password" => "[password]",
        ".token" => "[token]",
        ".ca_file" => "[ca_file]",
        ".pid" => "[pid]",
    });
    let endpoint = up.ready_field("project_endpoint");
    let engine = format!("https://{endpoint}.engine.localhost:");
    assert!(up.ready_field("engine_url").starts_with(&engine));
    assert!(up.ready_field("base_url").starts_with("http://localhost:"));
    assert_eq!(up.ready_field("project_endpoint").len(), 8);

    let metrics = up.ready_field("metrics_url");
    let scraped = reqwest::get(format!("{metrics}/metrics")).await.unwrap();
    assert!(scraped.text().await.unwrap().contains("svc_"));
    let health = reqwest::get(format!("{metrics}/readyz")).await.unwrap();
    assert_eq!(health.status(), 200);

    // Both loopback addresses, if the machine has both.
    let port: reqwest::Url = up.ready_field("base_url").parse().unwrap();
    let port = port.port().unwrap();
    let mut addresses = vec![format!("127.0.0.1:{port}")];
    if std::net::TcpListener::bind("[::1]:0").is_ok() {
        addresses.push(format!("[::1]:{port}"));
    }
    for address in addresses {
        let answer = reqwest::get(format!("http://{address}/api/openapi.json")).await;
        assert_eq!(answer.unwrap().status(), 200, "{address}");
    }
    let output = up.stop().await;
    assert_eq!(output.stdout, "");
    assert!(!output.stderr.contains("panicked"), "{output:?}");
}

/// One token for platform and engine: all permissions, 90 days, no OAuth claims, as decided.
#[tokio::test]
async fn the_administrators_token_and_password_work_everywhere() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let base = up.ready_field("base_url");
    let whoami: Value = reqwest::Client::new()
        .get(format!("{base}/api/whoami"))
        .bearer_auth(up.ready_field("token"))
        .send()
        .await
        .unwrap()
        .json()
        .await
        .unwrap();
    assert_eq!(whoami["email"], up.ready_field("admin_email"));
    assert_eq!(whoami["role"], "admin");
    assert_eq!(whoami["type"], "pat");
    assert_eq!(
        whoami["workspaceIds"],
        json!([up.ready_field("workspace_id")])
    );
    let list = home
        .run(&["tunnels", "--token", up.ready_field("token"), "-o", "json"])
        .await;
    assert_eq!(list.json(), json!([]));

    let seen = home
        .run(&["token", "inspect", up.ready_field("token"), "-o", "json"])
        .await
        .json();
    let claims = seen["claims"].as_object().unwrap();
    let life = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
    assert_eq!(life, 90 * 24 * 60 * 60);
    for oauth in ["client_id", "aud", "resource", "scope"] {
        assert!(!claims.contains_key(oauth), "{oauth}");
    }

    for (password, status) in [
        (up.ready_field("admin_password"), 303),
        ("wrong password", 401),
    ] {
        let answer = sign_in(base, up.ready_field("admin_email"), password).await;
        assert_eq!(answer.status(), status, "{answer:?}");
    }
    // An unknown token is refused by both.
    let stranger = ["tunnels", "--token", "a.b.c"];
    assert_eq!(home.run(&stranger).await.code, Some(3));
    let stranger = home.run(&["whoami", "--token", "a.b.c"]).await;
    assert_eq!(stranger.code, Some(3), "{stranger:?}");
}

#[tokio::test]
async fn a_second_start_reuses_the_first_ones_files() {
    let home = Home::new();
    let first = up(&home, &[]).await;
    let kept = home.path().join(".local/share/svc/up.json");
    let mode = std::fs::metadata(&kept).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let ca = std::fs::read(first.ready_field("ca_file")).unwrap();
    let before = first.ready.clone();
    first.stop().await;

    let second = up(&home, &[]).await;
    for same in [
        "workspace_id",
        "project_id",
        "project_endpoint",
        "admin_email",
        "admin_password",
        "token",
        "ca_file",
    ] {
        assert_eq!(second.ready[same], before[same], "{same}");
    }
    assert_eq!(std::fs::read(second.ready_field("ca_file")).unwrap(), ca);
    let projects = home.run(&["project", "list", "-o", "json"]).await.json();
    assert_eq!(projects["total"], 1, "{projects}");
    let list = home.run(&["tunnels", "-o", "json"]).await;
    assert_eq!(list.json(), json!([]));
    second.stop().await;

    // A changed password is not printed, and a revoked token is replaced.
    let mut text: Value = serde_json::from_slice(&std::fs::read(&kept).unwrap()).unwrap();
    text["admin_password"] = json!("not the password any more");
    text["token"] = json!("a.b.c");
    std::fs::write(&kept, text.to_string()).unwrap();
    let third = up(&home, &[]).await;
    assert_eq!(third.ready.get("admin_password"), None);
    assert_eq!(third.ready["project_id"], before["project_id"]);
    let list = home.run(&["tunnels", "-o", "json"]).await;
    assert_eq!(list.json(), json!([]));
    third.stop().await;
}

#[tokio::test]
async fn the_community_engine_runs_alone() {
    let home = Home::new();
    let first = alone(&home, &[]).await;
    for absent in [
        "base_url",
        "workspace_id",
        "project_id",
        "admin_password",
        "turn_urls",
    ] {
        assert!(first.ready.get(absent).is_none(), "{absent}");
    }
    let token = first.ready_field("token").to_owned();
    let whoami = home.run(&["whoami"]).await;
    assert_eq!(whoami.code, Some(2), "{whoami:?}");
    assert!(whoami.stderr.contains("no platform"), "{whoami:?}");
    first.stop().await;
    assert!(!home.path().join(".local/share/svc/platform.db").exists());

    // A token of the first run is still valid.
    let _second = alone(&home, &[]).await;
    let list = home
        .run(&["tunnels", "--token", &token, "-o", "json"])
        .await;
    assert_eq!(list.json(), json!([]));
}

/// Text mode.
#[tokio::test]
async fn text_output_shows_how_to_sign_in() {
    let home = Home::new();
    let mut running = home.start(&["up", "--port", "0", "--tcp-ports", &tcp_ports()]);
    let panel = running.until("Ctrl-C shuts it down").await;
    for text in [
        "base_url",
        "Sign in at http://localhost:",
        "admin@localhost",
        "The TURN relay at turn_url",
        "svc project list",
    ] {
        assert!(panel.contains(text), "{text} is missing in {panel}");
    }
    let output = running.terminate().await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(output.stderr.contains("Stopping"), "{output:?}");
}

#[tokio::test]
async fn a_proxy_of_the_environment_is_not_used() {
    let home = Home::new();
    let nobody = "http://127.0.0.1:1";
    let args = [
        "up",
        "--port",
        "0",
        "--tcp-ports",
        &tcp_ports(),
        "-o",
        "json",
    ];
    let mut command = home.command(&args);
    let mut running =
        RunningCommand::spawn(command.env("HTTP_PROXY", nobody).env("http_proxy", nobody));
    running.json().await;
    let whoami = home
        .command(&["whoami"])
        .env("http_proxy", nobody)
        .output()
        .await;
    assert!(whoami.unwrap().status.success());

    // Only one process can use a data directory.
    let second = home.run(&args).await;
    assert_eq!(second.code, Some(4), "{second:?}");
    assert!(second.stderr.contains("--data-dir"), "{second:?}");
    assert_eq!(running.terminate().await.code, Some(0));
}

/// Submits the form of the sign-in.
pub(super) async fn sign_in(base: &str, email: &str, password: &str) -> reqwest::Response {
    let client = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    client
        .post(format!("{base}/login"))
        .header("origin", base)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(format!(
            "email={}&password={}",
            encoded(email),
            encoded(password)
        ))
        .send()
        .await
        .unwrap()
}
