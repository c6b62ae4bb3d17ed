use jiff::civil::date;
use serde_json::json;

use super::*;
use crate::billing::plans::CatalogSection;
use crate::billing::{PaymentStatus, Subscription};

const KEY: [u8; 32] = [7; 32];

fn catalogue(section: serde_json::Value) -> Catalogue {
    let section: CatalogSection = serde_json::from_value(section).unwrap();
    section.check(Some("engine.test")).unwrap()
}

fn two_regions() -> serde_json::Value {
    json!({"regions": [
        {"provider": "aws", "region": "eu", "capacity": {"basic": 1, "pro": 1}},
        {"provider": "aws", "region": "us"},
    ]})
}

fn subscribed() -> Account {
    Account {
        subscription: Some(Subscription {
            id: "sub_1".to_owned(),
            payment_status: PaymentStatus::Paid,
            since: date(2026, 4, 1),
        }),
        has_payment_method: true,
        revision: 1,
    }
}

fn shown(
    catalogue: &Catalogue,
    account: &Account,
    availability: &Availability,
) -> PlanConfiguration {
    let today = date(2026, 4, 16);
    let offers = Plan::ALL.map(|plan| offer(catalogue, plan, account, availability, today));
    configuration(&offers, |_| None, "wks_1", &FingerprintKey::new(&KEY))
}

/// CP-3: available and unavailable plans, each unavailable one with a reason. There is no
/// recommendation if the caller's location is unknown.
#[test]
fn cp_3_every_plan_is_shown_with_its_impact() {
    let config = shown(
        &catalogue(json!({})),
        &Account::default(),
        &Availability::default(),
    );
    let [basic, pro, enterprise] = &config.plans[..] else {
        panic!("{config:?}")
    };
    assert!(basic.available && pro.available && !enterprise.available);
    assert_eq!(basic.billing_impact.kind, BillingImpactKind::None);
    assert_eq!(basic.billing_action.kind, BillingActionKind::Create);
    assert_eq!(pro.billing_impact.kind, BillingImpactKind::NewCharge);
    assert_eq!(pro.billing_action.kind, BillingActionKind::Checkout);
    assert_eq!(
        enterprise.unavailable_reason_code,
        Some(UnavailableReason::ByArrangement)
    );
    assert!(enterprise.unavailable_reason.is_some());
    assert_eq!(config.recommended, None);
    assert!(!basic.providers[0].regions[0].recommended);
}

/// CP-4f: with server-confirmed creation off, plans that would update a subscription are
/// unavailable.
#[test]
fn cp_4f_without_server_confirmation_updates_are_unavailable() {
    let off = catalogue(json!({"server_confirmed_creation": false}));
    let config = shown(&off, &subscribed(), &Availability::default());
    assert!(config.plans[0].available, "free plans change nothing");
    assert_eq!(
        config.plans[1].unavailable_reason_code,
        Some(UnavailableReason::ServerConfirmationDisabled)
    );
    let fresh = shown(&off, &Account::default(), &Availability::default());
    assert!(fresh.plans[1].available, "a checkout is not confirmed here");
}

#[test]
fn full_regions_are_not_offered() {
    let catalogue = catalogue(two_regions());
    let mut availability = Availability {
        full: vec![
            (Provider::Aws, "eu".to_owned(), Plan::Basic),
            (Provider::Aws, "eu".to_owned(), Plan::Pro),
        ],
        ..Availability::default()
    };
    let config = shown(&catalogue, &Account::default(), &availability);
    let regions: Vec<_> = config.plans[0].providers[0].regions.iter().collect();
    assert_eq!((regions.len(), regions[0].region.as_str()), (1, "us"));
    availability.full.clear();
    let config = shown(&catalogue, &Account::default(), &availability);
    assert_eq!(config.plans[0].providers[0].regions.len(), 2);
}

#[test]
fn limits_and_missing_checkout_are_reasons() {
    let narrow = catalogue(json!({
        "hosted_checkout": false,
        "plans": [{"plan": "basic", "projects_per_workspace": 2}],
        "regions": [{"provider": "aws", "region": "eu", "plans": ["pro", "enterprise"]}],
    }));
    let availability = Availability {
        in_workspace: vec![(Plan::Basic, 2)],
        ..Availability::default()
    };
    let reason = |account: &Account, availability: &Availability, plan: usize| {
        shown(&narrow, account, availability).plans[plan].unavailable_reason_code
    };
    let none = Account::default();
    assert_eq!(
        reason(&none, &availability, 0),
        Some(UnavailableReason::ProjectLimit)
    );
    assert_eq!(
        reason(&none, &Availability::default(), 0),
        Some(UnavailableReason::NoCapacity)
    );
    assert_eq!(
        reason(&none, &availability, 1),
        Some(UnavailableReason::CheckoutDisabled)
    );
}

