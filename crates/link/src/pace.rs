//! How long things take.

use std::time::Duration;

use api::link::ALIVE_SECONDS;
use types::backoff::Backoff;

/// The waits of a link. Tests shorten them.
#[derive(Clone, Debug)]
pub struct Pace {
    /// From the request to the first line of the answer.
    pub first_contact: Duration,
    /// A link that says nothing for so long is broken.
    pub silence: Duration,
    /// Between attempts.
    pub retry: Backoff,
    /// After the platform refused the secret: nothing changes until somebody changes it.
    pub refused: Duration,
    /// A link that stood for so long begins with short waits again when it is lost.
    pub proven: Duration,
    /// Between two writings of the state, at least.
    pub save: Duration,
    /// How long a record waits for others to share its batch.
    pub batch: Duration,
    /// From a batch to its receipt.
    pub receipt: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first_contact: Duration::from_secs(10),
            silence: Duration::from_secs(3 * ALIVE_SECONDS),
            retry: Backoff::default(),
            refused: Duration::from_secs(30),
            proven: Duration::from_secs(10),
            // What a restart without the platform may lack.
            save: Duration::from_secs(2),
            batch: Duration::from_secs(1),
            receipt: Duration::from_secs(30),
        }
    }
}

/// 64 even bits. A system without randomness could not have opened a TLS connection either; the
/// middle of the range is then as good as any.
pub(crate) fn random() -> u64 {
    let mut bytes = [0; 8];
    match aws_lc_rs::rand::fill(&mut bytes) {
        Ok(()) => u64::from_ne_bytes(bytes),
        Err(_unavailable) => u64::MAX / 2,
    }
}

/// Evenly between a half and one and a half: engines that were refused together come back apart.
pub(crate) fn spread() -> f64 {
    let whole = Duration::from_secs(1);
    let drawn = Backoff::new(whole, whole).next_wait(random());
    0.5 + drawn.as_secs_f64()
}
