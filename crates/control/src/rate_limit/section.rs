//! `limits` of the configuration.

use std::num::NonZeroU32;

use daemon::config::ConfigError;
use schemars::JsonSchema;
use serde::Deserialize;

/// What callers may cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitsConfig {
    /// Requests of one credential or session in a minute.
    pub credential_requests_per_minute: NonZeroU32,
    /// Requests of one person in a minute, with whatever credentials.
    pub user_requests_per_minute: NonZeroU32,
    /// Invitations of one workspace that wait for an answer.
    pub open_invitations: u32,
    /// Projects of one workspace.
    pub projects_per_workspace: u32,
}

/// What callers may cause. Rates are those of one process.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsSection {
    /// Requests that one credential or session may send in a minute, at once or spread, 10 to
    /// 1000000; those beyond are answered with 429.
    credential_requests_per_minute: u32,
    /// Requests that one person may send in a minute with all credentials and sessions, 10 to
    /// 1000000.
    user_requests_per_minute: u32,
    /// Invitations of one workspace that wait for an answer, 1 to 100000.
    open_invitations: u32,
    /// Projects of one workspace, 1 to 100000.
    projects_per_workspace: u32,
}

impl Default for LimitsSection {
    fn default() -> Self {
        Self {
            // Twenty in a second for a minute: more than a page, a script or an AI client sends.
            credential_requests_per_minute: 1_200,
            user_requests_per_minute: 2_400,
            // A department at once.
            open_invitations: 200,
            projects_per_workspace: 1_000,
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
            open_invitations: count("open_invitations", self.open_invitations)?,
            projects_per_workspace: count("projects_per_workspace", self.projects_per_workspace)?,
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

/// A page of ours asks for less.
const MIN_RATE: u32 = 10;
/// More than a process answers.
const MAX_RATE: u32 = 1_000_000;
/// Counted with each addition.
const MAX_COUNT: u32 = 100_000;
