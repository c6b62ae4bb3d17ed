//! One link: the task that sends changes to an engine.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use api::link::{ALIVE_SECONDS, Item, LinkMessage, MAX_LINE_BYTES};
use jiff::{SignedDuration, Timestamp};
use store::changes::{self, Change, Kind, Version};
use store::engines::{self, LinkedEngine};

use super::caller::Engine;
use super::changes::cursor_at;
use super::cluster::Cluster;
use super::lines::{LineError, Lines};
use super::{current_items, items, snapshot};
use crate::app::App;
use crate::http_api::problem::HandlerResult;
use crate::keys::KeyError;
use crate::runtime::metrics;
use crate::runtime::random;

/// An open link.
pub(super) struct Link {
    pub(super) app: Arc<App>,
    pub(super) cluster: Arc<Cluster>,
    pub(super) lines: Lines,
    /// Log position up to which the engine has the changes. `None` if it still needs the whole
    /// state.
    pub(super) sent_version: Option<Version>,
    id: String,
    address: IpAddr,
    /// Version of the engine's program.
    program_version: Option<String>,
    linked_at: Timestamp,
    /// Time at which the link was last recorded in the database.
    seen_at: Option<Timestamp>,
}

/// Reasons that a link ends.
#[derive(Debug)]
pub(super) enum LinkEnd {
    /// The engine disconnected, or did not read.
    Write(LineError),
    /// The platform stops.
    Stopped,
    /// The database failed, so changes may be missing. An engine without a link reports this state.
    /// An engine with an open link would assume that nothing changed.
    Database(store::Error),
    /// The keys could not be read, so changes of keys may be missing.
    Keys(KeyError),
}

impl From<LineError> for LinkEnd {
    fn from(unread: LineError) -> Self {
        Self::Write(unread)
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
        engine: Engine,
        from: IpAddr,
        version: Option<Version>,
        out: Lines,
    ) -> HandlerResult<Self> {
        let since = app.now();
        Ok(Self {
            app,
            cluster: engine.cluster,
            program_version: engine.program_version,
            lines: out,
            sent_version: version,
            id: hex::encode(random::bytes::<16>()?),
            address: from,
            linked_at: since,
            seen_at: None,
        })
    }

    /// Sends the state and its changes, until the link ends.
    pub(super) async fn run(mut self) {
        metrics::links(1);
        let (cluster, from) = (Arc::clone(&self.cluster), self.address);
        tracing::info!(cluster = %cluster.domain, %from, "an engine connected");
        let ended = self.send_changes().await;
        metrics::links(-1);
        match &ended {
            Ok(()) | Err(LinkEnd::Stopped | LinkEnd::Write(LineError::Disconnected)) => {
                tracing::info!(cluster = %cluster.domain, %from, "a link ended");
            }
            Err(LinkEnd::Write(LineError::Stalled)) => {
                tracing::warn!(
                    cluster = %cluster.domain, %from,
                    "an engine did not read; its link was closed"
                );
            }
            Err(LinkEnd::Database(error)) => log_failure(&cluster, error),
            Err(LinkEnd::Keys(error)) => log_failure(&cluster, error),
        }
        if self.seen_at.is_some() {
            self.delete_record().await;
        }
    }

    async fn send_changes(&mut self) -> Result<(), LinkEnd> {
        let mut wakes = self.app.store.wakes();
        if let Some(sent_version) = self.sent_version.clone() {
            // The keys of the configuration are not in the log.
            let relay_keys = items::relay_keys(&self.app, &self.cluster);
            let items = [Some(items::keys(&self.app)), relay_keys];
            let items = items.into_iter().flatten().collect();
            self.send(Some(sent_version.clone()), sent_version, items)
                .await?;
        }
        loop {
            wakes.borrow_and_update();
            self.send_new_changes().await?;
            self.record_seen().await;
            self.keep_alive().await?;
            tokio::select! {
                _ = wakes.changed() => {}
                paused = self.pause() => paused?,
            }
        }
    }

    /// Sends the changes since the last step, if there are any.
    async fn send_new_changes(&mut self) -> Result<(), LinkEnd> {
        let Some(sent_version) = self.sent_version.clone() else {
            return snapshot::send_all(self).await;
        };
        let mut read = self.app.store.read().await?;
        if changes::head(&mut read).await? == sent_version {
            return Ok(());
        }
        drop(read);
        let mut at = self.app.store.snapshot().await?;
        let head = changes::head(&mut at).await?;
        let is_kept = changes::is_in_log(&mut at, &sent_version).await?;
        let list =
            changes::since(&mut at, sent_version.version, current_items::MAX_ITEMS + 1).await?;
        let is_short =
            u32::try_from(list.len()).is_ok_and(|changes| changes <= current_items::MAX_ITEMS);
        let items = if is_kept && is_short {
            let at_platform = (&*self.app, &*self.cluster);
            current_items::items(&mut at, at_platform, &list, self.app.now()).await?
        } else {
            None
        };
        let oldest = changes::oldest_since(&mut at, sent_version.version).await?;
        drop(at);
        let Some(mut items) = items else {
            return snapshot::send_all(self).await;
        };
        let is_keys = |change: &Change| change.kind == Kind::Keys;
        if list.iter().any(is_keys) {
            self.reload_keys().await?;
            items.insert(0, items::keys(&self.app));
        }
        self.send(Some(sent_version), head, items).await?;
        if let Some(oldest) = oldest {
            metrics::link_lag(self.app.now().duration_since(oldest));
        }
        Ok(())
    }

