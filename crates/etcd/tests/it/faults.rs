//! Faults of the store.

use std::time::Duration;

use etcd::{Cluster, Login, Password, Settings, StoreError, TlsFiles};
use ownership::Name;
use testing::{EtcdServers, TestCa, within};

use crate::support::{
    HOLD, addresses, claim, join, loss_of, settings, two_engines, wait_for_refusal,
    wait_for_servers,
};

#[tokio::test]
async fn the_loss_of_one_member_has_no_effect() {
    let mut servers = EtcdServers::start(3).await;
    let (first, second) = two_engines(&servers).await;
    let kept = claim(&first, "a", "x").await.unwrap();
    let lost = loss_of(&kept);
    for place in 0..3 {
        servers.kill(place);
        let name = format!("n{place}");
        let held = claim(&first, &name, "x").await.unwrap();
        wait_for_servers(&second, &name, &["first:1"]).await;
        drop(held);
        servers.restart(place);
        servers.wait_until_ready(place).await;
    }
    assert!(first.serves() && second.serves());
    assert_eq!(addresses(&second, "a"), ["first:1"]);
    tokio::select! {
        biased;
        () = lost.notified() => panic!("the claim was lost"),
        () = std::future::ready(()) => {}
    }
}

#[tokio::test]
async fn without_a_quorum_known_names_stay_and_new_ones_are_refused() {
    let mut servers = EtcdServers::start(3).await;
    let (first, second) = two_engines(&servers).await;
    let kept = claim(&first, "a", "x").await.unwrap();
    wait_for_servers(&second, "a", &["first:1"]).await;
    servers.kill(0);
    servers.kill(1);
    let is_expected = |error: &StoreError| *error == StoreError::QuorumLost;
    let refused = wait_for_refusal(&first, "new", is_expected).await;
    assert!(refused.is_retryable(), "{refused}");
    // The agent reconnects to the same engine, which still has the name.
    drop(kept);
    let _again = claim(&first, "a", "x").await.unwrap();
    assert!(first.serves() && second.serves());
    assert_eq!(addresses(&second, "a"), ["first:1"]);

    servers.restart(0);
    servers.wait_until_ready(2).await;
    let _new = claim(&first, "new", "x").await.unwrap();
    wait_for_servers(&second, "new", &["first:1"]).await;
    assert_eq!(addresses(&second, "a"), ["first:1"]);
}

/// The engine's member is lost, and the changes that it has missed are compacted meanwhile.
#[tokio::test]
async fn compacted_changes_are_read_from_the_whole_store() {
    let mut servers = EtcdServers::start(3).await;
    let late = join(&servers.endpoints()[..1], "late:1", HOLD).await;
    let other = join(&servers.endpoints()[1..], "other:1", HOLD).await;
    let mine = claim(&late, "mine", "x").await.unwrap();
    let _kept = claim(&late, "kept", "x").await.unwrap();
    let ended = claim(&other, "ended", "x").await.unwrap();
    wait_for_servers(&late, "ended", &["other:1"]).await;
    let lost = loss_of(&mine);
    servers.kill(0);
    drop(ended);
    let _taken = claim(&other, "mine", "x").await.unwrap();
    let _new = claim(&other, "new", "x").await.unwrap();
    wait_for_servers(&other, "ended", &[]).await;
    servers.compact(1).await;
    servers.restart(0);
    wait_for_servers(&late, "new", &["other:1"]).await;
    within("the loss", lost.notified()).await;
    wait_for_servers(&late, "ended", &[]).await;
    assert_eq!(addresses(&late, "mine"), ["other:1"]);
    assert_eq!(addresses(&late, "kept"), ["late:1"]);
}

/// The older state has the engine's lease, but not all of its names.
#[tokio::test]
async fn names_that_a_restored_store_has_not_are_claimed_again() {
    let mut servers = EtcdServers::start(1).await;
    let cluster = join(&servers.endpoints(), "first:1", HOLD).await;
    let kept = claim(&cluster, "kept", "x").await.unwrap();
    let lost = loss_of(&kept);
    servers.back_up(0);
    servers.wait_until_ready(0).await;
    // The older state is older than the engine's view, even when other engines have written to it.
    let mut later = Vec::new();
    for number in 0..50 {
        let name = format!("n{number}");
        later.push(claim(&cluster, &name, "x").await.unwrap());
    }
    servers.restore(0);
    servers.wait_until_ready(0).await;
    let other = join(&servers.endpoints(), "other:1", HOLD).await;
    wait_for_servers(&other, "n0", &["first:1"]).await;
    wait_for_servers(&other, "n49", &["first:1"]).await;
    wait_for_servers(&other, "kept", &["first:1"]).await;
    within("contact", cluster.wait_until_serving()).await;
    tokio::select! {
        biased;
        () = lost.notified() => panic!("the claim was lost"),
        () = std::future::ready(()) => {}
    }
}

