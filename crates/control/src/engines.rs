//! The platform's side of the engine link ([`api::link`]): changes for engines, and reports from
//! them.
//!
//! An engine authenticates with the secret of its cluster ([`caller`]) and keeps a stream of
//! changes open. One task of [`link`] serves each stream. It first sends the whole state, unless
//! the engine has a cursor from which the change log continues. Then it sends changes. A commit
//! wakes the task, immediately in this process and over the database from others ([`listen()`]).
//! The task also polls every second, so a lost wake-up costs only a second.
//!
//! Engines send reports in batches ([`reports`]). Each batch counts once. Browsers that an engine
//! does not recognise are sent to [`sign_in`].

mod caller;
mod certificates;
mod changes;
mod cluster;
mod credential_use;
mod current_items;
mod items;
mod lines;
mod link;
mod listen;
mod report_counts;
mod reports;
mod routes;
mod sign_in;
mod snapshot;
mod streams;
mod traffic;
mod tunnel_closed;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use credentials::{AssertionKey, Secret, digest};
use jiff::SignedDuration;
use serde_json::{Value, json};
use subtle::{Choice, ConstantTimeEq as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use types::id::UserId;
use types::problem::Problem;

pub(crate) use self::certificates::reported as reported_certificates;
use self::cluster::Cluster;
pub(crate) use self::listen::listen;
pub use self::routes::routes;
use crate::config::Config;
use crate::http_api::problem::HandlerResult;
use crate::keys::{KeyError, cluster_secret};
use crate::people::throttle::{Limits, Throttle};

/// State of the engine links of one process; a part of [`crate::app::App`].
#[derive(Debug)]
pub struct Engines {
    enrolled: Vec<EnrolledCluster>,
    /// JWK sets of the clusters' assertions, by domain.
    identity_keys: BTreeMap<String, Bytes>,
    /// Wrong secrets, by client address.
    failures: Throttle<IpAddr>,
    /// Sign-ins for engines, by user.
    codes: Throttle<UserId>,
    /// Permits for open links.
    link_permits: Arc<Semaphore>,
    /// Permits for links that send the whole state. Each keeps a database connection meanwhile.
    snapshot_permits: Arc<Semaphore>,
    /// The tasks of the links.
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A cluster and the secret of its engines.
#[derive(Debug)]
struct EnrolledCluster {
    /// Digest of the secret. Only hashes are compared, in constant time.
    digest: [u8; 32],
    cluster: Arc<Cluster>,
}

impl Engines {
    /// Reads the secrets of the clusters.
    ///
    /// # Errors
    /// A secret cannot be read, is too short, or is the same for two clusters.
    pub fn open(config: &Config) -> Result<Self, KeyError> {
        let mut enrolled: Vec<EnrolledCluster> = Vec::new();
        let mut identity_keys: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        let engines = config.engines.iter().map(|engine| {
            let path = engine.enrolment_secret_file.as_ref();
            (path, Cluster::for_engines(config, &engine.cluster_domain))
        });
        let relays = config.engines.iter().map(|engine| {
            let path = engine.relay_secret_file.as_ref();
            (path, Cluster::for_relays(config, &engine.cluster_domain))
        });
        for (path, cluster) in engines.chain(relays) {
            let Some(path) = path else {
                continue;
            };
            let secret = cluster_secret(path)?;
            let digest = digest(&secret);
            let is_shared = |other: &EnrolledCluster| {
                let is_same = other.cluster.domain == cluster.domain
                    && other.cluster.relay_realm == cluster.relay_realm;
                other.digest == digest && !is_same
            };
            if enrolled.iter().any(is_shared) {
                return Err(KeyError::Content {
                    path: path.clone(),
                    message: "another cluster, or its engines, already uses this secret".to_owned(),
                });
            }
            // Relays sign no assertions.
            if cluster.relay_realm.is_none() {
                let key = AssertionKey::derive(&Secret::new(secret));
                let key = key.map_err(|_| KeyError::Cryptography)?;
                let keys = identity_keys.entry(cluster.domain.clone()).or_default();
                keys.push(key.jwk().clone());
            }
            let cluster = Arc::new(cluster);
            enrolled.push(EnrolledCluster { digest, cluster });
        }
        let document = |(domain, keys): (String, Vec<Value>)| {
            let document = json!({"keys": keys}).to_string();
            (domain, Bytes::from(document))
        };
        Ok(Self {
            enrolled,
            identity_keys: identity_keys.into_iter().map(document).collect(),
            failures: Throttle::new(Limits::ADDRESS),
            codes: Throttle::new(Limits::TUNNELS),
            link_permits: Arc::new(Semaphore::new(MAX_LINKS)),
            snapshot_permits: Arc::new(Semaphore::new(MAX_SNAPSHOTS)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// The cluster with this secret. All secrets are compared, so that the time does not depend on
    /// the match.
    fn cluster(&self, secret: &str) -> Option<Arc<Cluster>> {
        let secret_digest = digest(secret);
        let mut found = None;
        for enrolled in &self.enrolled {
            let is_it: Choice = enrolled.digest.ct_eq(&secret_digest);
            if is_it.into() {
                found = Some(&enrolled.cluster);
            }
        }
        found.map(Arc::clone)
    }

    /// The JWK set of a cluster's assertions.
    pub(crate) fn identity_keys(&self, domain: &str) -> Option<&Bytes> {
        self.identity_keys.get(domain)
    }

    /// A permit for one more link.
    ///
    /// # Errors
    /// 503 if there is none, or if the platform is about to stop.
    fn acquire_link_permit(&self) -> HandlerResult<OwnedSemaphorePermit> {
        let permit = Arc::clone(&self.link_permits).try_acquire_owned();
        match permit {
            Ok(permit) if !self.stop.is_cancelled() => Ok(permit),
            _ => Err(Problem::unavailable().with_retry_after(5).into()),
        }
    }

    /// Ends every link.
    pub(crate) fn close_links(&self) {
        self.stop.cancel();
        self.tasks.close();
    }

    /// Waits until the last link has ended.
    pub(crate) async fn wait_for_links(&self) {
        self.tasks.wait().await;
    }
}

/// Links of one process: each has a task, a buffer of some hundred kilobytes at worst, and one
/// small query a second.
const MAX_LINKS: usize = 256;
/// A quarter of the connections to SQLite, and an eighth of those to PostgreSQL.
const MAX_SNAPSHOTS: usize = 2;

/// Retention of the log of changes. An engine that was disconnected for longer receives a full
/// snapshot.
pub(crate) const CHANGE_LOG_RETENTION: SignedDuration = SignedDuration::from_hours(7 * 24);
/// A link that was not recorded for this long counts as ended. The period is several
/// times the interval at which links are recorded.
pub(crate) const LINK_EXPIRY: SignedDuration = SignedDuration::from_secs(95);
/// Reported online objects count for this long. Engines report all of them every five minutes, so
/// older entries belong to an engine that has died.
pub(crate) const INVENTORY_EXPIRY: SignedDuration = SignedDuration::from_mins(15);
/// A spool without reports for this long no longer exists, and neither does its engine.
pub(crate) const REPORTER_RETENTION: SignedDuration = SignedDuration::from_hours(90 * 24);
