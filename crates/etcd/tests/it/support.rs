//! Engines of a cluster, and their views.

use std::sync::Arc;
use std::time::Duration;

use etcd::{Claim, ClaimError, Cluster, Settings, StoreError};
use ownership::{Engine, Name, Owner};
use testing::{EtcdServers, within};
use tokio::sync::Notify;

/// The hold time of engines in production.
pub(crate) const HOLD: Duration = Duration::from_mins(10);

pub(crate) fn settings(endpoints: &[String], address: &str, hold: Duration) -> Settings {
    Settings {
        endpoints: endpoints
            .iter()
            .map(|endpoint| endpoint.parse().unwrap())
            .collect(),
        tls: None,
        login: None,
        prefix: "/svc/".to_owned(),
        engine: Engine {
            name: "engine".into(),
            address: address.into(),
            zone: "zone".into(),
        },
        hold,
    }
}

/// An engine without agents, at these members of the store.
pub(crate) async fn join(endpoints: &[String], address: &str, hold: Duration) -> Cluster {
    let cluster = Cluster::start(&settings(endpoints, address, hold));
    within("contact with the store", cluster.wait_until_serving()).await;
    cluster
}

/// Two engines on a store.
pub(crate) async fn two_engines(servers: &EtcdServers) -> (Cluster, Cluster) {
    let endpoints = servers.endpoints();
    let first = join(&endpoints, "first:1", HOLD).await;
    (first, join(&endpoints, "second:1", HOLD).await)
}

pub(crate) async fn claim(cluster: &Cluster, name: &str, owner: &str) -> Result<Claim, ClaimError> {
    claim_all(cluster, &[Name::of_host(name)], owner, false).await
}

/// Claims names, again after each failure that can pass: the store of a busy machine may be slower
/// than the time limit of a claim.
pub(crate) async fn claim_all(
    cluster: &Cluster,
    names: &[Name],
    owner: &str,
    shares: bool,
) -> Result<Claim, ClaimError> {
    let answered = async {
        loop {
            let names = names.to_vec();
            match cluster.claim(names, Owner::new(owner), shares).await {
                Err(ClaimError::Store(error)) if error.is_retryable() => {}
                Err(ClaimError::Contended) => {}
                outcome => return outcome,
            }
        }
    };
    within("answer to a claim", answered).await
}

/// Claims a name that cannot be assigned now, until the refusal has this reason.
pub(crate) async fn wait_for_refusal(
    cluster: &Cluster,
    name: &str,
    is_expected: impl Fn(&StoreError) -> bool,
) -> ClaimError {
    let refused = async {
        loop {
            let names = vec![Name::of_host(name)];
            let refused = cluster.claim(names, Owner::new("x"), false).await;
            match refused.unwrap_err() {
                ClaimError::Store(error) if is_expected(&error) => {
                    return ClaimError::Store(error);
                }
                other => assert!(other.is_retryable(), "{other}"),
            }
        }
    };
    within("expected refusal", refused).await
}

pub(crate) fn addresses(cluster: &Cluster, name: &str) -> Vec<String> {
    let servers = cluster.servers(&Name::of_host(name)).into_iter();
    let mut addresses: Vec<_> = servers
        .map(|server| server.engine.address.to_string())
        .collect();
    addresses.sort();
    addresses
}

/// Waits until an engine's view has these servers of a name.
pub(crate) async fn wait_for_servers(cluster: &Cluster, name: &str, expected: &[&str]) {
    let wait = cluster.wait_until(|cluster| addresses(cluster, name) == expected);
    within(&format!("servers {expected:?} of {name}"), wait).await;
}

/// The loss of a claim, as something to wait for.
pub(crate) fn loss_of(claim: &Claim) -> Arc<Notify> {
    let lost = Arc::new(Notify::new());
    let notify = Arc::clone(&lost);
    claim.on_loss(move || notify.notify_one());
    lost
}
