//! Mistakes of a new user: each has a code, a cause and a next step, the same in text and in JSON,
//! and an exit code.

use crate::installed::alone;
use crate::program::{CommandOutput, Home, soon};

/// A command and its expected error.
struct Mistake<'a> {
    args: Vec<&'a str>,
    exit: i32,
    code: &'a str,
    /// A part of the cause.
    cause: &'a str,
    /// A part of the next step.
    next: &'a str,
}

#[tokio::test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn mistakes_of_a_new_user_lead_to_the_next_step() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let engine = up
        .ready_field("engine_url")
        .trim_start_matches("https://")
        .to_owned();
    let (_, port) = engine.rsplit_once(':').unwrap();
    let metrics = up
        .ready_field("metrics_url")
        .trim_start_matches("http://")
        .to_owned();
    let numbers = format!("127.0.0.1:{port}");
    let other = format!("other.localhost:{port}");
    let closed = closed_port();
    let expired = minted(&home, &["--ttl", "1s"]).await;
    let stranger = minted_with(&home, &"fedcba98".repeat(8), &[]).await;
    let reader = minted(&home, &["--permission", "tunnels.streams.create-delete"]).await;
    let token = up.ready_field("token");
    let ca_file = up.ready_field("ca_file");
    let at = |engine| vec!["tunnels", "--engine", engine, "--token", token];
    let mistake = |args, exit, code, cause, next| Mistake {
        args,
        exit,
        code,
        cause,
        next,
    };
    // The token expires after a second.
    let output = async {
        loop {
            let list = home.run(&["tunnels", "--token", &expired]).await;
            if list.code == Some(3) {
                return;
            }
        }
    };
    tokio::time::timeout(crate::program::SOON, output)
        .await
        .unwrap();
    for mistake in [
        mistake(
            at(&metrics),
            1,
            "engine_protocol",
            "does not speak TLS",
            "the engine's port",
        ),
        mistake(
            at(&closed),
            1,
            "engine_unreachable",
            "cannot reach",
            "svc up",
        ),
        mistake(
            at(&other),
            1,
            "engine_not_trusted",
            "not trusted here",
            "--ca-file",
        ),
        mistake(
            [at(&other), vec!["--ca-file", ca_file]].concat(),
            1,
            "engine_wrong_name",
            "for other names",
            "svc doctor",
        ),
        mistake(
            [at(&numbers), vec!["--ca-file", ca_file]].concat(),
            1,
            "engine_wrong_name",
            "for other names",
            "a name that the certificate covers",
        ),
        mistake(
            at("nobody.invalid:1"),
            1,
            "engine_not_resolved",
            "cannot resolve",
            "check the spelling",
        ),
        mistake(
            [at(&engine), vec!["--ca-file", "none.pem"]].concat(),
            2,
            "ca_file",
            "none.pem",
            "--ca-file",
        ),
        mistake(
            vec!["tunnels", "--engine", &closed],
            2,
            "no_token",
            "no token",
            "--token",
        ),
        mistake(
            vec!["tunnels", "--token", &expired],
            3,
            "invalid_token",
            "the token expired at",
            "svc token inspect",
        ),
        mistake(
            vec!["tunnels", "--token", &stranger],
            3,
            "invalid_token",
            "the token is for another engine",
            "svc context show",
        ),
        mistake(
            vec!["tunnels", "--token", &reader],
            3,
            "insufficient_scope",
            "",
            "svc token inspect",
        ),
        mistake(
            vec!["dial", "nobody"],
            1,
            "tunnel_not_found",
            "no private tunnel with this name",
            "svc tunnels",
        ),
        mistake(
            vec!["tunnels", "--context", "lcoal"],
            2,
            "context_not_found",
            "`lcoal`",
            "did you mean `local`?",
        ),
        mistake(
            vec![
                "token",
                "mint",
                "--secret",
                "x",
                "--permission",
                "tunnels.resource.read-only",
            ],
            2,
            "usage",
            "",
            "",
        ),
        mistake(
            vec!["dial", "a", "b"],
            2,
            "usage",
            "stdin and stdout",
            "a=PORT",
        ),
        mistake(
            vec!["dial", "db", "--health-listen", "0"],
            2,
            "usage",
            "--health-listen",
            "NAME=PORT",
        ),
        mistake(vec!["tunels"], 2, "usage", "unrecognized subcommand", ""),
    ] {
        check(&home, &mistake).await;
    }
    up.stop().await;
}

async fn check(home: &Home, mistake: &Mistake<'_>) {
    let text = home.run(&mistake.args).await;
    assert_eq!(
        text.code,
        Some(mistake.exit),
        "{:?}: {text:?}",
        mistake.args
    );
    assert_eq!(text.stdout, "");
    assert!(text.stderr.contains(mistake.cause), "{text:?}");
    assert!(text.stderr.contains(mistake.next), "{text:?}");
    if !text.stderr.starts_with("error: ") {
        // Errors beyond the command line itself have one line, and one for the next step.
        let start = format!("error[{}]: ", mistake.code);
        let lines = text.stderr.lines();
        let lines: Vec<_> = lines
            .filter(|line| !line.starts_with("warning: "))
            .collect();
        assert!(lines.len() == 2 && lines[0].starts_with(&start), "{text:?}");
    }
    if matches!(mistake.args.first(), Some(&("token" | "tunels"))) {
        return;
    }
    let json: CommandOutput = home
        .run(&[&mistake.args[..], &["-o", "json"]].concat())
        .await;
    assert_eq!(json.code, Some(mistake.exit), "{json:?}");
    let reported: serde_json::Value = serde_json::from_str(json.stderr.trim()).unwrap();
    assert_eq!(reported["error"]["code"], mistake.code, "{reported}");
    assert_eq!(reported["error"]["exit_code"], mistake.exit);
    let message = reported["error"]["message"].as_str().unwrap();
    let hint = reported["error"]["hint"].as_str().unwrap();
    assert_eq!(
        text.stderr,
        format!("error[{}]: {message}\nhint: {hint}\n", mistake.code)
    );
}

