//! `--time-to-first-byte`: the time that a service may take until it answers.

use reqwest::StatusCode;
use tokio::{
    io::AsyncReadExt,
    net::{TcpListener, TcpStream},
};

use super::run::{online, replace};
use crate::installed::alone;
use crate::local_platform::up::visitor;
use crate::program::{Home, soon};

/// A service that reads its requests and never answers.
async fn silent() -> u16 {
    async fn read(mut stream: TcpStream) {
        let mut unread = [0; 1024];
        while stream.read(&mut unread).await.is_ok_and(|read| read > 0) {}
    }
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(read(stream));
        }
    });
    port
}

/// A visitor of the impatient tunnels gets the 504 while one of the engine's own time still waits.
#[tokio::test]
async fn tunnels_of_a_command_and_of_a_file_have_their_own_times() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let port = silent().await.to_string();
    let args = ["forward", &port, "--hostname", "engine-time", "-o", "json"];
    let mut of_the_engine = home.start(&args);
    let args = [
        "forward",
        &port,
        "--hostname",
        "own-time",
        "--time-to-first-byte",
        "1s",
        "-o",
        "json",
    ];
    let mut own = home.start(&args);
    let file = home.path().join("tunnels.yaml");
    let text = format!(
        "version: 1\ntunnels:\n  of-file:\n    target: {port}\n    time_to_first_byte: 1s\n"
    );
    replace(&file, &text);
    let mut of_file = home.start(&["run", file.to_str().unwrap(), "-o", "json"]);

    let (client, url) = visitor(
        &up.ready,
        of_the_engine.json().await["forwarding"].as_str().unwrap(),
    );
    let waiting = client.get(url).send();
    tokio::pin!(waiting);
    let addresses = [
        own.json().await["forwarding"].clone(),
        online(&mut of_file, "of-file").await["forwarding"].clone(),
    ];
    for address in addresses {
        let (client, url) = visitor(&up.ready, address.as_str().unwrap());
        let answer = tokio::select! {
            answer = client.get(url).send() => answer.unwrap(),
            other = &mut waiting => panic!("the engine's time has passed: {other:?}"),
        };
        assert_eq!(answer.status(), StatusCode::GATEWAY_TIMEOUT);
    }
    for agent in [of_the_engine, own, of_file] {
        soon("the end of the agent", agent.terminate()).await;
    }
    up.stop().await;
}

#[tokio::test]
async fn a_time_above_the_limit_is_refused_with_the_limit() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let port = silent().await.to_string();
    let refused = home
        .run(&["forward", &port, "--time-to-first-byte", "11m"])
        .await;
    assert_ne!(refused.code, Some(0), "{refused:?}");
    for part in ["660 s", "600 s", "timeouts.max_time_to_first_byte_seconds"] {
        assert!(refused.stderr.contains(part), "{refused:?}");
    }
    let wrong = home
        .run(&["forward", &port, "--time-to-first-byte", "2h"])
        .await;
    assert_eq!(wrong.code, Some(2), "{wrong:?}");
    assert!(wrong.stderr.contains("1s to 1h"), "{wrong:?}");
    up.stop().await;
}
