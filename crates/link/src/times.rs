//! Time limits and intervals of a link.

use std::time::Duration;

use api::link::ALIVE_SECONDS;
use types::backoff::Backoff;

/// Time limits and intervals. Tests shorten them.
#[derive(Clone, Debug)]
pub struct LinkTimes {
    /// From the request to the first line of the response.
    pub first_contact: Duration,
    /// A link without a message for this time counts as broken.
    pub idle_timeout: Duration,
    /// Delay between attempts.
    pub retry: Backoff,
    /// Retry delay after the platform refused the secret, which an operator has to correct.
    pub refused: Duration,
    /// A connection that lasted this long resets the retry delay.
    pub stable_after: Duration,
    /// Minimum time between two saves of the state.
    pub save: Duration,
    /// Maximum time that a record waits before its batch is written.
    pub batch: Duration,
    /// Time limit from a batch to its receipt.
    pub receipt: Duration,
}

impl Default for LinkTimes {
    fn default() -> Self {
        Self {
            first_contact: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(3 * ALIVE_SECONDS),
            retry: Backoff::default(),
            refused: Duration::from_secs(30),
            stable_after: Duration::from_secs(10),
            // A restart without the platform may lack the changes since the last save.
            save: Duration::from_secs(2),
            batch: Duration::from_secs(1),
            receipt: Duration::from_secs(30),
        }
    }
}

/// 64 random bits. A system without randomness could not have opened a TLS connection either, so
/// the fallback is the middle of the range.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    match aws_lc_rs::rand::fill(&mut bytes) {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_unavailable) => u64::MAX / 2,
    }
}

/// A random factor between 0.5 and 1.5, so that engines that were refused at the same time
/// reconnect at different times.
pub(crate) fn spread() -> f64 {
    let whole = Duration::from_secs(1);
    let drawn = Backoff::new(whole, whole).next_wait(random());
    0.5 + drawn.as_secs_f64()
}
