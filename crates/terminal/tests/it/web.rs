//! HTTP before a WebSocket: authentication, limits, and file transfers next to the terminals.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use terminal::server::Transport;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

use crate::ends::Host;

const UPGRADE: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

/// The status of the answer to a request with these headers.
async fn status(host: &Host, heads: &str) -> String {
    let mut stream = host.stream(Transport::WebSocket);
    let request = format!("GET / HTTP/1.1\r\nHost: host\r\n{heads}\r\n");
    // A server that refuses a head does not read the rest of it.
    stream.write_all(request.as_bytes()).await.ok();
    let mut answer = [0; 1024];
    let read = stream.read(&mut answer).await.unwrap();
    let answer = String::from_utf8_lossy(&answer[..read]).into_owned();
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

#[tokio::test]
async fn a_client_without_a_token_is_refused() {
    let host = Host::guarded("secret", &["https://page.example"]);
    let good = "Authorization: Bearer secret\r\n";
    for (heads, expected) in [
        (UPGRADE.to_owned(), "401"),
        (format!("{UPGRADE}Authorization: Bearer wrong\r\n"), "401"),
        (format!("{UPGRADE}{good}"), "101"),
        (
            format!("{UPGRADE}{good}Origin: https://page.example\r\n"),
            "101",
        ),
        (format!("{UPGRADE}{good}Origin: http://host\r\n"), "101"),
        (
            format!("{UPGRADE}{good}Origin: https://evil.example\r\n"),
            "403",
        ),
        (good.to_owned(), "426"),
        (UPGRADE.replace("13", "12") + good, "426"),
    ] {
        assert_eq!(status(&host, &heads).await, expected, "{heads}");
    }
    // Without a token, a page with any host name could be directed here.
    let host = Host::guarded("", &[]);
    assert_eq!(status(&host, UPGRADE).await, "101");
    let page = format!("{UPGRADE}Origin: http://host\r\n");
    assert_eq!(status(&host, &page).await, "403");
}

#[tokio::test]
async fn no_new_client_is_accepted_during_a_stop() {
    let host = Host::new();
    let mut stream = host.stream(Transport::WebSocket);
    // The connection is open, and half of its head sent, before the server stops.
    stream.write_all(b"GET / HTTP/1.1\r\n").await.unwrap();
    tokio::task::yield_now().await;
    let server = host.server.clone();
    let drained = tokio::spawn(async move { server.drain().await });
    tokio::task::yield_now().await;
    let rest = format!("Host: x\r\n{UPGRADE}\r\n");
    drop(stream.write_all(rest.as_bytes()).await);
    let mut answer = String::new();
    drop(stream.read_to_string(&mut answer).await);
    assert!(answer.is_empty() || answer.contains(" 503 "), "{answer}");
    drained.await.unwrap();
}

/// No request, half of a head, and a head that is too large.
#[tokio::test(start_paused = true)]
async fn a_head_has_a_time_limit_and_a_maximum_size() {
    let host = Host::new();
    for sent in ["", "GET / HTTP/1.1\r\nX: "] {
        let mut stream = host.stream(Transport::WebSocket);
        let began = Instant::now();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = timeout(Duration::from_mins(5), stream.read_to_end(&mut answer)).await;
        read.expect("it is closed").unwrap();
        assert_eq!(began.elapsed().as_secs(), 60, "{sent}");
    }
    for (bytes, expected) in [(60 * 1024, "426"), (66 * 1024, "431")] {
        let field = format!("X: {}\r\n", "x".repeat(bytes));
        assert_eq!(status(&host, &field).await, expected);
    }
}

/// In addition to its sessions a server has capacity for some more connections, such as refused
/// ones.
#[tokio::test(start_paused = true)]
async fn connections_have_a_limit() {
    let host = Host::with(|settings| settings.limits.sessions = 8);
    let mut all: Vec<_> = (0..=8 + 256)
        .map(|_| host.stream(Transport::WebSocket))
        .collect();
    let began = Instant::now();
    let mut last = all.pop().unwrap();
    assert_eq!(last.read(&mut [0; 64]).await.unwrap(), 0);
    assert_eq!(began.elapsed().as_secs(), 0, "it is dropped at once");
    let mut held = all.pop().unwrap();
    assert_eq!(held.read(&mut [0; 64]).await.unwrap(), 0);
    assert_eq!(began.elapsed().as_secs(), 60, "it had the time of a head");
}

/// Runs curl with a server on a port.
async fn curl(host: &Host, args: &[&str], path: &str) -> (u16, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let program = std::env::var_os("SVC_TEST_CURL").expect("cargo xtask provision sets it");
    let mut command = Command::new(program);
    command.args(["-sS", "--path-as-is", "-w", "\n%{http_code}"]);
    command.args(args).arg(format!("http://{address}{path}"));
    let running = tokio::task::spawn_blocking(move || command.output().unwrap());
    tokio::pin!(running);
    let output: Output = loop {
        tokio::select! {
            accepted = listener.accept() => {
                host.server.spawn(accepted.unwrap().0, Transport::WebSocket, None);
            }
            output = &mut running => break output.unwrap(),
        }
    };
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    let (body, status) = text.rsplit_once('\n').unwrap();
    (status.parse().unwrap(), body.to_owned())
}

fn folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    std::fs::create_dir_all(root.join("sub")).unwrap();
    std::fs::write(root.join("a.txt"), "hello").unwrap();
    std::fs::write(dir.path().join("secret"), "outside").unwrap();
    symlink(dir.path().join("secret"), root.join("leak")).unwrap();
    symlink(dir.path(), root.join("up")).unwrap();
    symlink(dir.path().join("made"), root.join("dangling")).unwrap();
    dir
}

