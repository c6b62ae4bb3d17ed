//! Change of the plan: its preview, its confirmation, its refusals.

use serde_json::{Value, json};
use store::members::Role;
use store::{Paging, addresses, audit, billing, projects};
use types::id::{AddressId, ProjectId};

use super::{order, path, place, preview, project};
use crate::support::{Answer, Person, TestControl, both};

both! {
    cp_4b_a_plan_is_changed_as_it_was_previewed,
    a_plan_change_is_refused_with_a_field,
    cp_4d_a_first_payment_is_set_up_before_the_plan_changes,
    use_above_the_new_plan_is_removed_first,
    cp_5_a_plan_change_needs_the_tenant_and_the_permission,
}

async fn preview_of(control: &TestControl, who: &Person, project: &Value, plan: &str) -> Answer {
    let path = format!("{}/plan-change?plan={plan}", path(project));
    control.get(&path, &who.token).await
}

async fn confirm(
    control: &TestControl,
    who: &Person,
    project: &Value,
    (plan, fingerprint): (&str, &Value),
) -> Answer {
    let path = format!("{}/plan-change", path(project));
    let body = json!({"plan": plan, "changeFingerprint": fingerprint});
    control.post(&path, &who.token, &body).await
}

fn limit<'a>(preview: &'a Value, name: &str) -> &'a Value {
    let mut limits = preview["limits"].as_array().unwrap().iter();
    limits.find(|limit| limit["limit"] == name).unwrap()
}

/// CP-4b: the price is the one of the preview, the change is stored once, and the way back is free.
async fn cp_4b_a_plan_is_changed_as_it_was_previewed(control: TestControl) {
    let regions = json!([{"provider": "aws", "region": "eu", "capacity": {"basic": 1, "pro": 1}}]);
    let plans = json!([{"plan": "pro", "monthly_price": 3000}]);
    let control = control
        .configured(json!({"catalog": {"plans": plans, "regions": regions}}))
        .await;
    control.clock.set("2026-04-16T12:00:00Z".parse().unwrap());
    let ada = control.person("ada").await;
    control.subscribe(ada.workspace).await;
    let project = project(&control, &ada).await;
    // Half of the month that started on the 16th of April is over.
    control.clock.set("2026-05-01T09:00:00Z".parse().unwrap());
    let shown = preview_of(&control, &ada, &project, "pro")
        .await
        .expect(200);
    assert_eq!(
        (&shown["from"], &shown["to"], &shown["available"]),
        (&json!("basic"), &json!("pro"), &json!(true))
    );
    let impact = &shown["billingImpact"];
    assert_eq!(impact["price"]["amountMinor"], 1500);
    assert_eq!(impact["recurring"]["amountMinor"], 3000);
    assert_eq!(shown["renewsOn"], "2026-05-16");
    assert_eq!(
        limit(&shown, "tcp_addresses"),
        &json!({"limit": "tcp_addresses", "from": 1, "to": 10, "used": 0, "effect": "none"})
    );
    assert_eq!(
        limit(&shown, "agents"),
        &json!({"limit": "agents", "to": 100, "effect": "refuses_more"})
    );
    let stale = confirm(&control, &ada, &project, ("pro", &json!("x"))).await;
    assert_eq!(
        stale.refused(409),
        (
            "creation_preview_stale".to_owned(),
            Some("changeFingerprint".to_owned())
        )
    );
    let fingerprint = &shown["changeFingerprint"];
    let changed = confirm(&control, &ada, &project, ("pro", fingerprint)).await;
    let changed = changed.expect(200);
    assert_eq!(
        (&changed["plan"], &changed["id"]),
        (&json!("pro"), &project["id"])
    );
    // A lost answer is found again, and nothing is charged twice.
    let again = confirm(&control, &ada, &project, ("pro", fingerprint)).await;
    assert_eq!(again.expect(200), changed);
    assert_eq!(
        control.get(&path(&project), &ada.token).await.expect(200),
        changed
    );
    assert_eq!(amounts(&control, &ada).await, (3000, vec![1500]));
    assert_eq!(preview(&control, &ada, "basic").await["available"], true);
    assert_eq!(preview(&control, &ada, "pro").await["available"], false);

    // Audit log entries of one millisecond are not ordered.
    control.clock.advance(1);
    let shown = preview_of(&control, &ada, &project, "basic").await;
    let shown = shown.expect(200);
    assert_eq!(limit(&shown, "log_retention_days")["effect"], "new_only");
    assert_eq!(shown["billingImpact"]["price"], Value::Null);
    let fingerprint = &shown["changeFingerprint"];
    confirm(&control, &ada, &project, ("basic", fingerprint))
        .await
        .expect(200);
    assert_eq!(amounts(&control, &ada).await, (0, vec![1500]));
    assert_eq!(
        audited_changes(&control, &ada).await,
        [
            json!({"from": "pro", "to": "basic"}),
            json!({"from": "basic", "to": "pro"})
        ]
    );
}

