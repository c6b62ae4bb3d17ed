//! What the platform does without being asked: forgetting and renewing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use control::jobs::{Stale, pass, purge, renew};
use daemon::shutdown::Shutdown;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use store::device_grants::{self, DeviceGrant};
use store::links::{self, Kind, Link};
use store::{
    Paging, Sealed, SecretHash, audit, billing, engines, idempotency, logs, oauth_codes,
    revoked_tokens, sessions, usage, used_challenges, webhooks,
};
use tokio_util::sync::CancellationToken;
use types::id::{AuditId, LogId, ProjectId, SessionId, WebhookId};

use crate::support::{CALLBACK, Person, TestControl, both};
use crate::workspaces::{invite, team};

/// Counts up, for what must differ.
fn next() -> u64 {
    static COUNTER: AtomicU64 = AtomicU64::new(1);
    COUNTER.fetch_add(1, Ordering::Relaxed)
}

pub(crate) const DAY: i64 = 24 * 3600;

/// A row of every kind that ends within a day, and one of each that does not.
async fn fill(control: &TestControl, person: &Person) {
    let now = control.now();
    let mut tx = control.app.store.begin().await.unwrap();
    for (number, days) in [(1_u8, 1), (2, 1000)] {
        let ends = now + SignedDuration::from_hours(24 * days);
        let hash = SecretHash([number; 32]);
        let session = sessions::Session {
            id: SessionId::new(next(), [number; 10]),
            hash,
            user_id: person.user,
            proved_at: now,
            user_agent: None,
            ip: None,
            second_factor_at: None,
            created_at: now,
            rotated_at: now,
            last_seen_at: ends,
            expires_at: ends,
            permissions: None,
            resources: None,
        };
        sessions::insert(&mut tx, &session).await.unwrap();
        let link = Link {
            user_id: person.user,
            kind: Kind::PasswordReset,
            email: "a@example.com".to_owned(),
            created_at: now,
            expires_at: ends,
        };
        links::insert(&mut tx, hash, &link).await.unwrap();
        revoked_tokens::revoke(&mut tx, &number.to_string(), ends, now)
            .await
            .unwrap();
        let log = logs::Log {
            id: LogId::new(next(), [number; 10]),
            workspace_id: person.workspace,
            project_id: ProjectId::new(1, [1; 10]),
            stream_id: format!("{number:024x}"),
            tunnel_id: None,
            user_id: None,
            outcome: "connected".to_owned(),
            summary: json!({}),
            created_at: now,
            expires_at: ends,
        };
        logs::insert(&mut tx, &log, "").await.unwrap();
        let code = oauth_codes::Code {
            hash,
            client_id: "web".to_owned(),
            redirect_uri: CALLBACK.to_owned(),
            challenge: hash,
            user_id: person.user,
            session_id: session.id,
            permissions: Vec::new(),
            resources: None,
            created_at: now,
            expires_at: ends,
        };
        oauth_codes::insert(&mut tx, &code).await.unwrap();
        let grant = DeviceGrant {
            hash,
            user_code_hash: hash,
            client_id: "agent".to_owned(),
            permissions: Vec::new(),
            resources: None,
            source: None,
            ip: "192.0.2.1".to_owned(),
            created_at: now,
            expires_at: ends,
            interval_seconds: 5,
            status: device_grants::Status::Pending,
            user_id: None,
            session_id: None,
        };
        device_grants::insert(&mut tx, &grant, "").await.unwrap();
    }
    let (key, project) = (SecretHash([1; 32]), ProjectId::new(1, [1; 10]));
    idempotency::claim(&mut tx, person.workspace, "key", key, project, now)
        .await
        .unwrap();
    let entry = audit::Entry {
        id: AuditId::new(next(), [1; 10]),
        workspace_id: None,
        actor_user_id: None,
        actor_credential_id: None,
        action: "x".to_owned(),
        target_kind: "x".to_owned(),
        target_id: "x".to_owned(),
        details: json!({}),
        ip: None,
        created_at: now,
    };
    audit::insert(&mut tx, &entry).await.unwrap();
    tx.commit().await.unwrap();
}

