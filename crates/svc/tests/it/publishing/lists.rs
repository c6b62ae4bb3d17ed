//! `svc tunnels`, `svc clients`, and both with `--watch`.

use std::{fs::File, io::Read, process::Stdio};

use nix::sys::signal::Signal;
use serde_json::{Value, json};

use crate::installed::{alone, alone_at};
use crate::program::{Home, RunningCommand};
use crate::terminal::{TerminalCommand, open_terminal, set_terminal_size};

#[tokio::test]
async fn a_watch_prints_changes_and_tunnels_lost_with_an_engine() {
    let home = Home::new();
    let port = ports::lease().to_string();
    let up = alone_at(&home, &port).await;
    let agent = publish(&home, "web").await;
    let mut watch = home.start(&["tunnels", "--watch"]);
    let first = watch.until("added\tweb\t").await;
    // The list output, with the earlier changes.
    let list = home.run(&["tunnels"]).await.stdout;
    assert_eq!(first, format!("added\t{list}"));
    let mut json = home.start(&["tunnels", "-w", "--filter", "name=api", "-o", "json"]);

    let other = publish(&home, "api").await;
    watch.until("added\tapi\t").await;
    let added = json.json().await;
    assert_eq!(
        (&added["change"], &added["object"]["name"]),
        (&json!("added"), &json!("api"))
    );
    other.terminate().await;
    watch.until("removed\tapi\t").await;
    assert_eq!(json.json().await["change"], "removed");

    // The engine restarts, and the tunnel gets another id.
    up.stop().await;
    watch.wait_for_stderr("reconnecting in").await;
    let up = alone_at(&home, &port).await;
    watch.until("removed\tweb\t").await;
    watch.until("added\tweb\t").await;
    for running in [watch, json, agent] {
        assert_eq!(running.terminate().await.code, Some(0));
    }
    up.stop().await;
}

/// A tunnel is closed by its name, after a confirmation. Its agent ends with the reason; an agent
/// with another name stays.
#[tokio::test]
async fn a_tunnel_is_closed_by_its_name_and_its_agent_ends() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let agent = publish(&home, "web").await;
    let other = publish(&home, "api").await;
    let unconfirmed = home.run(&["tunnels", "close", "web"]).await;
    assert_eq!(unconfirmed.code, Some(2), "{unconfirmed:?}");
    assert!(unconfirmed.stderr.contains("--yes"), "{unconfirmed:?}");
    let close = ["tunnels", "close", "web", "--yes", "-o", "json"];
    let closed = home.run(&close).await;
    assert_eq!(closed.code, Some(0), "{closed:?}");
    assert_eq!(closed.json().as_array().unwrap().len(), 1);
    let ended = agent.ended().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    let reason = "a member of the project closed the tunnel";
    assert!(ended.stderr.contains(reason), "{ended:?}");
    let missing = home.run(&close).await;
    assert_eq!(missing.code, Some(1), "{missing:?}");
    assert!(missing.stderr.contains("tunnel_not_found"), "{missing:?}");
    let list = home.run(&["tunnels", "-o", "json"]).await.json();
    assert_eq!(list.as_array().unwrap().len(), 1, "{list}");
    assert_eq!(other.terminate().await.code, Some(0));
    up.stop().await;
}

/// A tunnel that ends while the command asks is not reported as closed by it.
#[tokio::test]
async fn only_tunnels_that_the_command_closed_are_reported() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let (first, _) = publish_shared(&home).await;
    let (second, id) = publish_shared(&home).await;
    let mut watch = home.start(&["tunnels", "--watch"]);
    for _ in 0..2 {
        watch.until("added\tweb\t").await;
    }
    let mut close = TerminalCommand::start(&home, &["tunnels", "close", "web", "-o", "json"]);
    close.until("(2 agents)").await;
    first.terminate().await;
    watch.until("removed\tweb\t").await;
    close.answer("y\n");
    let (code, stdout) = close.ended().await;
    assert_eq!(code, Some(0), "{stdout}");
    let closed: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!(closed, json!([id]));
    assert_eq!(second.ended().await.code, Some(1));

    // Without any tunnel that it closed, the command fails.
    let (last, _) = publish_shared(&home).await;
    watch.until("added\tweb\t").await;
    let mut close = TerminalCommand::start(&home, &["tunnels", "close", "web"]);
    close.until("[y/N]").await;
    last.terminate().await;
    watch.until("removed\tweb\t").await;
    close.answer("y\n");
    assert_eq!(close.ended().await.0, Some(1));
    watch.terminate().await;
    up.stop().await;
}

/// An agent that shares the name `web` with others, and the id of its tunnel.
async fn publish_shared(home: &Home) -> (RunningCommand, Value) {
    let forward = ["forward", "9", "--name", "web", "--share", "-o", "json"];
    let mut agent = home.start(&forward);
    let online = agent.json_where(|line| line["status"] == "online").await;
    (agent, online["tunnel_id"].clone())
}

