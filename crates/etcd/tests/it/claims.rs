//! Claims without faults, on one member.

use std::time::Duration;

use etcd::{ClaimError, Cluster};
use ownership::{Name, Refusal};
use testing::{EtcdServers, within};

use crate::support::{
    HOLD, addresses, claim, claim_all, join, loss_of, two_engines, wait_for_servers,
};

fn taken(name: &str, refusal: Refusal) -> ClaimError {
    ClaimError::Taken(Name::of_host(name), refusal)
}

#[tokio::test]
async fn a_name_has_one_owner_in_the_cluster() {
    let servers = EtcdServers::start(1).await;
    let (first, second) = two_engines(&servers).await;
    let held = claim(&first, "a", "x").await.unwrap();
    assert_eq!(addresses(&first, "a"), ["first:1"], "its own claim");
    wait_for_servers(&second, "a", &["first:1"]).await;
    let refused = claim(&second, "a", "y").await.unwrap_err();
    assert_eq!(refused, taken("a", Refusal::Online));
    assert!(!refused.is_retryable());

    // The last agent leaves: the name is held for its owner.
    drop(held);
    wait_for_servers(&second, "a", &[]).await;
    let refused = claim(&second, "a", "y").await.unwrap_err();
    assert_eq!(refused, taken("a", Refusal::Held));
    claim(&second, "a", "x").await.unwrap();
}

#[tokio::test]
async fn the_same_owner_takes_over_and_the_other_engine_gives_way() {
    let servers = EtcdServers::start(1).await;
    let (first, second) = two_engines(&servers).await;
    let displaced = claim(&first, "a", "x").await.unwrap();
    let lost = loss_of(&displaced);
    let _current = claim(&second, "a", "x").await.unwrap();
    within("the loss", lost.notified()).await;
    wait_for_servers(&first, "a", &["second:1"]).await;
    // The lost claim does not park the name of the other engine.
    drop(displaced);
    let _other = claim(&first, "b", "x").await.unwrap();
    wait_for_servers(&second, "b", &["first:1"]).await;
    assert_eq!(addresses(&second, "a"), ["second:1"]);
}

#[tokio::test]
async fn tunnels_that_share_a_name_are_online_at_both_engines() {
    let servers = EtcdServers::start(1).await;
    let (first, second) = two_engines(&servers).await;
    let names = [Name::of_host("a"), Name::of_tunnel("p", "t")];
    let here = claim_all(&first, &names, "x", true).await.unwrap();
    let _again = claim_all(&first, &names, "x", true).await.unwrap();
    let _there = claim_all(&second, &names, "x", true).await.unwrap();
    wait_for_servers(&first, "a", &["first:1", "second:1"]).await;
    wait_for_servers(&second, "a", &["first:1", "second:1"]).await;
    assert_eq!(first.servers(&Name::of_tunnel("p", "t")).len(), 2);
    // Another agent of the engine still has the name.
    drop(here);
    let _other = claim(&first, "b", "x").await.unwrap();
    wait_for_servers(&second, "b", &["first:1"]).await;
    assert_eq!(addresses(&second, "a"), ["first:1", "second:1"]);
}

#[tokio::test]
async fn a_claim_has_all_of_its_names_or_none() {
    let servers = EtcdServers::start(1).await;
    let (first, second) = two_engines(&servers).await;
    let _held = claim(&first, "b", "x").await.unwrap();
    let both = [Name::of_host("a"), Name::of_host("b")];
    let refused = claim_all(&second, &both, "y", false).await;
    assert_eq!(refused.unwrap_err(), taken("b", Refusal::Online));
    assert!(!second.is_held(&Name::of_host("a")));
    claim(&first, "a", "z").await.unwrap();
}

/// Exactly one of two owners gets a name that both claim at the same time.
#[tokio::test]
async fn one_of_two_owners_wins_a_race() {
    let servers = EtcdServers::start(1).await;
    let (first, second) = two_engines(&servers).await;
    for number in 0..50 {
        let name = format!("n{number}");
        let (one, other) = tokio::join!(claim(&first, &name, "x"), claim(&second, &name, "y"));
        assert_ne!(one.is_ok(), other.is_ok(), "{one:?} {other:?}");
    }
}

/// Many agents leave and return while their names are parked.
#[tokio::test]
async fn an_owner_gets_its_name_back_at_any_moment() {
    let servers = EtcdServers::start(1).await;
    let (first, second) = two_engines(&servers).await;
    for number in 0..50 {
        let engine = if number % 3 == 0 { &second } else { &first };
        claim(engine, "a", "x").await.unwrap();
        let refused = claim(&second, "a", "y").await.unwrap_err();
        assert!(matches!(refused, ClaimError::Taken(..)), "{refused:?}");
    }
}

#[tokio::test]
async fn an_engine_that_stops_leaves_and_its_names_stay_held() {
    let servers = EtcdServers::start(1).await;
    let (first, second) = two_engines(&servers).await;
    let _kept = claim(&first, "a", "x").await.unwrap();
    wait_for_servers(&second, "a", &["first:1"]).await;
    first.stop().await;
    let has_left = |cluster: &Cluster| cluster.status().engines.len() == 1;
    within("the leave", second.wait_until(has_left)).await;
    assert_eq!(addresses(&second, "a"), [""; 0]);
    let refused = claim(&second, "a", "y").await.unwrap_err();
    assert_eq!(refused, taken("a", Refusal::Held));
    assert_eq!(
        claim(&first, "b", "x").await.unwrap_err(),
        ClaimError::Stopping
    );
    claim(&second, "a", "x").await.unwrap();
}

/// The lease of an engine that is gone fences its names: they are free when it ends, not before.
#[tokio::test]
async fn the_names_of_a_lost_engine_are_free_when_its_lease_ends() {
    let servers = EtcdServers::start(1).await;
    let (lost, other) = two_engines(&servers).await;
    let _kept = claim(&lost, "a", "x").await.unwrap();
    let _displaced = claim(&lost, "b", "x").await.unwrap();
    wait_for_servers(&other, "b", &["first:1"]).await;
    lost.cut_off();
    let _moved = claim(&other, "b", "x").await.unwrap();
    let refused = claim(&other, "a", "y").await.unwrap_err();
    assert_eq!(refused, taken("a", Refusal::Online));
    let record = format!("/svc/engines/{}", lost.status().engine);
    servers.end_lease_of(0, &record).await;
    let is_free = |cluster: &Cluster| !cluster.is_held(&Name::of_host("a"));
    within("the end of the lease", other.wait_until(is_free)).await;
    claim(&other, "a", "y").await.unwrap();
    assert_eq!(addresses(&other, "b"), ["second:1"]);
}

/// The order does not depend on the speed of the machine: the lease lasts for the hold time after
/// the store has received a renewal, and the engine counts from the time at which it sent it.
#[tokio::test]
async fn an_engine_stops_serving_before_its_lease_ends() {
    let servers = EtcdServers::start(1).await;
    let other = join(&servers.endpoints(), "other:1", HOLD).await;
    let lost = join(&servers.endpoints(), "lost:1", Duration::from_secs(4)).await;
    let engines = |count: usize| move |cluster: &Cluster| cluster.status().engines.len() == count;
    within("both engines", other.wait_until(engines(2))).await;
    lost.cut_off();
    within("the end of the lease", other.wait_until(engines(1))).await;
    assert!(!lost.serves(), "another owner could have its names");
}