    /// Reads the keys again, so that the keys which are sent are at least as new as the change.
    pub(super) async fn reload_keys(&self) -> Result<(), LinkEnd> {
        let reloaded = self.app.keys.reload(&self.app.store).await;
        reloaded.map_err(LinkEnd::Keys)
    }

    /// Sends a step, in several lines if it is long. An engine that did not receive the last line
    /// starts again at the beginning of the step.
    async fn send(
        &mut self,
        from: Option<Version>,
        to: Version,
        items: Vec<Item>,
    ) -> Result<(), LinkEnd> {
        let to_cursor = |at: &Version| cursor_at(&self.cluster, at);
        let (from, end) = (to_cursor(from.as_ref().unwrap_or(&to)), to_cursor(&to));
        let mut part: Vec<Item> = Vec::new();
        let mut bytes = 0;
        for item in items {
            let size = serde_json::to_vec(&item).map_or(0, |text| text.len());
            if bytes + size > TARGET_LINE_BYTES && !part.is_empty() {
                let items = std::mem::take(&mut part);
                let cursor = from.clone();
                self.lines
                    .push(&LinkMessage::Change { cursor, items })
                    .await?;
                bytes = 0;
            }
            bytes += size;
            part.push(item);
        }
        let line = LinkMessage::Change {
            cursor: end,
            items: part,
        };
        self.lines.push(&line).await?;
        self.lines.flush().await?;
        self.sent_version = Some(to);
        Ok(())
    }

    /// Waits for the poll interval.
    pub(super) async fn pause(&self) -> Result<(), LinkEnd> {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => Ok(()),
            () = self.app.engines.stop.cancelled() => Err(LinkEnd::Stopped),
            () = self.lines.wait_disconnected() => Err(LineError::Disconnected.into()),
        }
    }

    /// Sends a keep-alive if no line was sent for a while.
    pub(super) async fn keep_alive(&mut self) -> Result<(), LinkEnd> {
        if self.lines.silence() + POLL_INTERVAL >= Duration::from_secs(ALIVE_SECONDS) {
            self.lines.push(&LinkMessage::Alive {}).await?;
            self.lines.flush().await?;
        }
        Ok(())
    }

    /// Records the link in the database, so that operators see it from any process.
    async fn record_seen(&mut self) {
        let now = self.app.now();
        let is_recent = |at: Timestamp| now.duration_since(at).abs() < RECORD_INTERVAL;
        if self.seen_at.is_some_and(is_recent) {
            return;
        }
        let Some(sent_version) = &self.sent_version else {
            return;
        };
        let link = LinkedEngine {
            id: self.id.clone(),
            cluster_domain: self.cluster.domain.clone(),
            address: self.address.to_string(),
            program_version: self.program_version.clone(),
            linked_at: self.linked_at,
            version: sent_version.version,
            seen_at: now,
        };
        let noted = async {
            let mut tx = self.app.store.begin().await?;
            engines::record_link(&mut tx, &link).await?;
            tx.commit().await
        };
        // The record is for display only. The link works even if the database is read-only.
        if let Err(error) = noted.await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the time of a link could not be stored"
            );
        }
        self.seen_at = Some(now);
    }

    async fn delete_record(&self) {
        let forgotten = async {
            let mut tx = self.app.store.begin().await?;
            engines::remove_link(&mut tx, &self.id).await?;
            tx.commit().await
        };
        // A record that stays is only displayed for a short time.
        forgotten.await.ok();
    }
}

fn log_failure(cluster: &Cluster, error: &(dyn std::error::Error + 'static)) {
    tracing::warn!(
        cluster = %cluster.domain, error,
        "a link was closed: the changes could not be read from the database"
    );
}

/// Poll interval of a link.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// Interval for recording an open link in the database.
pub(super) const RECORD_INTERVAL: SignedDuration = SignedDuration::from_secs(30);
/// Half of the line limit, so that one more item does not exceed it. The largest item is far
/// smaller.
const TARGET_LINE_BYTES: usize = MAX_LINE_BYTES / 2;
