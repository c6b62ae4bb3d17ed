//! The stored state: it is saved, also after a failure, and never allows what was revoked.

use std::path::{Path, PathBuf};

use api::link::Item;
use testing::{FakePlatform, within};

use crate::support::{HandlerCall, RunningLink, pace};

/// A file system on which the state cannot be written, until this is dropped.
struct FullDisk(PathBuf);

impl FullDisk {
    /// A directory at the path of the temporary file. For root, neither permissions nor quotas
    /// would prevent a write.
    fn under(folder: &Path) -> Self {
        let place = folder.join("link/state.new");
        std::fs::create_dir(&place).unwrap();
        Self(place)
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        std::fs::remove_dir(&self.0).unwrap();
    }
}

fn has_credential(calls: &[HandlerCall], wanted: &str) -> bool {
    let Some(HandlerCall::Snapshot(items)) = calls.first() else {
        return false;
    };
    let is = |item: &Item| matches!(item, Item::Credential(known) if known.id == wanted);
    items.iter().any(is)
}

/// The items with which a restart without the platform starts.
async fn restarted(platform: &FakePlatform, folder: &Path) -> Vec<HandlerCall> {
    platform.set_unavailable(true);
    let link = RunningLink::start(platform, folder, pace());
    let calls = link.ear.told.borrow().clone();
    link.stop().await;
    platform.set_unavailable(false);
    calls
}

async fn becomes_saved(link: &RunningLink, saved: bool) {
    within("a save", link.status.wait_until_saved(saved)).await;
}

#[tokio::test]
async fn a_revocation_that_cannot_be_saved_deletes_the_stored_state() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    let (credential, _) = platform.add_pat("usr_1");
    let link = RunningLink::start(&platform, folder.path(), pace());
    link.wait_until_current(&platform).await;
    link.stop().await;
    assert!(has_credential(
        &restarted(&platform, folder.path()).await,
        &credential
    ));

    let link = RunningLink::start(&platform, folder.path(), pace());
    link.wait_until_current(&platform).await;
    let full = FullDisk::under(folder.path());
    platform.revoke(&credential);
    becomes_saved(&link, false).await;
    // As after a crash. A link that stops normally saves once more.
    assert!(!folder.path().join("link/state").exists());
    link.stop().await;
    let calls = restarted(&platform, folder.path()).await;
    assert_eq!(calls, [], "nothing is served before the platform answers");
    drop(full);
}

#[tokio::test]
async fn a_save_that_failed_is_retried_without_a_further_change() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    let (credential, _) = platform.add_pat("usr_1");
    let link = RunningLink::start(&platform, folder.path(), pace());
    link.wait_until_current(&platform).await;
    // It saves the first state, whose temporary file could still exist.
    link.stop().await;

    let link = RunningLink::start(&platform, folder.path(), pace());
    link.wait_until_current(&platform).await;
    let full = FullDisk::under(folder.path());
    platform.revoke(&credential);
    platform.add_project("aaaaaaaa");
    becomes_saved(&link, false).await;
    drop(full);
    becomes_saved(&link, true).await;
    link.stop().await;
    let calls = restarted(&platform, folder.path()).await;
    assert_eq!(calls.len(), 1, "{calls:?}");
    assert!(!has_credential(&calls, &credential));
}

/// A failed save of an addition keeps the stored state, which a restart needs.
#[tokio::test]
async fn an_addition_that_cannot_be_saved_keeps_the_stored_state() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    let (credential, _) = platform.add_pat("usr_1");
    let link = RunningLink::start(&platform, folder.path(), pace());
    link.wait_until_current(&platform).await;
    link.stop().await;

    let link = RunningLink::start(&platform, folder.path(), pace());
    link.wait_until_current(&platform).await;
    let full = FullDisk::under(folder.path());
    platform.add_project("aaaaaaaa");
    becomes_saved(&link, false).await;
    link.stop().await;
    drop(full);
    let calls = restarted(&platform, folder.path()).await;
    assert!(has_credential(&calls, &credential));
}
