//! The platform's side of the engine link ([`api::link`]): what engines are told, and what they
//! report.
//!
//! An engine shows the secret of its cluster ([`caller`]) and keeps a stream of changes open, which
//! is one task of [`link`]: first everything ([`everything`]), unless the engine knows a place from
//! which the log goes on, then what changes ([`news`]). A commit wakes the task, in this process at
//! once and from others over the database ([`listen`]); and it looks by itself every second, so
//! that a wake-up that is lost costs a second and nothing else.
//!
//! What an engine has to tell comes in batches ([`reports`]), each of which counts once. Browsers
//! that an engine does not know are sent to [`sign_in`].

mod caller;
mod changes;
mod cluster;
mod everything;
mod items;
mod lines;
mod link;
mod listen;
mod news;
mod reports;
mod routes;
mod sign_in;

use std::net::IpAddr;
use std::sync::Arc;

use credentials::digest;
use jiff::SignedDuration;
use subtle::{Choice, ConstantTimeEq as _};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use types::id::UserId;
use types::problem::Problem;

use self::cluster::Cluster;
pub(crate) use self::listen::listen;
pub use self::routes::routes;
use crate::config::Config;
use crate::keys::{KeyError, cluster_secret};
use crate::people::throttle::{Limits, Throttle};
use crate::problem::Answer;

/// What the handlers of the link share; a part of [`crate::app::App`].
#[derive(Debug)]
pub struct Engines {
    enrolled: Vec<EnrolledCluster>,
    /// Wrong secrets, by address.
    failures: Throttle<IpAddr>,
    /// Sign-ins for engines, by person.
    codes: Throttle<UserId>,
    /// Links that may be open.
    places: Arc<Semaphore>,
    /// Links that may be told everything at once: each keeps a connection of the database for it.
    telling: Arc<Semaphore>,
    /// The tasks of the links.
    tasks: TaskTracker,
    stop: CancellationToken,
}

/// A cluster, and what its engines show.
#[derive(Debug)]
struct EnrolledCluster {
    /// Of the secret; only hashes are compared, and those in constant time.
    digest: [u8; 32],
    cluster: Arc<Cluster>,
}

impl Engines {
    /// Reads the secrets of the clusters.
    ///
    /// # Errors
    /// A secret cannot be read, is too short, or is that of two clusters.
    pub fn open(config: &Config) -> Result<Self, KeyError> {
        let mut enrolled: Vec<EnrolledCluster> = Vec::new();
        let engines = config.engines.iter().map(|engine| {
            let path = engine.enrolment_secret_file.as_ref();
            (path, Cluster::of(config, &engine.cluster_domain))
        });
        let relays = config.engines.iter().map(|engine| {
            let path = engine.relay_secret_file.as_ref();
            (path, Cluster::of_relays(config, &engine.cluster_domain))
        });
        for (path, cluster) in engines.chain(relays) {
            let Some(path) = path else {
                continue;
            };
            let digest = digest(&cluster_secret(path)?);
            let is_shared = |other: &EnrolledCluster| {
                let is_same = other.cluster.domain == cluster.domain
                    && other.cluster.relay_realm == cluster.relay_realm;
                other.digest == digest && !is_same
            };
            if enrolled.iter().any(is_shared) {
                return Err(KeyError::Content {
                    path: path.clone(),
                    message: "another cluster, or its engines, have this secret".to_owned(),
                });
            }
            let cluster = Arc::new(cluster);
            enrolled.push(EnrolledCluster { digest, cluster });
        }
        Ok(Self {
            enrolled,
            failures: Throttle::new(Limits::ADDRESS),
            codes: Throttle::new(Limits::TUNNELS),
            places: Arc::new(Semaphore::new(MAX_LINKS)),
            telling: Arc::new(Semaphore::new(MAX_TELLING)),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        })
    }

    /// The cluster whose secret this is. Every secret is looked at, whichever fits.
    fn cluster(&self, secret: &str) -> Option<Arc<Cluster>> {
        let shown = digest(secret);
        let mut found = None;
        for enrolled in &self.enrolled {
            let is_it: Choice = enrolled.digest.ct_eq(&shown);
            if is_it.into() {
                found = Some(&enrolled.cluster);
            }
        }
        found.map(Arc::clone)
    }

    /// A place for one more link.
    ///
    /// # Errors
    /// 503 when there is none, or when the platform is about to end.
    fn place(&self) -> Answer<OwnedSemaphorePermit> {
        let place = Arc::clone(&self.places).try_acquire_owned();
        match place {
            Ok(place) if !self.stop.is_cancelled() => Ok(place),
            _ => Err(Problem::unavailable().with_retry_after(5).into()),
        }
    }

    /// Ends every link.
    pub(crate) fn end(&self) {
        self.stop.cancel();
        self.tasks.close();
    }

    /// Waits until the last link has ended.
    pub(crate) async fn ended(&self) {
        self.tasks.wait().await;
    }
}

/// Links of one process: each has a task, a buffer of some hundred kilobytes at worst, and one
/// small query a second.
const MAX_LINKS: usize = 256;
/// A quarter of the connections that SQLite has, an eighth of those to PostgreSQL.
const MAX_TELLING: usize = 2;

/// How long the log of changes is kept: an engine that was away for longer is told everything.
pub(crate) const LOG_IS_KEPT: SignedDuration = SignedDuration::from_hours(7 * 24);
/// A link that was not seen for so long has ended without a word: several times
/// [`link::SEEN_EVERY`].
pub(crate) const LINK_IS_SHOWN: SignedDuration = SignedDuration::from_secs(95);
/// What is online counts for so long after it was reported: engines report all of it every five
/// minutes, so what is older is an engine's that has died.
pub(crate) const INVENTORY_HOLDS: SignedDuration = SignedDuration::from_mins(15);
/// A spool that reported nothing for so long is gone with its engine.
pub(crate) const REPORTER_IS_KEPT: SignedDuration = SignedDuration::from_hours(90 * 24);
