//! The billing account of a workspace, with the data that a decision needs.

use jiff::civil::Date;
use jiff::{Span, Timestamp, tz::TimeZone};

/// The account of a workspace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The subscription that its projects are charged to; at most one.
    pub subscription: Option<Subscription>,
    /// True if there is a payment method to charge.
    pub has_payment_method: bool,
    /// Increases with every change of the projects that the workspace pays for. A preview is bound
    /// to it, so that each one confirms at most one change (CP-4b, CP-4g).
    pub revision: u64,
}

/// A subscription.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subscription {
    /// Its id in the ledger.
    pub id: String,
    /// Payment status.
    pub payment_status: PaymentStatus,
    /// Its first day. Each month of the subscription starts on that day of the month.
    pub since: Date,
}

impl Account {
    /// The amount that a transferred project costs immediately: the days of the running period
    /// after `paid`, the day until which the other account has paid. Renewals exclude paid days
    /// beyond the running period. So each day is charged once, whichever period starts first.
    pub fn amount_after(&self, paid: Date, monthly: i64, today: Date) -> i64 {
        let subscription = self.subscription.as_ref();
        subscription.map_or(0, |one| {
            one.period(today).prorated_amount(monthly, paid.max(today))
        })
    }
}

/// Payment status of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PaymentStatus {
    /// All payments are made.
    Paid,
    /// A payment is overdue.
    PastDue,
}

/// One month of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// First day.
    pub start: Date,
    /// First day of the next period.
    pub end: Date,
}

impl Subscription {
    /// The period that contains the day. In a month without the day of the first one, the period
    /// starts on the month's last day.
    pub fn period(&self, today: Date) -> Period {
        let begin = |months: i32| self.since.saturating_add(Span::new().months(months));
        let years = i32::from(today.year()) - i32::from(self.since.year());
        let months = i32::from(today.month()) - i32::from(self.since.month());
        let mut months = (years * 12 + months).max(0);
        if months > 0 && begin(months) > today {
            months -= 1;
        }
        Period {
            start: begin(months),
            end: begin(months + 1),
        }
    }
}

impl Period {
    /// Cost of the rest of the period at a monthly price, including `today`. It is computed in
    /// whole days and rounded down, so that an offer is valid for the whole day on which it was
    /// made.
    pub fn prorated_amount(&self, monthly: i64, today: Date) -> i64 {
        let days = |from: Date| from.duration_until(self.end).as_hours() / 24;
        let all = days(self.start).max(1);
        monthly.saturating_mul(days(today).clamp(0, all)) / all
    }
}

/// The day of a time in UTC, which applies to every account.
pub(crate) fn day_of(now: Timestamp) -> Date {
    now.to_zoned(TimeZone::UTC).date()
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;
    use proptest::prelude::*;

    use super::*;

    fn since(year: i16, month: i8, day: i8) -> Subscription {
        Subscription {
            id: "sub".to_owned(),
            payment_status: PaymentStatus::Paid,
            since: date(year, month, day),
        }
    }

    #[test]
    fn periods_are_months_from_the_first_day() {
        let subscription = since(2026, 1, 31);
        for (today, start, end) in [
            (date(2026, 1, 31), date(2026, 1, 31), date(2026, 2, 28)),
            (date(2026, 2, 27), date(2026, 1, 31), date(2026, 2, 28)),
            (date(2026, 2, 28), date(2026, 2, 28), date(2026, 3, 31)),
            (date(2026, 12, 31), date(2026, 12, 31), date(2027, 1, 31)),
            (date(2028, 2, 29), date(2028, 2, 29), date(2028, 3, 31)),
            // If the clock was set back, the first period is used.
            (date(2025, 6, 1), date(2026, 1, 31), date(2026, 2, 28)),
        ] {
            assert_eq!(subscription.period(today), Period { start, end }, "{today}");
        }
    }

    #[test]
    fn the_rest_of_a_period_is_charged_by_days() {
        let subscription = since(2026, 4, 1);
        let rest = |day| {
            let today = date(2026, 4, day);
            subscription.period(today).prorated_amount(3000, today)
        };
        assert_eq!((rest(1), rest(16), rest(30)), (3000, 1500, 100));
    }

    #[test]
    fn a_transferred_project_is_charged_after_its_paid_days() {
        let account = |day| Account {
            subscription: Some(since(2026, 4, day)),
            has_payment_method: true,
            revision: 1,
        };
        let (first, middle) = (account(1), account(16));
        // Half of the period from the 16th to the 16th is not paid for.
        assert_eq!(
            middle.amount_after(date(2026, 5, 1), 3000, date(2026, 4, 30)),
            1500
        );
        // The transfer back: the period ends on the 1st of June.
        assert_eq!(
            first.amount_after(date(2026, 5, 16), 3100, date(2026, 5, 15)),
            1600
        );
        // No days are left in a period that ends before.
        assert_eq!(
            first.amount_after(date(2026, 5, 16), 3000, date(2026, 4, 20)),
            0
        );
        // Past days are not charged again.
        let past = date(2026, 4, 2);
        assert_eq!(first.amount_after(past, 3000, date(2026, 4, 16)), 1500);
    }

    proptest! {
        #[test]
        fn every_day_is_in_its_period_and_costs_no_more_than_a_month(
            first in 0..4000i32, later in 0..4000i32, monthly in 0..1_000_000_000i64,
        ) {
            let since = date(2020, 1, 1).saturating_add(Span::new().days(first));
            let today = since.saturating_add(Span::new().days(later));
            let subscription = Subscription { id: String::new(), payment_status: PaymentStatus::Paid, since };
            let period = subscription.period(today);
            prop_assert!(period.start <= today && today < period.end);
            let rest = period.prorated_amount(monthly, today);
            prop_assert!((0..=monthly).contains(&rest));
        }
    }
}
