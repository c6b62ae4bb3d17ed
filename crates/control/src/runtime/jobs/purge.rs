//! Deletion of expired data, in batches, so that the write lock is only held briefly.

use jiff::{SignedDuration, Timestamp};
use store::oldest_rows::{Rows, oldest};
use store::traffic::TrafficStep;
use store::{
    Conn, Lock, Tx, WorkLock, addresses, attempts, audit, changes, credentials, deleted_projects,
    deliveries, device_grants, engines, events, idempotency, invitations, links, logs, oauth_codes,
    oauth_requests, pending_sign_ins, revoked_tokens, sessions, traffic, usage, used_challenges,
    webhooks, workspaces,
};
use tokio_util::sync::CancellationToken;

use crate::app::App;
use crate::config::Retention;
use crate::engines::{CHANGE_LOG_RETENTION, INVENTORY_EXPIRY, LINK_EXPIRY, REPORTER_RETENTION};
use crate::http_api::problem::HandlerResult;
use crate::logs::traffic::retention_of;
use crate::oauth;
use crate::people::session::IDLE;
use crate::runtime::jobs::expiring_rows::ExpiringRows;

/// Deletes the expired rows of a kind, and returns their number. Returns 0 if another process is
/// purging.
pub async fn purge(app: &App, kind: ExpiringRows, stop: &CancellationToken) -> HandlerResult<u64> {
    match app.store.try_lock(Lock::Purge).await? {
        Some(lock) => {
            let rows = purge_under(&lock, app, kind, stop).await;
            lock.release().await;
            rows
        }
        None => Ok(0),
    }
}

/// [`purge`] under a lock that the caller holds for a whole pass. If two processes took turns with
/// the lock, both would abort.
pub(super) async fn purge_under(
    _lock: &WorkLock,
    app: &App,
    kind: ExpiringRows,
    stop: &CancellationToken,
) -> HandlerResult<u64> {
    let mut rows = 0;
    for _ in 0..MAX_BATCHES {
        if stop.is_cancelled() {
            break;
        }
        let mut tx = app.store.begin().await?;
        let batch = kind
            .batch(&mut tx, &app.config.retention, app.now())
            .await?;
        tx.commit().await?;
        rows += batch;
        if batch < u64::from(BATCH) {
            break;
        }
        // Pending writes take precedence.
        tokio::task::yield_now().await;
    }
    Ok(rows)
}

/// Number of rows in one transaction, which takes some milliseconds.
pub(crate) const BATCH: u32 = 500;
/// Limit of a pass: half a million rows of each kind.
const MAX_BATCHES: u32 = 1_000;

impl ExpiringRows {
    /// Time since the expiry of the oldest row.
    pub(super) async fn overdue(
        self,
        conn: &mut Conn,
        retention: &Retention,
        now: Timestamp,
    ) -> Result<SignedDuration, store::Error> {
        let Some((rows, kept)) = self.rows_and_retention(retention) else {
            return Ok(SignedDuration::ZERO);
        };
        let oldest = oldest(conn, rows).await?;
        let age = oldest.map_or(SignedDuration::ZERO, |oldest| now.duration_since(oldest));
        Ok((age - kept).max(SignedDuration::ZERO))
    }

    /// The rows of the kind, and their retention from the time in each row; `None`: forever.
    fn rows_and_retention(self, retention: &Retention) -> Option<(Rows, SignedDuration)> {
        let at_once = SignedDuration::ZERO;
        Some(match self {
            Self::Logs => (Rows::Logs, at_once),
            Self::Events => (Rows::Events, at_once),
            Self::Deliveries => (Rows::Deliveries, retention.deliveries),
            Self::Webhooks => (Rows::DeletedWebhooks, retention.deliveries),
            Self::Credentials => (Rows::RevokedCredentials, retention.credentials),
            Self::Usage => (Rows::Usage, retention.usage),
            Self::TrafficMinutes => (Rows::TrafficMinutes, retention_of(TrafficStep::Minute)),
            Self::TrafficHours => (Rows::TrafficHours, retention_of(TrafficStep::Hour)),
            Self::IdempotencyKeys => (Rows::IdempotencyKeys, retention.idempotency_keys),
            Self::Sessions => (Rows::Sessions, at_once),
            Self::UnusedSessions => (Rows::UsedSessions, IDLE),
            Self::Links => (Rows::Links, at_once),
            Self::Invitations => (Rows::Invitations, retention.invitations),
            Self::RevokedTokens => (Rows::RevokedTokens, at_once),
            Self::Challenges => (Rows::Challenges, at_once),
            Self::Attempts => (Rows::Attempts, at_once),
            Self::OauthRequests => (Rows::OauthRequests, at_once),
            Self::OauthCodes => (Rows::OauthCodes, oauth::CODE_REUSE_WINDOW),
            Self::DeviceGrants => (Rows::DeviceGrants, oauth::EXPIRED_CODE_RETENTION),
            Self::ReleasedPorts => (Rows::ReleasedPorts, retention.released_ports),
            Self::LinkChanges => (Rows::LinkChanges, CHANGE_LOG_RETENTION),
            Self::Engines => (Rows::LinkedEngines, LINK_EXPIRY),
            Self::PendingSignIns => (Rows::PendingSignIns, at_once),
            Self::Projects => (Rows::DeletedProjects, retention.deleted),
            Self::Workspaces => (Rows::DeletedWorkspaces, retention.deleted),
            Self::Audit => (Rows::Audit, retention.audit?),
        })
    }

