//! The program under a supervisor with systemd's notify protocol.

use std::{
    fs,
    os::{
        fd::OwnedFd,
        linux::net::SocketAddrExt as _,
        unix::net::{SocketAddr, UnixDatagram},
    },
    process::Stdio,
};

use nix::sys::signal::Signal;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::timeout,
};

use super::hangup::engine;
use crate::installed::alone;
use crate::program::{Home, RunningCommand, SOON};
use crate::publishing::run::{echo, replace};

/// The notification socket of systemd.
struct NotifySocket {
    socket: tokio::net::UnixDatagram,
}

impl NotifySocket {
    fn new(socket: UnixDatagram) -> Self {
        socket.set_nonblocking(true).unwrap();
        Self {
            socket: tokio::net::UnixDatagram::from_std(socket).unwrap(),
        }
    }

    /// The next message of the wanted kind.
    async fn next(&self, wanted: &str) -> String {
        loop {
            let mut buffer = [0; 4096];
            let read = timeout(SOON, self.socket.recv(&mut buffer))
                .await
                .unwrap_or_else(|_late| panic!("no {wanted}"))
                .unwrap();
            let text = String::from_utf8(buffer[..read].to_vec()).unwrap();
            if text.starts_with(wanted) {
                return text;
            }
        }
    }

    /// The next message that is not a heartbeat.
    async fn step(&self) -> String {
        loop {
            let text = self.next("").await;
            if text != "WATCHDOG=1" {
                return text;
            }
        }
    }
}

#[tokio::test]
async fn an_agent_notifies_ready_reload_watchdog_and_stop() {
    let home = Home::new();
    let _up = alone(&home, &[]).await;
    let port = echo("").await;
    let file = home.path().join("svc.yaml");
    let text = format!("version: 1\ntunnels: {{a: {{target: {port}, publish: false}}}}\n");
    fs::write(&file, &text).unwrap();
    let path = home.path().join("notify");
    let notified = NotifySocket::new(UnixDatagram::bind(&path).unwrap());
    let mut command = home.command(&["run"]);
    command
        .env("NOTIFY_SOCKET", &path)
        .env("WATCHDOG_USEC", "1000000");
    let agent = RunningCommand::spawn(&mut command);
    assert_eq!(notified.step().await, "STATUS=0 of 1 tunnels online");
    // Not before its tunnel is online.
    assert_eq!(notified.step().await, "READY=1");
    assert_eq!(notified.step().await, "STATUS=1 of 1 tunnels online");
    for _ in 0..3 {
        assert_eq!(notified.next("WATCHDOG").await, "WATCHDOG=1");
    }

    agent.signal(Signal::SIGHUP);
    let reloading = notified.step().await;
    assert!(
        reloading.starts_with("RELOADING=1\nMONOTONIC_USEC="),
        "{reloading}"
    );
    assert_eq!(notified.step().await, "READY=1");

    replace(&file, "version: 2\n");
    assert!(notified.step().await.starts_with("RELOADING=1"));
    assert_eq!(notified.step().await, "READY=1");
    let status = notified.step().await;
    assert!(status.contains("the file is invalid"), "{status}");

    agent.signal(Signal::SIGTERM);
    notified.next("STOPPING=1").await;
    assert_eq!(agent.ended().await.code, Some(0));
}

#[tokio::test]
async fn servers_notify_ready_watchdog_and_stop() {
    let home = Home::new();
    let name = format!("svc-it-{}", home.path().file_name().unwrap().display());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let notified = NotifySocket::new(UnixDatagram::bind_addr(&address).unwrap());
    let mut command = home.command(&["up", "--community", "--port", "0", "-o", "json"]);
    command
        .env("NOTIFY_SOCKET", format!("@{name}"))
        .env("WATCHDOG_USEC", "1000000");
    let mut up = RunningCommand::spawn(&mut command);
    up.json().await;
    assert_eq!(notified.step().await, "READY=1");
    notified.next("WATCHDOG=1").await;
    up.signal(Signal::SIGTERM);
    assert_eq!(notified.step().await, "STOPPING=1");
    assert_eq!(up.ended().await.code, Some(0));
}

#[tokio::test]
async fn an_engine_gives_its_listeners_to_its_supervisor_and_reports_a_failed_replacement() {
    let home = Home::new();
    engine(&home, None);
    let path = home.path().join("notify");
    let notified = NotifySocket::new(UnixDatagram::bind(&path).unwrap());
    let mut command = home.command(&["engine", "-c", "engine.yaml", "-o", "json"]);
    command.env("NOTIFY_SOCKET", &path);
    let mut running = RunningCommand::spawn(&mut command);
    running.json().await;
    assert_eq!(notified.step().await, "READY=1");
    assert_eq!(notified.step().await, "FDSTORE=1\nFDNAME=svc-tls");

    fs::remove_file(home.path().join("key.pem")).unwrap();
    running.signal(Signal::SIGUSR2);
    let reloading = notified.next("RELOADING=1").await;
    assert!(reloading.contains("MONOTONIC_USEC="), "{reloading}");
    assert_eq!(notified.next("READY=1").await, "READY=1");
    let status = notified.next("STATUS=").await;
    assert!(status.starts_with("STATUS=not replaced: "), "{status}");
    running.signal(Signal::SIGTERM);
    notified.next("STOPPING=1").await;
    assert_eq!(running.ended().await.code, Some(0));
}

/// The test is the old process, which ends before it hands over. systemd restarts only a process that
/// has failed.
#[tokio::test]
async fn a_new_process_without_its_old_one_fails() {
    let home = Home::new();
    engine(&home, None);
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let theirs = OwnedFd::from(theirs.into_std().unwrap());
    let mut command = home.command(&["engine", "-c", "engine.yaml", "-o", "json"]);
    command
        .env("SVC_PREDECESSOR", std::process::id().to_string())
        .stdin(Stdio::from(theirs));
    let running = RunningCommand::spawn(&mut command);
    let begin = br#"{"message":"begin","process":"0123456789abcdef"}"#;
    ours.write_u32(u32::try_from(begin.len()).unwrap())
        .await
        .unwrap();
    ours.write_u8(0).await.unwrap();
    ours.write_all(begin).await.unwrap();
    let ready = async {
        let length = ours.read_u32().await.unwrap();
        assert_eq!(ours.read_u8().await.unwrap(), 0, "descriptors");
        let mut ready = vec![0; usize::try_from(length).unwrap()];
        ours.read_exact(&mut ready).await.unwrap();
        String::from_utf8(ready).unwrap()
    };
    let ready = timeout(SOON, ready).await.unwrap();
    assert!(ready.contains(r#""message":"ready""#), "{ready}");
    drop(ours);
    let ended = running.ended().await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("did not hand over"), "{ended:?}");
}
