//! `svc run` with a file: many tunnels, which change while they are in use.

use std::{
    fs,
    net::Ipv4Addr,
    path::{Path, PathBuf},
};

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    time::timeout,
};

use crate::installed::alone;
use crate::program::{Home, RunningCommand, SOON};

/// A service that answers each request with its own name and the same bytes.
pub(crate) async fn echo(name: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut request = Vec::new();
                stream.read_to_end(&mut request).await.unwrap();
                stream.write_all(name.as_bytes()).await.unwrap();
                stream.write_all(&request).await.unwrap();
            });
        }
    });
    port
}

/// Replaces a file with a rename.
pub(crate) fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    fs::write(&new, text).unwrap();
    fs::rename(&new, path).unwrap();
}

/// The next line that reports an applied configuration.
pub(crate) async fn applied(agent: &mut RunningCommand) -> Value {
    agent.json_where(|line| line["status"] == "applied").await
}

/// The line of a tunnel that is online, by the tunnel's key.
pub(crate) async fn online(agent: &mut RunningCommand, key: &str) -> Value {
    agent
        .json_where(|line| line["tunnel"] == key && line["status"] == "online")
        .await
}

async fn visit(line: &Value) -> TcpStream {
    let port = u16::try_from(line["port"].as_u64().unwrap()).unwrap();
    let mut visitor = TcpStream::connect((Ipv4Addr::LOCALHOST, port))
        .await
        .unwrap();
    visitor.write_all(b"hello").await.unwrap();
    visitor
}

async fn finish(mut visitor: TcpStream) -> String {
    visitor.shutdown().await.unwrap();
    let mut answer = String::new();
    timeout(SOON, visitor.read_to_string(&mut answer))
        .await
        .unwrap()
        .unwrap();
    answer
}

/// Waits until the stream of a visitor has reached the service.
async fn opened(agent: &mut RunningCommand, key: &str) {
    agent
        .json_where(|line| line["tunnel"] == key && line["active"] == true)
        .await;
}

#[tokio::test]
async fn a_change_of_the_file_leaves_other_tunnels_alone() {
    let home = Home::new();
    let _up = alone(&home, &[]).await;
    let (one, two) = (echo("one:").await, echo("two:").await);
    let file = home.path().join("svc.yaml");
    let text = |rest: &str| {
        format!("version: 1\ntunnels:\n  kept: {{target: {one}, protocol: tcp}}\n{rest}")
    };
    let first = format!(
        "  gone: {{target: {one}, protocol: tcp}}\n  moved: {{target: {one}, publish: false}}\n  \
         other: {{target: {one}, publish: false, labels: {{a: b}}}}\n"
    );
    fs::write(&file, text(&first)).unwrap();
    let mut agent = home.start(&["run", "-o", "json"]);
    let line = agent.json().await;
    let keys = json!(["gone", "kept", "moved", "other"]);
    assert_eq!(
        (&line["status"], &line["added"]),
        (&json!("applied"), &keys)
    );
    let mut lines = Vec::new();
    for _ in 0..4 {
        lines.push(agent.json_where(|line| line["status"] == "online").await);
    }
    lines.sort_by_key(|line| line["tunnel"].as_str().unwrap().to_owned());
    assert_eq!(lines[1]["tunnel"], "kept");
    assert_eq!(lines[1]["name"], "kept");

    let kept = visit(&lines[1]).await;
    opened(&mut agent, "kept").await;
    let gone = visit(&lines[0]).await;
    opened(&mut agent, "gone").await;
    let second = format!(
        "  moved: {{target: {two}, publish: false}}\n  other: {{target: {one}, publish: false}}\n  \
         new: {{target: {two}, publish: false}}\n"
    );
    replace(&file, &text(&second));
    let mut change = applied(&mut agent).await;
    change.as_object_mut().unwrap().remove("status");
    assert_eq!(
        change,
        json!({"added": ["new"], "changed": ["moved", "other"], "removed": ["gone"], "unchanged": 1})
    );
    let mut seen = Vec::new();
    while seen.len() < 3 {
        let line = agent.json_where(|line| line["status"] == "online").await;
        seen.push((line["tunnel"].clone(), line["tunnel_id"].clone()));
    }
    // The same tunnel with another service, and another tunnel with the same name.
    assert!(
        seen.contains(&(json!("moved"), lines[2]["tunnel_id"].clone())),
        "{seen:?}"
    );
    assert!(
        !seen.contains(&(json!("other"), lines[3]["tunnel_id"].clone())),
        "{seen:?}"
    );

    assert_eq!(finish(kept).await, "one:hello");
    assert_eq!(finish(gone).await, "one:hello");
    for (name, answer) in [("moved", "two:x"), ("other", "one:x"), ("new", "two:x")] {
        let dialled = home
            .run_with_input(&["dial", &format!("svc://{name}")], b"x")
            .await;
        assert_eq!(dialled.stdout, answer, "{dialled:?}");
    }
    let tunnels = home.run(&["tunnels", "-o", "json"]).await.json();
    let tunnels = tunnels.as_array().unwrap();
    assert_eq!(tunnels.len(), 4, "{tunnels:?}");
    assert!(
        tunnels
            .iter()
            .any(|tunnel| tunnel["id"] == lines[1]["tunnel_id"])
    );

    let output = agent.terminate().await;
    assert_eq!(output.code, Some(0), "{output:?}");
    for key in ["kept", "moved", "other", "new"] {
        let line = format!("{{\"tunnel\":\"{key}\",\"status\":\"closed\"}}");
        assert!(output.stdout.contains(&line), "{output:?}");
    }
}