/// The details of the audit entries about plans, newest first.
async fn audited_changes(control: &TestControl, of: &Person) -> Vec<Value> {
    let mut conn = control.app.store.read().await.unwrap();
    let entries = audit::list(
        &mut conn,
        audit::Scope::Workspace(of.workspace),
        &audit::Filter::default(),
        Paging::DEFAULT,
    )
    .await
    .unwrap();
    let entries = entries.items.into_iter();
    let changes = entries.filter(|entry| entry.action == "project.plan_changed");
    changes.map(|entry| entry.details).collect()
}

/// The monthly amount of the subscription, and the amounts of its invoices.
async fn amounts(control: &TestControl, of: &Person) -> (i64, Vec<i64>) {
    let mut conn = control.app.store.read().await.unwrap();
    let open = billing::open(&mut conn, of.workspace).await.unwrap();
    let invoices = billing::invoices(&mut conn, of.workspace, Paging::DEFAULT)
        .await
        .unwrap();
    let amounts = invoices.items.iter().map(|invoice| invoice.amount);
    (open.unwrap().monthly_amount, amounts.collect())
}

async fn a_plan_change_is_refused_with_a_field(control: TestControl) {
    let ada = control.person("ada").await;
    let project = project(&control, &ada).await;
    let field = |name: &str| Some(name.to_owned());
    for plan in ["gold", ""] {
        let refused = preview_of(&control, &ada, &project, plan).await;
        assert_eq!(refused.refused(400).1, field("plan"), "{plan}");
    }
    let path = format!("{}/plan-change", path(&project));
    let refused = control.get(&path, &ada.token).await;
    assert_eq!(refused.refused(400).1, field("plan"));
    let refused = preview_of(&control, &ada, &project, "basic").await;
    assert_eq!(refused.refused(409), ("conflict".to_owned(), field("plan")));
    let shown = preview_of(&control, &ada, &project, "enterprise").await;
    let shown = shown.expect(200);
    assert_eq!(shown["available"], false);
    assert_eq!(shown["unavailableReasonCode"], "by_arrangement");
    let fingerprint = &shown["changeFingerprint"];
    let refused = confirm(&control, &ada, &project, ("enterprise", fingerprint)).await;
    assert_eq!(refused.refused(409), ("conflict".to_owned(), field("plan")));

    let id = id_of(&project);
    let mut tx = control.app.store.begin().await.unwrap();
    assert!(projects::suspend(&mut tx, id, control.now()).await.unwrap());
    tx.commit().await.unwrap();
    for refused in [
        preview_of(&control, &ada, &project, "pro").await,
        confirm(&control, &ada, &project, ("pro", &json!("x"))).await,
    ] {
        assert_eq!(refused.refused(409).0, "project_suspended");
    }
}

fn id_of(project: &Value) -> ProjectId {
    project["id"].as_str().unwrap().parse().unwrap()
}

