//! `svc context`.

use serde_json::{Value, json};

use crate::program::{CommandOutput, Home};

#[tokio::test]
async fn contexts_are_created_listed_selected_renamed_and_removed() {
    let home = Home::new();
    assert_eq!(
        home.run(&["context", "list", "-o", "json"]).await.json(),
        json!([])
    );
    let mint = [
        "token", "mint", "--secret", SECRET, "--type", "app", "--client", "ci",
    ];
    let token = home.run(&mint).await.stdout;
    let set = [
        "context",
        "set",
        "work",
        "--engine",
        "e.example:8443",
        "--token-stdin",
    ];
    let made = home.run_with_input(&set, token.as_bytes()).await;
    assert_eq!(made.code, Some(0), "{made:?}");
    let other = [
        "context",
        "create",
        "home",
        "--api-url",
        "https://p.example",
        "--use",
    ];
    assert_eq!(home.run(&other).await.code, Some(0));

    let listed = home.run(&["context", "list", "-o", "json"]).await;
    assert!(!listed.stdout.contains(token.trim()), "{listed:?}");
    let listed = listed.json();
    assert_eq!(
        (&listed[0]["name"], &listed[0]["in_use"]),
        (&json!("home"), &json!(true))
    );
    assert_eq!(listed[1]["engine"], "e.example:8443");
    assert_eq!(listed[1]["token"]["identity"], "ci");
    assert_eq!(listed[1]["token"]["expired"], false);

    for args in [
        &["context", "use", "work"][..],
        &["context", "rename", "work", "office"],
    ] {
        assert_eq!(home.run(args).await.code, Some(0), "{args:?}");
    }
    // The selection follows the new name.
    let shown = home.run(&["context", "show", "-o", "json"]).await.json();
    assert_eq!(setting(&shown, "context")["value"], "office");
    assert_eq!(setting(&shown, "context")["source"]["kind"], "selection");

    let taken = home.run(&["context", "rename", "office", "home"]).await;
    assert_eq!(taken.code, Some(4), "{taken:?}");
    let slip = home.run(&["context", "delete", "ofice"]).await;
    assert_eq!(slip.code, Some(2), "{slip:?}");
    assert!(slip.stderr.contains("did you mean `office`?"), "{slip:?}");
    assert_eq!(
        home.run(&["context", "delete", "office"]).await.code,
        Some(0)
    );
    let left = home.run(&["context", "list", "-o", "json"]).await.json();
    assert_eq!(left.as_array().unwrap().len(), 1, "{left}");
    assert_eq!(left[0]["in_use"], false);
}

#[tokio::test]
async fn an_empty_value_removes_a_stored_one() {
    let home = Home::new();
    let token = home.run(&["token", "mint", "--secret", SECRET]).await;
    std::fs::write(home.path().join("token"), token.stdout).unwrap();
    let set = ["context", "set", "work", "--engine", "e.example:1"];
    let files = ["--ca-file", "ca.pem", "--token-file", "token"];
    let nothing = ["--ca-file", "", "--token-file="];
    for (rest, is_kept) in [(&files[..], true), (&nothing, false)] {
        let output = home.run(&[&set[..], rest].concat()).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        let show = ["context", "show", "work", "-o", "json"];
        let shown = home.run(&show).await.json();
        for name in ["ca_file", "token"] {
            let is_there = setting(&shown, name)["source"]["kind"] == "context";
            assert_eq!(is_there, is_kept, "{name}: {shown}");
        }
    }
}

