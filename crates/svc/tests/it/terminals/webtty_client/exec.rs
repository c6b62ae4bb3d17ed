//! `svc webtty exec`, and `client` on pipes.

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::program::{CommandOutput, Home};
use crate::terminals::webtty_client::served::{Options, TestServer};

/// WT-1: the output and the exit status of a command as one object. The exit code is that of the
/// command.
#[tokio::test]
async fn a_command_is_reported_as_json_and_its_exit_code_returned() {
    let home = Home::new();
    let served = TestServer::start(home.path(), Options::default()).await;
    let url = served.url();
    let script = "echo out; echo err >&2; pwd; echo $GREETING; exit 3";
    let args = [
        "webtty",
        "exec",
        &url,
        "-w",
        "/usr",
        "-e",
        "GREETING=a b=c",
        "--",
        "sh",
        "-c",
        script,
    ];
    let ended = home.run(&args).await;
    assert_eq!(ended.code, Some(3), "{ended:?}");
    let mut output: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert!(output["duration_ms"].is_u64(), "{output}");
    output.as_object_mut().unwrap().remove("duration_ms");
    assert_eq!(
        output,
        json!({
            "url": format!("{url}/"), "command": ["sh", "-c", script], "exit_code": 3,
            "stdout": "out\n/usr\na b=c\n", "stderr": "err\n", "reason": "exited",
        })
    );
    assert_eq!(ended.stderr, "");
}

type Variables = &'static [(&'static str, &'static str)];

/// A command has the language of the user, and nothing else of their environment. Without one it
/// has a UTF-8 locale.
#[tokio::test]
async fn a_command_has_the_locale_of_the_client_or_a_utf8_one() {
    let home = Home::new();
    let served = TestServer::start(home.path(), Options::default()).await;
    let url = served.url();
    let script = "echo $LANG,$LC_TIME,$LC_SECRET,$COLORTERM,$OTHER";
    let cases: [(Variables, &[&str], &str); 4] = [
        (&[], &[], "C.UTF-8,,,,\n"),
        (
            &[
                ("LANG", "de_DE.UTF-8"),
                ("LC_TIME", "en_GB.UTF-8"),
                ("LC_SECRET", "x"),
                ("OTHER", "x"),
                // A command without a terminal draws nothing.
                ("COLORTERM", "truecolor"),
            ],
            &[],
            "de_DE.UTF-8,en_GB.UTF-8,,,\n",
        ),
        (&[("LANG", "$(reboot)")], &[], "C.UTF-8,,,,\n"),
        (&[("LANG", "de_DE.UTF-8")], &["-e", "LANG=fr"], "fr,,,,\n"),
    ];
    for (variables, more, expected) in cases {
        let args = [
            &["webtty", "exec", &url, "-o", "json"][..],
            more,
            &["--", "sh", "-c", script],
        ];
        let mut command = home.command(&args.concat());
        command.envs(variables.iter().copied());
        let ended = CommandOutput::of_command(command).await;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        assert_eq!(ended.json()["stdout"], expected, "{variables:?}");
    }
}

/// A token in the query of an address is sent to the server, and never printed.
#[tokio::test]
async fn a_token_in_an_address_is_not_printed() {
    let home = Home::new();
    let served = TestServer::start(home.path(), Options::default()).await;
    let url = format!("{}/?svc.token=secret", served.url());
    let args = ["webtty", "exec", &url, "-o", "json", "--", "true"];
    let ended = home.run(&args).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(ended.json()["url"], format!("{}/", served.url()));
    let bad = format!("{url}#end");
    let other = url.replace("ws:", "http:");
    for args in [
        &["webtty", "exec", &url, "--e2e", "--", "true"][..],
        &["webtty", "exec", &bad, "--", "true"],
        &["webtty", "exec", &other, "--", "true"],
        &["webtty", "fs", "ls", &url],
    ] {
        let ended = home.run(args).await;
        assert_ne!(ended.code, Some(0), "{ended:?}");
        let output = [ended.stdout, ended.stderr].concat();
        assert!(
            output.contains("error[") && !output.contains("secret"),
            "{output}"
        );
    }
}

