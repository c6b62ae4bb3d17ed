//! `svc token`.

use crate::program::Home;

#[tokio::test]
async fn a_minted_token_has_the_requested_claims() {
    let home = Home::new();
    let minted = home
        .run(&[
            "token",
            "mint",
            "--secret",
            SECRET,
            "--type",
            "app",
            "--ttl",
            "24h",
            "--client",
            "ci",
            "--permission",
            "tunnels.tunnels.create-delete",
        ])
        .await;
    assert_eq!(minted.code, Some(0), "{minted:?}");
    assert_eq!(minted.stdout.trim().split('.').count(), 3);

    let inspected = home
        .run(&["token", "inspect", minted.stdout.trim(), "--output", "json"])
        .await
        .json();
    let claims = &inspected["claims"];
    assert_eq!(claims["type"], "app");
    assert_eq!(claims["clientId"], "ci");
    assert_eq!(claims["permissions"][0], "tunnels.tunnels.create-delete");
    assert_eq!(inspected["expired"], false);
    let life = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
    assert_eq!(life, 24 * 60 * 60);
}

#[tokio::test]
async fn a_token_from_the_environment_is_inspected() {
    let home = Home::new();
    let minted = home.run(&["token", "mint", "--secret", SECRET]).await;
    let output = home
        .command(&["token", "inspect", "-o", "json"])
        .env("SVC_TOKEN", minted.stdout.trim())
        .output()
        .await
        .unwrap();
    let inspected: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(inspected["claims"]["type"], "auth");
    assert!(inspected["expires_at"].is_string());
}

#[tokio::test]
async fn an_impossible_token_is_reported_with_the_next_step() {
    let home = Home::new();
    let unknown = home
        .run(&[
            "token",
            "mint",
            "--secret",
            SECRET,
            "--permission",
            "tunnels.all",
        ])
        .await;
    assert_eq!(unknown.code, Some(2));
    assert!(
        unknown.stderr.contains("tunnels.resources.read-only"),
        "{unknown:?}"
    );
    let keyless = home.run(&["token", "mint"]).await;
    assert_eq!(keyless.code, Some(2));
    let no_token = home.run(&["token", "inspect", "nonsense"]).await;
    assert_eq!(no_token.code, Some(1));
    assert!(no_token.stdout.is_empty());
}

/// A secret on the command line appears in the system's process list.
#[tokio::test]
async fn a_secret_is_read_from_a_file_or_from_stdin() {
    let home = Home::new();
    std::fs::write(home.path().join("secret"), format!("{SECRET}\n")).unwrap();
    let mint = [
        "token",
        "mint",
        "--type",
        "app",
        "--client",
        "ci",
        "--secret-file",
    ];
    let of_file = home.run(&[&mint[..], &["secret"]].concat()).await;
    let of_stdin = home
        .run_with_input(&[&mint[..], &["-"]].concat(), SECRET.as_bytes())
        .await;
    for minted in [&of_file, &of_stdin] {
        assert_eq!(minted.code, Some(0), "{minted:?}");
    }
    let inspected = home
        .run_with_input(&["token", "inspect", "-"], of_file.stdout.as_bytes())
        .await;
    assert_eq!(inspected.code, Some(0), "{inspected:?}");
    for line in [
        "type\tapp\n",
        "client\tci\n",
        "permission\tnot restricted\n",
        "signed\tHS256",
    ] {
        assert!(inspected.stdout.contains(line), "{inspected:?}");
    }
    let known = home
        .run(&["token", "permissions", "-o", "json"])
        .await
        .json();
    assert!(known.as_array().unwrap().len() > 10, "{known}");
    let slip = [
        "token",
        "mint",
        "--secret",
        SECRET,
        "--permission",
        "tunnels.resource.read-only",
    ];
    let slip = home.run(&slip).await;
    assert!(
        slip.stderr
            .contains("did you mean `tunnels.resources.read-only`?"),
        "{slip:?}"
    );
}

const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
