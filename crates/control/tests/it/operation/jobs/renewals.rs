//! Renewals of subscriptions, and the periods that are charged.

use super::*;

both! {
    a_period_is_charged_once_for_months_of_any_length,
    an_aborted_renewal_has_charged_nothing,
    a_project_added_on_the_first_day_is_not_charged_twice,
    a_workspace_without_projects_stops_paying,
    a_suspended_workspace_is_not_charged,
    subscription_and_invoices_are_read,
}

/// A period is charged when it starts, on the same day of the month as the subscription.
async fn a_period_is_charged_once_for_months_of_any_length(control: TestControl) {
    let control = control
        .configured(json!({"catalog": {"plans": [{"plan": "pro", "monthly_price": 3000}]}}))
        .await;
    let person = paying(&control, "2026-05-31T10:00:00Z").await;
    assert_eq!(
        periods(&control, &person).await,
        [("2026-05-31", "2026-06-30", 3000)].map(owned)
    );
    control.clock.set("2026-06-29T23:59:59Z".parse().unwrap());
    assert_eq!(charge(&control).await, 0);
    control.clock.set("2026-06-30T00:00:00Z".parse().unwrap());
    // Two processes at the same time.
    let (one, two) = tokio::join!(charge(&control), charge(&control));
    assert_eq!(one + two, 1);
    assert_eq!(charge(&control).await, 0);
    // The platform was down for months. Each period is charged.
    control.clock.set("2026-09-01T00:00:00Z".parse().unwrap());
    assert_eq!(charge(&control).await, 2);
    let expected = [
        ("2026-08-31", "2026-09-30", 3000),
        ("2026-07-31", "2026-08-31", 3000),
        ("2026-06-30", "2026-07-31", 3000),
        ("2026-05-31", "2026-06-30", 3000),
    ];
    assert_eq!(charge(&control).await, 0);
    let mut found = periods(&control, &person).await;
    found.sort_by(|left, right| right.cmp(left));
    assert_eq!(found.len(), 4, "{found:?}");
    assert_eq!(found, expected.map(owned));
}

/// A crash before the end of the charge charges nothing.
async fn an_aborted_renewal_has_charged_nothing(control: TestControl) {
    let person = paying(&control, "2026-04-16T12:00:00Z").await;
    let before = periods(&control, &person).await;
    control.clock.advance(31 * DAY);
    let mut tx = control.app.store.begin().await.unwrap();
    let renewed =
        control
            .app
            .plan_service
            .billing()
            .renew(&mut tx, person.workspace, control.now());
    assert!(renewed.await.unwrap());
    drop(tx);
    assert_eq!(periods(&control, &person).await, before);
    assert_eq!(charge(&control).await, 1);
    assert_eq!(periods(&control, &person).await.len(), before.len() + 1);
}

/// A project is added on the first day of a period, before the job runs. The period is charged for
/// the existing projects, and the new project once.
async fn a_project_added_on_the_first_day_is_not_charged_twice(control: TestControl) {
    let person = paying(&control, "2026-04-16T12:00:00Z").await;
    control.clock.set("2026-05-16T00:00:01Z".parse().unwrap());
    create(&control, &person).await;
    assert_eq!(charge(&control).await, 0, "already charged");
    let may: Vec<_> = periods(&control, &person)
        .await
        .into_iter()
        .filter(|(start, ..)| start == "2026-05-16")
        .collect();
    assert_eq!(may.len(), 2, "{may:?}");
    assert_eq!(may[0].2, may[1].2);
}

/// A workspace without projects stops paying.
async fn a_workspace_without_projects_stops_paying(control: TestControl) {
    let person = paying(&control, "2026-04-16T12:00:00Z").await;
    let project = {
        let list = control
            .get("/api/projects/tunnels", &person.token)
            .await
            .expect(200);
        list["projects"][0]["id"].as_str().unwrap().to_owned()
    };
    let path = format!("/api/projects/tunnels/{project}");
    control.delete(&path, &person.token).await.expect(204);
    control.clock.advance(31 * DAY);
    assert_eq!(charge(&control).await, 1);
    control.clock.advance(31 * DAY);
    assert_eq!(charge(&control).await, 0);
    assert_eq!(periods(&control, &person).await.len(), 1);
    let path = format!("/api/workspaces/{}/billing", person.workspace);
    let shown = control.get(&path, &person.token).await.expect(200);
    assert_eq!(shown, json!({"hasPaymentMethod": true}));
    let mut read = control.app.store.read().await.unwrap();
    let workspace = store::workspaces::by_id(&mut read, person.workspace)
        .await
        .unwrap();
    assert_eq!(workspace.unwrap().subscription_status, None);
}

