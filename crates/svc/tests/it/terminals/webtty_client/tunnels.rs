//! Servers behind tunnels: found by name, listed, and reached published or private.

use serde_json::Value;

use crate::installed::alone;
use crate::program::{Home, RunningCommand};
use crate::terminals::webtty_client::served::{Options, TestServer};

async fn tunnel(home: &Home, served: &TestServer, name: &str, more: &[&str]) -> RunningCommand {
    let port = served.address.port().to_string();
    let own = [
        "forward",
        &port,
        "--name",
        name,
        "-o",
        "json",
        "--label",
        "application-protocol=svc.webtty",
        "--label",
        "svc.webtty.capabilities=exec,fs",
        "--label",
        "svc.webtty.os_family=linux",
    ];
    let mut agent = home.start(&[&own, more].concat());
    agent.json_where(|line| line["status"] == "online").await;
    agent
}

#[tokio::test]
async fn a_server_is_reached_by_its_name_published_or_private() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let root = home.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let options = Options {
        files: Some(root),
        ..Options::default()
    };
    let served = TestServer::start(home.path(), options).await;
    let published = tunnel(&home, &served, "open", &["--token-auth"]).await;
    let private = tunnel(&home, &served, "hidden", &["--no-publish"]).await;
    let twins = [tunnel(
        &home,
        &served,
        "twin",
        &["--no-publish", "--label", "svc.webtty.label.n=1"],
    )
    .await];

    for target in ["open", "svc://hidden"] {
        let output = home
            .run(&["webtty", "exec", target, "--", "echo", "hi"])
            .await
            .json();
        assert_eq!(output["stdout"], "hi\n", "{output}");
        assert_eq!(
            output["url"],
            format!("svc://{}", target.trim_start_matches("svc://"))
        );
        let ended = home
            .run_with_input(&["webtty", "fs", "write", target, "/x"], b"1")
            .await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(
            home.run(&["webtty", "fs", "read", target, "/x"])
                .await
                .stdout,
            "1"
        );
    }
    let list: Value = home.run(&["webtty", "list", "-o", "json"]).await.json();
    let names: Vec<_> = list
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["target"].clone())
        .collect();
    assert_eq!(names, ["hidden", "open", "twin"]);
    // The address of a published tunnel works as well, because the token of the context is for its
    // engine.
    let host = list[1]["host"].as_str().unwrap();
    let url = format!("wss://{host}");
    let output = home
        .run(&["webtty", "exec", &url, "--", "echo", "hi"])
        .await
        .json();
    assert_eq!(output["stdout"], "hi\n");

    let quiet = home
        .run(&["webtty", "list", "-q", "--filter", "labels.n=1"])
        .await;
    assert_eq!(quiet.stdout, "svc://twin\n");
    let by_id = list[0]["tunnel_id"].as_str().unwrap();
    let output = home.run(&["webtty", "exec", by_id, "--", "true"]).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let ended = home.run(&["webtty", "exec", "hiden", "--", "true"]).await;
    assert_eq!(ended.code, Some(1));
    assert!(ended.stderr.contains("did you mean `hidden`?"), "{ended:?}");

    for agent in [published, private].into_iter().chain(twins) {
        agent.terminate().await;
    }
    let ended = home.run(&["webtty", "exec", "open", "--", "true"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    up.stop().await;
}

/// WT-5: the server's own labels make encryption mandatory. Nothing is sent without it.
#[tokio::test]
async fn an_encrypted_server_gets_no_unencrypted_data() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let served = TestServer::start(home.path(), Options::default()).await;
    let label = ["--no-publish", "--label", "svc.webtty.e2e=required"];
    let agent = tunnel(&home, &served, "sealed", &label).await;
    let output = home.run(&["webtty", "exec", "sealed", "--", "true"]).await;
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(
        output
            .stderr
            .contains("svc webtty known-server add sealed KEY"),
        "{output:?}"
    );

    // With a known key, and still not unencrypted.
    let created = home.run(&["webtty", "identity", "create"]).await;
    let add = [
        "webtty",
        "known-server",
        "add",
        "sealed",
        created.stdout.trim(),
    ];
    assert_eq!(home.run(&add).await.code, Some(0));
    let output = home.run(&["webtty", "exec", "sealed", "--", "true"]).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    agent.terminate().await;

    // Another key than the known one.
    let label = [
        "--no-publish",
        "--label",
        "svc.webtty.host_key_id=AAAAAAAAAAAAAAAAAAAAAA",
    ];
    let agent = tunnel(&home, &served, "sealed", &label).await;
    let output = home.run(&["webtty", "exec", "sealed", "--", "true"]).await;
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(
        output.stderr.contains("error[webtty_server_key_changed]"),
        "{output:?}"
    );
    agent.terminate().await;
    up.stop().await;
}