/// How many rows of each kind are forgotten now.
pub(crate) async fn forgotten(control: &TestControl) -> Vec<(&'static str, u64)> {
    let stop = CancellationToken::new();
    let mut rows = Vec::new();
    for stale in Stale::ALL {
        let count = purge(&control.app, *stale, &stop).await.unwrap();
        if count > 0 {
            rows.push((stale.as_str(), count));
        }
    }
    rows
}

both! {
    what_is_past_its_time_is_forgotten,
    the_audit_log_has_an_end_where_nothing_else_is_said,
    the_audit_log_is_kept_where_that_is_said,
    what_ended_does_not_stay_for_ever,
    what_nobody_comes_back_to_is_forgotten,
    many_rows_go_in_batches_and_once,
    the_running_task_forgets,
    a_period_is_charged_once_and_months_end_where_they_end,
    a_renewal_that_breaks_off_has_charged_nothing,
    what_is_added_on_the_first_day_is_not_charged_twice,
    a_workspace_without_projects_stops_paying,
    a_suspended_workspace_is_not_charged,
    subscription_and_invoices_are_read,
}

/// Everything stays until its time comes, and goes when the clock says so.
async fn what_is_past_its_time_is_forgotten(control: TestControl) {
    let control = control
        .configured(json!({"retention": {"audit_days": 5, "idempotency_keys_days": 3}}))
        .await;
    let person = control.person("ada").await;
    fill(&control, &person).await;
    control.clock.advance(DAY - 1);
    assert_eq!(forgotten(&control).await, []);
    control.clock.advance(1);
    let gone = [
        ("logs", 1),
        ("sessions", 1),
        ("links", 1),
        ("revoked_tokens", 1),
    ];
    assert_eq!(forgotten(&control).await, gone);
    // A device is told for an hour, a code that comes again is noticed for a day.
    control.clock.advance(3599);
    assert_eq!(forgotten(&control).await, []);
    control.clock.advance(1);
    assert_eq!(forgotten(&control).await, [("device_grants", 1)]);
    control.clock.advance(DAY - 3601);
    assert_eq!(forgotten(&control).await, []);
    control.clock.advance(1);
    assert_eq!(forgotten(&control).await, [("oauth_codes", 1)]);
    control.clock.advance(DAY + 1);
    assert_eq!(forgotten(&control).await, [("idempotency_keys", 1)]);
    control.clock.advance(2 * DAY);
    assert_eq!(forgotten(&control).await, [("audit", 1)]);
    assert_eq!(forgotten(&control).await, []);
}

/// The audit log is kept for a year and a month where nothing else is said.
async fn the_audit_log_has_an_end_where_nothing_else_is_said(control: TestControl) {
    let person = control.person("ada").await;
    fill(&control, &person).await;
    control.clock.advance(400 * DAY);
    let gone = forgotten(&control).await;
    assert!(!gone.iter().any(|(kind, _)| *kind == "audit"), "{gone:?}");
    control.clock.advance(1);
    assert_eq!(forgotten(&control).await, [("audit", 1)]);
}

