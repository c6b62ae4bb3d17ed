//! The metrics of orders.

use daemon::metrics::{Kind, Metric, metric};

use crate::error::FAILURE_REASONS;

/// Counts orders.
pub const ORDERS_METRIC: Metric = metric(
    ORDERS,
    Kind::Counter,
    &[("outcome", &["ok", "error"])],
    "Orders of a certificate: it is in use, or the attempt failed and is repeated later.",
);
/// Expiry of the certificate from the authority.
pub const EXPIRY_METRIC: Metric = metric(
    EXPIRY,
    Kind::Gauge,
    &[("name", &["engine.example.com"])],
    "When the certificate that this process ordered expires, in seconds since 1970; 0 without one. \
     The label is its first name.",
);
/// The last failure of an order for the certificate of the process. Custom domains have none, so that
/// an alert is about what the operator can correct.
pub const FAILURE_METRIC: Metric = metric(
    FAILURE,
    Kind::Gauge,
    &[
        ("name", &["engine.example.com"]),
        ("reason", FAILURE_REASONS),
    ],
    "When the last attempt to order the certificate of this process failed, in seconds since 1970; 0 \
     after a success, and for all reasons but the last one.",
);

const ORDERS: &str = "svc_acme_orders_total";
const EXPIRY: &str = "svc_acme_certificate_expiry_timestamp_seconds";
const FAILURE: &str = "svc_acme_last_failure_timestamp_seconds";

/// Counts an order that has ended.
pub(super) fn count_order(is_success: bool) {
    let outcome = if is_success { "ok" } else { "error" };
    metrics::counter!(ORDERS, "outcome" => outcome).increment(1);
}

/// Sets the expiry of a certificate, in seconds since 1970; 0 without one.
pub(super) fn export_expiry(name: &str, not_after: i64) {
    metrics::gauge!(EXPIRY, "name" => name.to_owned()).set(seconds(not_after));
}

/// Sets the reason and the time of the last failure, in seconds since 1970; `None` after a success.
pub(super) fn export_failure(name: &str, last: Option<(&'static str, i64)>) {
    for known in FAILURE_REASONS {
        let time = last.filter(|(reason, _)| reason == known);
        let time = time.map_or(0, |(_, at)| at);
        let gauge = metrics::gauge!(FAILURE, "name" => name.to_owned(), "reason" => *known);
        gauge.set(seconds(time));
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "seconds stay exact in 53 bits for ever"
)]
fn seconds(at: i64) -> f64 {
    at as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The value of each reason, in the sequence of the reasons.
    fn values(name: &str) -> Vec<String> {
        let text = daemon::metrics::recorder().unwrap().render();
        let value = |reason: &&str| {
            let series = format!(r#"{FAILURE}{{name="{name}",reason="{reason}"}} "#);
            let value = text.lines().find_map(|line| line.strip_prefix(&series));
            value.unwrap_or("absent").to_owned()
        };
        FAILURE_REASONS.iter().map(value).collect()
    }

    #[test]
    fn only_the_last_failure_has_a_time_until_a_success() {
        let name = "metrics.example";
        daemon::metrics::recorder().unwrap();
        let none = vec!["0"; FAILURE_REASONS.len()];
        for last in [FAILURE_REASONS.first(), FAILURE_REASONS.last()] {
            let reason = last.copied().unwrap();
            export_failure(name, Some((reason, 1_800_000_000)));
            let times = FAILURE_REASONS
                .iter()
                .map(|known| if *known == reason { "1800000000" } else { "0" });
            assert_eq!(values(name), times.collect::<Vec<_>>());
            export_failure(name, None);
            assert_eq!(values(name), none);
        }
    }
}
