//! Tunnels of `svc forward` other than plain services: folders, other hosts, codes.

use std::{fs, os::unix::fs::PermissionsExt};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpListener,
};

use crate::installed::alone;
use crate::local_platform::up::visitor;
use crate::program::{Home, RunningCommand};

/// The address of a tunnel in JSON output.
async fn forwarding(agent: &mut RunningCommand) -> String {
    let ready = agent.json().await;
    assert_eq!(ready["status"], "online", "{ready}");
    ready["forwarding"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_folder_is_served_to_visitors_only() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let folder = home.path().join("dist");
    fs::create_dir_all(folder.join("sub")).unwrap();
    fs::write(folder.join("page.html"), "<p>hello").unwrap();
    fs::write(folder.join(".env"), "KEY=1").unwrap();
    fs::write(home.path().join("outside.txt"), "secret").unwrap();
    std::os::unix::fs::symlink("../outside.txt", folder.join("link.txt")).unwrap();
    let temporary = home.path().join("tmp");
    fs::create_dir(&temporary).unwrap();

    let mut command = home.command(&["forward", "./dist", "--hostname", "web", "-o", "json"]);
    let mut agent = RunningCommand::spawn(command.env("TMPDIR", &temporary));
    let ready = agent.json().await;
    assert_eq!(ready["forwarded"], "./dist");
    // Only this user may connect to its socket.
    let directory = fs::read_dir(&temporary).unwrap().next().unwrap().unwrap();
    assert_eq!(
        directory.metadata().unwrap().permissions().mode() & 0o777,
        0o700
    );

    let (client, url) = visitor(&up.ready, ready["forwarding"].as_str().unwrap());
    let got = async |path: &str| {
        let answer = client.get(url.join(path).unwrap()).send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    assert_eq!(got("/page.html").await, (200, "<p>hello".to_owned()));
    let (status, list) = got("/").await;
    assert_eq!(status, 200);
    assert!(
        list.contains("page.html") && list.contains("sub/"),
        "{list}"
    );
    for path in ["/.env", "/link.txt", "/%2e%2e/outside.txt", "/none"] {
        assert_eq!(got(path).await.0, 404, "{path}");
    }
    let range = client
        .get(url.join("/page.html").unwrap())
        .header("range", "bytes=3-");
    let range = range.send().await.unwrap();
    assert_eq!(
        (range.status().as_u16(), range.text().await.unwrap()),
        (206, "hello".to_owned())
    );

    assert_eq!(agent.terminate().await.code, Some(0));
    assert_eq!(
        fs::read_dir(&temporary).unwrap().count(),
        0,
        "no files are left"
    );
    up.stop().await;
}

/// A development server: it answers only to its own host name, upgrades only with its own origin,
/// and redirects to its own address.
async fn development_server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = String::new();
                while !head.ends_with("\r\n\r\n") {
                    let Ok(byte) = stream.read_u8().await else {
                        return;
                    };
                    head.push(char::from(byte));
                }
                let lower = head.to_ascii_lowercase();
                let is_own = lower.contains(&format!("\r\nhost: localhost:{port}\r\n"));
                let answer = if !is_own {
                    let text = "Blocked request. This host is not allowed: see `server.allowedHosts` in vite.config.js";
                    format!(
                        "HTTP/1.1 403 Forbidden\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n{text}",
                        text.len()
                    )
                } else if lower.contains(&format!("\r\norigin: http://localhost:{port}\r\n")) {
                    "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n".to_owned()
                } else if head.starts_with("GET /old ") {
                    format!(
                        "HTTP/1.1 302 Found\r\nlocation: http://localhost:{port}/new\r\ncontent-length: 0\r\n\r\n"
                    )
                } else {
                    "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok".to_owned()
                };
                stream.write_all(answer.as_bytes()).await.unwrap();
                if answer.contains(" 101 ") {
                    let (mut from, mut to) = stream.split();
                    tokio::io::copy(&mut from, &mut to).await.ok();
                }
            });
        }
    });
    port
}

