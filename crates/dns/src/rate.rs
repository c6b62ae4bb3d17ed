//! The rate of responses for each source, as a token bucket.
//!
//! A source address of UDP may be a victim's, to which an attacker wants responses to be sent. The
//! buckets are of networks, because an attack has many victims in one of them.

use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::time::Duration;

/// The permission to respond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// With records.
    Full,
    /// Without records, so that a client at this address uses TCP.
    Truncated,
    /// Nothing is sent.
    Refused,
}

/// Buckets in a table of fixed size. Networks share a bucket if they have the same index, which
/// depends on a random key: a client cannot choose the network that it shares one with.
pub(crate) struct SourceRates {
    buckets: Box<[Bucket]>,
    hasher: RandomState,
}

#[derive(Clone, Copy)]
struct Bucket {
    /// Responses that may be sent now.
    tokens: u32,
    /// Time of the last refill.
    refilled: Duration,
    /// The last response beyond the rate was refused.
    has_refused_last: bool,
}

impl SourceRates {
    pub(crate) fn new() -> Self {
        let full = Bucket {
            tokens: BURST,
            refilled: Duration::ZERO,
            has_refused_last: false,
        };
        Self {
            buckets: vec![full; BUCKETS].into_boxed_slice(),
            hasher: RandomState::new(),
        }
    }

    /// Takes a token. `now` is the time since any fixed moment.
    pub(crate) fn admit(&mut self, source: IpAddr, now: Duration) -> Admission {
        let hash = self.hasher.hash_one(network(source));
        let index = usize::try_from(hash % BUCKETS_IN_HASH).unwrap_or_default();
        let Some(bucket) = self.buckets.get_mut(index) else {
            return Admission::Refused;
        };
        bucket.take(now)
    }
}

impl Bucket {
    fn take(&mut self, now: Duration) -> Admission {
        let passed = now.saturating_sub(self.refilled);
        let refill = u32::try_from(passed.as_nanos() / INTERVAL.as_nanos()).unwrap_or(u32::MAX);
        if refill > 0 {
            self.tokens = self.tokens.saturating_add(refill).min(BURST);
            // The part of an interval that has passed counts for the next token.
            self.refilled = self
                .refilled
                .saturating_add(INTERVAL.saturating_mul(refill))
                .min(now);
        }
        if self.tokens > 0 {
            self.tokens -= 1;
            return Admission::Full;
        }
        self.has_refused_last = !self.has_refused_last;
        if self.has_refused_last {
            Admission::Refused
        } else {
            Admission::Truncated
        }
    }
}

/// The network of a source: /24 and /56, of which a customer has at least one.
pub(crate) fn network(source: IpAddr) -> u128 {
    match source.to_canonical() {
        IpAddr::V4(address) => u128::from(address.to_bits() >> 8),
        // Above all networks of IPv4.
        IpAddr::V6(address) => (address.to_bits() >> 72) | (1 << 64),
    }
}

/// 16,384 buckets need 512 KiB. A resolver or an authority uses a handful of networks.
const BUCKETS: usize = 1 << 14;
const BUCKETS_IN_HASH: u64 = 1 << 14;

/// Time between two tokens: 20 responses in a second. An authority asks some times for each name.
const INTERVAL: Duration = Duration::from_millis(50);

/// Responses at once. An authority validates all names of an order from several networks.
const BURST: u32 = 100;

#[cfg(test)]
mod tests {
    use super::*;

    fn count(rates: &mut SourceRates, source: &str, now: Duration, wanted: Admission) -> usize {
        let source = source.parse().unwrap();
        let admissions = (0..400).map(|_| rates.admit(source, now));
        admissions.filter(|admission| *admission == wanted).count()
    }

    #[test]
    fn a_network_has_a_burst_and_then_a_rate() {
        let mut rates = SourceRates::new();
        let start = Duration::from_secs(5);
        let burst = usize::try_from(BURST).unwrap();
        let full = count(&mut rates, "192.0.2.1", start, Admission::Full);
        assert_eq!(full, burst);
        // Another address of the network, a second later.
        let later = start + Duration::from_secs(1);
        let full = count(&mut rates, "192.0.2.200", later, Admission::Full);
        assert_eq!(full, 20);
        let full = count(&mut rates, "::ffff:192.0.2.7", later, Admission::Full);
        assert_eq!(full, 0);
    }

    #[test]
    fn every_second_response_beyond_the_rate_is_truncated() {
        let mut rates = SourceRates::new();
        let start = Duration::ZERO;
        let truncated = count(&mut rates, "2001:db8::1", start, Admission::Truncated);
        assert_eq!(truncated, (400 - usize::try_from(BURST).unwrap()) / 2);
        let refused = count(&mut rates, "2001:db8::1", start, Admission::Refused);
        assert_eq!(refused, 200);
    }

    #[test]
    fn networks_are_distinguished() {
        let of = |text: &str| network(text.parse().unwrap());
        assert_eq!(of("192.0.2.1"), of("192.0.2.255"));
        assert_ne!(of("192.0.2.1"), of("192.0.3.1"));
        assert_eq!(of("2001:db8:0:1::1"), of("2001:db8:0:ff::2"));
        assert_ne!(of("2001:db8:0:100::1"), of("2001:db8:0:200::1"));
        assert_ne!(of("::1"), of("0.0.0.0"));
    }
}
