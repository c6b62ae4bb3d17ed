//! Errors of platform commands: exit codes, one line, a hint.

use crate::installed::up;
use crate::program::Home;

#[tokio::test]
async fn without_a_platform_the_next_step_is_shown() {
    let home = Home::new();
    for args in [
        &["whoami"][..],
        &["project", "list"],
        &["workspace", "list"],
        &["credential", "list"],
        &["turn-credentials"],
        &["audit"],
        &["token", "create"],
    ] {
        let output = home.run(args).await;
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stdout.is_empty());
        assert!(output.stderr.contains("svc login --api-url"), "{output:?}");
    }
    let nowhere = format!("http://127.0.0.1:{}", ports::lease());
    let output = home
        .run(&["whoami", "--api-url", &nowhere, "--token", "a.b.c"])
        .await;
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output.stderr.contains("cannot reach the platform"),
        "{output:?}"
    );
    let in_clear = [
        "whoami",
        "--api-url",
        "http://svc.example.com",
        "--token",
        "a.b.c",
    ];
    let output = home.run(&in_clear).await;
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("unencrypted"), "{output:?}");
}

#[tokio::test]
async fn mistakes_are_reported_with_a_suggestion() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let wrong = home.run(&["project", "list", "--token", "a.b.c"]).await;
    assert_eq!(wrong.code, Some(3), "{wrong:?}");
    assert!(wrong.stderr.contains("svc login"), "{wrong:?}");

    for (args, hint) in [
        (&["project", "use", "locl"][..], "did you mean `local`?"),
        (&["project", "use", "00000000"], "`svc project list`"),
        (
            &["project", "plan", "--project", "prj_x"],
            "`svc project list`",
        ),
        (&["audit", "--workspace", "admni"], "did you mean `admin`?"),
    ] {
        let output = home.run(args).await;
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(output.stderr.contains(hint), "{output:?}");
    }
    for by in [
        up.ready_field("project_id"),
        up.ready_field("project_endpoint"),
        "local",
    ] {
        let plan = home.run(&["project", "plan", "--project", by]).await;
        assert_eq!(plan.code, Some(0), "{plan:?}");
    }
    // An error of the platform keeps its field.
    let late = home.run(&["project", "list", "--page", "0"]).await;
    assert_eq!(late.code, Some(2), "{late:?}");
    assert!(late.stderr.contains("(`page`)"), "{late:?}");
    let setting = home
        .run(&["project", "settings", "set", "trustedIps=x"])
        .await;
    assert_eq!(setting.code, Some(2), "{setting:?}");

    let reader = [
        "token",
        "create",
        "--permission",
        "account.workspaces.read-only",
    ];
    let reader = home.run(&reader).await;
    let refused = home
        .run(&["project", "list", "--token", reader.stdout.trim()])
        .await;
    assert_eq!(refused.code, Some(3), "{refused:?}");
    assert!(
        refused.stderr.contains("account.projects.read-only"),
        "{refused:?}"
    );
}

/// As in the SDKs, a stored token is not sent to an overridden address.
#[tokio::test]
async fn a_stored_token_is_only_used_with_its_platform() {
    let home = Home::new();
    let _up = up(&home, &[]).await;
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let elsewhere = format!("http://{}", listener.local_addr().unwrap());
    let ended = home.run(&["whoami", "--api-url", &elsewhere]).await;
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("no token is given"), "{ended:?}");
    let output = home
        .command(&["whoami"])
        .env("SVC_API_URL", &elsewhere)
        .output()
        .await
        .unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    // No connection was made.
    listener.set_nonblocking(true).unwrap();
    assert!(listener.accept().is_err());
}