#[tokio::test]
async fn output_is_streamed_and_stdin_is_passed_on_request() {
    let home = Home::new();
    let served = TestServer::start(home.path(), Options::default()).await;
    let url = served.url();
    let script = "cat; echo done >&2";
    let args = [
        "webtty", "exec", &url, "-i", "-o", "text", "--", "sh", "-c", script,
    ];
    let input = vec![b'x'; 700_000];
    let output = home.run_with_input(&args, &input).await;
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(output.stdout.len(), input.len());
    assert_eq!(output.stderr, "done\n");
    // Without the flag, stdin is empty.
    let args = ["webtty", "exec", &url, "-o", "text", "--", "cat"];
    let output = home.run_with_input(&args, b"unread").await;
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), ""));
    // A client on pipes does both.
    let args = [
        "webtty",
        "client",
        &url,
        "--",
        "sh",
        "-c",
        "read a; echo got $a; exit 9",
    ];
    let output = home.run_with_input(&args, b"it\n").await;
    assert_eq!((output.code, output.stdout.as_str()), (Some(9), "got it\n"));
}

#[tokio::test]
async fn signals_go_to_the_command_and_come_from_it() {
    let home = Home::new();
    let served = TestServer::start(home.path(), Options::default()).await;
    let url = served.url();
    let args = ["webtty", "exec", &url, "--", "sh", "-c", "kill -9 $$"];
    let ended = home.run(&args).await;
    assert_eq!(ended.code, Some(137), "{ended:?}");
    let output: Value = serde_json::from_str(&ended.stdout).unwrap();
    assert_eq!(
        (&output["signal"], &output["exit_code"]),
        (&json!("KILL"), &json!(137))
    );

    let script = "trap 'echo trapped; exit 4' INT; echo ready; while :; do sleep 0.05; done";
    let args = [
        "webtty", "exec", &url, "-o", "text", "--", "sh", "-c", script,
    ];
    let mut running = home.start(&args);
    running.until("ready").await;
    running.signal(Signal::SIGINT);
    let ended = running.ended().await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(4), "trapped\n"));
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_stopped() {
    let home = Home::new();
    let served = TestServer::start(home.path(), Options::default()).await;
    let url = served.url();
    let args = [
        "webtty",
        "exec",
        &url,
        "--timeout",
        "500ms",
        "-o",
        "json",
        "--",
        "sleep",
        "600",
    ];
    let ended = home.run(&args).await;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(1), ""));
    let output: Value = serde_json::from_str(&ended.stderr).unwrap();
    assert_eq!(output["error"]["code"], "webtty_timeout");
}

#[tokio::test]
async fn connection_and_start_errors_are_reported() {
    let home = Home::new();
    let served = TestServer::start(
        home.path(),
        Options {
            token: Some("sesame"),
            ..Options::default()
        },
    )
    .await;
    let url = served.url();
    let output = home.run(&["webtty", "exec", &url, "--", "true"]).await;
    assert_eq!(output.code, Some(3), "{output:?}");
    assert!(output.stderr.contains("--auth-token-file"), "{output:?}");
    std::fs::write(home.path().join("token"), "sesame\n").unwrap();
    let with_token = |command: &'static str| {
        [
            "webtty",
            "exec",
            &url,
            "--auth-token-file",
            "token",
            "--",
            command,
        ]
    };
    assert_eq!(home.run(&with_token("true")).await.code, Some(0));
    let output = home.run(&with_token("no-such-command")).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(
        output.stderr.contains("error[webtty_refused]"),
        "{output:?}"
    );

    let nobody = format!("ws://127.0.0.1:{}", ports::lease());
    let output = home.run(&["webtty", "exec", &nobody, "--", "true"]).await;
    assert_eq!(output.code, Some(1));
    assert!(
        output.stderr.contains("error[webtty_unreachable]"),
        "{output:?}"
    );
    let output = home
        .run(&["webtty", "exec", "http://x", "--", "true"])
        .await;
    assert_eq!(output.code, Some(2), "{output:?}");
}