/// Credentials that ended, webhooks that were deleted and usage of long ago do not stay.
async fn what_ended_does_not_stay_for_ever(control: TestControl) {
    let person = control.person("ada").await;
    let project = control.project(&person).await;
    let now = control.now();
    let body = json!({"type": "pat", "name": "short"});
    let made = control
        .post("/api/credentials", &person.token, &body)
        .await
        .expect(201);
    let id = made["credential"]["id"].as_str().unwrap();
    control
        .delete(&format!("/api/credentials/{id}"), &person.token)
        .await
        .expect(204);
    let mut tx = control.app.store.begin().await.unwrap();
    let webhook = webhooks::Webhook {
        id: WebhookId::new(next(), [7; 10]),
        project_id: project.id,
        name: "a".to_owned(),
        description: None,
        destination_type: "webhook_endpoint".to_owned(),
        status: webhooks::Status::Enabled,
        events: Vec::new(),
        url: "https://a.example".to_owned(),
        sealed_secret: Sealed(vec![1]),
        previous_sealed_secret: None,
        previous_secret_expires_at: None,
        secret_rotated_at: None,
        failing_since: None,
        created_by: person.user,
        created_at: now,
        updated_at: now,
    };
    webhooks::insert(&mut tx, &webhook).await.unwrap();
    webhooks::delete(&mut tx, project.id, webhook.id, now)
        .await
        .unwrap();
    let counters = usage::Usage {
        streams: 1,
        ..usage::Usage::default()
    };
    usage::add(&mut tx, project.id, now, &counters)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    control.clock.advance(30 * DAY - 1);
    assert!(
        !forgotten(&control)
            .await
            .iter()
            .any(|(kind, _)| *kind == "webhooks")
    );
    control.clock.advance(1);
    assert!(forgotten(&control).await.contains(&("webhooks", 1)));
    control.clock.advance(60 * DAY);
    assert!(forgotten(&control).await.contains(&("credentials", 1)));
    assert_eq!(control.get("/api/whoami", &person.token).await.status, 200);
    control.clock.advance(310 * DAY + 1);
    assert!(forgotten(&control).await.contains(&("usage", 1)));
}

