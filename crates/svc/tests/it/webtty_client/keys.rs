//! End-to-end encryption, with the key files of both ends.

use std::{os::unix::fs::PermissionsExt as _, path::PathBuf};

use serde_json::Value;

use super::super::program::Home;
use super::served::{Options, Served};

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
async fn ends_with_each_others_keys_connect_and_others_do_not() {
    let home = Home::new();
    for name in ["default", "host", "stranger"] {
        let made = home
            .run(&["webtty", "identity", "create", name, "-o", "json"])
            .await;
        let made = made.json();
        assert_eq!(made["public_key"].as_str().unwrap().len(), 43, "{made}");
        let mode = std::fs::metadata(made["file"].as_str().unwrap())
            .unwrap()
            .permissions();
        assert_eq!(mode.mode() & 0o777, 0o600);
    }
    let listed = home.run(&["webtty", "identity", "list"]).await;
    assert_eq!(listed.stdout.lines().count(), 3, "{listed:?}");
    let [client, host] = [key(&home, "default").await, key(&home, "host").await];
    let add = ["webtty", "authorized-client", "add", "ada", &client];
    assert_eq!(home.run(&add).await.code, Some(0));
    let served = Served::start(
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
    let ended = home.run(&exec).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(
        ended.stderr.contains("error[webtty_server_unknown]"),
        "{ended:?}"
    );
    let line = format!("svc webtty known-server add {} KEY", served.address);
    assert!(ended.stderr.contains(&line), "{ended:?}");
    let name = served.address.to_string();
    assert_eq!(
        home.run(&["webtty", "known-server", "add", &name, &host])
            .await
            .code,
        Some(0)
    );

    let told = home.run(&exec).await.json();
    assert_eq!(told["stdout"], "sealed\n");
    // An unencrypted session is refused.
    let ended = home.run(&["webtty", "exec", &url, "--", "true"]).await;
    assert_eq!(ended.code, Some(1), "{ended:?}");

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
    let ended = home.run(&args).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
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
    let ended = home.run(&args).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    assert!(
        ended.stderr.contains("error[webtty_server_key_changed]"),
        "{ended:?}"
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
    let made = home.run(&["webtty", "identity", "create", "one"]).await;
    let key = made.stdout.trim().to_owned();
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
    let ended = home.run(&["webtty", "known-server", "list"]).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let remove = ["webtty", "identity", "remove", "one"];
    assert_eq!(home.run(&remove).await.code, Some(0));
    assert_eq!(home.run(&["webtty", "identity", "list"]).await.stdout, "");
}
