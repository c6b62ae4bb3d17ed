//! `--basic-auth-file` and `--basic-auth`: passwords of visitors without an account.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Stdio,
};

use nix::sys::signal::Signal;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::process::Command;

use super::run::{applied, online, replace};
use crate::installed::{RunningUp, alone, up};
use crate::local_platform::up::{visitor, web_service};
use crate::program::{Home, RunningCommand, soon};
use crate::terminal::TerminalCommand;

/// Writes a file that only its owner can read, in one step.
fn write_private(path: &Path, text: &str) {
    write(path, text, PRIVATE);
}

fn write(path: &Path, text: &str, mode: u32) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    set_mode(&new, mode);
    fs::rename(&new, path).unwrap();
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

/// The content of `svc.yaml` with one tunnel.
fn tunnel(port: u16, passwords: &Path) -> String {
    let passwords = passwords.display();
    format!("version: 1\ntunnels:\n  fair: {{target: {port}, basic_auth_file: {passwords}}}\n")
}

/// Waits until an agent rejects its files. Returns the first error.
async fn rejected(agent: &mut RunningCommand) -> String {
    let line = agent.json_where(|line| line["status"] == "rejected").await;
    line["errors"][0]["message"].as_str().unwrap().to_owned()
}

fn passwords(home: &Home, text: &str) -> PathBuf {
    let path = home.path().join("visitors");
    write_private(&path, text);
    path
}

/// The status of a visit with this password of `ann`.
async fn status(up: &RunningUp, online: &Value, password: Option<&str>) -> StatusCode {
    let (client, url) = visitor(&up.ready, online["forwarding"].as_str().unwrap());
    let mut request = client.get(url);
    if let Some(password) = password {
        request = request.basic_auth("ann", Some(password));
    }
    request.send().await.unwrap().status()
}

#[tokio::test]
async fn visitors_need_a_password_of_the_file_at_both_kinds_of_engines() {
    for is_managed in [false, true] {
        let home = Home::new();
        let up = if is_managed {
            up(&home, &[]).await
        } else {
            alone(&home, &[]).await
        };
        let (_service, port) = web_service(0).await;
        let file = passwords(&home, "# visitors of the fair\nann:correct horse\n");
        let args = [
            "forward",
            &port.to_string(),
            "--name",
            "fair",
            "--basic-auth-file",
            file.to_str().unwrap(),
            "-o",
            "json",
        ];
        let mut agent = home.start(&args);
        let line = agent.json().await;
        for (password, expected) in [
            (None, StatusCode::UNAUTHORIZED),
            (Some("wrong"), StatusCode::UNAUTHORIZED),
            (Some("correct horse"), StatusCode::OK),
            (Some("correct horse"), StatusCode::OK),
        ] {
            let actual = status(&up, &line, password).await;
            assert_eq!(actual, expected, "{is_managed} {password:?}");
        }
        if !is_managed {
            let url = line["forwarding"].as_str().unwrap();
            let explained = home.run(&["explain", url, "-o", "json"]).await.json();
            assert_eq!(explained["visit"]["answer"]["code"], "password_required");
            let next_step = explained["next_step"].as_str().unwrap();
            assert!(next_step.contains("--basic-auth-file"), "{explained}");
        }
        let listed = home.run(&["tunnels", "-o", "json"]).await;
        assert!(!listed.stdout.contains("argon2id"), "{listed:?}");
        soon("the end of the agent", agent.terminate()).await;
        up.stop().await;
    }
}

/// Waits until the agent has applied a new file. Only the new password is then right.
async fn replaced(agent: &mut RunningCommand, up: &RunningUp, before: &str, now: &str) {
    let changed = applied(agent).await;
    assert_eq!(changed["changed"], json!(["fair"]), "{changed}");
    let line = online(agent, "fair").await;
    for (password, expected) in [(before, StatusCode::UNAUTHORIZED), (now, StatusCode::OK)] {
        assert_eq!(status(up, &line, Some(password)).await, expected);
    }
}