fn root(dir: &tempfile::TempDir) -> &'static Path {
    Box::leak(dir.path().join("root").into_boxed_path())
}

#[tokio::test]
async fn files_are_listed_read_and_written() {
    let dir = folder();
    let root = root(&dir);
    let host = Host::files(root, false);
    let (status, listing) = curl(&host, &["-X", "PROPFIND", "-H", "Depth: 1"], "/fs/").await;
    assert_eq!(status, 207);
    assert!(
        listing.contains("/fs/a.txt") && listing.contains("/fs/sub/"),
        "{listing}"
    );
    for depth in ["Depth: infinity", "X: none"] {
        let args = ["-X", "PROPFIND", "-H", depth];
        assert_eq!(curl(&host, &args, "/fs/").await.0, 403);
    }
    // Links are not listed.
    assert!(
        !listing.contains("leak") && !listing.contains("/up"),
        "{listing}"
    );
    assert_eq!(curl(&host, &[], "/fs/a.txt").await, (200, "hello".into()));
    let (status, _) = curl(&host, &["-X", "PUT", "--data-binary", "new"], "/fs/sub/b").await;
    assert_eq!(status, 201);
    assert_eq!(std::fs::read_to_string(root.join("sub/b")).unwrap(), "new");
    assert_eq!(curl(&host, &["-X", "MKCOL"], "/fs/more").await.0, 201);
    let to = ["-X", "MOVE", "-H", "Destination: http://host/fs/more/c"];
    assert_eq!(curl(&host, &to, "/fs/sub/b").await.0, 201);
    assert_eq!(curl(&host, &[], "/fs/more/c").await.1, "new");
    assert_eq!(curl(&host, &["-X", "DELETE"], "/fs/more").await.0, 204);
    assert!(!root.join("more").exists());
    // Terminals are still at their path.
    assert_eq!(curl(&host, &[], "/").await.0, 426);
    assert_eq!(curl(&host, &[], "/fsx").await.0, 426);
}

