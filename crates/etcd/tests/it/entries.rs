//! Entries of tunnels, on one member.

use etcd::{Claim, Cluster, EntryTooLarge, MAX_ENTRY_BYTES};
use ownership::{Generation, Name};
use testing::{EtcdServers, within};

use crate::support::{claim, claim_all, two_engines};

/// The entries of the engines that have agents with a name.
fn entries(cluster: &Cluster, name: &str) -> Vec<Option<String>> {
    let servers = cluster.servers(&Name::of_host(name)).into_iter();
    let value = |value: &[u8]| String::from_utf8(value.to_vec()).unwrap();
    servers
        .map(|server| server.entry.map(|entry| value(entry.value.as_bytes())))
        .collect()
}

async fn wait_for_entry(cluster: &Cluster, name: &str, expected: &str) {
    let has_it = |cluster: &Cluster| entries(cluster, name) == [Some(expected.to_owned())];
    within(
        &format!("entry {expected:?} of {name}"),
        cluster.wait_until(has_it),
    )
    .await;
}

fn publish(claim: &Claim, value: &str) {
    claim.publish_entry(value.as_bytes().to_vec()).unwrap();
}

fn generation(cluster: &Cluster, name: &str) -> Option<Generation> {
    let servers = cluster.servers(&Name::of_host(name));
    servers.first().map(|server| server.generation)
}

#[tokio::test]
async fn an_entry_lasts_as_long_as_its_claim() {
    let servers = EtcdServers::start(1).await;
    let (first, second) = two_engines(&servers).await;
    let names = [Name::of_host("a"), Name::of_tunnel("p", "a")];
    let held = claim_all(&first, &names, "x", false).await.unwrap();
    publish(&held, "one");
    wait_for_entry(&second, "a", "one").await;
    publish(&held, "two");
    wait_for_entry(&second, "a", "two").await;
    // Only the host name has it: by that visitors reach the tunnel.
    let named = second.servers(&Name::of_tunnel("p", "a"));
    assert_eq!(named.len(), 1);
    assert!(named[0].entry.is_none());

    // Another agent of the owner takes over at the same engine, and has another entry.
    let next = claim_all(&first, &names, "x", false).await.unwrap();
    publish(&next, "three");
    wait_for_entry(&second, "a", "three").await;
    drop(held);
    publish(&next, "four");
    wait_for_entry(&second, "a", "four").await;

    drop(next);
    let is_over = |cluster: &Cluster| entries(cluster, "a").is_empty();
    within("the end of the claim", second.wait_until(is_over)).await;
    // A claim without an entry does not get the one before.
    let _bare = claim(&first, "a", "x").await.unwrap();
    let is_bare = |cluster: &Cluster| entries(cluster, "a") == [None];
    within("the bare claim", second.wait_until(is_bare)).await;
}

#[tokio::test]
async fn a_takeover_removes_the_entry_of_the_other_engine() {
    let servers = EtcdServers::start(1).await;
    let (first, second) = two_engines(&servers).await;
    let displaced = claim(&first, "a", "x").await.unwrap();
    publish(&displaced, "first");
    wait_for_entry(&second, "a", "first").await;
    let current = claim(&second, "a", "x").await.unwrap();
    let is_bare = |cluster: &Cluster| entries(cluster, "a") == [None];
    within("the takeover", first.wait_until(is_bare)).await;
    // The claim is lost, so its engine writes nothing.
    publish(&displaced, "late");
    publish(&current, "second");
    wait_for_entry(&first, "a", "second").await;
    // Back at the first engine, which does not keep its earlier entry.
    let back = claim(&first, "a", "x").await.unwrap();
    publish(&back, "third");
    wait_for_entry(&second, "a", "third").await;
}

/// Agents that share a name at one engine: the entry is the one of a tunnel that is online.
#[tokio::test]
async fn the_entry_of_a_shared_name_follows_its_tunnels() {
    let servers = EtcdServers::start(1).await;
    let (first, second) = two_engines(&servers).await;
    let names = [Name::of_host("a")];
    let older = claim_all(&first, &names, "x", true).await.unwrap();
    publish(&older, "older");
    let newer = claim_all(&first, &names, "x", true).await.unwrap();
    publish(&newer, "newer");
    wait_for_entry(&second, "a", "newer").await;
    drop(newer);
    wait_for_entry(&second, "a", "older").await;
}

/// The records of an engine end with its lease. It joins again, and so do its entries.
#[tokio::test]
async fn entries_are_written_again_with_a_new_lease() {
    let servers = EtcdServers::start(1).await;
    let (first, second) = two_engines(&servers).await;
    let held = claim(&first, "a", "x").await.unwrap();
    publish(&held, "entry");
    wait_for_entry(&second, "a", "entry").await;
    let before = generation(&second, "a");
    let record = format!("/svc/engines/{}", first.status().engine);
    servers.end_lease_of(0, &record).await;
    let is_back = |cluster: &Cluster| {
        generation(cluster, "a") > before && entries(cluster, "a") == [Some("entry".to_owned())]
    };
    within("the entry with a new lease", second.wait_until(is_back)).await;
}

#[tokio::test]
async fn an_entry_that_is_too_large_is_refused() {
    let servers = EtcdServers::start(1).await;
    let (first, second) = two_engines(&servers).await;
    let held = claim(&first, "a", "x").await.unwrap();
    let refused = held.publish_entry(vec![0; MAX_ENTRY_BYTES + 1]);
    assert_eq!(refused, Err(EntryTooLarge));
    let largest = "a".repeat(MAX_ENTRY_BYTES);
    publish(&held, &largest);
    wait_for_entry(&second, "a", &largest).await;
}
