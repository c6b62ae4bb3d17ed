//! Decision about a creation: nothing to pay, an update of the subscription, a payment, or a
//! set-up.

use api::control::plans::BillingActionKind;
use jiff::civil::Date;

use super::account::{Account, PaymentStatus};
use crate::billing::plans::PlanTerms;

/// Effect of a creation on the account. Amounts are in the smallest unit of the currency.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Nothing is charged.
    Free,
    /// One project is added to the subscription (CP-4e).
    Update {
        /// The subscription.
        subscription: String,
        /// Due now, for the rest of its period.
        now: i64,
        /// Due in every later month.
        monthly: i64,
    },
    /// The first payment of the workspace, on a hosted page (CP-4d).
    Checkout {
        /// Due now and in every later month.
        monthly: i64,
    },
    /// The subscription cannot be charged: billing has to be set up on a hosted page (CP-4d). There
    /// is never a second checkout (CP-4e).
    Setup {
        /// Due after the set-up, for the rest of the period.
        now: i64,
        /// Due in every later month.
        monthly: i64,
    },
}

/// Decides. The caller has no influence on it (CP-4c).
pub fn decide(terms: &PlanTerms, account: &Account, today: Date) -> Decision {
    let monthly = terms.monthly;
    if monthly == 0 {
        return Decision::Free;
    }
    let Some(subscription) = &account.subscription else {
        return Decision::Checkout { monthly };
    };
    let now = subscription.period(today).prorated_amount(monthly, today);
    if account.has_payment_method && subscription.payment_status == PaymentStatus::Paid {
        Decision::Update {
            subscription: subscription.id.clone(),
            now,
            monthly,
        }
    } else {
        Decision::Setup { now, monthly }
    }
}

impl Decision {
    /// The action in the response to callers.
    pub const fn action(&self) -> BillingActionKind {
        match self {
            Self::Free => BillingActionKind::Create,
            Self::Update { .. } => BillingActionKind::UpdateSubscription,
            Self::Checkout { .. } => BillingActionKind::Checkout,
            Self::Setup { .. } => BillingActionKind::BillingSetup,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::civil::date;

    use super::*;
    use crate::billing::Subscription;
    use crate::billing::plans::CatalogSection;
    use api::control::plans::Plan;

    fn account(standing: PaymentStatus, has_payment_method: bool) -> Account {
        Account {
            subscription: Some(Subscription {
                id: "sub_1".to_owned(),
                payment_status: standing,
                since: date(2026, 4, 1),
            }),
            has_payment_method,
            revision: 1,
        }
    }

    /// CP-4d, CP-4e: a workspace with a subscription is never sent to a checkout.
    #[test]
    fn cp_4e_a_subscription_is_updated_or_set_up_and_never_checked_out_again() {
        let catalogue = CatalogSection::default()
            .check(Some("engine.test"))
            .unwrap();
        let (basic, pro) = (catalogue.terms(Plan::Basic), catalogue.terms(Plan::Pro));
        let today = date(2026, 4, 16);
        let none = Account::default();
        assert_eq!(decide(basic, &none, today), Decision::Free);
        assert_eq!(
            decide(pro, &none, today),
            Decision::Checkout {
                monthly: pro.monthly
            }
        );
        let good = account(PaymentStatus::Paid, true);
        assert_eq!(decide(basic, &good, today), Decision::Free);
        assert_eq!(
            decide(pro, &good, today),
            Decision::Update {
                subscription: "sub_1".to_owned(),
                now: pro.monthly / 2,
                monthly: pro.monthly
            }
        );
        for broken in [
            account(PaymentStatus::PastDue, true),
            account(PaymentStatus::Paid, false),
        ] {
            assert_eq!(
                decide(pro, &broken, today).action(),
                BillingActionKind::BillingSetup
            );
        }
        // A payment method alone is not a subscription.
        let card = Account {
            subscription: None,
            has_payment_method: true,
            revision: 0,
        };
        assert_eq!(
            decide(pro, &card, today).action(),
            BillingActionKind::Checkout
        );
    }
}
