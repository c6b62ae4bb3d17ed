//! Request rates and durations, with the current time as an argument.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

/// Counts per second over the last five minutes.
#[derive(Debug)]
pub(crate) struct Rates {
    since: Instant,
    /// Count of each second. The newest is last.
    seconds: VecDeque<u32>,
    /// Index of the newest second, counted from `since`.
    at: u64,
}

impl Rates {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            since: now,
            seconds: VecDeque::from([0]),
            at: 0,
        }
    }

    /// Counts one request.
    pub(crate) fn count(&mut self, now: Instant) {
        self.advance(now);
        if let Some(newest) = self.seconds.back_mut() {
            *newest = newest.saturating_add(1);
        }
    }

    /// Average per second over the last `window`, or since the start if that is shorter.
    pub(crate) fn mean(&self, window: Duration, now: Instant) -> f64 {
        let gone = self.second(now) - self.at.min(self.second(now));
        let window = window.as_secs().min(SECONDS);
        // Entries inside the window: without the seconds that passed since the newest entry.
        let take = usize::try_from(window.saturating_sub(gone)).unwrap_or(usize::MAX);
        let count: u64 = self
            .seconds
            .iter()
            .rev()
            .take(take)
            .copied()
            .map(u64::from)
            .sum();
        let lived = now.saturating_duration_since(self.since).as_secs_f64();
        #[expect(
            clippy::cast_precision_loss,
            reason = "rates are shown with two digits"
        )]
        let (count, window) = (count as f64, window as f64);
        count / lived.clamp(1.0, window)
    }

    fn advance(&mut self, now: Instant) {
        let second = self.second(now);
        let missing = second.saturating_sub(self.at).min(SECONDS);
        for _ in 0..missing {
            if self.seconds.len() as u64 == SECONDS {
                self.seconds.pop_front();
            }
            self.seconds.push_back(0);
        }
        self.at = self.at.max(second);
    }

    fn second(&self, now: Instant) -> u64 {
        now.saturating_duration_since(self.since).as_secs()
    }
}

/// Durations of the last thousand requests.
#[derive(Debug, Default)]
pub(crate) struct Times {
    last: VecDeque<Duration>,
}

impl Times {
    pub(crate) fn add(&mut self, took: Duration) {
        if self.last.len() == SAMPLES {
            self.last.pop_front();
        }
        self.last.push_back(took);
    }

    /// The given percentile of the durations. `None` without any.
    pub(crate) fn percentile(&self, percent: usize) -> Option<Duration> {
        let mut sorted: Vec<_> = self.last.iter().copied().collect();
        sorted.sort_unstable();
        // Nearest-rank method.
        let rank = (sorted.len() * percent).div_ceil(100);
        sorted.get(rank.saturating_sub(1)).copied()
    }
}

/// Number of stored seconds: five minutes.
const SECONDS: u64 = 300;

/// Enough for a stable 90th percentile, and cheap to sort.
const SAMPLES: usize = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    fn close(mean: f64, expected: f64) {
        assert!((mean - expected).abs() < 1e-9, "{mean} is not {expected}");
    }

    #[test]
    fn means_cover_the_window_or_the_time_since_start() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let (minute, five) = (Duration::from_mins(1), Duration::from_mins(5));
        let mut rates = Rates::new(start);
        close(rates.mean(minute, start), 0.0);
        rates.count(start);
        close(rates.mean(minute, start), 1.0);
        for second in 0..10 {
            rates.count(at(second));
        }
        close(rates.mean(minute, at(10)), 1.1);
        close(rates.mean(minute, at(55)), 11.0 / 55.0);
        // The first ten seconds leave the one-minute window, but not the five-minute window.
        close(rates.mean(minute, at(69)), 0.0);
        close(rates.mean(five, at(100)), 0.11);
        rates.count(at(100));
        close(rates.mean(minute, at(100)), 1.0 / 60.0);
        close(rates.mean(five, at(299)), 12.0 / 299.0);
        close(rates.mean(five, at(1000)), 0.0);
        rates.count(at(5000));
        close(rates.mean(five, at(5000)), 1.0 / 300.0);
    }

    #[test]
    fn percentiles_are_those_of_the_last_thousand() {
        let mut times = Times::default();
        assert_eq!(times.percentile(50), None);
        times.add(Duration::from_millis(7));
        assert_eq!(times.percentile(90), Some(Duration::from_millis(7)));
        for millis in 1..=2000 {
            times.add(Duration::from_millis(millis));
        }
        assert_eq!(times.percentile(50), Some(Duration::from_millis(1500)));
        assert_eq!(times.percentile(90), Some(Duration::from_millis(1900)));
    }
}