#[tokio::test]
async fn a_development_server_sees_its_own_name_on_request() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let port = development_server().await.to_string();
    let forward = ["forward", &port, "--hostname", "web"];

    let mut refused = home.start(&forward);
    let line = refused.until("->").await;
    let address = line.split(' ').next().unwrap().to_owned();
    let (client, url) = visitor(&up.ready, &address);
    let answer = client.get(url.clone()).send().await.unwrap();
    assert_eq!(answer.status(), 403);
    drop(answer.text().await.unwrap());
    // The hint is printed once, on stderr.
    refused.wait_for_stderr("--host-header rewrite").await;
    assert_eq!(refused.terminate().await.code, Some(0));

    let rewriting = [&forward, &["--host-header", "rewrite", "-o", "json"][..]].concat();
    let mut agent = home.start(&rewriting);
    let address = forwarding(&mut agent).await;
    let (client, url) = visitor(&up.ready, &address);
    let posted = client
        .post(url.clone())
        .body("x".repeat(100_000))
        .send()
        .await
        .unwrap();
    // It answers without reading the body.
    assert_eq!(posted.status(), 200);
    let moved = client.get(url.join("/old").unwrap()).send().await.unwrap();
    assert_eq!(moved.url(), &url.join("/new").unwrap());
    assert_eq!(moved.status(), 200);
    let upgrade = client
        .get(url.clone())
        .header("connection", "upgrade")
        .header("upgrade", "echo")
        .header("origin", address.as_str())
        .send()
        .await
        .unwrap();
    assert_eq!(upgrade.status(), 101);
    let mut upgraded = upgrade.upgrade().await.unwrap();
    // Bytes that look like a request are not read as one any more.
    let text = b"GET / HTTP/1.1\r\nHost: web.t.engine.localhost\r\n\r\n";
    upgraded.write_all(text).await.unwrap();
    upgraded.flush().await.unwrap();
    let mut echo = vec![0; text.len()];
    upgraded.read_exact(&mut echo).await.unwrap();
    assert_eq!(echo, text);
    drop(upgraded);
    assert_eq!(agent.terminate().await.code, Some(0));
    up.stop().await;
}

#[tokio::test]
async fn the_address_is_printed_as_a_qr_code() {
    let home = Home::new();
    let up = alone(&home, &[]).await;
    let mut agent = home.start(&["forward", "3000", "--hostname", "web", "--qr"]);
    let lines = agent.until(" ▄▄▄▄▄ ").await;
    assert!(
        lines.starts_with("https://web.t.engine.localhost:"),
        "{lines}"
    );
    assert!(!lines.contains('\x1b'), "a pipe has no colours: {lines}");
    assert_eq!(agent.terminate().await.code, Some(0));
    up.stop().await;
}

#[tokio::test]
async fn contradicting_options_are_refused_first() {
    let home = Home::new();
    fs::create_dir(home.path().join("dist")).unwrap();
    for (args, text) in [
        (
            &["3000", "--host-header", "rewrite", "--tcp"][..],
            "uses tcp",
        ),
        (&["3000", "--host-header", "rewrite", "--tls"], "uses tls"),
        (
            &["3000", "--host-header", "a", "--http-version", "h2c"],
            "uses h2c",
        ),
        (
            &["3000", "--host-header", "a", "--bytestream"],
            "uses a byte stream",
        ),
        (&["3000", "--host-header", "a b"], "expected `rewrite`"),
        (&["./dist", "--tcp"], "a folder is served over http"),
        (
            &["./dist", "--upstream-tls"],
            "a folder is served over http",
        ),
        (&["./missing"], "the folder ./missing cannot be served"),
        (&["missing"], "a target is a port"),
        (&["3000", "--spa"], "need a folder"),
        (&["3000", "--qr", "-o", "json"], "--qr cannot be combined"),
        (
            &["3000", "--qr", "--tcp"],
            "--qr is for public http tunnels",
        ),
    ] {
        let engine = ["--engine", "127.0.0.1:1", "--token", "a.b.c"];
        let output = home.run(&[&["forward"], args, &engine].concat()).await;
        assert_eq!(output.code, Some(2), "{args:?}: {output:?}");
        assert!(output.stderr.contains(text), "{args:?}: {output:?}");
        assert_eq!(output.stdout, "", "{args:?}");
    }
}
