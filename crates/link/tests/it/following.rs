//! The receiving half: it applies the platform's updates, and reconnects after every kind of
//! failure.

use std::time::Duration;

use api::link::Item;
use link::LinkTimes;
use testing::{FakePlatform, within};
use tokio::net::TcpListener;

use crate::support::{CLUSTER, HandlerCall, RunningLink, pace};

fn snapshots(calls: &[HandlerCall]) -> usize {
    calls
        .iter()
        .filter(|call| matches!(call, HandlerCall::Snapshot(_)))
        .count()
}

fn has_project(items: &[Item], wanted: &str) -> bool {
    items
        .iter()
        .any(|item| matches!(item, Item::Project(project) if project.endpoint == wanted))
}

#[tokio::test]
async fn a_full_snapshot_is_sent_before_the_changes_in_their_order() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    platform.add_project("aaaaaaaa");
    let link = RunningLink::start(&platform, folder.path(), pace());
    let calls = link.wait_for_calls(|calls| !calls.is_empty()).await;
    let HandlerCall::Snapshot(items) = &calls[0] else {
        panic!("{calls:?}")
    };
    assert!(has_project(items, "aaaaaaaa"));
    for number in 0..100 {
        platform.add_project(&format!("{number:08x}"));
    }
    link.wait_until_current(&platform).await;
    let calls = link.wait_for_calls(|calls| calls.len() == 101).await;
    for (number, call) in calls[1..].iter().enumerate() {
        let HandlerCall::Change(items) = call else {
            panic!("{call:?}")
        };
        assert!(has_project(items, &format!("{number:08x}")));
    }
    assert!(link.status.is_connected());
    assert_eq!((link.status.snapshots(), link.status.changes()), (1, 100));
}

#[tokio::test]
async fn a_lost_link_resumes_at_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    let link = RunningLink::start(&platform, folder.path(), pace());
    link.wait_until_current(&platform).await;
    platform.set_unavailable(true);
    within(
        "the loss to be seen",
        link.status.wait_until_connected(false),
    )
    .await;
    platform.add_project("aaaaaaaa");
    platform.set_unavailable(false);
    link.wait_until_current(&platform).await;
    let calls = link.wait_for_calls(|calls| calls.len() == 2).await;
    assert!(matches!(&calls[1], HandlerCall::Change(items) if has_project(items, "aaaaaaaa")));
}

#[tokio::test]
async fn another_history_starts_with_a_full_snapshot() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    let link = RunningLink::start(&platform, folder.path(), pace());
    link.wait_until_current(&platform).await;
    platform.restore();
    link.wait_for_calls(|calls| snapshots(calls) == 2).await;
}

#[tokio::test]
async fn malformed_data_ends_the_connection_and_a_full_snapshot_is_requested() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    let link = RunningLink::start(&platform, folder.path(), pace());
    link.wait_until_current(&platform).await;
    platform.send_invalid_line();
    link.wait_for_calls(|calls| snapshots(calls) == 2).await;
}

#[tokio::test]
async fn a_silent_platform_is_disconnected_and_found_again() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    let pace = LinkTimes {
        idle_timeout: Duration::from_millis(200),
        ..pace()
    };
    let link = RunningLink::start(&platform, folder.path(), pace);
    link.wait_until_current(&platform).await;
    platform.set_silent(true);
    platform.add_project("aaaaaaaa");
    platform.wait_for_engines(0).await;
    platform.set_silent(false);
    link.wait_until_current(&platform).await;
}

#[tokio::test]
async fn a_platform_that_does_not_answer_is_retried() {
    let folder = tempfile::tempdir().unwrap();
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let pace = LinkTimes {
        first_contact: Duration::from_millis(50),
        ..pace()
    };
    let link = RunningLink::at(&url, "secret", folder.path(), pace, CLUSTER);
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(within("a connection", listener.accept()).await.unwrap());
    }
    link.stop().await;
}

#[tokio::test]
async fn a_refused_secret_is_retried_later() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    let link = RunningLink::at(&platform.url(), "wrong", folder.path(), pace(), CLUSTER);
    // The file is read before each connection.
    std::fs::write(folder.path().join("token"), platform.secret()).unwrap();
    link.wait_until_current(&platform).await;
    platform.set_refuses(true);
    platform.wait_for_engines(0).await;
    platform.set_refuses(false);
    platform.wait_for_engines(1).await;
}

#[tokio::test]
async fn updates_for_another_cluster_are_not_applied() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    let (url, secret) = (platform.url(), platform.secret());
    let link = RunningLink::at(&url, secret, folder.path(), pace(), "other.example");
    platform.wait_for_engines(1).await;
    platform.wait_for_engines(0).await;
    assert_eq!(link.status.snapshots(), 0);
    link.stop().await;
    let link = RunningLink::start(&platform, folder.path(), pace());
    let calls = link.wait_for_calls(|calls| !calls.is_empty()).await;
    assert_eq!(snapshots(&calls), 1, "none of it was stored: {calls:?}");
}

#[tokio::test]
async fn the_saved_state_is_served_without_the_platform_and_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    let link = RunningLink::start(&platform, folder.path(), pace());
    link.wait_until_current(&platform).await;
    platform.add_project("aaaaaaaa");
    link.wait_until_current(&platform).await;
    link.stop().await;

    platform.set_unavailable(true);
    let link = RunningLink::start(&platform, folder.path(), pace());
    let calls = link.wait_for_calls(|calls| !calls.is_empty()).await;
    assert!(matches!(&calls[0], HandlerCall::Snapshot(items) if has_project(items, "aaaaaaaa")));
    assert!(!link.status.is_connected());
    platform.set_unavailable(false);
    platform.add_project("bbbbbbbb");
    link.wait_until_current(&platform).await;
    let calls = link.wait_for_calls(|calls| calls.len() == 2).await;
    assert_eq!(snapshots(&calls), 1, "it resumed at the end of the file");
}

#[tokio::test]
async fn a_state_file_that_is_broken_or_of_another_platform_is_not_used() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    let link = RunningLink::start(&platform, folder.path(), pace());
    link.wait_until_current(&platform).await;
    link.stop().await;
    let other = FakePlatform::start().await;
    other.set_unavailable(true);
    let link = RunningLink::start(&other, folder.path(), pace());
    assert!(link.ear.told.borrow().is_empty());
    other.set_unavailable(false);
    link.wait_until_current(&other).await;
    link.stop().await;

    let state = folder.path().join("link/state");
    let mut file = std::fs::read(&state).unwrap();
    let middle = file.len() / 2;
    file[middle] ^= 1;
    std::fs::write(&state, file).unwrap();
    other.set_unavailable(true);
    let link = RunningLink::start(&other, folder.path(), pace());
    assert!(link.ear.told.borrow().is_empty());
    other.set_unavailable(false);
    link.wait_until_current(&other).await;
}
