//! One link: the task that tells an engine what changes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::link::{ALIVE_SECONDS, Down, Item, MAX_LINE_BYTES};
use jiff::{SignedDuration, Timestamp};
use store::changes::{self, Change, Kind, Version};
use store::engines::{self, LinkedEngine};

use super::changes::cursor;
use super::cluster::Cluster;
use super::lines::{Lines, Unread};
use super::{everything, items, news};
use crate::app::App;
use crate::keys::KeyError;
use crate::metrics;
use crate::problem::Answer;
use crate::random;

/// A link that stands.
pub(super) struct Link {
    pub(super) app: Arc<App>,
    pub(super) cluster: Arc<Cluster>,
    pub(super) out: Lines,
    /// How far the engine was told; `None`: it has yet to be told everything.
    pub(super) told: Option<Version>,
    id: String,
    from: IpAddr,
    since: Timestamp,
    /// When the database last heard that the link stands.
    seen_at: Option<Timestamp>,
}

/// Why a link ends.
#[derive(Debug)]
pub(super) enum LinkEnd {
    /// The engine went away, or did not read.
    Unread(Unread),
    /// The platform ends.
    Stopped,
    /// The database failed. Nobody knows what changed: an engine that has lost its link says so,
    /// one that is told that nothing changed does not.
    Database(store::Error),
    /// The same, of the keys.
    Keys(KeyError),
}

impl From<Unread> for LinkEnd {
    fn from(unread: Unread) -> Self {
        Self::Unread(unread)
    }
}

impl From<store::Error> for LinkEnd {
    fn from(error: store::Error) -> Self {
        Self::Database(error)
    }
}

impl Link {
    pub(super) fn new(
        app: Arc<App>,
        cluster: Arc<Cluster>,
        from: IpAddr,
        told: Option<Version>,
        out: Lines,
    ) -> Answer<Self> {
        let since = app.now();
        Ok(Self {
            app,
            cluster,
            out,
            told,
            id: hex::encode(random::bytes::<16>()?),
            from,
            since,
            seen_at: None,
        })
    }

    /// Tells what there is to tell, until the end.
    pub(super) async fn run(mut self) {
        metrics::links(1);
        let (cluster, from) = (Arc::clone(&self.cluster), self.from);
        tracing::info!(cluster = %cluster.domain, %from, "an engine is linked");
        let ended = self.tell().await;
        metrics::links(-1);
        match &ended {
            Ok(()) | Err(LinkEnd::Stopped | LinkEnd::Unread(Unread::Gone)) => {
                tracing::info!(cluster = %cluster.domain, %from, "a link ended");
            }
            Err(LinkEnd::Unread(Unread::Slow)) => {
                tracing::warn!(cluster = %cluster.domain, %from, "an engine did not read; its link was cut");
            }
            Err(LinkEnd::Database(error)) => is_cut(&cluster, error),
            Err(LinkEnd::Keys(error)) => is_cut(&cluster, error),
        }
        if self.seen_at.is_some() {
            self.forget().await;
        }
    }

    async fn tell(&mut self) -> Result<(), LinkEnd> {
        let mut wakes = self.app.store.wakes();
        if let Some(told) = self.told.clone() {
            // The keys of the configuration have no log.
            let relay_keys = items::relay_keys(&self.app, &self.cluster);
            let items = [Some(items::keys(&self.app)), relay_keys];
            let items = items.into_iter().flatten().collect();
            self.send(Some(told.clone()), told, items).await?;
        }
        loop {
            wakes.borrow_and_update();
            self.step().await?;
            self.note_seen().await;
            self.keep_alive().await?;
            tokio::select! {
                _ = wakes.changed() => {}
                paused = self.pause() => paused?,
            }
        }
    }

    /// Tells what changed since the last step, if anything did.
    async fn step(&mut self) -> Result<(), LinkEnd> {
        let Some(told) = self.told.clone() else {
            return everything::tell(self).await;
        };
        let mut read = self.app.store.read().await?;
        if changes::head(&mut read).await? == told {
            return Ok(());
        }
        drop(read);
        let mut at = self.app.store.snapshot().await?;
        let head = changes::head(&mut at).await?;
        let is_kept = changes::is_kept(&mut at, &told).await?;
        let list = changes::since(&mut at, told.version, news::MOST + 1).await?;
        let is_short = u32::try_from(list.len()).is_ok_and(|changes| changes <= news::MOST);
        let items = if is_kept && is_short {
            news::items(&mut at, &self.cluster, &list, self.app.now()).await?
        } else {
            None
        };
        let oldest = changes::oldest_since(&mut at, told.version).await?;
        drop(at);
        let Some(mut items) = items else {
            return everything::tell(self).await;
        };
        let is_keys = |change: &Change| change.kind == Kind::Keys;
        if list.iter().any(is_keys) {
            self.reload_keys().await?;
            items.insert(0, items::keys(&self.app));
        }
        self.send(Some(told), head, items).await?;
        if let Some(oldest) = oldest {
            metrics::link_lag(self.app.now().duration_since(oldest));
        }
        Ok(())
    }

