//! Names in lists for people, and ids in those for programs.

use std::net::Ipv4Addr;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::installed::up;
use crate::program::{Home, soon};
use crate::publishing::panel::TerminalSession;
use crate::publishing::run::echo;

#[tokio::test]
async fn users_and_projects_have_names_on_a_terminal() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let email = up.ready_field("admin_email");
    let rename = [
        "project",
        "rename",
        "local",
        "renamed-project",
        "-o",
        "json",
    ];
    home.run(&rename).await.json();
    let mut events = TerminalSession::start(&home, &["events"], 200, 20);
    events.until_text("now online:").await;
    let mut agent = home.start(&["forward", "9", "--name", "web", "-o", "json"]);
    agent.json_where(|line| line["status"] == "online").await;
    events
        .until(|screen| {
            let text = screen.contents();
            let mut lines = text.lines();
            lines.any(|line| line.contains("client.created") && line.contains(email))
        })
        .await;
    events.signal(nix::sys::signal::Signal::SIGINT);
    let (code, _) = events.ended().await;
    assert_eq!(code, Some(0));

    for (args, name) in [(&["clients"][..], email), (&["audit"], "renamed-project")] {
        let list = TerminalSession::start(&home, args, 200, 30);
        let (code, shown) = list.ended().await;
        assert_eq!(code, Some(0), "{shown}");
        assert!(shown.contains(name) && shown.contains(email), "{shown}");
        assert!(!shown.contains("usr_"), "{shown}");
        // Programs get ids.
        let piped = home.run(args).await;
        assert!(piped.stdout.contains("usr_"), "{piped:?}");
        assert!(!piped.stdout.contains(name), "{piped:?}");
    }
    assert_eq!(agent.terminate().await.code, Some(0));
    up.stop().await;
}

#[tokio::test]
async fn streams_without_a_host_have_the_name_of_their_tunnel() {
    let home = Home::new();
    let up = up(&home, &[]).await;
    let port = echo("").await.to_string();
    let public = ["forward", &port, "--tcp", "--name", "mail", "-o", "json"];
    let mut public = home.start(&public);
    let online = public.json_where(|line| line["status"] == "online").await;
    let public_port = u16::try_from(online["port"].as_u64().unwrap()).unwrap();
    let private = [
        "forward",
        &port,
        "--bytestream",
        "--name",
        "db",
        "-o",
        "json",
    ];
    let mut private = home.start(&private);
    private.json_where(|line| line["status"] == "online").await;

    let mut visitor = TcpStream::connect((Ipv4Addr::LOCALHOST, public_port))
        .await
        .unwrap();
    visitor.write_all(b"hello").await.unwrap();
    visitor.shutdown().await.unwrap();
    let mut answer = String::new();
    let read = visitor.read_to_string(&mut answer);
    soon("the echo", read).await.unwrap();
    assert_eq!(answer, "hello");
    assert_eq!(home.run(&["dial", "db"]).await.code, Some(0));

    let reported = async {
        loop {
            let list = home.run(&["project", "logs"]).await;
            assert_eq!(list.code, Some(0), "{list:?}");
            let hosts: Vec<_> = list
                .stdout
                .lines()
                .filter_map(|line| line.split('\t').nth(3))
                .collect();
            if hosts.contains(&"mail") && hosts.contains(&"db") {
                return list.stdout;
            }
        }
    };
    let list = soon("both streams in the log", reported).await;
    // The log of one tunnel, by the start of its id.
    let id = online["tunnel_id"].as_str().unwrap();
    let logs = ["project", "logs", "--tunnel", &id[..id.len() - 1]];
    let one = home.run(&logs).await;
    assert!(one.stdout.contains("\tmail\t"), "{one:?}\n{list}");
    assert!(!one.stdout.contains("\tdb\t"), "{one:?}");
    for agent in [public, private] {
        assert_eq!(agent.terminate().await.code, Some(0));
    }
    up.stop().await;
}
