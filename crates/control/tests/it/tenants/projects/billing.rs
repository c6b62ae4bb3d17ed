//! The cost of a creation, its confirmation, and the entries of the ledger.

use std::sync::Arc;

use serde_json::{Value, json};
use store::{Paging, billing};
use tokio::task::JoinSet;

use super::{names, order, path, place, preview};
use crate::support::{Person, TestControl, both, next};

both! {
    cp_4d_a_hosted_step_is_not_confirmed_here,
    cp_4e_a_subscription_is_updated_once_the_impact_is_confirmed,
    cp_4b_a_preview_of_yesterday_is_stale,
    cp_4g_a_confirmed_change_makes_earlier_previews_stale,
    cp_4f_updates_are_unavailable_if_disabled,
}

/// CP-4d: a first payment and a billing set-up are hosted steps. The answer contains their address.
async fn cp_4d_a_hosted_step_is_not_confirmed_here(control: TestControl) {
    let person = control.person("ada").await;
    let option = preview(&control, &person, "pro").await;
    assert_eq!(option["billingAction"]["type"], "checkout");
    assert_eq!(option["billingImpact"]["type"], "new_charge");
    let order = order(&option);
    let refused = place(&control, &person, &order).await.expect(402);
    assert_eq!(refused["code"], "payment_required");
    let url = refused["url"].as_str().unwrap();
    let wanted = format!(
        "https://svc.example/billing/checkout?workspaceId={}&plan=pro&provider=other&region=local&name=My%20project",
        person.workspace
    );
    assert_eq!(url, wanted);
    assert!(names(&control, &person).await.is_empty());

    control.subscribe(person.workspace).await;
    set_standing(&control, &person, "past_due").await;
    let option = preview(&control, &person, "pro").await;
    assert_eq!(option["billingAction"]["type"], "billing_setup");
    let refused = place(&control, &person, &super::order(&option))
        .await
        .expect(402);
    let url = refused["url"].as_str().unwrap();
    assert!(
        url.starts_with("https://svc.example/billing/setup?workspaceId=wks_"),
        "{url}"
    );
    assert!(names(&control, &person).await.is_empty());
}

/// CP-4b, CP-4e: once there is a subscription, the earlier checkout is stale. The fresh preview
/// updates the subscription, and the ledger records it.
async fn cp_4e_a_subscription_is_updated_once_the_impact_is_confirmed(control: TestControl) {
    let control = control
        .configured(json!({"catalog": {"plans": [{"plan": "pro", "monthly_price": 3000}]}}))
        .await;
    control.clock.set("2026-04-16T12:00:00Z".parse().unwrap());
    let person = control.person("ada").await;
    let previewed_order = order(&preview(&control, &person, "pro").await);
    control.subscribe(person.workspace).await;
    assert_eq!(
        place(&control, &person, &previewed_order)
            .await
            .refused(409)
            .0,
        "creation_preview_stale"
    );

    // The month started on the 16th of April, so half of it is over on the 1st of May.
    control.clock.set("2026-05-01T09:00:00Z".parse().unwrap());
    let option = preview(&control, &person, "pro").await;
    assert_eq!(option["billingAction"]["type"], "update_subscription");
    let impact = &option["billingImpact"];
    assert_eq!(impact["type"], "prorated_charge");
    assert_eq!(
        impact["price"],
        json!({"amountMinor": 1500, "currency": "EUR"})
    );
    assert_eq!(
        impact["recurring"],
        json!({"amountMinor": 3000, "currency": "EUR", "interval": "month"})
    );
    let order = order(&option);
    let project = place(&control, &person, &order).await.expect(201);
    // A repeated request charges nothing again.
    assert_eq!(place(&control, &person, &order).await.expect(201), project);

    let mut conn = control.app.store.read().await.unwrap();
    let subscription = billing::open(&mut conn, person.workspace)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(subscription.monthly_amount, 3000);
    let id = project["id"].as_str().unwrap();
    assert_eq!(
        subscription.items,
        json!([{"projectId": id, "plan": "pro", "monthly": 3000}])
    );
    let invoices = billing::invoices(&mut conn, person.workspace, Paging::DEFAULT)
        .await
        .unwrap();
    let [invoice] = &invoices.items[..] else {
        panic!("{invoices:?}")
    };
    assert_eq!((invoice.amount, invoice.currency.as_str()), (1500, "EUR"));
    assert_eq!(invoice.period_end.to_string(), "2026-05-16T00:00:00Z");
    let changes = billing::changes(&mut conn, person.workspace, Paging::DEFAULT)
        .await
        .unwrap();
    let kinds: Vec<_> = changes
        .items
        .iter()
        .map(|change| (change.kind.as_str(), change.amount))
        .collect();
    assert_eq!(kinds, [("project_added", 1500), ("subscribed", 0)]);
    drop(conn);

    let deleted = control
        .send(
            http::Method::DELETE,
            &path(&project),
            Some(&person.token),
            None,
        )
        .await;
    assert_eq!(deleted.expect(204), Value::Null);
    let mut conn = control.app.store.read().await.unwrap();
    let subscription = billing::open(&mut conn, person.workspace)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (subscription.monthly_amount, subscription.items),
        (0, json!([]))
    );
}