#[test]
fn the_nearest_region_is_marked_and_recommended_with_the_first_plan() {
    let catalogue = catalogue(two_regions());
    let offers = Plan::ALL.map(|plan| {
        offer(
            &catalogue,
            plan,
            &Account::default(),
            &Availability::default(),
            date(2026, 4, 16),
        )
    });
    let nearest = |regions: &[&Region]| {
        regions
            .last()
            .map(|region| (region.provider, region.region.clone()))
    };
    let key = FingerprintKey::new(&KEY);
    let config = configuration(&offers, nearest, "wks_1", &key);
    let recommended = config.recommended.unwrap();
    assert_eq!(
        (recommended.plan, recommended.region.as_str()),
        (Plan::Basic, "us")
    );
    let marks: Vec<_> = config.plans[0].providers[0]
        .regions
        .iter()
        .map(|region| region.recommended)
        .collect();
    assert_eq!(marks, [false, true]);
    // The location of the caller is not part of the confirmation.
    let elsewhere = configuration(&offers, |_| None, "wks_1", &key);
    assert_eq!(
        elsewhere.plans[0].creation_fingerprint,
        config.plans[0].creation_fingerprint
    );
}

/// CP-4b: every change of billing, modes or capacity changes the fingerprint.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn cp_4b_the_fingerprint_binds_the_offer_and_the_decision() {
    let key = FingerprintKey::new(&KEY);
    let today = date(2026, 4, 16);
    let base = catalogue(two_regions());
    let print = |catalogue: &Catalogue,
                 plan,
                 account: &Account,
                 availability: &Availability,
                 day,
                 workspace| {
        offer(catalogue, plan, account, availability, day)
            .fingerprint(workspace, &key)
            .to_string()
    };
    let availability = Availability::default();
    let first = print(
        &base,
        Plan::Pro,
        &subscribed(),
        &availability,
        today,
        "wks_1",
    );
    assert_eq!(
        first,
        print(
            &base,
            Plan::Pro,
            &subscribed(),
            &availability,
            today,
            "wks_1"
        ),
        "the same offer has the same fingerprint"
    );
    let price = catalogue(json!({"plans": [{"plan": "pro", "monthly_price": 5}]}));
    let mode = {
        let mut section = two_regions();
        section["server_confirmed_creation"] = json!(false);
        catalogue(section)
    };
    let full = Availability {
        full: vec![
            (Provider::Aws, "eu".to_owned(), Plan::Basic),
            (Provider::Aws, "eu".to_owned(), Plan::Pro),
        ],
        ..Availability::default()
    };
    let mut other_subscription = subscribed();
    other_subscription.subscription.as_mut().unwrap().id = "sub_2".to_owned();
    let mut past_due = subscribed();
    past_due.subscription.as_mut().unwrap().payment_status = PaymentStatus::PastDue;
    // The subscription has grown since, perhaps by confirming this very preview.
    let mut grown = subscribed();
    grown.revision += 1;
    let changed = [
        print(&base, Plan::Pro, &grown, &availability, today, "wks_1"),
        print(
            &price,
            Plan::Pro,
            &subscribed(),
            &availability,
            today,
            "wks_1",
        ),
        print(
            &mode,
            Plan::Pro,
            &subscribed(),
            &availability,
            today,
            "wks_1",
        ),
        print(&base, Plan::Pro, &subscribed(), &full, today, "wks_1"),
        print(
            &base,
            Plan::Pro,
            &other_subscription,
            &availability,
            today,
            "wks_1",
        ),
        print(&base, Plan::Pro, &past_due, &availability, today, "wks_1"),
        print(
            &base,
            Plan::Pro,
            &Account::default(),
            &availability,
            today,
            "wks_1",
        ),
        print(
            &base,
            Plan::Basic,
            &subscribed(),
            &availability,
            today,
            "wks_1",
        ),
        print(
            &base,
            Plan::Pro,
            &subscribed(),
            &availability,
            today,
            "wks_2",
        ),
        // The rest of the month costs less tomorrow.
        print(
            &base,
            Plan::Pro,
            &subscribed(),
            &availability,
            date(2026, 4, 17),
            "wks_1",
        ),
    ];
    for (index, other) in changed.iter().enumerate() {
        assert_ne!(*other, first, "{index}");
    }
    let offer = offer(&base, Plan::Pro, &subscribed(), &availability, today);
    assert!(offer.fingerprint("wks_1", &key).is(&first));
    assert!(
        !offer
            .fingerprint("wks_1", &FingerprintKey::new(&[8; 32]))
            .is(&first)
    );
    assert!(!offer.fingerprint("wks_1", &key).is(""));
}
