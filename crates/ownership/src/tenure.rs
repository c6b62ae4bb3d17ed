//! The time for which an engine may rely on its holds.

use std::time::Duration;

/// Until when an engine may serve its own names without contact with the store.
///
/// Times are those of one monotonic clock of the machine, which also runs while the machine is
/// suspended. A contact counts from the moment at which its request was sent, which is before the
/// store can have answered it. Two contacts are needed:
///
/// - the **renewal** of the engine's lease, without which its holds end;
/// - the **observation** of an own write in the stream of changes, without which the engine would
///   not notice that the owner has moved to another engine, and left that one again.
///
/// The store keeps a hold for at least the hold time after the last contact. The engine stops
/// serving a **margin** earlier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tenure {
    hold: Duration,
    renewed: Option<Duration>,
    observed: Option<Duration>,
}

impl Tenure {
    /// Takes the hold time: the time to live of the engine's lease.
    pub fn new(hold: Duration) -> Self {
        Self {
            hold,
            renewed: None,
            observed: None,
        }
    }

    /// The lease was renewed by a request that was sent at this time.
    pub fn renew(&mut self, sent: Duration) {
        self.renewed = self.renewed.max(Some(sent));
    }

    /// A write that was sent at this time arrived in the stream of changes.
    pub fn observe(&mut self, sent: Duration) {
        self.observed = self.observed.max(Some(sent));
    }

    /// The lease has ended: nothing may be served until the names are claimed again.
    pub fn end(&mut self) {
        self.renewed = None;
        self.observed = None;
    }

    /// The time at which the engine stops serving; `None` if it may not serve now.
    pub fn ends_at(&self) -> Option<Duration> {
        let contact = self.renewed?.min(self.observed?);
        Some(contact.saturating_add(self.hold.saturating_sub(self.margin())))
    }

    /// True if the engine may serve its names.
    pub fn may_serve(&self, now: Duration) -> bool {
        self.ends_at().is_some_and(|end| now < end)
    }

    /// True if the engine may write a hold, and remove those of other engines: the hold must last
    /// longer than the tenure of the engine that it removes.
    pub fn may_claim(&self, now: Duration) -> bool {
        let is_fresh = |renewed: Duration| now < renewed.saturating_add(self.margin() / 2);
        self.may_serve(now) && self.renewed.is_some_and(is_fresh)
    }

    /// Time since the last renewal of the lease.
    pub fn lease_age(&self, now: Duration) -> Option<Duration> {
        Some(now.saturating_sub(self.renewed?))
    }

    /// Interval of renewals: several fit into the time after which [`Tenure::may_claim`] is false.
    pub fn renewal_interval(&self) -> Duration {
        self.hold / 60
    }

    /// A twentieth of the hold time: half a minute of ten minutes. It covers the difference between
    /// the clocks' rates, a leader of the store that was replaced and still answers for an election
    /// time-out, and a claim that takes effect late.
    fn margin(&self) -> Duration {
        self.hold / 20
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn an_engine_serves_until_the_hold_ends_less_the_margin() {
        let mut tenure = Tenure::new(600 * SECOND);
        assert_eq!(tenure.ends_at(), None);
        tenure.renew(100 * SECOND);
        assert!(!tenure.may_serve(100 * SECOND), "nothing was observed");
        tenure.observe(90 * SECOND);
        assert_eq!(tenure.ends_at(), Some(660 * SECOND));
        assert!(tenure.may_serve(659 * SECOND));
        assert!(!tenure.may_serve(660 * SECOND));
        tenure.renew(200 * SECOND);
        assert_eq!(tenure.ends_at(), Some(660 * SECOND), "the older contact");
        tenure.observe(200 * SECOND);
        assert_eq!(tenure.ends_at(), Some(770 * SECOND));
        tenure.observe(150 * SECOND);
        assert_eq!(tenure.ends_at(), Some(770 * SECOND), "a late answer");
        tenure.end();
        assert!(!tenure.may_serve(200 * SECOND));
    }

    #[test]
    fn a_claim_needs_a_recent_renewal() {
        let mut tenure = Tenure::new(600 * SECOND);
        tenure.renew(100 * SECOND);
        tenure.observe(100 * SECOND);
        assert!(tenure.may_claim(114 * SECOND));
        assert!(!tenure.may_claim(115 * SECOND));
        assert!(tenure.may_serve(115 * SECOND));
        assert!(tenure.renewal_interval() < 15 * SECOND);
        assert_eq!(tenure.lease_age(130 * SECOND), Some(30 * SECOND));
    }
}
