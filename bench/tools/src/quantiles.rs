//! Quantiles of samples.

use std::time::Duration;

/// Durations in microseconds; four bytes are enough for an hour.
#[derive(Default)]
pub(crate) struct Samples(Vec<u32>);

impl Samples {
    pub(crate) fn add(&mut self, duration: Duration) {
        self.0
            .push(u32::try_from(duration.as_micros()).unwrap_or(u32::MAX));
    }

    pub(crate) fn merge(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The median and the 99th percentile, in milliseconds; zeros without samples.
    pub(crate) fn p50_p99(mut self) -> (f64, f64) {
        self.0.sort_unstable();
        let at = |per_cent: usize| {
            let last = self.0.len().saturating_sub(1);
            let index = (self.0.len() * per_cent / 100).min(last);
            self.0.get(index).map_or(0.0, |&us| f64::from(us) / 1000.0)
        };
        (at(50), at(99))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_of_the_sorted_samples() {
        let mut samples = Samples::default();
        for ms in (1..=100).rev() {
            samples.add(Duration::from_millis(ms));
        }
        assert_eq!(samples.p50_p99(), (51.0, 100.0));
        assert_eq!(Samples::default().p50_p99(), (0.0, 0.0));
    }
}