/// A workspace that an operator suspended does not pay.
async fn a_suspended_workspace_is_not_charged(control: TestControl) {
    let person = paying(&control, "2026-04-16T12:00:00Z").await;
    set_status(&control, &person, store::workspaces::Status::Suspended).await;
    control.clock.advance(31 * DAY);
    assert_eq!(charge(&control).await, 1);
    assert_eq!(periods(&control, &person).await.len(), 1);
    set_status(&control, &person, store::workspaces::Status::Active).await;
    control.clock.advance(31 * DAY);
    assert_eq!(charge(&control).await, 1);
    assert_eq!(periods(&control, &person).await.len(), 2);
}

/// Reading subscription and invoices needs the permission for plans.
async fn subscription_and_invoices_are_read(control: TestControl) {
    let person = paying(&control, "2026-04-16T12:00:00Z").await;
    control.clock.advance(31 * DAY);
    let stop = CancellationToken::new();
    pass(&control.app, &stop).await;
    let base = format!("/api/workspaces/{}/billing", person.workspace);
    let token = &person.token;
    let shown = control.get(&base, token).await.expect(200);
    let subscription = &shown["subscription"];
    assert_eq!(subscription["status"], "active");
    assert_eq!(subscription["monthly"], subscription["items"][0]["monthly"]);
    assert_eq!(subscription["renewsAt"], "2026-06-16T00:00:00.000Z");
    let page = control
        .get(&format!("{base}/invoices?pageSize=1"), token)
        .await
        .expect(200);
    assert_eq!(
        (&page["total"], &page["totalPages"]),
        (&json!(2), &json!(2))
    );
    let invoice = &page["invoices"][0];
    assert_eq!(invoice["total"], subscription["monthly"]);
    assert_eq!(invoice["lines"][0]["price"], subscription["monthly"]);
    assert_eq!(invoice["periodStart"], "2026-05-16T00:00:00.000Z");
    assert_eq!(invoice["status"], "open");
    let eve = control.person("eve").await;
    control.get(&base, &eve.token).await.refused(404);
}

async fn set_status(control: &TestControl, person: &Person, status: store::workspaces::Status) {
    let mut tx = control.app.store.begin().await.unwrap();
    let now = control.now();
    store::workspaces::set_status(&mut tx, person.workspace, status, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

async fn charge(control: &TestControl) -> u64 {
    renew(&control.app, &CancellationToken::new())
        .await
        .unwrap()
}

/// A user with a subscription and one project that it pays for.
async fn paying(control: &TestControl, since: &str) -> Person {
    control.clock.set(since.parse().unwrap());
    let person = control.person("ada").await;
    control.subscribe(person.workspace).await;
    create(control, &person).await;
    person
}

async fn create(control: &TestControl, person: &Person) {
    let token = &person.token;
    let base = format!("/api/workspaces/{}/projects/tunnels", person.workspace);
    let config = control
        .get(&format!("{base}/plan/config"), token)
        .await
        .expect(200);
    let plans = config["plans"].as_array().unwrap();
    let pro = plans.iter().find(|plan| plan["plan"] == "pro").unwrap();
    let body = json!({
        "name": "paid",
        "plan": "pro",
        "provider": pro["providers"][0]["provider"],
        "region": pro["providers"][0]["regions"][0]["region"],
        "creationFingerprint": pro["creationFingerprint"],
        "idempotencyKey": next().to_string(),
    });
    let made: Value = control.post(&base, token, &body).await.expect(201);
    assert_eq!(made["plan"], "pro");
}

type Charge = (String, String, i64);

fn owned((start, end, amount): (&str, &str, i64)) -> Charge {
    (start.to_owned(), end.to_owned(), amount)
}

/// The charged periods, newest first: first day, day after the last, amount.
async fn periods(control: &TestControl, person: &Person) -> Vec<Charge> {
    let mut read = control.app.store.read().await.unwrap();
    let found = billing::invoices(&mut read, person.workspace, Paging::DEFAULT)
        .await
        .unwrap();
    let day = |at: Timestamp| at.to_string()[..10].to_owned();
    let charged = |invoice: billing::Invoice| {
        let (start, end) = (day(invoice.period_start), day(invoice.period_end));
        (start, end, invoice.amount)
    };
    found.items.into_iter().map(charged).collect()
}