#[tokio::test]
async fn a_terminal_shows_a_table_and_its_screen_is_restored() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let name = "a-name-that-is-rather-long-for-a-narrow-terminal";
    let forward = [
        "forward",
        "9",
        "--name",
        name,
        "--hostname",
        "web",
        "-o",
        "json",
    ];
    let mut agent = home.start(&forward);
    let online = agent.json_where(|line| line["status"] == "online").await;
    let (mut terminal, list) = on_terminal(&home, &["tunnels"]);
    let shown = list_of(&mut terminal);
    assert_eq!(list.ended().await.code, Some(0));
    assert!(shown.contains("NAME") && shown.contains('…'), "{shown}");
    // The address is complete, and columns without room are left out.
    let address = online["forwarding"].as_str().unwrap();
    let address = address.strip_prefix("https://").unwrap();
    assert!(shown.contains(&format!("{address}\r\n")), "{shown}");
    assert!(!shown.contains("STATUS"), "{shown}");
    assert!(
        shown
            .lines()
            .all(|line| line.trim_end().chars().count() <= 60),
        "{shown}"
    );

    let (mut terminal, watch) = on_terminal(&home, &["clients", "--watch"]);
    let drawn = tokio::task::spawn_blocking(move || {
        let seen = read_until(&mut terminal, "1 clients · live");
        (terminal, seen)
    });
    let (mut terminal, drawn) = drawn.await.unwrap();
    assert!(drawn.starts_with("\x1b[?1049h\x1b[?25l"), "{drawn:?}");
    watch.signal(Signal::SIGINT);
    let rest = tokio::task::spawn_blocking(move || list_of(&mut terminal));
    assert_eq!(watch.ended().await.code, Some(0));
    let rest = rest.await.unwrap();
    assert!(rest.ends_with("\x1b[?25h\x1b[?1049l"), "{rest:?}");
    agent.terminate().await;
    up.stop().await;
}

#[tokio::test]
async fn events_are_text_on_a_terminal_and_times_are_short() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let agent = publish(&home, "web").await;
    let (mut terminal, events) = on_terminal(&home, &["events"]);
    let read = tokio::task::spawn_blocking(move || {
        let text = "now online: 1 tunnel, 1 client\r\n          web  ";
        read_until(&mut terminal, text);
        terminal
    });
    let mut terminal = read.await.unwrap();
    agent.terminate().await;
    let read = tokio::task::spawn_blocking(move || {
        read_until(&mut terminal, "  tunnel.deleted  web  ");
        terminal
    });
    let mut terminal = read.await.unwrap();
    events.signal(Signal::SIGINT);
    let rest = tokio::task::spawn_blocking(move || list_of(&mut terminal));
    assert_eq!(events.ended().await.code, Some(0));
    assert!(!rest.await.unwrap().contains('{'));

    // JSON is available there as well.
    let (mut terminal, events) = on_terminal(&home, &["events", "-o", "json"]);
    let read = tokio::task::spawn_blocking(move || {
        let mut buffer = [0; 1];
        terminal.read_exact(&mut buffer).unwrap();
        (terminal, buffer)
    });
    let (mut terminal, first) = read.await.unwrap();
    assert_eq!(&first, b"{");
    events.signal(Signal::SIGINT);
    let rest = tokio::task::spawn_blocking(move || list_of(&mut terminal));
    assert_eq!(events.ended().await.code, Some(0));
    drop(rest.await);
    up.stop().await;
}

#[tokio::test]
async fn an_invalid_filter_is_reported_with_a_suggestion() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    for (args, hint) in [
        (["tunnels", "--filter", "nmae=web"], "did you mean `name`?"),
        (["clients", "--filter", "colour=red"], "valid keys: agent, "),
    ] {
        let ended = home.run(&args).await;
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains(hint), "{ended:?}");
    }
    let both = home.run(&["tunnels", "--watch", "--limit", "3"]).await;
    assert_eq!(both.code, Some(2), "{both:?}");
    up.stop().await;
}

/// An agent whose tunnel is online. Its service is not needed.
async fn publish(home: &Home, name: &str) -> RunningCommand {
    let mut agent = home.start(&["forward", "9", "--name", name, "-o", "json"]);
    agent.json_where(|line| line["status"] == "online").await;
    agent
}

/// A command whose stdout is a terminal of 60 columns.
fn on_terminal(home: &Home, args: &[&str]) -> (File, DetachedCommand) {
    let (master, slave) = open_terminal();
    set_terminal_size(&slave, 60, 10);
    let mut command = home.command(args);
    let child = command.stdout(Stdio::from(slave)).spawn().unwrap();
    (File::from(master), DetachedCommand(child))
}

/// A command whose output is read elsewhere.
struct DetachedCommand(tokio::process::Child);

impl DetachedCommand {
    fn signal(&self, signal: Signal) {
        let id = self.0.id().and_then(|id| i32::try_from(id).ok()).unwrap();
        nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), signal).unwrap();
    }

    async fn ended(mut self) -> Status {
        let waited = tokio::time::timeout(crate::program::SOON, self.0.wait()).await;
        Status {
            code: waited.unwrap().unwrap().code(),
        }
    }
}

struct Status {
    code: Option<i32>,
}

/// The output of a terminal up to a text. A read may end within a character.
fn read_until(terminal: &mut File, text: &str) -> String {
    let (mut seen, mut buffer) = (Vec::new(), [0; 1024]);
    while !String::from_utf8_lossy(&seen).contains(text) {
        let read = terminal.read(&mut buffer).unwrap();
        seen.extend_from_slice(&buffer[..read]);
    }
    String::from_utf8_lossy(&seen).into_owned()
}

/// All output of a terminal until the program has exited.
fn list_of(terminal: &mut File) -> String {
    let mut shown = Vec::new();
    // The other end is closed, which Linux reports as an error after the last byte.
    terminal.read_to_end(&mut shown).ok();
    String::from_utf8(shown).unwrap()
}
