//! `svc webtty fs`.

use nix::sys::signal::Signal;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::program::Home;
use crate::terminals::webtty_client::served::{Options, TestServer};

#[tokio::test]
async fn files_are_uploaded_and_downloaded() {
    let home = Home::new();
    let root = home.path().join("root");
    std::fs::create_dir(&root).unwrap();
    let served = TestServer::start(
        home.path(),
        Options {
            files: Some(root.clone()),
            ..Options::default()
        },
    )
    .await;
    let url = served.url();
    let fs = async |args: &[&str]| {
        let (command, rest) = args.split_first().unwrap();
        let args = [&["webtty", "fs", command, &url], rest].concat();
        home.run(&args).await
    };
    assert_eq!(fs(&["mkdir", "/logs"]).await.code, Some(0));
    assert_eq!(fs(&["mkdir", "/logs"]).await.code, Some(1));
    let args = ["webtty", "fs", "write", &url, "/logs/a b&c#.txt"];
    let output = home.run_with_input(&args, b"hello").await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(
        std::fs::read(root.join("logs/a b&c#.txt")).unwrap(),
        b"hello"
    );
    let output = fs(&["read", "logs/a b&c#.txt"]).await;
    assert_eq!((output.code, output.stdout.as_str()), (Some(0), "hello"));

    let content = vec![7_u8; 300_000];
    std::fs::write(home.path().join("local.bin"), &content).unwrap();
    let output = fs(&["upload", "local.bin", "/logs/remote.bin"]).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let listed = fs(&["ls", "/logs", "-o", "json"]).await.json();
    assert_eq!(listed.as_array().unwrap().len(), 2, "{listed}");
    assert_eq!(listed[0]["name"], "a b&c#.txt");
    assert_eq!(listed[1]["size"], json!(300_000));
    assert!(
        listed[1]["modified"].as_str().unwrap().ends_with('Z'),
        "{listed}"
    );
    let root_list = fs(&["ls"]).await;
    assert!(root_list.stdout.starts_with("logs/\t-\t"), "{root_list:?}");

    let output = fs(&["download", "/logs/remote.bin"]).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    assert_eq!(
        std::fs::read(home.path().join("remote.bin")).unwrap(),
        content
    );
    // A local file is not overwritten without a flag.
    let again = fs(&["download", "/logs/remote.bin"]).await;
    assert_eq!(again.code, Some(4), "{again:?}");
    let forced = fs(&["download", "/logs/remote.bin", "--force"]).await;
    assert_eq!(forced.code, Some(0), "{forced:?}");
    // A missing remote file leaves no local file.
    let none = fs(&["download", "/none", "here"]).await;
    assert_eq!(none.code, Some(1), "{none:?}");
    assert!(none.stderr.contains("error[file_not_found]"), "{none:?}");
    let left: Vec<_> = std::fs::read_dir(home.path())
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .collect();
    assert!(
        !left
            .iter()
            .any(|name| name.to_string_lossy().contains("part")),
        "{left:?}"
    );

    let large = vec![0_u8; 1024 * 1024 + 1];
    std::fs::write(home.path().join("large"), large).unwrap();
    let output = fs(&["upload", "large", "/large"]).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("file_too_large"), "{output:?}");

    assert_eq!(fs(&["rm", "/logs"]).await.code, Some(2));
    assert_eq!(fs(&["rm", "/logs/remote.bin"]).await.code, Some(0));
    assert_eq!(fs(&["rm", "-r", "/logs"]).await.code, Some(0));
    assert!(!root.join("logs").exists());
}

/// A download that a signal interrupts leaves no file.
#[tokio::test]
async fn a_signal_removes_a_partial_download() {
    let home = Home::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let files = || std::fs::read_dir(home.path()).unwrap();
    let is_part = |name: std::ffi::OsString| name.to_string_lossy().ends_with(".part");
    for (signal, code) in [(Signal::SIGTERM, 143), (Signal::SIGINT, 130)] {
        let running = home.start(&["webtty", "fs", "download", &url, "/file"]);
        let (mut stream, _peer) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let half = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf.";
        stream.write_all(half).await.unwrap();
        assert!(files().any(|file| is_part(file.unwrap().file_name())));
        running.signal(signal);
        assert_eq!(running.ended().await.code, Some(code));
        let left: Vec<_> = files().map(|file| file.unwrap().file_name()).collect();
        assert!(
            !left
                .iter()
                .any(|name| is_part(name.clone()) || name == "file"),
            "{left:?}"
        );
    }
}
