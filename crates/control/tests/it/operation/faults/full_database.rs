//! Full databases, on small file systems that only one process sees.

use std::os::unix::fs::chown;
use std::path::Path;

use nix::unistd::{Uid, User};
use serde_json::json;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use super::*;
use crate::postgres::Server;

/// Runs a test of this file again, in a namespace that may mount.
fn with_mounts(test: &str) {
    let inner = process(&format!("{}::{test}", module_path!()), &json!({}));
    let mut command = Command::new("unshare");
    // A root user keeps its privileges, because PostgreSQL needs another user.
    if Uid::effective().is_root() {
        command.arg("--mount");
    } else {
        command.args(["--user", "--map-root-user", "--mount"]);
    }
    let output = command
        .arg(inner.get_program())
        .args(inner.get_args())
        .env(SETTINGS, "{}")
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains("1 passed"), "{stdout}");
}

fn mount(size: &str, on: &Path) {
    let mounted = Command::new("mount")
        .args([
            "-t",
            "tmpfs",
            "-o",
            &format!("size={size},mode=0777"),
            "tmpfs",
        ])
        .arg(on)
        .status();
    assert!(mounted.unwrap().success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_is_read_and_written_again_when_there_is_space() {
    match settings() {
        None => with_mounts("a_full_disk_is_read_and_written_again_when_there_is_space"),
        Some(_) => sqlite_on_a_full_disk().await,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_postgres_is_read_and_written_again_when_there_is_space() {
    match settings() {
        None => with_mounts("a_full_postgres_is_read_and_written_again_when_there_is_space"),
        Some(_) => postgres_on_a_full_disk().await,
    }
}

/// A file system that is unmounted on drop.
struct MountGuard<'a>(&'a Path);

impl Drop for MountGuard<'_> {
    fn drop(&mut self) {
        let gone = Command::new("umount").arg("--lazy").arg(self.0).status();
        assert!(gone.unwrap().success());
    }
}

/// Fills the disk, creates projects until none fits, checks the remaining operations, and frees the
/// space. The refused order then creates one project.
async fn fill_and_empty(control: &TestControl, person: &Person, file_system: &Path) {
    let ballast = file_system.join("ballast");
    let mut file = std::fs::File::create(&ballast).unwrap();
    let full = std::io::copy(&mut std::io::repeat(0), &mut file).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    let (mut made, mut refused) = (0, order(control, person).await);
    // The database still has free space in its allocated pages.
    while create(control, person, &refused).await.status == 201 {
        made += 1;
        refused = order(control, person).await;
        assert!(made < 500, "the disk never fills up");
    }
    for _ in 0..3 {
        assert_unavailable(&in_time(create(control, person, &refused)).await);
        assert_eq!(in_time(who(control, person)).await.status, 200);
        assert_eq!(in_time(list(control, person)).await.status, 200);
    }
    drop(file);
    std::fs::remove_file(&ballast).unwrap();
    let created = in_time(create(control, person, &refused)).await;
    assert_eq!(created.status, 201, "{created:?}");
    assert_books(control, person, made + 1).await;
}

async fn sqlite_on_a_full_disk() {
    let prepare = |data: &Path| {
        std::fs::create_dir_all(data).unwrap();
        mount("32m", data);
    };
    let control = TestControl::start_with(SHOP, None, prepare).await;
    let data = control.directory().join("data");
    let mounted = MountGuard(&data);
    let person = customer(&control).await;
    assert_eq!(ready(&control).await, 200);
    fill_and_empty(&control, &person, &data).await;
    // The last result is cached for a second.
    in_time(async { while ready(&control).await != 200 {} }).await;
    let mut file = std::fs::File::create(data.join("ballast")).unwrap();
    std::io::copy(&mut std::io::repeat(0), &mut file).unwrap_err();
    in_time(async { while ready(&control).await != 503 {} }).await;
    control.app.store.close().await;
    drop(mounted);
}

async fn ready(control: &TestControl) -> u16 {
    let answer = control.send(http::Method::GET, "/readyz", None, None).await;
    answer.status
}

async fn postgres_on_a_full_disk() {
    let room = tempfile::tempdir().unwrap();
    mount("24m", room.path());
    let mounted = MountGuard(room.path());
    let space = room.path().join("space");
    std::fs::create_dir(&space).unwrap();
    if Uid::effective().is_root() {
        let nobody = User::from_name("nobody").unwrap().unwrap();
        chown(&space, Some(nobody.uid.as_raw()), Some(nobody.gid.as_raw())).unwrap();
    }
    let server = Server::durable().await;
    let url = server.new_database().await;
    let name = url.split(['/', '?']).nth(3).unwrap();
    let admin = url.replace(&format!("/{name}?"), "/postgres?");
    let mut admin = PgConnection::connect(&admin).await.unwrap();
    for text in [
        format!("CREATE TABLESPACE small LOCATION '{}'", space.display()),
        format!("ALTER DATABASE {name} SET TABLESPACE small"),
    ] {
        let statement = sqlx::query(AssertSqlSafe(text));
        statement.execute(&mut admin).await.unwrap();
    }
    let control = TestControl::start_on(SHOP, Some(&url)).await;
    let person = customer(&control).await;
    fill_and_empty(&control, &person, room.path()).await;
    control.app.store.close().await;
    drop(server);
    drop(mounted);
}