/// Shells and CI systems set variables to an empty value if they are not used.
#[tokio::test]
async fn an_empty_variable_counts_as_unset() {
    let home = Home::new();
    let set = ["context", "set", "work", "--engine", "e.example:1"];
    assert_eq!(home.run(&set).await.code, Some(0));
    std::fs::write(home.path().join("svc.yaml"), "tunnels: {}\n").unwrap();
    let show = ["context", "show", "work", "-o", "json"];
    // Nothing listens there, and the authority file would be read first.
    let platform = ["--api-url", "http://127.0.0.1:9", "--token", "a.b.c"];
    let engine = ["--engine", "127.0.0.1:9", "--token", "a.b.c"];
    for args in [
        &show[..],
        &["context", "list", "-o", "json"],
        &[&["whoami"], &platform[..]].concat(),
        &[&["tunnels"], &engine[..]].concat(),
        &["explain", "https://127.0.0.1:9/", "--context", "work"],
        &["logout", "--context", "nothing"],
        &["run", "--check"],
    ] {
        let plain = home.run(args).await;
        let mut command = home.command(args);
        for name in ["SVC_CA_FILE", "SVC_CONFIG", "SVC_TOKEN_FILE"] {
            command.env(name, "");
        }
        let output = CommandOutput::of_command(command).await;
        assert_eq!(output.code, plain.code, "{args:?} {output:?}");
        assert_eq!(output.stdout, plain.stdout, "{args:?}");
        assert_eq!(output.stderr, plain.stderr, "{args:?}");
    }
}

/// A token that accidentally moved to another address would be sent there.
#[tokio::test]
async fn a_token_is_not_used_with_another_address() {
    let home = Home::new();
    let mint = ["token", "mint", "--secret", SECRET];
    let token = home.run(&mint).await.stdout;
    let set = |engine: &'static str| ["context", "set", "work", "--engine", engine];
    let first = [&set("e.example:1")[..], &["--token", token.trim()]].concat();
    assert_eq!(home.run(&first).await.code, Some(0));
    let moved = home.run(&set("other.example:1")).await;
    assert_eq!(moved.code, Some(2), "{moved:?}");
    assert!(moved.stderr.contains("--token ''"), "{moved:?}");
    let without = [&set("other.example:1")[..], &["--token", ""]].concat();
    assert_eq!(home.run(&without).await.code, Some(0));
    let used = home.run(&["tunnels", "--context", "work"]).await;
    assert!(used.stderr.contains("no token is given"), "{used:?}");

    for bad in [
        &["context", "set", "a.b", "--engine", "e:1"][..],
        &["context", "set", "work", "--engine", "e:x"],
        &["context", "set", "new"],
        &["context", "set", "work", "--token", "no token"],
    ] {
        let output = home.run(bad).await;
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(
            output.stderr.contains("hint:") || bad.contains(&"e:x"),
            "{output:?}"
        );
    }
}

#[tokio::test]
async fn each_value_shows_its_source_and_no_secret_is_shown() {
    let home = Home::new();
    let token = home
        .run(&["token", "mint", "--secret", SECRET])
        .await
        .stdout;
    let set = [
        "context",
        "set",
        "work",
        "--engine",
        "e.example:8443",
        "--token",
        token.trim(),
    ];
    assert_eq!(home.run(&set).await.code, Some(0));
    let mut command = home.command(&["context", "show", "--ca-file", "ca.pem", "-o", "json"]);
    command
        .env("SVC_CONTEXT", "work")
        .env("SVC_ENGINE", "other.example");
    let output = CommandOutput::of_command(command).await;
    assert!(!output.stdout.contains(token.trim()), "{output:?}");
    let shown = output.json();
    let source = |name: &str| setting(&shown, name)["source"].clone();
    assert_eq!(
        source("context"),
        json!({"kind": "variable", "name": "SVC_CONTEXT"})
    );
    assert_eq!(
        source("engine"),
        json!({"kind": "variable", "name": "SVC_ENGINE"})
    );
    assert_eq!(
        source("ca_file"),
        json!({"kind": "flag", "name": "--ca-file"})
    );
    assert_eq!(source("token")["kind"], "context");
    assert_eq!(source("project"), json!({"kind": "none"}));
    assert_eq!(source("config"), json!({"kind": "default"}));
    assert!(
        shown["notes"][0].as_str().unwrap().contains("engine"),
        "{shown}"
    );

    let text = home.run(&["context", "show", "work"]).await;
    let engine = text
        .stdout
        .lines()
        .find(|line| line.starts_with("engine\t"))
        .unwrap();
    assert!(engine.contains("\te.example:8443\t"), "{text:?}");
    assert!(engine.ends_with("contexts/work.json"), "{text:?}");
}

fn setting<'a>(shown: &'a Value, name: &str) -> &'a Value {
    let settings = shown["settings"].as_array().unwrap();
    settings
        .iter()
        .find(|setting| setting["name"] == name)
        .unwrap()
}

const SECRET: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