/// CP-4b: the rest of the month is cheaper tomorrow, so today's preview does not confirm it.
async fn cp_4b_a_preview_of_yesterday_is_stale(control: TestControl) {
    let person = control.person("ada").await;
    control.subscribe(person.workspace).await;
    let order = order(&preview(&control, &person, "pro").await);
    control.clock.advance(24 * 3600);
    assert_eq!(
        place(&control, &person, &order).await.refused(409).0,
        "creation_preview_stale"
    );
}

/// CP-4f: if server-confirmed creation is disabled, changes that would update a subscription are
/// unavailable.
async fn cp_4f_updates_are_unavailable_if_disabled(control: TestControl) {
    let control = control
        .configured(json!({"catalog": {"server_confirmed_creation": false}}))
        .await;
    let person = control.person("ada").await;
    assert_eq!(preview(&control, &person, "pro").await["available"], true);
    control.subscribe(person.workspace).await;
    let option = preview(&control, &person, "pro").await;
    assert_eq!(
        option["unavailableReasonCode"],
        "server_confirmation_disabled"
    );
    assert_eq!(
        place(&control, &person, &order(&option))
            .await
            .refused(409)
            .0,
        "conflict"
    );
    assert!(names(&control, &person).await.is_empty());
    super::project(&control, &person).await;
}

async fn set_standing(control: &TestControl, person: &Person, status: &str) {
    let mut tx = control.app.store.begin().await.unwrap();
    let subscription = billing::open(&mut tx, person.workspace)
        .await
        .unwrap()
        .unwrap();
    let new = billing::Subscription {
        status: status.to_owned(),
        ..subscription
    };
    assert!(
        billing::update(&mut tx, new.monthly_amount, &new)
            .await
            .unwrap()
    );
    tx.commit().await.unwrap();
}

/// The amount that the workspace pays each month.
async fn monthly(control: &TestControl, person: &Person) -> i64 {
    let mut conn = control.app.store.read().await.unwrap();
    let subscription = billing::open(&mut conn, person.workspace).await.unwrap();
    subscription.unwrap().monthly_amount
}

/// CP-4a, CP-4b, CP-4g: a preview is confirmed once. Other idempotency keys or other names confirm
/// nothing more, not even after the project was deleted. (The tool of the MCP server derives its
/// key from the arguments.)
async fn cp_4g_a_confirmed_change_makes_earlier_previews_stale(control: TestControl) {
    let control = control
        .configured(json!({"catalog": {"plans": [{"plan": "pro", "monthly_price": 1900}]}}))
        .await;
    let person = control.person("ada").await;
    control.subscribe(person.workspace).await;
    let previewed_order = order(&preview(&control, &person, "pro").await);
    let free = order(&preview(&control, &person, "basic").await);
    let project = place(&control, &person, &previewed_order).await.expect(201);
    for _ in 0..3 {
        let mut again = previewed_order.clone();
        again["idempotencyKey"] = json!(format!("again-{}", next()));
        let refused = place(&control, &person, &again).await.refused(409);
        assert_eq!(refused.0, "creation_preview_stale");
        again["name"] = json!("Another");
        let refused = place(&control, &person, &again).await.refused(409);
        assert_eq!(refused.0, "creation_preview_stale");
    }
    // Previews of other plans were made for the same subscription state.
    let refused = place(&control, &person, &free).await.refused(409);
    assert_eq!(refused.0, "creation_preview_stale");
    assert_eq!(monthly(&control, &person).await, 1900);
    // The key is compared before the fingerprint, so a lost answer is found again.
    assert_eq!(
        place(&control, &person, &previewed_order).await.expect(201),
        project
    );
    // The subscription looks as it did at the preview, but has changed twice since.
    let deleted = control.delete(&path(&project), &person.token).await;
    assert_eq!(deleted.expect(204), Value::Null);
    let mut again = previewed_order.clone();
    again["idempotencyKey"] = json!("after-deletion");
    let refused = place(&control, &person, &again).await.refused(409);
    assert_eq!(refused.0, "creation_preview_stale");
    let fresh = order(&preview(&control, &person, "pro").await);
    place(&control, &person, &fresh).await.expect(201);
}

/// CP-4g: of twenty parallel confirmations of one preview, at two platforms, one succeeds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cp_4g_parallel_confirmations_of_one_preview_create_one_project() {
    let first = Arc::new(TestControl::postgres().await);
    let second = Arc::new(first.second_process().await.unwrap());
    let person = first.person("ada").await;
    first.subscribe(person.workspace).await;
    let previewed_order = order(&preview(&first, &person, "pro").await);
    let mut posts = JoinSet::new();
    for number in 0..20 {
        let control = Arc::clone(if number % 2 == 0 { &first } else { &second });
        let (person, mut order) = (person.clone(), previewed_order.clone());
        order["idempotencyKey"] = json!(format!("parallel-{}", next()));
        posts.spawn(async move { place(&control, &person, &order).await.status });
    }
    let mut statuses = posts.join_all().await;
    statuses.sort_unstable();
    let mut wanted = vec![201];
    wanted.extend([409; 19]);
    assert_eq!(statuses, wanted);
    assert_eq!(names(&first, &person).await.len(), 1);
}
