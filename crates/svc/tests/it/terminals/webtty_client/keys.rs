//! End-to-end encryption, with the key files of both ends.

use std::{os::unix::fs::PermissionsExt as _, path::PathBuf};

use serde_json::Value;

use crate::program::Home;
use crate::terminals::webtty_client::served::{Options, TestServer};

pub(super) async fn key(home: &Home, name: &str) -> String {
    let shown = home.run(&["webtty", "identity", "show", name]).await;
    assert_eq!(shown.code, Some(0), "{shown:?}");
    shown.stdout.trim().to_owned()
}

pub(super) fn file(home: &Home, name: &str) -> PathBuf {
    home.path().join(".svc/webtty").join(name)
}

/// WT-5: both ends must have each other's key before a session starts.
#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn ends_with_each_others_keys_connect_and_others_do_not() {
    let home = Home::new();
    for name in ["default", "host", "stranger"] {
        let created = home
            .run(&["webtty", "identity", "create", name, "-o", "json"])
            .await;
        let created = created.json();
        assert_eq!(
            created["public_key"].as_str().unwrap().len(),
            43,
            "{created}"
        );
        let mode = std::fs::metadata(created["file"].as_str().unwrap())
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
    }
    let listed = home.run(&["webtty", "identity", "list"]).await;
    assert_eq!(listed.stdout.lines().count(), 3, "{listed:?}");
    let [client, host] = [key(&home, "default").await, key(&home, "host").await];
    let add = ["webtty", "authorized-client", "add", "ada", &client];
    assert_eq!(home.run(&add).await.code, Some(0));
    let served = TestServer::start(
        home.path(),
        Options {
            seal: Some((
                file(&home, "identities/host.key"),
                file(&home, "authorized_clients"),
            )),
            ..Options::default()
        },
    )
    .await;
    let url = served.url();
    let exec = ["webtty", "exec", &url, "--e2e", "--", "echo", "sealed"];

    // The server's key is unknown. The error shows the command that adds it.
    let output = home.run(&exec).await;
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(
        output.stderr.contains("error[webtty_server_unknown]"),
        "{output:?}"
    );
    let line = format!("svc webtty known-server add {} KEY", served.address);
    assert!(output.stderr.contains(&line), "{output:?}");
    let name = served.address.to_string();
    assert_eq!(
        home.run(&["webtty", "known-server", "add", &name, &host])
            .await
            .code,
        Some(0)
    );

    let result = home.run(&exec).await.json();
    assert_eq!(result["stdout"], "sealed\n");
    // An unencrypted session is refused.
    let output = home.run(&["webtty", "exec", &url, "--", "true"]).await;
    assert_eq!(output.code, Some(1), "{output:?}");

    // Another client's key is refused, before anything is started.
    let marked = home.path().join("started");
    let marked = marked.to_str().unwrap();
    let args = [
        "webtty",
        "exec",
        &url,
        "--e2e",
        "--identity",
        "stranger",
        "--",
        "touch",
        marked,
    ];
    let output = home.run(&args).await;
    assert_eq!(output.code, Some(3), "{output:?}");
    // A server with another key than the expected one is refused.
    let stranger = key(&home, "stranger").await;
    let args = [
        "webtty",
        "exec",
        &url,
        "--known-server-key",
        &stranger,
        "--",
        "touch",
        marked,
    ];
    let output = home.run(&args).await;
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(
        output.stderr.contains("error[webtty_server_key_changed]"),
        "{output:?}"
    );
    // A client that is removed from the list is refused from the next session on.
    let remove = ["webtty", "authorized-client", "remove", "ada"];
    assert_eq!(home.run(&remove).await.code, Some(0));
    assert_ne!(home.run(&exec).await.code, Some(0));
    assert!(!std::path::Path::new(marked).exists());
}

#[tokio::test]
async fn key_lists_are_managed() {
    let home = Home::new();
    let created = home.run(&["webtty", "identity", "create", "one"]).await;
    let key = created.stdout.trim().to_owned();
    let again = home.run(&["webtty", "identity", "create", "one"]).await;
    assert_eq!(again.code, Some(4), "{again:?}");
    let add = |name: &str| ["webtty", "known-server", "add", name, &key].map(str::to_owned);
    for name in ["build", "box.example:8443"] {
        let args = add(name);
        let args: Vec<_> = args.iter().map(String::as_str).collect();
        assert_eq!(home.run(&args).await.code, Some(0));
    }
    let list: Value = home
        .run(&["webtty", "known-server", "list", "-o", "json"])
        .await
        .json();
    assert_eq!(list[1]["name"], "box.example:8443");
    assert_eq!(list[1]["public_key"], key);
    let remove = ["webtty", "known-server", "remove", "build"];
    assert_eq!(home.run(&remove).await.code, Some(0));
    assert_eq!(home.run(&remove).await.code, Some(1));
    let bad = ["webtty", "known-server", "add", "x", "short"];
    assert_eq!(home.run(&bad).await.code, Some(2));
    // A file that other users can read is not used.
    let path = file(&home, "known_servers");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    let output = home.run(&["webtty", "known-server", "list"]).await;
    assert_eq!(output.code, Some(3), "{output:?}");
    let remove = ["webtty", "identity", "remove", "one"];
    assert_eq!(home.run(&remove).await.code, Some(0));
    assert_eq!(home.run(&["webtty", "identity", "list"]).await.stdout, "");
}
