//! Outgoing proxies that misbehave, and connections that must not use one.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::installed::{alone, up};
use crate::program::{CommandOutput, Home};

/// A proxy that sends the same bytes to every client and closes. It keeps the heads of requests.
struct TestProxy {
    url: String,
    heads: Arc<Mutex<Vec<String>>>,
}

impl TestProxy {
    async fn answering(answer: &'static [u8]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://ada:s3cret@{}", listener.local_addr().unwrap());
        let heads: Arc<Mutex<Vec<String>>> = Arc::default();
        let seen = Arc::clone(&heads);
        tokio::spawn(async move {
            loop {
                let (mut stream, _peer) = listener.accept().await.unwrap();
                let seen = Arc::clone(&seen);
                tokio::spawn(async move {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await? > 0 {}
                    let head = String::from_utf8_lossy(&head).into_owned();
                    seen.lock().unwrap().push(head);
                    stream.write_all(answer).await?;
                    if answer.is_empty() {
                        // Never answers: waits until the client closes.
                        stream.read_to_end(&mut Vec::new()).await?;
                    }
                    stream.shutdown().await
                });
            }
        });
        Self { url, heads }
    }

    fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

/// Runs a command whose proxy is from the environment.
async fn run(home: &Home, proxy: &str, args: &[&str]) -> CommandOutput {
    let mut command = home.command(args);
    command.env("HTTPS_PROXY", proxy);
    CommandOutput::of_command(command).await
}

fn error(output: &CommandOutput) -> Value {
    let failure: Value = serde_json::from_str(&output.stderr).unwrap();
    failure["error"].clone()
}

const ENGINE: [&str; 7] = [
    "tunnels",
    "-o",
    "json",
    "--engine",
    "engine.example:443",
    "--token",
    "a.b.c",
];

#[tokio::test]
async fn bad_responses_of_a_proxy_are_one_failure_that_names_it() {
    let home = Home::new();
    let huge: &'static [u8] = [b"HTTP/1.1 200 OK\r\nx: ".to_vec(), vec![b'x'; 64 * 1024]]
        .concat()
        .leak();
    for (answer, code) in [
        (
            &b"HTTP/1.1 407 \r\nProxy-Authenticate: Basic\r\n\r\n"[..],
            "proxy_login",
        ),
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "proxy_refused"),
        (b"SSH-2.0-OpenSSH_9.2\r\n\r\n", "proxy_unreachable"),
        (b"HTTP/1.1 200 OK\r\n\r\nmore", "proxy_unreachable"),
        (b"HTTP/1.1 403 \x1b[31m\r\n\r\n", "proxy_unreachable"),
        (b"HTTP/1.1 2", "proxy_unreachable"),
        (b"HTTP/1.1 200 OK\n\n", "proxy_unreachable"),
        (huge, "proxy_unreachable"),
    ] {
        let proxy = TestProxy::answering(answer).await;
        let output = run(&home, &proxy.url, &ENGINE).await;
        assert_eq!(output.code, Some(1), "{output:?}");
        let error = error(&output);
        assert_eq!(error["code"], code, "{error}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains("http://127.0.0.1:"), "{message}");
        assert!(
            !message.contains("s3cret") && !message.contains('\x1b'),
            "{message}"
        );
        let heads = proxy.heads();
        assert!(
            heads[0].starts_with("CONNECT engine.example:443 HTTP/1.1\r\n"),
            "{heads:?}"
        );
        // ada:s3cret
        assert!(heads[0].contains("Basic YWRhOnMzY3JldA=="), "{heads:?}");
        assert_eq!(heads.len(), 1, "one attempt: {heads:?}");
    }
}

#[tokio::test]
async fn the_doctor_reports_a_proxy_that_never_answers() {
    let home = Home::new();
    let proxy = TestProxy::answering(b"").await;
    let doctor = ["doctor", "--timeout", "200ms"];
    let output = run(&home, &proxy.url, &[&doctor[..], &ENGINE[1..]].concat()).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    let found: Value = serde_json::from_str(&output.stdout).unwrap();
    let checks = found["checks"].as_array().unwrap();
    let last = checks.last().unwrap();
    assert_eq!(
        (&last["name"], &last["status"]),
        (&"proxy".into(), &"fail".into()),
        "{found}"
    );
    let message = last["message"].as_str().unwrap();
    assert!(
        message.contains("(HTTPS_PROXY)") && message.contains("in time"),
        "{message}"
    );
}

#[tokio::test]
async fn a_setting_that_cannot_be_used_is_a_usage_error_without_its_password() {
    let home = Home::new();
    for proxy in [
        "https://ada:s3cret@proxy.example",
        "http://ada:s3cret@proxy.example:x",
    ] {
        let output = run(&home, proxy, &ENGINE).await;
        assert_eq!(output.code, Some(2), "{output:?}");
        let error = error(&output);
        assert!(
            error["message"].as_str().unwrap().contains("HTTPS_PROXY"),
            "{error}"
        );
        assert!(!error.to_string().contains("s3cret"), "{error}");
        let given = home.run(&[&ENGINE[..], &["--proxy", proxy]].concat()).await;
        assert_eq!(given.code, Some(2), "{given:?}");
        assert!(given.stderr.contains("--proxy") && !given.stderr.contains("s3cret"));
    }
}

/// Login and all calls of the platform's API name the platform to the proxy.
#[tokio::test]
async fn calls_of_a_platform_use_the_proxy() {
    let home = Home::new();
    let platform = ["--api-url", "https://platform.example:8443"];
    for args in [
        &["login", "--no-browser"][..],
        &["whoami", "--token", "a.b.c", "-o", "json"],
        &["project", "list", "--token", "a.b.c", "-o", "json"],
    ] {
        let proxy = TestProxy::answering(b"HTTP/1.1 403 no\r\n\r\n").await;
        let output = run(&home, &proxy.url, &[args, &platform].concat()).await;
        assert_eq!(output.code, Some(1), "{output:?}");
        assert!(
            output
                .stderr
                .contains("through the proxy http://127.0.0.1:"),
            "{output:?}"
        );
        assert!(!output.stderr.contains("s3cret"), "{output:?}");
        let heads = proxy.heads();
        let head = heads[0].to_ascii_lowercase();
        assert!(
            head.starts_with("connect platform.example:8443 http/1.1\r\n"),
            "{head}"
        );
        assert!(head.contains("basic ywrhonmzy3jlda=="), "{head}");

        // An exception is reached directly. The name has no address.
        let mut command = home.command(&[args, &platform].concat());
        command
            .env("HTTPS_PROXY", &proxy.url)
            .env("NO_PROXY", ".example");
        let output = CommandOutput::of_command(command).await;
        assert!(!output.stderr.contains("through the proxy"), "{output:?}");
        assert_eq!(
            proxy.heads().len(),
            heads.len(),
            "the exception used the proxy"
        );
    }
}

/// Platform and engine of this machine are reached directly, whatever the settings are.
#[tokio::test]
async fn this_machine_is_reached_without_the_proxy() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    for proxy in [
        "http://127.0.0.1:9",
        "https://unusable.example",
        "socks5://127.0.0.1:9",
    ] {
        let output = run(&home, proxy, &["doctor", "-o", "json"]).await;
        assert_eq!(output.code, Some(0), "{output:?}");
        let found: Value = serde_json::from_str(&output.stdout).unwrap();
        assert_eq!(found["summary"]["fail"], 0, "{found}");
        let checks = found["checks"].as_array().unwrap();
        let check = checks
            .iter()
            .find(|check| check["name"] == "proxy")
            .unwrap();
        assert_eq!(check["status"], "skip", "{found}");
        assert!(
            check["message"].as_str().unwrap().contains("this machine"),
            "{found}"
        );
    }
    let flags = ["tunnels", "--proxy", "http://127.0.0.1:9"];
    assert_eq!(home.run(&flags).await.code, Some(0));
    up.stop().await;
}

#[tokio::test]
async fn the_doctor_reports_that_no_proxy_is_configured() {
    let home = Home::new();
    let alone = alone(&home, &[]).await;
    let output = home.run(&["doctor", "-o", "json", "--no-tunnel"]).await;
    let found: Value = serde_json::from_str(&output.stdout).unwrap();
    let checks = found["checks"].as_array().unwrap();
    let check = checks
        .iter()
        .find(|check| check["name"] == "proxy")
        .unwrap();
    assert_eq!(check["message"], "no proxy is configured", "{found}");
    alone.stop().await;
}
