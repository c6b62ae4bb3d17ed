//! The state that all handlers share.

use std::sync::Arc;

use daemon::clock::Clock;
use jiff::Timestamp;
use store::Store;

use crate::caller::SignatureCache;
use crate::clock_skew::ClockSkew;
use crate::config::Config;
use crate::engines::Engines;
use crate::health::Health;
use crate::jobs::Jobs;
use crate::keys::Keys;
use crate::logs::SearchLimit;
use crate::oauth::Oauth;
use crate::people::People;
use crate::plans::PlanService;
use crate::rate_limit::RateLimiter;
use crate::webhooks::Webhooks;

/// What every handler has. One for a process.
#[derive(Debug)]
pub struct App {
    /// The database.
    pub store: Store,
    /// Checked configuration.
    pub config: Config,
    /// The time of day.
    pub clock: Arc<dyn Clock>,
    /// Keys that sign, verify and seal.
    pub keys: Keys,
    /// What handlers about people share.
    pub people: People,
    /// What can be created, where, and for how much.
    pub shop: PlanService,
    /// What handlers of OAuth count.
    pub oauth: Oauth,
    /// Requests that callers may send.
    pub rate_limiter: RateLimiter,
    /// Searches of logs that are under way.
    pub searches: SearchLimit,
    /// How far the clock is from the database's.
    pub clock_skew: ClockSkew,
    /// Whether requests can be served.
    pub health: Health,
    /// What is done without being asked.
    pub jobs: Jobs,
    /// Engines that are linked, or may link up.
    pub engines: Engines,
    /// What sends webhooks.
    pub webhooks: Webhooks,
    /// Signatures that were verified a moment ago.
    pub verdicts: SignatureCache,
}

impl App {
    /// The present moment.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The present moment by the clock that all processes on this database share.
    pub fn database_now(&self) -> Timestamp {
        let now = self.now();
        now.saturating_sub(self.clock_skew.ahead()).unwrap_or(now)
    }
}
