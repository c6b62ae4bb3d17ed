//! Errors: exit codes, one line, a hint.

use std::net::TcpListener;

use nix::sys::signal::Signal;

use crate::program::Home;

#[tokio::test]
async fn without_an_engine_the_next_step_is_shown() {
    let home = Home::new();
    for args in [
        &["tunnels"][..],
        &["events"],
        &["forward", "3000"],
        &["dial", "svc://db"],
    ] {
        let output = home.run(args).await;
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stdout.is_empty());
        assert_eq!(output.stderr.lines().count(), 2, "{output:?}");
        assert!(
            output.stderr.contains("hint: start one with `svc up`"),
            "{output:?}"
        );
    }
}

#[tokio::test]
async fn an_engine_that_does_not_answer_is_reported() {
    let home = Home::new();
    let engine = unused_address();
    let list = home
        .run(&["tunnels", "--engine", &engine, "--token", "a.b.c"])
        .await;
    assert_eq!(list.code, Some(1), "{list:?}");
    assert!(list.stderr.contains("cannot reach the engine"), "{list:?}");
    assert!(list.stderr.contains("hint:"), "{list:?}");
}

#[tokio::test]
async fn an_agent_keeps_trying_and_exits_with_zero_when_it_is_stopped() {
    let home = Home::new();
    let engine = unused_address();
    let args = [
        "forward", "3000", "--engine", &engine, "--token", "a.b.c", "--output", "json",
    ];
    let mut agent = home.start(&args);
    agent.wait_for_stderr("trying again").await;
    agent.signal(Signal::SIGTERM);
    let ended = agent.ended().await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.stdout, "{\"status\":\"closed\"}\n");
}

#[tokio::test]
async fn an_invalid_ca_file_is_a_usage_error() {
    let home = Home::new();
    let args = [
        "tunnels",
        "--engine",
        "engine.localhost:1",
        "--token",
        "a.b.c",
        "--ca-file",
        "none.pem",
    ];
    let output = home.run(&args).await;
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("none.pem"), "{output:?}");
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let home = Home::new();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = home
        .run(&["up", "--port", &port, "--metrics-port", "0"])
        .await;
    assert_eq!(output.code, Some(2), "{output:?}");
    assert_eq!(
        output.stderr,
        format!(
            "error[usage]: port {port} is in use on this machine\nhint: `--port 0` selects free ports\n"
        )
    );
}

#[tokio::test]
async fn a_configuration_is_checked_without_a_start() {
    let home = Home::new();
    std::fs::write(
        home.path().join("engine.yaml"),
        "engine:\n  hst: tunnel.example.com\n",
    )
    .unwrap();
    let output = home.run(&["engine", "-c", "engine.yaml", "--check"]).await;
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(
        output.stderr.contains("hst") && output.stderr.contains("host"),
        "{output:?}"
    );
}

/// The text of the parser and the names of the program's types are no help.
#[tokio::test]
async fn errors_of_a_file_contain_no_text_of_the_parser() {
    let home = Home::new();
    let tunnels = "version: 1\ntunnels:\n  web: {target: 1}\n  web: {target: 2}\n";
    let engine = "engine:\n  host: a.example\n  host: b.example\n";
    for (file, command, twice) in [
        ("svc.yaml", &["run", "--check"][..], tunnels),
        (
            "engine.yaml",
            &["engine", "-c", "engine.yaml", "--check"],
            engine,
        ),
    ] {
        for text in [twice, "- a\n- b\n", "a: [\n"] {
            std::fs::write(home.path().join(file), text).unwrap();
            let output = home.run(command).await;
            assert_eq!(output.code, Some(2), "{output:?}");
            for internal in [
                "DuplicateKey",
                "struct ",
                "AgentFile",
                "EngineFile",
                "serde",
            ] {
                assert!(!output.stderr.contains(internal), "{output:?}");
            }
            let is_twice = output.stderr.contains("is written twice in one section");
            assert_eq!(is_twice, text == twice, "{output:?}");
        }
    }
}

#[tokio::test]
async fn the_schema_is_printed_for_editors() {
    let home = Home::new();
    let schema = home.run(&["engine", "--schema"]).await.json();
    assert_eq!(
        schema["properties"]["engine"]["properties"]["host"]["type"][0],
        "string"
    );
}

/// An address on which nothing listens.
fn unused_address() -> String {
    format!("127.0.0.1:{}", ports::lease())
}

#[tokio::test]
async fn a_proxy_header_is_refused_for_an_http_service() {
    let home = Home::new();
    for http in [
        &["forward", "3000", "--proxy-protocol", "v1"][..],
        &["forward", "https://localhost:9443", "--proxy-protocol=v2"],
        &[
            "forward",
            "3000",
            "--http",
            "--no-publish",
            "--proxy-protocol=v2",
        ],
    ] {
        let output = home.run(http).await;
        assert_eq!(output.code, Some(2), "{output:?}");
        assert!(output.stderr.contains("not for http tunnels"), "{output:?}");
        assert!(output.stderr.contains("X-Forwarded-For"), "{output:?}");
    }
    let unknown = home
        .run(&["forward", "22", "--tcp", "--proxy-protocol", "v3"])
        .await;
    assert_eq!(unknown.code, Some(2), "{unknown:?}");
    assert!(unknown.stderr.contains("v1 or v2"), "{unknown:?}");
}