/// CP-4d: a workspace without a subscription sets billing up on a page first.
async fn cp_4d_a_first_payment_is_set_up_before_the_plan_changes(control: TestControl) {
    let ada = control.person("ada").await;
    let project = project(&control, &ada).await;
    let shown = preview_of(&control, &ada, &project, "pro")
        .await
        .expect(200);
    let url = &shown["setupUrl"];
    assert!(
        url.as_str()
            .unwrap()
            .starts_with("https://svc.example/billing/setup?workspaceId="),
        "{url}"
    );
    let fingerprint = &shown["changeFingerprint"];
    let refused = confirm(&control, &ada, &project, ("pro", fingerprint)).await;
    assert_eq!(&refused.expect(402)["url"], url);
    control.subscribe(ada.workspace).await;
    // The earlier preview was made without a subscription.
    let refused = confirm(&control, &ada, &project, ("pro", fingerprint)).await;
    assert_eq!(refused.refused(409).0, "creation_preview_stale");
    let shown = preview_of(&control, &ada, &project, "pro")
        .await
        .expect(200);
    assert_eq!(shown["setupUrl"], Value::Null);
    let fingerprint = &shown["changeFingerprint"];
    confirm(&control, &ada, &project, ("pro", fingerprint))
        .await
        .expect(200);
}

/// Addresses above the limit of the new plan would keep their ports, so they are released first.
async fn use_above_the_new_plan_is_removed_first(control: TestControl) {
    let plans = json!({"plans": [{"plan": "pro", "monthly_price": 0}]});
    let control = control.configured(json!({"catalog": plans})).await;
    let ada = control.person("ada").await;
    let order = order(&preview(&control, &ada, "pro").await);
    let project = place(&control, &ada, &order).await.expect(201);
    let id = id_of(&project);
    let mut tx = control.app.store.begin().await.unwrap();
    let mut ids = Vec::new();
    for number in 0..2_u8 {
        let address = addresses::Address {
            id: AddressId::new(1, [number; 10]),
            project_id: id,
            cluster_domain: "engine.example".to_owned(),
            port: 4000 + i64::from(number),
            created_at: control.now(),
        };
        addresses::insert(&mut tx, &address).await.unwrap();
        ids.push(address.id);
    }
    tx.commit().await.unwrap();
    let shown = preview_of(&control, &ada, &project, "basic").await;
    let shown = shown.expect(200);
    assert_eq!(
        limit(&shown, "tcp_addresses"),
        &json!({"limit": "tcp_addresses", "from": 10, "to": 1, "used": 2, "effect": "remove_first"})
    );
    let fingerprint = &shown["changeFingerprint"];
    let refused = confirm(&control, &ada, &project, ("basic", fingerprint)).await;
    assert_eq!(
        refused.refused(409),
        ("not_in_plan".to_owned(), Some("plan".to_owned()))
    );
    let released = format!("{}/addresses/{}", path(&project), ids[0]);
    control.delete(&released, &ada.token).await.expect(204);
    // The preview covers the use as well.
    let refused = confirm(&control, &ada, &project, ("basic", fingerprint)).await;
    assert_eq!(refused.refused(409).0, "creation_preview_stale");
    let shown = preview_of(&control, &ada, &project, "basic").await;
    let shown = shown.expect(200);
    let fingerprint = &shown["changeFingerprint"];
    let changed = confirm(&control, &ada, &project, ("basic", fingerprint)).await;
    assert_eq!(changed.expect(200)["plan"], "basic");
}

async fn cp_5_a_plan_change_needs_the_tenant_and_the_permission(control: TestControl) {
    let plans = json!({"plans": [{"plan": "pro", "monthly_price": 0}]});
    let control = control.configured(json!({"catalog": plans})).await;
    let (ada, eve) = (control.person("ada").await, control.person("eve").await);
    let project = project(&control, &ada).await;
    let shown = preview_of(&control, &ada, &project, "pro")
        .await
        .expect(200);
    let fingerprint = &shown["changeFingerprint"];
    for refused in [
        preview_of(&control, &eve, &project, "pro").await,
        confirm(&control, &eve, &project, ("pro", fingerprint)).await,
    ] {
        assert_eq!(refused.refused(404).0, "not_found");
    }
    control.join(&eve, ada.workspace, Role::Viewer).await;
    preview_of(&control, &eve, &project, "pro")
        .await
        .expect(200);
    let refused = confirm(&control, &eve, &project, ("pro", fingerprint)).await;
    assert_eq!(refused.refused(403).0, "insufficient_scope");
    let unchanged = control.get(&path(&project), &ada.token).await.expect(200);
    assert_eq!(unchanged["plan"], "basic");
}