/// Engines and browsers that are heard of no more, and an invitation that nobody followed.
async fn what_nobody_comes_back_to_is_forgotten(control: TestControl) {
    control.person("Ada").await;
    let mut ada = control.signed_in("Ada").await;
    let team = team(&mut ada).await;
    invite(&mut ada, &team, "grace@example.com", "viewer").await;
    let now = control.now();
    let engine = engines::Linked {
        id: "one".to_owned(),
        cluster_domain: "engine.example.com".to_owned(),
        address: "192.0.2.1".to_owned(),
        linked_at: now,
        version: 1,
        seen_at: now,
    };
    let mut tx = control.app.store.begin().await.unwrap();
    engines::seen(&mut tx, &engine).await.unwrap();
    engines::arrived(&mut tx, "engine.example.com", "spool", 1, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    for (seconds, kind) in [
        (95, "engines"),
        (7 * DAY, "unused_sessions"),
        (90 * DAY, "engines"),
        // Their week, and 90 days.
        (97 * DAY, "invitations"),
    ] {
        let is_gone = |gone: &[(&str, u64)]| gone.contains(&(kind, 1));
        let end = now + SignedDuration::from_secs(seconds);
        control.clock.set(end - SignedDuration::from_secs(1));
        let gone = forgotten(&control).await;
        assert!(!is_gone(&gone), "{kind}: {gone:?}");
        control.clock.set(end);
        let gone = forgotten(&control).await;
        assert!(is_gone(&gone), "{kind}: {gone:?}");
    }
}

/// It is kept for ever where the configuration says that.
async fn the_audit_log_is_kept_where_that_is_said(control: TestControl) {
    let control = control
        .configured(json!({"retention": {"audit_days": 0}}))
        .await;
    let person = control.person("ada").await;
    fill(&control, &person).await;
    control.clock.advance(30 * 365 * DAY);
    let gone = forgotten(&control).await;
    assert!(!gone.iter().any(|(kind, _)| *kind == "audit"), "{gone:?}");
    let mut read = control.app.store.read().await.unwrap();
    assert_eq!(
        audit::list_all(&mut read, Paging::DEFAULT)
            .await
            .unwrap()
            .total,
        1
    );
}

/// More than one batch, by two processes at once: each row goes once.
async fn many_rows_go_in_batches_and_once(control: TestControl) {
    let now = control.now();
    let mut tx = control.app.store.begin().await.unwrap();
    for number in 0..1200 {
        revoked_tokens::revoke(&mut tx, &format!("t{number}"), now, now)
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    let stop = CancellationToken::new();
    let (one, two) = tokio::join!(
        purge(&control.app, Stale::RevokedTokens, &stop),
        purge(&control.app, Stale::RevokedTokens, &stop),
    );
    let left = purge(&control.app, Stale::RevokedTokens, &stop)
        .await
        .unwrap();
    assert_eq!(one.unwrap() + two.unwrap() + left, 1200);
    stop.cancel();
    revoke_one(&control, now).await;
    let stopped = purge(&control.app, Stale::RevokedTokens, &stop)
        .await
        .unwrap();
    assert_eq!(stopped, 0, "a stop is a stop");
}

/// Two platforms whose passes begin at the same time: one goes through to the end of every kind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_passes_at_once_one_comes_to_its_end() {
    let control = TestControl::postgres().await;
    let second = control.beside().await.unwrap();
    let stop = CancellationToken::new();
    for round in 0..4 {
        let now = control.now();
        let mut tx = control.app.store.begin().await.unwrap();
        for number in 0..1200_u32 {
            let token = format!("t{round}-{number}");
            revoked_tokens::revoke(&mut tx, &token, now, now)
                .await
                .unwrap();
            let mut hash = [0; 32];
            hash[..4].copy_from_slice(&number.to_be_bytes());
            used_challenges::spend(&mut tx, SecretHash(hash), now)
                .await
                .unwrap();
        }
        tx.commit().await.unwrap();
        tokio::join!(pass(&control.app, &stop), pass(&second.app, &stop));
        assert_eq!(forgotten(&control).await, [], "in round {round}");
    }
}

/// The task of a running platform does it by itself, and ends with the platform.
async fn the_running_task_forgets(control: TestControl) {
    let now = control.now();
    revoke_one(&control, now).await;
    let mut passes = control.app.jobs.passes();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let shutdown = Shutdown::new(std::time::Duration::from_secs(5));
    let app = Arc::clone(&control.app);
    let running = control::start_on(app, listener, shutdown.clone())
        .await
        .unwrap();
    passes.wait_for(|passes| *passes >= 1).await.unwrap();
    let mut read = control.app.store.read().await.unwrap();
    assert!(!revoked_tokens::is_revoked(&mut read, "one").await.unwrap());
    drop(read);
    shutdown.request();
    running.stopped().await;
}

/// A period is charged when it begins, on the day of the month that the subscription began.
async fn a_period_is_charged_once_and_months_end_where_they_end(control: TestControl) {
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
    // Two processes at the same moment.
    let (one, two) = tokio::join!(charge(&control), charge(&control));
    assert_eq!(one + two, 1);
    assert_eq!(charge(&control).await, 0);
    // Away for months: each is charged.
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

/// A crash between the charge and its end has charged nothing.
async fn a_renewal_that_breaks_off_has_charged_nothing(control: TestControl) {
    let person = paying(&control, "2026-04-16T12:00:00Z").await;
    let before = periods(&control, &person).await;
    control.clock.advance(31 * DAY);
    let mut tx = control.app.store.begin().await.unwrap();
    let renewed = control
        .app
        .shop
        .billing()
        .renew(&mut tx, person.workspace, control.now());
    assert!(renewed.await.unwrap());
    drop(tx);
    assert_eq!(periods(&control, &person).await, before);
    assert_eq!(charge(&control).await, 1);
    assert_eq!(periods(&control, &person).await.len(), before.len() + 1);
}

/// A project that comes on the first day of a period, before the job: the period is charged
/// for what was there, and the project once.
async fn what_is_added_on_the_first_day_is_not_charged_twice(control: TestControl) {
    let person = paying(&control, "2026-04-16T12:00:00Z").await;
    control.clock.set("2026-05-16T00:00:01Z".parse().unwrap());
    create(&control, &person).await;
    assert_eq!(charge(&control).await, 0, "caught up with already");
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

/// Nobody pays for what an operator keeps them from.
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

/// What the ledger says is read with the permission for plans.
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

async fn revoke_one(control: &TestControl, now: Timestamp) {
    let mut tx = control.app.store.begin().await.unwrap();
    revoked_tokens::revoke(&mut tx, "one", now, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
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

/// Somebody with a subscription and one project that it pays for.
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

type Charged = (String, String, i64);

fn owned((start, end, amount): (&str, &str, i64)) -> Charged {
    (start.to_owned(), end.to_owned(), amount)
}

/// What was charged, newest first: first day, first day after, amount.
async fn periods(control: &TestControl, person: &Person) -> Vec<Charged> {
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