    async fn batch(
        self,
        tx: &mut Tx,
        retention: &Retention,
        now: Timestamp,
    ) -> Result<u64, store::Error> {
        match self {
            Self::Logs => logs::purge(tx, now, BATCH).await,
            Self::Events => events::purge(tx, now, BATCH).await,
            Self::Deliveries => deliveries::purge(tx, ago(now, retention.deliveries), BATCH).await,
            Self::Webhooks => webhooks::purge(tx, ago(now, retention.deliveries), BATCH).await,
            Self::Credentials => {
                credentials::purge(tx, ago(now, retention.credentials), BATCH, now).await
            }
            Self::Usage => usage::purge(tx, ago(now, retention.usage), BATCH).await,
            Self::TrafficMinutes => purge_traffic(tx, TrafficStep::Minute, now).await,
            Self::TrafficHours => purge_traffic(tx, TrafficStep::Hour, now).await,
            Self::IdempotencyKeys => {
                idempotency::purge(tx, ago(now, retention.idempotency_keys), BATCH).await
            }
            Self::Sessions => sessions::purge(tx, now, BATCH).await,
            Self::UnusedSessions => sessions::purge_unused(tx, ago(now, IDLE), BATCH).await,
            Self::Links => links::purge(tx, now, BATCH).await,
            Self::Invitations => {
                invitations::purge(tx, ago(now, retention.invitations), BATCH).await
            }
            Self::RevokedTokens => revoked_tokens::purge(tx, now, BATCH).await,
            Self::Challenges => used_challenges::purge(tx, now, BATCH).await,
            Self::Attempts => attempts::purge(tx, now, BATCH).await,
            Self::OauthCodes => {
                oauth_codes::purge(tx, ago(now, oauth::CODE_REUSE_WINDOW), BATCH).await
            }
            Self::OauthRequests => oauth_requests::purge(tx, now, BATCH).await,
            Self::DeviceGrants => {
                device_grants::purge(tx, ago(now, oauth::EXPIRED_CODE_RETENTION), BATCH).await
            }
            Self::ReleasedPorts => {
                addresses::purge(tx, ago(now, retention.released_ports), BATCH).await
            }
            Self::LinkChanges => changes::purge(tx, ago(now, CHANGE_LOG_RETENTION), BATCH).await,
            // These are few: one of each per engine and per project.
            Self::Engines => {
                let links = engines::forget_linked(tx, ago(now, LINK_EXPIRY)).await?;
                let spools = engines::forget_reporters(tx, ago(now, REPORTER_RETENTION)).await?;
                let projects = engines::forget_inventory(tx, ago(now, INVENTORY_EXPIRY)).await?;
                Ok(links + spools + projects)
            }
            Self::PendingSignIns => pending_sign_ins::purge(tx, now, BATCH).await,
            Self::Projects => deleted_projects::purge(tx, ago(now, retention.deleted), BATCH).await,
            Self::Workspaces => workspaces::purge(tx, ago(now, retention.deleted), BATCH).await,
            Self::Audit => match retention.audit {
                Some(kept) => audit::purge(tx, ago(now, kept), BATCH).await,
                None => Ok(0),
            },
        }
    }
}

async fn purge_traffic(
    tx: &mut Tx,
    step: TrafficStep,
    now: Timestamp,
) -> Result<u64, store::Error> {
    traffic::purge(tx, step, ago(now, retention_of(step)), BATCH).await
}

pub(crate) fn ago(now: Timestamp, period: SignedDuration) -> Timestamp {
    now.saturating_sub(period).unwrap_or(Timestamp::MIN)
}
