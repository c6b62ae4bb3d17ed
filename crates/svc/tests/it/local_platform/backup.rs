//! `svc platform backup` and `svc platform restore`.

use std::time::Instant;

use nix::sys::signal::Signal;

use crate::installed::up;
use crate::program::Home;

#[tokio::test]
async fn a_backup_of_a_running_platform_can_be_started_elsewhere() {
    let home = Home::new();
    let running = up(&home, &[]).await;
    let backup = ["platform", "backup", "today.db"];
    let output = home.run(&backup).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let copied = std::fs::read(home.path().join("today.db")).unwrap();
    // An existing file is not replaced.
    let again = home.run(&backup).await;
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("exists already"), "{again:?}");
    assert_eq!(std::fs::read(home.path().join("today.db")).unwrap(), copied);

    // The keys of the platform are separate files.
    let data = home.path().join(".local/share/svc");
    let restored = home.path().join("restored");
    std::fs::create_dir(&restored).unwrap();
    for entry in std::fs::read_dir(&data).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        if path.is_file() && !name.starts_with("platform.db") {
            std::fs::copy(&path, restored.join(name)).unwrap();
        }
    }
    std::fs::copy(home.path().join("today.db"), restored.join("platform.db")).unwrap();
    let before = running.ready.clone();
    running.stop().await;
    let second = up(&home, &["--data-dir", "restored"]).await;
    for same in ["workspace_id", "project_id", "token", "admin_password"] {
        assert_eq!(second.ready[same], before[same], "{same}");
    }
}

#[tokio::test]
async fn without_a_database_there_is_no_backup() {
    let home = Home::new();
    let output = home
        .run(&["platform", "backup", "today.db", "--data-dir", "none"])
        .await;
    assert_eq!(output.code, Some(1), "{output:?}");
    assert!(output.stderr.contains("no database exists"), "{output:?}");
    assert!(!home.path().join("today.db").exists());
    assert!(!home.path().join("none").exists());
}

/// `svc platform restore` restores a backup after a crash, and does not replay the log over it. A
/// restore that is killed at any moment can be repeated.
#[tokio::test]
async fn a_backup_is_restored_after_a_crash_and_a_restore_that_is_killed_is_repeated() {
    let home = Home::new();
    let running = up(&home, &["--data-dir", "data"]).await;
    // The directory of a running platform is found.
    let output = home.run(&["platform", "backup", "today.db"]).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let before = running.ready.clone();
    let restore = ["platform", "restore", "today.db", "--data-dir", "data"];
    let refused = home.run(&restore).await;
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.stderr.contains("in use"), "{refused:?}");
    let made = home
        .run(&["workspace", "create", "After the backup", "-o", "json"])
        .await;
    assert_eq!(made.code, Some(0), "{made:?}");
    running.running.signal(Signal::SIGKILL);
    running.running.ended().await;
    let data = home.path().join("data");
    let log = data.join("platform.db-wal");
    assert!(std::fs::metadata(&log).unwrap().len() > 0);

    // As documented for earlier versions: only the file.
    let database = data.join("platform.db");
    let crashed: Vec<_> = [&database, &log]
        .map(|path| std::fs::read(path).unwrap())
        .into();
    std::fs::copy(home.path().join("today.db"), &database).unwrap();
    let refused = home.run(&["up", "--port", "0", "--data-dir", "data"]).await;
    assert_ne!(refused.code, Some(0), "{refused:?}");
    assert!(
        refused.stderr.contains("svc platform restore"),
        "{refused:?}"
    );

    // Killed at many moments of a restore, whose time depends on the machine.
    let crash = || {
        std::fs::write(&database, &crashed[0]).unwrap();
        std::fs::write(&log, &crashed[1]).unwrap();
    };
    crash();
    let started_at = Instant::now();
    let output = home.run(&restore).await;
    assert_eq!(output.code, Some(0), "{output:?}");
    let whole = started_at.elapsed();
    for part in 0..MOMENTS {
        crash();
        let mut child = home.command(&restore).spawn().unwrap();
        let moment = whole * part / MOMENTS;
        drop(tokio::time::timeout(moment, child.wait()).await);
        child.start_kill().ok();
        child.wait().await.unwrap();
        let output = home.run(&restore).await;
        assert_eq!(output.code, Some(0), "after {moment:?}: {output:?}");
        assert!(!log.exists(), "after {moment:?}");
    }
    let again = up(&home, &["--data-dir", "data"]).await;
    for same in ["workspace_id", "project_id", "token", "admin_password"] {
        assert_eq!(again.ready[same], before[same], "{same}");
    }
    let list = home.run(&["workspace", "list", "-o", "json"]).await;
    assert!(!list.stdout.contains("After the backup"), "{list:?}");
}

/// Moments at which a restore is killed.
const MOMENTS: u32 = 16;