/// A new password takes effect without a restart, and an unusable file changes nothing.
#[tokio::test]
async fn the_file_of_a_running_agent_can_change() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let (_service, port) = web_service(0).await;
    let file = passwords(&home, "ann:correct horse\n");
    fs::write(home.path().join("svc.yaml"), tunnel(port, &file)).unwrap();
    let mut agent = home.start(&["run", "-o", "json"]);
    let line = online(&mut agent, "fair").await;
    assert_eq!(
        status(&up, &line, Some("correct horse")).await,
        StatusCode::OK
    );
    write_private(&file, "ann:another password\n");
    replaced(&mut agent, &up, "correct horse", "another password").await;
    soon("the end of the agent", agent.terminate()).await;
    up.stop().await;
}

/// `chmod` is enough, because it leaves the bytes of the file as they are.
#[tokio::test]
async fn a_rejected_file_applies_when_it_becomes_private() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let (_service, port) = web_service(0).await;
    let file = passwords(&home, "ann:correct horse\n");
    let config = home.path().join("svc.yaml");
    fs::write(&config, tunnel(port, &file)).unwrap();
    let mut agent = home.start(&["run", "-o", "json"]);
    online(&mut agent, "fair").await;

    write(&file, "ann:another password\n", PUBLIC);
    let error = rejected(&mut agent).await;
    assert!(error.contains("chmod 600"), "{error}");
    set_mode(&file, PRIVATE);
    replaced(&mut agent, &up, "correct horse", "another password").await;

    // A file that was never valid.
    let other = home.path().join("others");
    write(&other, "ann:third password\n", PUBLIC);
    replace(&config, &tunnel(port, &other));
    let error = rejected(&mut agent).await;
    assert!(error.contains("others can be read by all"), "{error}");
    set_mode(&other, PRIVATE);
    replaced(&mut agent, &up, "another password", "third password").await;
    soon("the end of the agent", agent.terminate()).await;
    up.stop().await;
}

#[tokio::test]
async fn an_unusable_file_is_refused_with_its_line() {
    let home = Home::new();
    let file = passwords(&home, "ann:secret\nsecret\n");
    let path = file.to_str().unwrap();
    let forward = ["forward", "9", "--basic-auth-file", path];
    let refused = home.run(&forward).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("line 2: no colon"), "{refused:?}");
    assert!(!refused.stderr.contains("secret"), "{refused:?}");

    fs::write(home.path().join("svc.yaml"), tunnel(9, &file)).unwrap();
    let checked = home.run(&["run", "--check"]).await;
    assert_eq!(checked.code, Some(2), "{checked:?}");
    for part in ["tunnels.fair.basic_auth_file", "line 2: no colon"] {
        assert!(checked.stderr.contains(part), "{checked:?}");
    }

    write(&file, "ann:secret\n", PUBLIC);
    let public = home.run(&forward).await;
    assert_eq!(public.code, Some(2), "{public:?}");
    assert!(public.stderr.contains("chmod 600"), "{public:?}");
}

/// The password is never an argument.
#[tokio::test]
async fn the_prompt_needs_a_terminal_and_the_same_password_twice() {
    let home = Home::new();
    let without = home.run(&PROMPT).await;
    assert_eq!(without.code, Some(2), "{without:?}");
    assert!(without.stderr.contains("--basic-auth-file"), "{without:?}");
    let piped = home.run_with_input(&PROMPT, b"secret\nsecret\n").await;
    assert_eq!(piped.code, Some(2), "{piped:?}");
    assert!(piped.stderr.contains("at a terminal"), "{piped:?}");
    let argument = home.run(&["forward", "9", "--basic-auth=secret"]).await;
    assert_eq!(argument.code, Some(2), "{argument:?}");

    let mut asked = TerminalCommand::start(&home, &PROMPT);
    asked.until("it is not shown): ").await;
    assert!(!asked.is_normal());
    asked.answer("correct horse\n");
    asked.until("again: ").await;
    assert!(!asked.is_normal());
    asked.answer("correct horsf\n");
    asked.until("the two passwords differ").await;
    assert!(asked.is_normal());
    assert_eq!(asked.ended().await.0, Some(2));
}

