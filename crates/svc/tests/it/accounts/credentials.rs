//! `svc credential` and `svc login`.

use std::os::unix::fs::PermissionsExt;

use axum::Router;
use http::StatusCode;
use serde_json::{Value, json};
use tokio::{io::AsyncReadExt as _, net::TcpListener};

use crate::installed::up;
use crate::program::Home;
use crate::terminal::TerminalCommand;

/// Tokens of users also start with the text that scanners search for, and show their last use.
#[tokio::test]
async fn a_token_is_shown_once_and_ends_with_its_credential() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    assert!(up.ready_field("token").starts_with(PAT_PREFIX));
    let issued = home
        .run(&[
            "credential",
            "create",
            "laptop",
            "--ttl",
            "1h",
            "-o",
            "json",
        ])
        .await
        .json();
    let token = issued["token"].as_str().unwrap();
    assert!(token.starts_with(PAT_PREFIX));
    let id = issued["credential"]["id"].as_str().unwrap();
    let list = home.run(&["credential", "list"]).await;
    assert!(list.stdout.contains("laptop\tpat\t"), "{list:?}");
    assert!(!list.stdout.contains(token));
    let last_use = async || {
        let list: Value = home.run(&["credential", "list", "-o", "json"]).await.json();
        let mut credentials = list["credentials"].as_array().unwrap().iter();
        let own = credentials.find(|credential| credential["id"] == id);
        own.unwrap().get("lastUsedAt").cloned()
    };
    assert_eq!(last_use().await, None);
    let whoami = ["whoami", "--token", token, "-o", "json"];
    assert_eq!(home.run(&whoami).await.json()["type"], "pat");
    assert!(last_use().await.is_some());

    let rotated = home.run(&["credential", "rotate", id]).await;
    assert_eq!(rotated.code, Some(0), "{rotated:?}");
    assert_eq!(home.run(&whoami).await.code, Some(3));
    let token = rotated.stdout.trim();
    assert!(token.starts_with(PAT_PREFIX));
    assert_eq!(token.split('.').count(), 3, "the token alone: {rotated:?}");
    let list: Value = home.run(&["credential", "list", "-o", "json"]).await.json();
    let newest = list["credentials"].as_array().unwrap().last().unwrap();
    let id = newest["id"].as_str().unwrap();
    let revoked = home.run(&["credential", "revoke", id]).await;
    assert_eq!(revoked.code, Some(0), "{revoked:?}");
    assert_eq!(home.run(&["whoami", "--token", token]).await.code, Some(3));
    let unknown = home.run(&["credential", "revoke", "crd_x"]).await;
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    assert!(unknown.stderr.contains("credential list"), "{unknown:?}");
}

#[tokio::test]
async fn an_application_keeps_its_key_and_signs_for_itself() {
    let home = Home::new();
    let _up = up(&home, &[]).await;
    let permission = ["--permission", "account.projects.read-only"];
    let create = [
        "credential",
        "create",
        "ci",
        "--type",
        "app",
        "--key-file",
        "ci.key",
    ];
    let issued = home
        .run(&[&create[..], &permission, &["-o", "json"]].concat())
        .await
        .json();
    assert_eq!(issued.get("token"), None);
    let key = home.path().join("ci.key");
    let mode = std::fs::metadata(&key).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let client = issued["credential"]["id"].as_str().unwrap();
    let mint = [
        "token",
        "mint",
        "--type",
        "app",
        "--key-file",
        "ci.key",
        "--ttl",
        "5m",
    ];
    let minted = home
        .run(&[&mint[..], &["--client", client], &permission].concat())
        .await;
    assert_eq!(minted.code, Some(0), "{minted:?}");
    let token = minted.stdout.trim();
    let whoami = home.run(&["whoami", "--token", token, "-o", "json"]).await;
    assert_eq!(whoami.json()["type"], "app");

    // A key file is never replaced, and a refused request leaves none behind.
    let before = std::fs::read(&key).unwrap();
    assert_eq!(home.run(&create).await.code, Some(1));
    assert_eq!(std::fs::read(&key).unwrap(), before);
    let refused = [
        "credential",
        "create",
        "x",
        "--type",
        "app",
        "--key-file",
        "x.key",
    ];
    let refused = home
        .run(&[&refused[..], &["--token", token]].concat())
        .await;
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(!home.path().join("x.key").exists());
    let keyless = home
        .run(&["credential", "create", "x", "--type", "app"])
        .await;
    assert_eq!(keyless.code, Some(2), "{keyless:?}");
    let certificateless = ["credential", "create", "x", "--type", "mtls"];
    assert_eq!(home.run(&certificateless).await.code, Some(2));
}

/// A platform that answers every request in the same way.
async fn answering(status: StatusCode, body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    let routes = Router::new().fallback(move || async move { (status, body) });
    tokio::spawn(async move { axum::serve(listener, routes).await.unwrap() });
    origin
}

/// A platform that reads a request and disconnects.
async fn silent() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let origin = format!("http://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            drop(stream.read(&mut [0; 4096]).await);
        }
    });
    origin
}