#[tokio::test]
async fn an_engine_leaves_a_paused_member() {
    let servers = EtcdServers::start(3).await;
    let (first, second) = two_engines(&servers).await;
    // Both use the first member.
    servers.pause(0);
    let _held = claim(&first, "a", "x").await.unwrap();
    wait_for_servers(&second, "a", &["first:1"]).await;
    servers.resume(0);
    let _other = claim(&second, "b", "y").await.unwrap();
    wait_for_servers(&first, "b", &["second:1"]).await;
}

#[tokio::test]
async fn a_store_without_space_refuses_new_names_and_keeps_the_others() {
    let servers = EtcdServers::start(1).await;
    // A beat each second.
    let hold = Duration::from_mins(1);
    let cluster = join(&servers.endpoints(), "first:1", hold).await;
    let _kept = claim(&cluster, "a", "x").await.unwrap();
    servers.put(0, "/other/key").await;
    servers.raise_no_space(0).await;
    let is_expected = |error: &StoreError| *error == StoreError::NoSpace;
    let refused = wait_for_refusal(&cluster, "new", is_expected).await;
    assert!(refused.is_retryable());
    // It still has contact, so the time for which it serves does not end.
    let is_reported = |cluster: &Cluster| cluster.status().failure.is_some();
    within("failure", cluster.wait_until(is_reported)).await;
    let end = cluster.status().serves_until;
    let lasts = cluster.wait_until(|cluster| cluster.status().serves_until > end);
    within("contact", lasts).await;
    assert!(cluster.serves());
    assert!(cluster.is_held(&Name::of_host("a")));
}

#[tokio::test]
async fn an_unreachable_store_is_reported() {
    let mut servers = EtcdServers::start(1).await;
    let cluster = join(&servers.endpoints(), "first:1", HOLD).await;
    let _kept = claim(&cluster, "a", "x").await.unwrap();
    servers.kill(0);
    let is_expected = |error: &StoreError| matches!(error, StoreError::Unreachable(_));
    let refused = wait_for_refusal(&cluster, "b", is_expected).await;
    assert!(refused.is_retryable());
    assert!(cluster.serves(), "its own names, until the hold ends");
    servers.restart(0);
    claim(&cluster, "b", "x").await.unwrap();
}

#[tokio::test]
async fn a_store_may_require_a_user() {
    let servers = EtcdServers::start(1).await;
    servers.require_user("svc", "right", "/svc/").await;
    let start = |password: Option<&str>| {
        let login = password.map(|password| Login {
            user: "svc".to_owned(),
            password: Password::new(password.to_owned()),
        });
        let settings = settings(&servers.endpoints(), "first:1", HOLD);
        Cluster::start(&Settings { login, ..settings })
    };
    let cluster = start(Some("right"));
    within("contact", cluster.wait_until_serving()).await;
    let _held = claim(&cluster, "a", "x").await.unwrap();
    for wrong in [Some("wrong"), None] {
        let is_expected = |error: &StoreError| matches!(error, StoreError::Unauthorized(_));
        let refused = wait_for_refusal(&start(wrong), "b", is_expected).await;
        assert!(!refused.is_retryable(), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_store_may_require_certificates() {
    let (ca, other) = (TestCa::new(), TestCa::new());
    let servers = EtcdServers::start_with_tls(&ca);
    let directory = tempfile::tempdir().unwrap();
    let (right, wrong) = (
        directory.path().join("right"),
        directory.path().join("wrong"),
    );
    std::fs::write(&right, ca.pem()).unwrap();
    std::fs::write(&wrong, other.pem()).unwrap();
    let client = Some(ca.issue(&["engine-1"]).write_to(directory.path()));
    let start = |ca_file, client| {
        let settings = settings(&servers.endpoints(), "first:1", HOLD);
        let tls = Some(TlsFiles { ca_file, client });
        Cluster::start(&Settings { tls, ..settings })
    };
    let cluster = start(right.clone(), client.clone());
    within("contact", cluster.wait_until_serving()).await;
    let _held = claim(&cluster, "a", "x").await.unwrap();
    for (authority, client) in [(wrong, client), (right, None)] {
        let refused = start(authority, client);
        let failure = refused.wait_until(|cluster| cluster.status().failure.is_some());
        within("failure", failure).await;
        assert!(!refused.serves());
    }
}
