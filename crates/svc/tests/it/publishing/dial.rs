//! `svc dial`: many tunnels in one process, over TCP and Unix sockets, until their ends.

use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream, UnixStream},
    time::timeout,
};

use crate::installed::{alone, alone_at};
use crate::program::{Home, SOON};

#[tokio::test]
async fn many_tunnels_are_served_together_and_reported_in_one_line() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let one = publish(&home, "one", counting_service("one").await).await;
    let two = publish(&home, "two", counting_service("two").await).await;
    let args = ["dial", "one=0", "svc://two=unix:two.sock", "-o", "json"];
    let mut dial = home.start(&args);
    let ready = dial.json().await;
    assert_eq!(ready["status"], "ready");
    assert_eq!(ready.get("listening"), None, "{ready}");
    assert_eq!(
        ready["tunnels"][1],
        json!({"tunnel": "two", "listening": "unix:two.sock"})
    );
    let address = ready["tunnels"][0]["listening"].as_str().unwrap();
    let socket = home.path().join("two.sock");
    let mode = std::fs::metadata(&socket).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);

    // Data that a service sends after its client has closed is still delivered.
    let tcp = TcpStream::connect(address).await.unwrap();
    assert_eq!(half_closed(tcp, b"12345").await, "one had 5");
    let unix = UnixStream::connect(&socket).await.unwrap();
    assert_eq!(half_closed(unix, b"123").await, "two had 3");

    // A second process does not take the socket from the first.
    let second = home.run(&["dial", "two=unix:two.sock"]).await;
    assert_eq!(second.code, Some(1), "{second:?}");
    assert_eq!(dial.terminate().await.code, Some(0));
    assert!(!socket.exists());
    for agent in [one, two] {
        agent.terminate().await;
    }
    up.stop().await;
}

/// A connection that arrives while the engine is down is served when it is up again.
#[tokio::test]
async fn dial_waits_for_a_restart_of_the_engine() {
    let home = Home::new();
    let port = ports::lease().to_string();
    let up = alone_at(&home, &port).await;
    let mut agent = publish(&home, "db", counting_service("db").await).await;
    let mut dial = home.start(&["dial", "db", "--listen", "0", "-o", "json"]);
    let ready = dial.json().await;
    let address = ready["listening"].as_str().unwrap();
    up.stop().await;
    let waiting = TcpStream::connect(address).await.unwrap();
    let up = alone_at(&home, &port).await;
    agent.json_where(|line| line["status"] == "online").await;
    // A connection that arrives before the agent is refused immediately, so it may need a second
    // try.
    let served = half_closed(waiting, b"1").await;
    let again = TcpStream::connect(address).await.unwrap();
    assert_eq!(half_closed(again, b"12").await, "db had 2");
    assert!(served == "db had 1" || served.is_empty(), "{served}");
    assert_eq!(dial.terminate().await.code, Some(0));
    agent.terminate().await;
    up.stop().await;
}

#[tokio::test]
async fn an_unknown_name_is_reported_with_a_suggestion() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let agent = publish(&home, "database", 9).await;
    let output = home.run(&["dial", "databse", "-o", "json"]).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    let reported: serde_json::Value = serde_json::from_str(&output.stderr).unwrap();
    assert_eq!(reported["error"]["code"], "tunnel_not_found");
    assert_eq!(reported["error"]["exit_code"], 1);
    let hint = reported["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("did you mean `database`?"), "{reported}");
    agent.terminate().await;
    up.stop().await;
}

async fn publish(home: &Home, name: &str, port: u16) -> crate::program::RunningCommand {
    let port = port.to_string();
    let args = [
        "forward",
        &port,
        "--bytestream",
        "--name",
        name,
        "-o",
        "json",
    ];
    let mut agent = home.start(&args);
    agent.json_where(|line| line["status"] == "online").await;
    agent
}

/// A service that reports the number of received bytes when its client has closed.
async fn counting_service(name: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _peer) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut all = Vec::new();
                if stream.read_to_end(&mut all).await.is_ok() {
                    let answer = format!("{name} had {}", all.len());
                    stream.write_all(answer.as_bytes()).await.ok();
                }
            });
        }
    });
    port
}

async fn half_closed(mut stream: impl AsyncRead + AsyncWrite + Unpin, sent: &[u8]) -> String {
    stream.write_all(sent).await.unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    // A refused connection is reset.
    timeout(SOON, stream.read_to_string(&mut answer))
        .await
        .unwrap()
        .ok();
    answer
}