#[tokio::test]
async fn nothing_outside_of_the_folder_is_read_or_written() {
    let dir = folder();
    let host = Host::files(root(&dir), false);
    for path in [
        "/fs/leak",
        "/fs/up/secret",
        "/fs/../secret",
        "/fs/%2e%2e/secret",
        "/fs/sub/..%2f..%2fsecret",
        "/fs/up/root/a.txt%00",
    ] {
        let (status, body) = curl(&host, &[], path).await;
        assert!(status >= 400, "{path}: {status} {body}");
        assert!(!body.contains("outside"), "{path}");
    }
    let put: &[&str] = &["-X", "PUT", "--data-binary", "owned"];
    for path in ["/fs/leak", "/fs/up/made", "/fs/dangling", "/fs/../made"] {
        let (status, _) = curl(&host, put, path).await;
        assert!(status >= 400, "{path}: {status}");
    }
    for method in ["COPY", "MOVE"] {
        for (from, to) in [
            ("a.txt", "up/made"),
            ("leak", "mine"),
            ("up/secret", "mine"),
        ] {
            let to = format!("Destination: http://host/fs/{to}");
            let path = format!("/fs/{from}");
            curl(&host, &["-X", method, "-H", &to], &path).await;
        }
    }
    assert_eq!(
        std::fs::read_to_string(dir.path().join("secret")).unwrap(),
        "outside"
    );
    assert!(!dir.path().join("made").exists());
    let mine = dir.path().join("root/mine");
    assert!(!std::fs::read_to_string(mine).is_ok_and(|text| text.contains("owned")));
}

#[tokio::test]
async fn read_only_folders_are_not_written_and_uploads_are_limited() {
    let dir = folder();
    let host = Host::files(root(&dir), true);
    assert_eq!(curl(&host, &[], "/fs/a.txt").await.0, 200);
    for method in [
        "PUT",
        "DELETE",
        "MKCOL",
        "MOVE",
        "COPY",
        "PROPPATCH",
        "LOCK",
        "PATCH",
    ] {
        let args = [
            "-X",
            method,
            "-H",
            "Destination: http://host/fs/x",
            "-d",
            "y",
        ];
        assert_eq!(curl(&host, &args, "/fs/a.txt").await.0, 403, "{method}");
    }
    let host = Host::files(root(&dir), false);
    let large = "x".repeat(1001);
    let put = |data: &'static [&'static str]| data;
    assert_eq!(
        curl(&host, &["-X", "PUT", "--data-binary", &large], "/fs/a.txt")
            .await
            .0,
        413
    );
    let chunked = put(&["-X", "PUT", "-H", "Transfer-Encoding: chunked", "-d", "x"]);
    assert_eq!(curl(&host, chunked, "/fs/a.txt").await.0, 411);
    let part = put(&[
        "-X",
        "PUT",
        "-H",
        "Content-Range: bytes 9999999-9999999/*",
        "-d",
        "x",
    ]);
    assert_eq!(curl(&host, part, "/fs/a.txt").await.0, 400);
    let text = std::fs::read_to_string(dir.path().join("root/a.txt")).unwrap();
    assert_eq!(text, "hello");
}

/// Of a refused upload at most 16 MiB are read, for five seconds, so that its sender gets the
/// refusal.
#[tokio::test(start_paused = true)]
async fn the_rest_of_a_refused_upload_has_limits_of_time_and_size() {
    let dir = folder();
    let host = Host::files(root(&dir), true);
    let most = 16 * 1024 * 1024;
    for (sent, seconds) in [(0, 5), (most, 5), (most + 1, 0)] {
        let began = Instant::now();
        let (mut reader, mut writer) = tokio::io::split(host.stream(Transport::WebSocket));
        let head = "PUT /fs/a.txt HTTP/1.1\r\nHost: host\r\nContent-Length: 99999999\r\n\r\n";
        writer.write_all(head.as_bytes()).await.unwrap();
        let sending = async {
            writer.write_all(&vec![b'x'; sent]).await.ok();
            std::future::pending::<()>().await;
        };
        let mut status = [0; 12];
        tokio::select! {
            read = reader.read_exact(&mut status) => drop(read.unwrap()),
            () = sending => {}
        }
        assert_eq!(&status, b"HTTP/1.1 403");
        assert_eq!(began.elapsed().as_secs(), seconds, "{sent}");
    }
}
