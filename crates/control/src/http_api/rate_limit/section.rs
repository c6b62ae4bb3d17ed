//! The `limits` section of the configuration.

use std::num::NonZeroU32;

use daemon::config::ConfigError;
use schemars::JsonSchema;
use serde::Deserialize;

/// Rate limits and quotas of callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Requests of one credential or session in a minute.
    pub credential_requests_per_minute: NonZeroU32,
    /// Requests of one user in a minute, with any credentials.
    pub user_requests_per_minute: NonZeroU32,
    /// Requests of one source in a minute without a valid credential.
    pub source_requests_per_minute: NonZeroU32,
    /// Connections of the process; `None`: as many as its descriptors allow.
    pub max_connections: Option<usize>,
    /// Connections of one source; `None`: a share of the total.
    pub max_connections_per_source: Option<usize>,
    /// Pending invitations of one workspace.
    pub open_invitations: u32,
    /// Projects of one workspace.
    pub projects_per_workspace: u32,
    /// Members of one workspace.
    pub members_per_workspace: u32,
    /// Log rows of one project.
    pub log_rows_per_project: u32,
    /// Event rows of one project.
    pub event_rows_per_project: u32,
}

/// Rate limits and quotas of callers. Rates apply to each process.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsSection {
    /// Requests that one credential or session may send in a minute, together or spread, 10 to
    /// 1000000. Further ones get a 429.
    credential_requests_per_minute: u32,
    /// Requests that one user may send in a minute with all credentials and sessions, 10 to
    /// 1000000.
    user_requests_per_minute: u32,
    /// Requests without a valid credential that one source (an IPv4 address or an IPv6 /64) may
    /// send in a minute, together or spread, 10 to 1000000: pages, public operations, OAuth and bad
    /// credentials. Behind `platform.trusted_proxies` the forwarded address is the source.
    source_requests_per_minute: u32,
    /// Maximum number of open connections, 1 to 1000000. Default: the process's limit of
    /// descriptors less 256, and 10000 at most.
    max_connections: Option<u32>,
    /// Maximum number of open connections of one source (an IPv4 address or an IPv6 /64), 1 to
    /// 1000000; further ones are closed. A peer in `platform.trusted_proxies` has no limit of its
    /// own. Default: an eighth of the total, at least 64.
    max_connections_per_source: Option<u32>,
    /// Pending invitations of one workspace, 1 to 100000.
    open_invitations: u32,
    /// Projects of one workspace, 1 to 100000.
    projects_per_workspace: u32,
    /// Members of one workspace, 1 to 100000.
    members_per_workspace: u32,
    /// Stored log rows of one project, 1000 to 1000000000. Beyond them the oldest are deleted
    /// early.
    log_rows_per_project: u32,
    /// Stored event rows of one project, 1000 to 1000000000. Beyond them the oldest are deleted
    /// early.
    event_rows_per_project: u32,
}

impl Default for LimitsSection {
    fn default() -> Self {
        Self {
            // Twenty per second for a minute: more than a page, a script or an AI client sends.
            credential_requests_per_minute: 1_200,
            user_requests_per_minute: 2_400,
            // Fifty per second for a minute: an office behind one address opens pages, and each of
            // their files counts.
            source_requests_per_minute: 3_000,
            max_connections: None,
            max_connections_per_source: None,
            // A whole department.
            open_invitations: 200,
            projects_per_workspace: 1_000,
            members_per_workspace: 1_000,
            // A row takes some 1 KiB with its indexes, so a project uses 1 GiB at most.
            log_rows_per_project: 1_000_000,
            // Changes of agents and tunnels, which are less frequent than visits.
            event_rows_per_project: 200_000,
        }
    }
}

impl LimitsSection {
    pub(crate) fn check(&self) -> Result<LimitsConfig, ConfigError> {
        Ok(LimitsConfig {
            credential_requests_per_minute: rate(
                "credential_requests_per_minute",
                self.credential_requests_per_minute,
            )?,
            user_requests_per_minute: rate(
                "user_requests_per_minute",
                self.user_requests_per_minute,
            )?,
            source_requests_per_minute: rate(
                "source_requests_per_minute",
                self.source_requests_per_minute,
            )?,
            max_connections: connections("max_connections", self.max_connections)?,
            max_connections_per_source: connections(
                "max_connections_per_source",
                self.max_connections_per_source,
            )?,
            open_invitations: count("open_invitations", self.open_invitations)?,
            projects_per_workspace: count("projects_per_workspace", self.projects_per_workspace)?,
            members_per_workspace: count("members_per_workspace", self.members_per_workspace)?,
            log_rows_per_project: rows("log_rows_per_project", self.log_rows_per_project)?,
            event_rows_per_project: rows("event_rows_per_project", self.event_rows_per_project)?,
        })
    }
}

fn rate(name: &str, given: u32) -> Result<NonZeroU32, ConfigError> {
    let is_in_range = (MIN_RATE..=MAX_RATE).contains(&given);
    NonZeroU32::new(given)
        .filter(|_| is_in_range)
        .ok_or_else(|| {
            let message = format!("expected {MIN_RATE} to {MAX_RATE} requests");
            ConfigError::new(format!("limits.{name}"), message)
        })
}

fn count(name: &str, given: u32) -> Result<u32, ConfigError> {
    if (1..=MAX_COUNT).contains(&given) {
        return Ok(given);
    }
    let message = format!("expected 1 to {MAX_COUNT}");
    Err(ConfigError::new(format!("limits.{name}"), message))
}

fn connections(name: &str, given: Option<u32>) -> Result<Option<usize>, ConfigError> {
    let Some(given) = given else { return Ok(None) };
    let count = usize::try_from(given).unwrap_or(usize::MAX);
    if (1..=MAX_CONNECTIONS).contains(&count) {
        return Ok(Some(count));
    }
    let message = format!("expected 1 to {MAX_CONNECTIONS}");
    Err(ConfigError::new(format!("limits.{name}"), message))
}

fn rows(name: &str, given: u32) -> Result<u32, ConfigError> {
    if (MIN_ROWS..=MAX_ROWS).contains(&given) {
        return Ok(given);
    }
    let message = format!("expected {MIN_ROWS} to {MAX_ROWS} rows");
    Err(ConfigError::new(format!("limits.{name}"), message))
}

/// The platform's own pages need fewer.
const MIN_RATE: u32 = 10;
/// More than a process can handle.
const MAX_RATE: u32 = 1_000_000;
/// Existing rows are counted with each addition.
const MAX_COUNT: u32 = 100_000;
/// More than the number of descriptors that a process may have.
const MAX_CONNECTIONS: usize = 1_000_000;
/// The rows of one report of an engine.
const MIN_ROWS: u32 = 1_000;
/// The rows take a terabyte.
const MAX_ROWS: u32 = 1_000_000_000;
