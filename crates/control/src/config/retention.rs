//! The `retention` section of the configuration.

use daemon::config::ConfigError;
use jiff::SignedDuration;
use schemars::JsonSchema;
use serde::Deserialize;

/// Retention periods. Logs and events are kept for the period of their project's plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Entries of the audit log; `None` for ever.
    pub audit: Option<SignedDuration>,
    /// Credentials, after they ended.
    pub credentials: SignedDuration,
    /// Projects and workspaces, after they were deleted.
    pub deleted: SignedDuration,
    /// Deliveries of webhooks, after they ended, and webhooks that were deleted.
    pub deliveries: SignedDuration,
    /// Idempotency keys of creations.
    pub idempotency_keys: SignedDuration,
    /// Invitations, after they ended.
    pub invitations: SignedDuration,
    /// Period in which returned TCP ports are kept from other projects.
    pub released_ports: SignedDuration,
    /// Hourly usage.
    pub usage: SignedDuration,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub(super) struct RetentionSection {
    /// Days that entries of the audit log are kept, 1 to 36500; 0: for ever.
    audit_days: u32,
    /// Days that credentials are shown after they were revoked or have expired. 1 to 36500.
    credentials_days: u32,
    /// Days that a deleted project or workspace stays in the database, where operators can find it.
    /// Its records, webhooks, ports and credentials are deleted before it. A workspace that ever
    /// paid is never deleted. 1 to 36500.
    deleted_days: u32,
    /// Days that deliveries of webhooks are kept after they succeeded or finally failed, and
    /// webhooks after they were deleted. 1 to 36500.
    deliveries_days: u32,
    /// Days that a creation is recognised by its idempotency key. 1 to 36500.
    idempotency_keys_days: u32,
    /// Days that invitations are kept after they ended. 0 to 36500.
    invitations_days: u32,
    /// Hours that a reserved TCP port is kept from other projects after its project returned it. A
    /// client that still connects to it then gets no connection instead of another project's. The
    /// project itself can reserve it again immediately. 0 to 8760.
    released_ports_hours: u32,
    /// Days that hourly usage is kept, 31 to 36500.
    usage_days: u32,
}

impl Default for RetentionSection {
    fn default() -> Self {
        Self {
            // A year, plus time to review it.
            audit_days: 400,
            credentials_days: 90,
            deleted_days: 90,
            deliveries_days: 30,
            // A client retries within hours. A script's journal is kept longer.
            idempotency_keys_days: 30,
            invitations_days: 90,
            // A port that was returned by mistake, or a forgotten client, is noticed within a day.
            // Ports are few, so the period is not longer.
            released_ports_hours: 24,
            usage_days: 400,
        }
    }
}

impl RetentionSection {
    pub(super) fn check(&self) -> Result<Retention, ConfigError> {
        let days = |name: &str, least: u32, days: u32| {
            if (least..=MAX_DAYS).contains(&days) {
                return Ok(SignedDuration::from_hours(24 * i64::from(days)));
            }
            let key = format!("retention.{name}");
            Err(ConfigError::new(
                key,
                format!("expected {least} to {MAX_DAYS} days"),
            ))
        };
        Ok(Retention {
            audit: match self.audit_days {
                0 => None,
                given => Some(days("audit_days", 1, given)?),
            },
            credentials: days("credentials_days", 1, self.credentials_days)?,
            deleted: days("deleted_days", 1, self.deleted_days)?,
            deliveries: days("deliveries_days", 1, self.deliveries_days)?,
            idempotency_keys: days("idempotency_keys_days", 1, self.idempotency_keys_days)?,
            invitations: days("invitations_days", 0, self.invitations_days)?,
            released_ports: hours(self.released_ports_hours)?,
            usage: days("usage_days", MIN_USAGE_DAYS, self.usage_days)?,
        })
    }
}

fn hours(given: u32) -> Result<SignedDuration, ConfigError> {
    if given > MAX_HOURS {
        let message = format!("expected 0 to {MAX_HOURS} hours");
        return Err(ConfigError::new("retention.released_ports_hours", message));
    }
    Ok(SignedDuration::from_hours(given.into()))
}

/// The longest period of usage queries.
const MIN_USAGE_DAYS: u32 = 31;
/// A year.
const MAX_HOURS: u32 = 8_760;
/// A century. Use 0 for longer periods.
const MAX_DAYS: u32 = 36_500;