#[tokio::test]
async fn an_invalid_file_changes_nothing_and_reports_the_line() {
    let home = Home::new();
    let _up = alone(&home, &[]).await;
    let port = echo("").await;
    let file = home.path().join("tunnels.yaml");
    let good = format!("version: 1\ntunnels:\n  a:\n    target: {port}\n    publish: false\n");
    fs::write(&file, &good).unwrap();
    let mut agent = home.start(&["run", "tunnels.yaml", "-o", "json"]);
    online(&mut agent, "a").await;

    replace(&file, &good.replace("target", "tarjet"));
    let rejected = agent.json().await;
    assert_eq!(rejected["status"], "rejected");
    let error = &rejected["errors"][0];
    assert_eq!(error["file"], "tunnels.yaml");
    assert_eq!((&error["line"], &error["column"]), (&json!(4), &json!(5)));
    assert_eq!(
        error["message"],
        "unknown key; the nearest known one is tunnels.a.target"
    );
    let dialled = home.run_with_input(&["dial", "svc://a"], b"still").await;
    assert_eq!(dialled.stdout, "still", "{dialled:?}");

    // A corrected file is as before. SIGHUP reports that.
    replace(&file, &good);
    agent.signal(Signal::SIGHUP);
    let line = applied(&mut agent).await;
    assert_eq!(line["unchanged"], 1, "{line}");

    // A missing file changes nothing either.
    fs::remove_file(&file).unwrap();
    let rejected = agent.json_where(|line| line["status"] == "rejected").await;
    let message = rejected["errors"][0]["message"].as_str().unwrap();
    assert!(message.contains("cannot be read"), "{rejected}");
    let output = agent.terminate().await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert!(
        output
            .stderr
            .contains("tunnels.yaml:4:5: tunnels.a.tarjet: unknown key"),
        "{output:?}"
    );
}

#[tokio::test]
async fn a_changed_link_is_a_change_and_the_address_stays() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let port = echo("").await;
    let config = home.path().join("mounted");
    let version = |name: &str, more: &str| {
        let directory = config.join(name);
        fs::create_dir_all(&directory).unwrap();
        let text = format!(
            "version: 1\nengines:\n  here: {{context: local}}\ntunnels:\n  web:\n    \
             target: {port}\n    engine: here\n{more}"
        );
        fs::write(directory.join("svc.yaml"), text).unwrap();
    };
    // A volume of Kubernetes: a link to a link, of which the inner one is replaced.
    version("..1", "");
    std::os::unix::fs::symlink("..1", config.join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/svc.yaml", config.join("svc.yaml")).unwrap();
    let path = config.join("svc.yaml");
    let mut agent = home.start(&["run", path.to_str().unwrap(), "-o", "json"]);
    let first = online(&mut agent, "web").await;

    version("..2", "    token_auth: true\n");
    std::os::unix::fs::symlink("..2", config.join("..next")).unwrap();
    fs::rename(config.join("..next"), config.join("..data")).unwrap();
    let line = applied(&mut agent).await;
    assert_eq!(line["changed"], json!(["web"]), "{line}");
    let second = online(&mut agent, "web").await;
    assert_ne!(first["tunnel_id"], second["tunnel_id"]);
    assert_eq!(first["forwarding"], second["forwarding"]);
    assert_eq!(agent.terminate().await.code, Some(0));
    drop(up);
}