/// Mistakes in the connection end `svc forward` with the texts of other commands, unless they may
/// pass.
#[tokio::test]
async fn forward_ends_with_an_explanation_if_the_connection_cannot_work() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let engine = up.ready_field("engine_url").trim_start_matches("https://");
    let metrics = up.ready_field("metrics_url").trim_start_matches("http://");
    let stranger = rcgen::generate_simple_self_signed(["other.test".to_owned()]).unwrap();
    std::fs::write(home.path().join("other.pem"), stranger.cert.pem()).unwrap();
    let token = up.ready_field("token");
    for (engine, more) in [(metrics, &[][..]), (engine, &["--ca-file", "other.pem"])] {
        let at = [&["--engine", engine, "--token", token], more].concat();
        let list = home.run(&[&["tunnels"], &at[..]].concat()).await;
        let forward = home.run(&[&["forward", "3000"], &at[..]].concat()).await;
        assert_eq!(forward.code, Some(1), "{forward:?}");
        assert_eq!(forward.stderr, list.stderr);
    }
    // Names that the engine does not serve: beside its certificate, and below it.
    let (_, port) = engine.rsplit_once(':').unwrap();
    let ca_file = up.ready_field("ca_file");
    for name in [
        "other.localhost",
        "other.engine.localhost",
        "web.t.engine.localhost",
    ] {
        let engine = format!("{name}:{port}");
        let at = ["--engine", &engine, "--token", token, "--ca-file", ca_file];
        let list = home.run(&[&["tunnels"], &at[..]].concat()).await;
        assert_eq!(list.code, Some(1), "{list:?}");
        let forward = home.run(&[&["forward", "3000"], &at[..]].concat()).await;
        assert_eq!(forward.code, Some(1), "{forward:?}");
        assert_eq!(forward.stderr, list.stderr);
    }
    // A proxy whose engine is being restarted closes connections as well.
    let proxy = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let closing = proxy.local_addr().unwrap().to_string();
    let (accepted, mut attempts) = tokio::sync::mpsc::channel(1);
    tokio::spawn(async move {
        loop {
            drop(proxy.accept().await.unwrap());
            accepted.send(()).await.ok();
        }
    });
    let at = ["--engine", &closing, "--token", token];
    let mut agent = home.start(&[&["forward", "3000"], &at[..]].concat());
    agent.wait_for_stderr("trying again").await;
    // An attempt is at most two connections.
    for _ in 0..5 {
        soon("another attempt", attempts.recv()).await.unwrap();
    }
    assert_eq!(agent.terminate().await.code, Some(0));
    // The engine may be started later.
    let closed = closed_port();
    let at = ["--engine", &closed, "--token", token];
    let list = home.run(&[&["tunnels"], &at[..]].concat()).await;
    let (_, hint) = list.stderr.trim_end().split_once('\n').unwrap();
    let mut agent = home.start(&[&["forward", "3000"], &at[..]].concat());
    agent.wait_for_stderr("trying again").await;
    agent.wait_for_stderr(hint).await;
    assert_eq!(agent.terminate().await.code, Some(0));
    up.stop().await;
}

#[tokio::test]
async fn words_of_other_tools_lead_to_the_command_of_svc() {
    let home = Home::new();
    for (args, hint) in [
        (&["http", "3000"][..], "svc forward 3000"),
        (&["tcp", "22"], "svc forward 22 --tcp"),
        (&["forward", "3000", "--subdomain", "web"], "--name web"),
        (&["forward", "3000", "--subdomain=web"], "--name web"),
        (&["forward", "3000", "--domain", "a.example"], "--hostname"),
        (
            &["forward", "--url", "http://localhost:3000"],
            "svc forward",
        ),
    ] {
        let text = home.run(args).await;
        assert_eq!(text.code, Some(2), "{text:?}");
        let (error, advice) = text.stderr.split_once('\n').unwrap();
        assert!(error.starts_with("error[usage]: unrecognized") || error.contains("unexpected"));
        assert!(
            advice.starts_with("hint: ") && advice.contains(hint),
            "{text:?}"
        );
        let json = home.run(&[args, &["-o", "json"]].concat()).await;
        let reported: serde_json::Value = serde_json::from_str(&json.stderr).unwrap();
        assert!(reported["error"]["hint"].as_str().unwrap().contains(hint));
    }
}

/// A token signed with the engine's own secret.
async fn minted(home: &Home, more: &[&str]) -> String {
    minted_with(home, &crate::installed::secret(home), more).await
}

/// A token signed with this secret.
async fn minted_with(home: &Home, secret: &str, more: &[&str]) -> String {
    let args = ["token", "mint", "--secret", secret, "--type", "app"];
    let output = home.run(&[&args, more].concat()).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    output.stdout.trim().to_owned()
}

/// A port on which nothing listens.
fn closed_port() -> String {
    format!("engine.localhost:{}", ports::lease())
}
