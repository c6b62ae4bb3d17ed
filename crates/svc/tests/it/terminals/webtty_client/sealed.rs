//! End-to-end encrypted sessions, through an engine and with real programs at both ends.

use crate::installed::{alone, up};
use crate::program::{CommandOutput, Home, RunningCommand};
use crate::terminals::webtty_client::keys::{file, key};

/// Exchanges the keys of the client and the server.
async fn introduce(home: &Home) {
    for name in ["default", "host", "stranger"] {
        let created = home.run(&["webtty", "identity", "create", name]).await;
        assert_eq!(created.code, Some(0), "{created:?}");
    }
    let ours = key(home, "default").await;
    let add = ["webtty", "authorized-client", "add", "ada", &ours];
    assert_eq!(home.run(&add).await.code, Some(0));
}

async fn know(home: &Home, name: &str, key: &str) {
    let add = ["webtty", "known-server", "add", name, key];
    assert_eq!(home.run(&add).await.code, Some(0));
}

/// Published or private, the engine carries only ciphertext.
#[tokio::test]
async fn a_sealed_server_is_reached_through_an_engine() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    introduce(&home).await;
    let host = file(&home, "identities/host.key");
    let host = host.to_str().unwrap();
    for (name, place) in [("open", "--publish"), ("hidden", "--no-publish")] {
        let serve = ["webtty", "server", "--e2e", "--identity-file", host];
        let tunnel = ["--name", name, place, "--execution-mode", "spawn"];
        let mut server = home.start(&[&serve[..], &tunnel, &["-o", "json"]].concat());
        server.json_where(|line| line["status"] == "online").await;
        know(&home, name, &key(&home, "host").await).await;
        // Its labels state that it is encrypted.
        let exec = ["webtty", "exec", name, "--", "echo", "sealed"];
        assert_eq!(home.run(&exec).await.json()["stdout"], "sealed\n");
        let stranger = ["webtty", "exec", name, "--identity", "stranger"];
        let refused = home.run(&[&stranger[..], &["--", "true"]].concat()).await;
        assert_eq!(refused.code, Some(3), "{refused:?}");
        assert!(refused.stderr.contains("not authorized"), "{refused:?}");
        server.terminate().await;
    }
    up.stop().await;
}

/// WT-2: a registered server is encrypted by its record. Its sessions are listed and recorded, and
/// the platform cannot show their content.
#[tokio::test]
async fn wt_2_a_registered_server_is_sealed_by_its_record() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    introduce(&home).await;
    let create = ["webtty", "server", "create"];
    let clear = ["in-the-clear", "--enroll", "-o", "json"];
    let clear = home.run(&[&create[..], &clear].concat()).await.json();
    let id = clear["id"].as_str().unwrap();
    let serve = |id: &str, more: &[&str]| {
        let own = ["webtty", "server", "--server-id", id];
        let own = [&own[..], &["--execution-mode", "spawn", "-o", "json"]].concat();
        home.command(&[&own, more].concat())
    };
    let refused = CommandOutput::of_command(serve(id, &["--e2e"])).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    let hint = "--encryption-policy explicit_key";
    assert!(refused.stderr.contains(hint), "{refused:?}");

    let sealed = ["vault", "--encryption-policy", "explicit_key"];
    let sealed = [&sealed[..], &["--enroll", "-o", "json"]].concat();
    let sealed = home.run(&[&create[..], &sealed].concat()).await.json();
    let id = sealed["id"].as_str().unwrap();
    let mut server = RunningCommand::spawn(&mut serve(id, &[]));
    server.json_where(|line| line["status"] == "online").await;
    let exec = ["webtty", "exec", "vault", "--", "sh", "-c"];
    let exec = [&exec[..], &["echo sealed-$((40+2))"]].concat();
    let unknown = home.run(&exec).await;
    assert_eq!(unknown.code, Some(3), "{unknown:?}");
    know(&home, id, sealed["serverPublicKey"].as_str().unwrap()).await;
    assert_eq!(home.run(&exec).await.json()["stdout"], "sealed-42\n");

    let list = ["webtty", "sessions", "list", "-o", "json"];
    let sessions = home.run(&list).await.json();
    let closed = &sessions[0];
    assert_eq!(closed["encryption_mode"], "e2e", "{sessions}");
    assert_eq!(closed["recording_mode"], "recorded", "{sessions}");
    assert_eq!(closed["status"], "closed", "{sessions}");
    let session = closed["id"].as_str().unwrap();
    let export = home.run(&["webtty", "sessions", "export", session]).await;
    assert_eq!(export.code, Some(4), "{export:?}");
    assert!(export.stderr.contains("session_sealed"), "{export:?}");
    let verify = ["webtty", "sessions", "verify", session, "-o", "json"];
    assert_eq!(home.run(&verify).await.json()["whole"], true);
    server.terminate().await;
    up.stop().await;
}
