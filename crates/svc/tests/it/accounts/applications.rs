//! Applications that sign their own tokens.

use std::fs;

use tokio::net::TcpStream;

use crate::installed::up;
use crate::program::Home;
use crate::publishing::run::echo;

/// Creates an application with its key in `app.key`, and returns its id.
async fn application(home: &Home) -> String {
    let create = [
        "credential",
        "create",
        "ci",
        "--type",
        "app",
        "--key-file",
        "app.key",
        "-o",
        "json",
    ];
    let created = home.run(&create).await.json();
    created["credential"]["id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_printed_command_creates_a_token_that_the_engine_accepts() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let create = [
        "credential",
        "create",
        "ci",
        "--type",
        "app",
        "--key-file",
        "app.key",
    ];
    let created = home.run(&create).await;
    assert_eq!(created.code, Some(0), "{created:?}");
    let printed = created.stderr.split('`').nth(1).unwrap();
    let command: Vec<_> = printed.strip_prefix("svc ").unwrap().split(' ').collect();
    let minted = home.run(&command).await;
    assert_eq!(minted.code, Some(0), "{minted:?}");
    let list = home
        .run(&["tunnels", "--token", minted.stdout.trim()])
        .await;
    assert_eq!(list.code, Some(0), "{list:?}");

    // Refused tokens have their reason.
    let day = home.run(&[&command[..], &["--ttl", "24h"]].concat()).await;
    let day = day.stdout.trim();
    let list = ["tunnels", "--token", day];
    let forward = ["forward", "3000", "--token", day];
    for args in [&list[..], &forward, &["dial", "db", "--token", day]] {
        let refused = home.run(args).await;
        assert_eq!(refused.code, Some(3), "{refused:?}");
        assert!(refused.stderr.contains("valid for 24 hours"), "{refused:?}");
        assert!(refused.stderr.contains("one hour at most"), "{refused:?}");
    }
    // Also while the process continues.
    let mut dial = home.start(&["dial", "db", "--listen", "0", "-o", "json", "--token", day]);
    let ready = dial.json().await;
    let address = ready["listening"].as_str().unwrap();
    let _visitor = TcpStream::connect(address).await.unwrap();
    let reported = dial.wait_for_stderr("hint: omit --ttl").await;
    assert!(
        reported.contains("svc://db: the token is valid for 24 hours"),
        "{reported}"
    );
    assert_eq!(dial.terminate().await.code, Some(0));
    let client = command.iter().position(|word| *word == "--client").unwrap();
    let revoke = ["credential", "revoke", command[client + 1]];
    assert_eq!(home.run(&revoke).await.code, Some(0));
    let gone = async {
        loop {
            let list = home
                .run(&["tunnels", "--token", minted.stdout.trim()])
                .await;
            if list.code == Some(3) {
                return list;
            }
        }
    };
    let gone = crate::program::soon("the token to be refused", gone).await;
    assert!(gone.stderr.contains("was revoked"), "{gone:?}");
    up.stop().await;
}

#[tokio::test]
async fn forward_run_and_dial_act_as_an_application() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let id = application(&home).await;
    let key = ["--client", &id, "--key-file", "app.key"];
    let port = echo("app:").await.to_string();
    let forward = [
        "forward",
        &port,
        "--bytestream",
        "--name",
        "db",
        "-o",
        "json",
    ];
    let mut agent = home.start(&[&forward[..], &key[..]].concat());
    agent.json_where(|line| line["status"] == "online").await;
    let clients = home.run(&["clients", "-o", "json"]).await.json();
    assert_eq!(clients.as_array().unwrap().len(), 1, "{clients}");
    let dial = [&["dial", "db"], &key[..]].concat();
    let answer = home.run_with_input(&dial, b"hello").await;
    assert_eq!(answer.stdout, "app:hello", "{answer:?}");

    let file = home.path().join("svc.yaml");
    fs::write(
        &file,
        format!("version: 1\ntunnels:\n  other: {{target: {port}, publish: false}}\n"),
    )
    .unwrap();
    let mut runner = home.start(&[&["run", "-o", "json"], &key[..]].concat());
    runner.json_where(|line| line["status"] == "online").await;
    assert_eq!(runner.terminate().await.code, Some(0));
    assert_eq!(agent.terminate().await.code, Some(0));

    for (args, text) in [
        (&["--client", &id][..], "--key-file"),
        (&["--key-file", "app.key"], "--client"),
        (&["--client", &id, "--key-file", "none.key"], "none.key"),
        (
            &["--client", &id, "--key-file", "svc.yaml"],
            "cannot be used",
        ),
    ] {
        let refused = home.run(&[&["dial", "db"], args].concat()).await;
        assert_eq!(refused.code, Some(2), "{refused:?}");
        assert!(refused.stderr.contains(text), "{refused:?}");
    }
    up.stop().await;
}
