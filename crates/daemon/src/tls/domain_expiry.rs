//! The metric of the expiry of custom domains, with a bounded number of series.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use parking_lot::Mutex;

/// Expiry of the certificate of each custom domain (`domain`), from files, from an authority or
/// uploaded by its project, in seconds since 1970.
pub const DOMAIN_EXPIRY_METRIC: &str = "svc_domain_certificate_expiry_timestamp_seconds";

/// Sets the expiry of the certificate of a custom domain, in seconds since 1970: 0 without a
/// certificate, `None` for a domain that was removed.
///
/// The library cannot remove a series, and users add and remove domains while an engine runs. So the
/// first [`MOST_SERIES`] names have a series each, which is not a number after a removal, so that no
/// alert is about it. All further ones share [`OTHER`], with the earliest of their expiries.
pub fn export_domain_expiry(domain: &str, expires_at: Option<i64>) {
    static SERIES: LazyLock<Mutex<Series>> = LazyLock::new(Mutex::default);
    let mut series = SERIES.lock();
    let (label, seconds) = series.set(domain, expires_at, MOST_SERIES);
    // Under the lock, so that the last change of a shared series counts.
    metrics::gauge!(DOMAIN_EXPIRY_METRIC, "domain" => label).set(seconds);
}

/// The names that have a series.
#[derive(Debug, Default)]
struct Series {
    named: HashSet<String>,
    /// Expiry of each domain that has none. A removed domain has no entry.
    others: HashMap<String, i64>,
}

impl Series {
    /// Label and value of the series that changes. At most `most` names get one of their own.
    fn set(&mut self, domain: &str, expires_at: Option<i64>, most: usize) -> (String, f64) {
        let has_place = expires_at.is_some() && self.named.len() < most;
        if self.named.contains(domain) || (has_place && !self.others.contains_key(domain)) {
            self.named.insert(domain.to_owned());
            return (domain.to_owned(), seconds(expires_at));
        }
        match expires_at {
            Some(at) => self.others.insert(domain.to_owned(), at),
            None => self.others.remove(domain),
        };
        let earliest = self.others.values().copied().min();
        (OTHER.to_owned(), seconds(earliest))
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "seconds stay exact in 53 bits for ever"
)]
fn seconds(at: Option<i64>) -> f64 {
    at.map_or(f64::NAN, |at| at as f64)
}

/// As many as the domains that an engine can have at a time.
const MOST_SERIES: usize = 10_000;

/// The label of the names without a series of their own. No domain has one label only.
const OTHER: &str = "other";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_series_is_bounded() {
        let mut series = Series::default();
        let mut set = |domain: &str, at| {
            let (label, seconds) = series.set(domain, at, 2);
            (label, seconds.is_finite().then_some(seconds))
        };
        let with = |label: &str, seconds: f64| (label.to_owned(), Some(seconds));
        assert_eq!(set("a.example.com", Some(10)), with("a.example.com", 10.0));
        assert_eq!(set("b.example.com", Some(0)), with("b.example.com", 0.0));
        assert_eq!(set("c.example.com", Some(30)), with("other", 30.0));
        assert_eq!(set("d.example.com", Some(20)), with("other", 20.0));
        assert_eq!(
            set("a.example.com", None),
            ("a.example.com".to_owned(), None)
        );
        // A name that returns has its series.
        assert_eq!(set("a.example.com", Some(40)), with("a.example.com", 40.0));
        assert_eq!(set("d.example.com", None), with("other", 30.0));
        assert_eq!(set("c.example.com", None), ("other".to_owned(), None));
    }
}