#[tokio::test]
async fn a_new_key_is_kept_unless_its_credential_certainly_does_not_exist() {
    let home = Home::new();
    let key = home.path().join("ci.key");
    let create = ["create", "ci", "--type", "app"];
    let rotate = ["rotate", "crd_01h455vb4pex5vsknk084sn02q"];
    for (platform, code, is_kept) in [
        (answering(StatusCode::OK, "{}").await, 1, true),
        (answering(StatusCode::BAD_GATEWAY, "").await, 1, true),
        (silent().await, 1, true),
        (answering(StatusCode::FORBIDDEN, "").await, 3, false),
        (format!("http://127.0.0.1:{}", ports::lease()), 1, false),
    ] {
        for what in [&create[..], &rotate] {
            let flags = ["--key-file", "ci.key", "--token", "a.b.c", "--api-url"];
            let args = [&["credential"], what, &flags, &[platform.as_str()]].concat();
            let output = home.run(&args).await;
            assert_eq!(output.code, Some(code), "{output:?}");
            let says = "its key is in ci.key; check `svc credential list`";
            assert_eq!(output.stderr.contains(says), is_kept, "{output:?}");
            assert_eq!(key.exists(), is_kept, "{output:?}");
            if is_kept {
                std::fs::remove_file(&key).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn a_usage_error_creates_no_key() {
    let home = Home::new();
    let create = ["credential", "create", "ci", "--type", "app"];
    let rotate = ["credential", "rotate", "crd_x"];
    let flags = "--key-file ci.key --token a.b.c --api-url http://127.0.0.1:9";
    let flags: Vec<_> = flags.split(' ').collect();
    for (command, mistake) in [
        (&create[..], ["--permission", "account.everything"]),
        (&create, ["--resources", "{"]),
        (&create, ["--ttl", "4000000d"]),
        (&rotate, ["--overlap", "50000d"]),
    ] {
        let output = home.run(&[command, &mistake, &flags].concat()).await;
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(!home.path().join("ci.key").exists(), "{output:?}");
    }
}

#[tokio::test]
async fn a_token_is_stored_after_the_platform_accepted_it() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let file = home.path().join(".config/svc/contexts/default.json");
    std::fs::write(
        home.path().join("token"),
        format!("{}\n", up.ready_field("token")),
    )
    .unwrap();
    let login = ["login", "--api-url", up.ready_field("base_url")];

    let wrong = home
        .run_with_input(&[&login[..], &["--token-stdin"]].concat(), b"a.b.c")
        .await;
    assert_eq!(wrong.code, Some(3), "{wrong:?}");
    assert!(!file.exists());
    let nothing = home
        .run_with_input(&[&login[..], &["--token-stdin"]].concat(), b"\n")
        .await;
    assert_eq!(nothing.code, Some(2), "{nothing:?}");

    let args = [&login[..], &["--token-file", "token", "-o", "json"]].concat();
    let signed_in = home.run(&args).await;
    assert_eq!(signed_in.json()["email"], "admin@localhost");
    assert!(!signed_in.stderr.contains(up.ready_field("token")));
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let kept: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(kept["api_url"], up.ready_field("base_url"));
    assert_eq!(kept["workspace_id"], up.ready_field("workspace_id"));

    // The selection is stored in this context. The context of `svc up` does not change.
    let here = ["--context", "default"];
    let used = home
        .run(&[&["project", "use", "local"], &here[..]].concat())
        .await;
    assert_eq!(used.code, Some(0), "{used:?}");
    let kept: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let endpoint = up.ready_field("project_endpoint");
    assert_eq!(
        kept["project"],
        json!({"id": up.ready_field("project_id"), "endpoint": endpoint})
    );
    let engine = up.ready_field("engine_url").trim_start_matches("https://");
    assert_eq!(kept["engine"], engine);
    let again = home.run(&args).await;
    assert_eq!(again.code, Some(0), "{again:?}");
    let plan = home
        .run(&[&["project", "plan", "-o", "json"], &here[..]].concat())
        .await;
    assert_eq!(plan.json()["plan"], "basic");

    assert_eq!(home.run(&["logout"]).await.code, Some(0));
    assert!(!file.exists());
    let local = home.path().join(".config/svc/contexts/local.json");
    assert_eq!(home.run(&["project", "use", endpoint]).await.code, Some(0));
    up.stop().await;
    assert!(
        !local.exists(),
        "it is removed with `svc up`, whatever was selected in it"
    );
}

#[tokio::test]
async fn a_typed_token_is_not_echoed() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let login = [
        "login",
        "--api-url",
        up.ready_field("base_url"),
        "--token-stdin",
    ];
    let mut asked = TerminalCommand::start(&home, &login);
    asked.until("it is not shown): ").await;
    asked.answer(&format!("{}\n", up.ready_field("token")));
    asked.until("signed in to").await;
    let shown = asked.echoed().await;
    assert!(!shown.contains("eyJ"), "{shown:?}");
    let whoami = ["whoami", "--context", "default", "-o", "json"];
    assert_eq!(home.run(&whoami).await.json()["type"], "pat");
}

#[tokio::test]
async fn a_client_certificate_is_read_from_its_file() {
    let home = Home::new();
    let _up = up(&home, &[]).await;
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["door.example.com".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap();
    std::fs::write(home.path().join("door.pem"), certificate.pem()).unwrap();
    let create = ["credential", "create", "door", "--type", "mtls"];
    let create = [
        &create[..],
        &["--certificate-file", "door.pem", "-o", "json"],
    ]
    .concat();
    let issued = home.run(&create).await.json();
    assert_eq!(issued["credential"]["type"], "mtls");
    let fingerprint = issued["credential"]["fingerprint"].as_str().unwrap();
    assert_eq!(fingerprint.len(), 64);
    // One certificate can be registered only once.
    let twice = home.run(&create).await;
    assert_eq!(twice.code, Some(4), "{twice:?}");
}

/// The documented start of every personal access token: `{"kind":"svc-pat",` in base64url.
const PAT_PREFIX: &str = "eyJraW5kIjoic3ZjLXBhdCIs";
