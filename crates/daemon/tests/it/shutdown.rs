//! Real signals to this process.

use std::fs;
use std::time::Duration;

use daemon::access_log::AccessLog;
use daemon::shutdown::Shutdown;
use nix::sys::signal::{Signal, raise};
use tempfile::TempDir;

#[tokio::test]
async fn sigterm_drains_and_sigint_after_it_ends() {
    let shutdown = Shutdown::new(Duration::from_hours(1));
    let task = tokio::spawn(shutdown.on_signals().unwrap());
    raise(Signal::SIGTERM).unwrap();
    shutdown.drain().cancelled().await;
    assert!(!shutdown.hard().is_cancelled());
    raise(Signal::SIGINT).unwrap();
    shutdown.hard().cancelled().await;
    task.await.unwrap();
}

#[tokio::test]
async fn sighup_reopens_the_access_log() {
    let dir = TempDir::new().unwrap();
    let (path, rotated) = (
        dir.path().join("access.log"),
        dir.path().join("access.log.1"),
    );
    let (log, mut thread) = AccessLog::open(&path).unwrap();
    thread.reopen_on_hangup().unwrap();
    fs::rename(&path, &rotated).unwrap();
    raise(Signal::SIGHUP).unwrap();
    while !path.exists() {
        tokio::task::yield_now().await;
    }
    log.write("new");
    thread.finish();
    assert_eq!(fs::read_to_string(&path).unwrap(), "new\n");
    assert_eq!(fs::read_to_string(&rotated).unwrap(), "");
}
