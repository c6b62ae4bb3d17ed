//! The state that all handlers share.

use std::sync::Arc;

use daemon::clock::Clock;
use jiff::Timestamp;
use store::Store;

use crate::billing::plans::PlanService;
use crate::caller::SignatureCache;
use crate::config::Config;
use crate::domains::Domains;
use crate::engines::Engines;
use crate::forwarder::Forwarder;
use crate::http_api::rate_limit::RateLimiter;
use crate::keys::Keys;
use crate::logs::SearchLimit;
use crate::oauth::Oauth;
use crate::people::People;
use crate::runtime::clock_skew::ClockSkew;
use crate::runtime::health::Health;
use crate::runtime::jobs::Jobs;
use crate::webhooks::Webhooks;

/// Shared state of all handlers. A process has one.
#[derive(Debug)]
pub struct App {
    /// The database.
    pub store: Store,
    /// Validated configuration.
    pub config: Config,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Keys for signing, verification and encryption.
    pub keys: Keys,
    /// Shared state of handlers about users.
    pub people: People,
    /// Plans, regions and prices.
    pub plan_service: PlanService,
    /// Throttles of the OAuth handlers.
    pub oauth: Oauth,
    /// Rate limits of callers.
    pub rate_limiter: RateLimiter,
    /// Limit of concurrent log searches.
    pub searches: SearchLimit,
    /// Difference between this process's clock and the database's.
    pub clock_skew: ClockSkew,
    /// Readiness of the process.
    pub health: Health,
    /// Periodic background jobs.
    pub jobs: Jobs,
    /// Engines that are connected or can connect.
    pub engines: Engines,
    /// Requests of pages to engines.
    pub forwarder: Forwarder,
    /// Access to the name servers of custom domains.
    pub domains: Domains,
    /// Sender of webhooks.
    pub webhooks: Webhooks,
    /// Cache of verified signatures.
    pub signature_cache: SignatureCache,
}

impl App {
    /// The current time.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// The current time of the database's clock, which all processes on this database use.
    pub fn database_now(&self) -> Timestamp {
        let now = self.now();
        now.saturating_sub(self.clock_skew.ahead()).unwrap_or(now)
    }
}