/// It is refused immediately, and not requested again.
#[tokio::test]
async fn an_unusable_password_at_the_prompt_is_refused() {
    let home = Home::new();
    // Enter, the end of the input, a character of control, and the hash of another program.
    for answer in ["\n", "\u{4}", "horse\u{7}\n", "$2y$05$horse\n"] {
        let mut asked = TerminalCommand::start(&home, &PROMPT);
        asked.until("it is not shown): ").await;
        asked.answer(answer);
        let shown = asked.until("the password is not usable").await;
        assert!(!shown.contains("again"), "{answer:?} {shown}");
        assert!(asked.is_normal(), "{answer:?}");
        assert_eq!(asked.ended().await.0, Some(2), "{answer:?}");
    }
}

/// Ctrl+C ends the program, and the terminal shows its input again.
#[tokio::test]
async fn an_interrupted_prompt_leaves_the_terminal_as_it_was() {
    let home = Home::new();
    for is_second in [false, true] {
        let mut asked = TerminalCommand::start(&home, &PROMPT);
        asked.until("it is not shown): ").await;
        if is_second {
            asked.answer("correct horse\n");
            asked.until("again: ").await;
        }
        asked.answer("corr\u{3}");
        assert!(!asked.succeeded().await);
        assert!(asked.is_normal(), "{is_second}");
    }
}

/// The command line of this program, which another one starts in its own place.
fn started_by(home: &Home, starter: &str, options: &[&str], args: &[&str]) -> Command {
    let mut command = Command::new(starter);
    command
        .args(options)
        .arg(env!("CARGO_BIN_EXE_svc"))
        .args(args)
        .env_clear()
        .env("HOME", home.path())
        .current_dir(home.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    command
}

/// Signals of a supervisor and of a closed terminal end the program at either prompt, also if the
/// program handles them otherwise.
#[tokio::test]
async fn a_signal_at_a_prompt_leaves_the_terminal_as_it_was() {
    let home = Home::new();
    let token = ["login", "--api-url", "http://127.0.0.1:9", "--token-stdin"];
    let prompts = [
        (&PROMPT[..], false),
        (&PROMPT[..], true),
        (&token[..], false),
    ];
    for (args, is_second) in prompts {
        for signal in [Signal::SIGTERM, Signal::SIGHUP] {
            // The caller of the tests may ignore a signal, and the program inherits that.
            let mut program = started_by(&home, "/usr/bin/env", &["--default-signal"], args);
            let mut asked = TerminalCommand::spawn(&mut program);
            asked.until("it is not shown): ").await;
            if is_second {
                asked.answer("correct horse\n");
                asked.until("again: ").await;
            }
            assert!(!asked.is_normal());
            asked.signal(signal);
            let ended_by = asked.ended_by().await;
            assert_eq!(ended_by, Some(signal as i32), "{args:?} {is_second}");
            assert!(asked.is_normal(), "{signal} {args:?} {is_second}");
        }
    }
}

/// A signal that its caller ignores (`nohup`) does not end a prompt.
#[tokio::test]
async fn an_ignored_signal_does_not_end_a_prompt() {
    let home = Home::new();
    let script = ["-c", "trap '' HUP; exec \"$0\" \"$@\""];
    let mut shell = started_by(&home, "/bin/sh", &script, &PROMPT);
    let mut asked = TerminalCommand::spawn(&mut shell);
    asked.until("it is not shown): ").await;
    asked.signal(Signal::SIGHUP);
    asked.answer("correct horse\n");
    asked.until("again: ").await;
    assert!(!asked.is_normal());
    asked.answer("another\n");
    asked.until("the two passwords differ").await;
    assert!(asked.is_normal());
}

const PROMPT: [&str; 3] = ["forward", "9", "--basic-auth"];
/// Mode of a file that only its owner can read.
const PRIVATE: u32 = 0o600;
/// Mode of a file that all users of the machine can read.
const PUBLIC: u32 = 0o644;