    /// Reads the keys again, so that what is told of them is at least as new as the change.
    pub(super) async fn reload_keys(&self) -> Result<(), LinkEnd> {
        let reloaded = self.app.keys.reload(&self.app.store).await;
        reloaded.map_err(LinkEnd::Keys)
    }

    /// Sends a step: one line, or several where it is long. Who has not heard the last of them
    /// begins again where the step did.
    async fn send(
        &mut self,
        from: Option<Version>,
        to: Version,
        items: Vec<Item>,
    ) -> Result<(), LinkEnd> {
        let place = |at: &Version| cursor(&self.cluster, at);
        let (from, end) = (place(from.as_ref().unwrap_or(&to)), place(&to));
        let mut part: Vec<Item> = Vec::new();
        let mut bytes = 0;
        for item in items {
            let size = serde_json::to_vec(&item).map_or(0, |text| text.len());
            if bytes + size > LONG_LINE && !part.is_empty() {
                let items = std::mem::take(&mut part);
                let cursor = from.clone();
                self.out.push(&Down::Change { cursor, items }).await?;
                bytes = 0;
            }
            bytes += size;
            part.push(item);
        }
        let line = Down::Change {
            cursor: end,
            items: part,
        };
        self.out.push(&line).await?;
        self.out.flush().await?;
        self.told = Some(to);
        Ok(())
    }

    /// Waits for a while.
    pub(super) async fn pause(&self) -> Result<(), LinkEnd> {
        tokio::select! {
            () = tokio::time::sleep(LOOK_EVERY) => Ok(()),
            () = self.app.engines.stop.cancelled() => Err(LinkEnd::Stopped),
            () = self.out.gone() => Err(Unread::Gone.into()),
        }
    }

    /// Says that the link stands, where nothing else was said for long.
    pub(super) async fn keep_alive(&mut self) -> Result<(), LinkEnd> {
        if self.out.silence() + LOOK_EVERY >= Duration::from_secs(ALIVE_SECONDS) {
            self.out.push(&Down::Alive {}).await?;
            self.out.flush().await?;
        }
        Ok(())
    }

    /// Lets operators see the link, from any process.
    async fn note_seen(&mut self) {
        let now = self.app.now();
        let is_new = |at: Timestamp| now.duration_since(at).abs() < SEEN_EVERY;
        if self.seen_at.is_some_and(is_new) {
            return;
        }
        let Some(told) = &self.told else { return };
        let link = LinkedEngine {
            id: self.id.clone(),
            cluster_domain: self.cluster.domain.clone(),
            address: self.from.to_string(),
            linked_at: self.since,
            version: told.version,
            seen_at: now,
        };
        let noted = async {
            let mut tx = self.app.store.begin().await?;
            engines::seen(&mut tx, &link).await?;
            tx.commit().await
        };
        // It is for looking at: a database that cannot be written keeps nobody from reading it.
        if let Err(error) = noted.await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "a link was not noted"
            );
        }
        self.seen_at = Some(now);
    }

    async fn forget(&self) {
        let forgotten = async {
            let mut tx = self.app.store.begin().await?;
            engines::gone(&mut tx, &self.id).await?;
            tx.commit().await
        };
        // If it stays, it is not shown for long.
        forgotten.await.ok();
    }
}

fn is_cut(cluster: &Cluster, error: &(dyn std::error::Error + 'static)) {
    tracing::warn!(cluster = %cluster.domain, error, "a link was cut: what changed is not known");
}

/// How often a link looks by itself.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How often the database hears that a link stands.
pub(super) const SEEN_EVERY: SignedDuration = SignedDuration::from_secs(30);
/// Half of what a line may have, so that one more item does not make it too long: the largest is
/// far smaller.
const LONG_LINE: usize = MAX_LINE_BYTES / 2;