#[tokio::test]
async fn a_new_token_takes_the_tunnels_over_and_streams_continue() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let port = echo("").await;
    let ca = up.ready_field("ca_file");
    let secret = fs::read_to_string(Path::new(ca).with_file_name("jwt.secret")).unwrap();
    let mint = async || {
        let args = ["token", "mint", "--secret", &secret, "--user", "ada"];
        let minted = home.run(&args).await;
        assert_eq!(minted.code, Some(0), "{minted:?}");
        minted.stdout
    };
    let token: PathBuf = home.path().join("token");
    fs::write(&token, mint().await).unwrap();
    let engine = up.ready_field("engine_url").trim_start_matches("https://");
    let text = format!(
        "version: 1\nengine: {engine}\nca_file: {ca}\ntoken_file: {}\ntunnels:\n  \
         tcp: {{target: {port}, protocol: tcp}}\n  private: {{target: {port}, publish: false}}\n",
        token.display()
    );
    fs::write(home.path().join("svc.yaml"), text).unwrap();
    let mut agent = home.start(&["run", "-o", "json"]);
    let (mut first, mut tcp) = (Value::Null, Value::Null);
    while first.is_null() || tcp.is_null() {
        let line = agent.json_where(|line| line["status"] == "online").await;
        match line["tunnel"].as_str() {
            Some("tcp") => tcp = line,
            _ => first = line,
        }
    }
    let visitor = visit(&tcp).await;
    opened(&mut agent, "tcp").await;

    // Its times have a resolution of seconds, so the next token gets another lifetime.
    let args = [
        "token", "mint", "--secret", &secret, "--user", "ada", "--ttl", "2h",
    ];
    let next = home.run(&args).await;
    replace(&token, &next.stdout);
    let line = applied(&mut agent).await;
    assert_eq!(line["changed"], json!(["private", "tcp"]), "{line}");
    let second = online(&mut agent, "private").await;
    assert_ne!(first["client_id"], second["client_id"]);
    assert_eq!(finish(visitor).await, "hello");
    let given = [
        "dial",
        "svc://private",
        "--token",
        next.stdout.trim(),
        "--ca-file",
        ca,
    ];
    let dialled = home.run_with_input(&given, b"x").await;
    assert_eq!(dialled.stdout, "x", "{dialled:?}");
    assert_eq!(agent.terminate().await.code, Some(0));
}

#[tokio::test]
async fn a_check_reports_all_errors_together() {
    let home = Home::new();
    let file = home.path().join("svc.yaml");
    fs::write(
        &file,
        "version: 1
heartbeat: 1ms
tunnels:
  web:
    target: localhost
    protcol: http
  db:
    target: 5432
    port: 70000
    trusted_ips: [10.0.0.0/8, x]
  raw:
    target: 1
    proxy_protocol: v2
    engine: other
",
    )
    .unwrap();
    let wrong = home.run(&["run", "--check"]).await;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    insta::assert_snapshot!("check", wrong.stderr);

    fs::write(&file, "version: 1\ntunnels: {web: {target: 3000}}\n").unwrap();
    let good = home.run(&["run", "--check"]).await;
    assert_eq!(
        (good.code, good.stdout.as_str()),
        (Some(0), "the configuration is valid\n"),
        "{good:?}"
    );
    // The engine is not part of the check.
    assert!(
        good.stderr.starts_with("warning: no engine is configured"),
        "{good:?}"
    );
    let wrong = home.run(&["run"]).await;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");

    fs::remove_file(&file).unwrap();
    let missing = home.run(&["run"]).await;
    assert_eq!(missing.code, Some(2), "{missing:?}");
    assert!(missing.stderr.contains("hint: give a file"), "{missing:?}");
}

#[tokio::test]
async fn a_refused_tunnel_leaves_the_others_and_a_refused_token_ends_the_run() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let port = echo("").await;
    let file = home.path().join("svc.yaml");
    let text = format!(
        "version: 1\ntunnels:\n  a: {{target: {port}, challenge_mode: true}}\n  \
         b: {{target: {port}, publish: false}}\n"
    );
    fs::write(&file, text).unwrap();
    let mut agent = home.start(&["run", "-o", "json"]);
    // The two tunnels are opened independently of each other.
    let (mut refused, mut is_online) = (Value::Null, false);
    while refused.is_null() || !is_online {
        let line = agent.json().await;
        is_online |= line["tunnel"] == "b" && line["status"] == "online";
        if line["status"] == "closed" {
            refused = line;
        }
    }
    assert_eq!(refused["tunnel"], "a");
    assert!(
        refused["error"]
            .as_str()
            .unwrap()
            .contains("challenge_mode"),
        "{refused}"
    );
    let dialled = home.run_with_input(&["dial", "svc://b"], b"x").await;
    assert_eq!(dialled.stdout, "x", "{dialled:?}");
    // A repeated request gets the same answer, and the other tunnel is not affected.
    agent.signal(Signal::SIGHUP);
    let line = applied(&mut agent).await;
    assert_eq!(
        (&line["changed"], &line["unchanged"]),
        (&json!(["a"]), &json!(1))
    );
    agent.json_where(|line| line["status"] == "closed").await;
    assert_eq!(agent.terminate().await.code, Some(0));

    let unauthorized = home.run(&["run", "--token", "a.b.c"]).await;
    assert_eq!(unauthorized.code, Some(3), "{unauthorized:?}");
    drop(up);
}

#[tokio::test]
async fn text_output_has_plain_lines() {
    let home = Home::new();
    let _up = alone(&home, &[]).await;
    let port = echo("").await;
    let text = format!("version: 1\ntunnels: {{a: {{target: {port}, publish: false}}}}\n");
    fs::write(home.path().join("svc.yaml"), text).unwrap();
    let mut agent = home.start(&["run"]);
    let seen = agent.until("a: svc://a -> ").await;
    assert_eq!(
        seen,
        format!(
            "applied: 1 added, 0 changed, 0 removed, 0 unchanged\na: svc://a -> localhost:{port}\n"
        )
    );
    let output = agent.terminate().await;
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (Some(0), "a: closed\n")
    );
}
