//! `svc platform backup`.

use super::{installed::up, program::Home};

#[tokio::test]
async fn a_backup_of_a_running_platform_starts_elsewhere() {
    let home = Home::new();
    let running = up(&home, &[]).await;
    let backup = ["platform", "backup", "today.db"];
    let ended = home.run(&backup).await;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let copied = std::fs::read(home.path().join("today.db")).unwrap();
    // It replaces nothing.
    let again = home.run(&backup).await;
    assert_eq!(again.code, Some(1), "{again:?}");
    assert!(again.stderr.contains("exists already"), "{again:?}");
    assert_eq!(std::fs::read(home.path().join("today.db")).unwrap(), copied);

    // Restored beside the keys of the platform, which are files.
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
    let ended = home
        .run(&["platform", "backup", "today.db", "--data-dir", "none"])
        .await;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stderr.contains("there is no database"), "{ended:?}");
    assert!(!home.path().join("today.db").exists());
    assert!(!home.path().join("none").exists());
}
