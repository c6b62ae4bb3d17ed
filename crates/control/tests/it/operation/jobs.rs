//! Background jobs of the platform: cleanup and renewals.

mod expiring_tokens;
mod renewals;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use control::runtime::jobs::{ExpiringRows, pass, purge, renew};
use daemon::shutdown::Shutdown;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use store::device_grants::{self, DeviceGrant};
use store::links::{self, Kind, Link};
use store::{
    Paging, SealedBytes, SecretHash, audit, billing, engines, idempotency, logs, oauth_codes,
    revoked_tokens, sessions, usage, used_challenges, webhooks,
};
use tokio_util::sync::CancellationToken;
use types::id::{AuditId, LogId, ProjectId, SessionId, WebhookId};

use crate::support::{CALLBACK, Person, TestControl, both};
use crate::tenants::workspaces::{invite, team};

/// A counter for unique values.
fn next() -> u64 {
    static COUNTER: AtomicU64 = AtomicU64::new(1);
    COUNTER.fetch_add(1, Ordering::Relaxed)
}

pub(crate) const DAY: i64 = 24 * 3600;

/// A row of every kind that expires within a day, and one of each that does not.
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
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

/// The number of rows of each kind that the cleanup removes now.
pub(crate) async fn purge_counts(control: &TestControl) -> Vec<(&'static str, u64)> {
    let stop = CancellationToken::new();
    let mut rows = Vec::new();
    for kind in ExpiringRows::ALL {
        let count = purge(&control.app, *kind, &stop).await.unwrap();
        if count > 0 {
            rows.push((kind.as_str(), count));
        }
    }
    rows
}

both! {
    expired_rows_are_removed,
    the_audit_log_has_a_default_retention,
    the_audit_log_is_kept_if_configured,
    ended_rows_are_removed,
    abandoned_rows_are_removed,
    many_rows_are_removed_in_batches_and_once,
    a_pass_has_a_limit_of_batches,
    the_background_task_cleans_up,
}

/// Rows stay until they expire by the clock, and are then removed.
async fn expired_rows_are_removed(control: TestControl) {
    let control = control
        .configured(json!({"retention": {"audit_days": 5, "idempotency_keys_days": 3}}))
        .await;
    let person = control.person("ada").await;
    fill(&control, &person).await;
    control.clock.advance(DAY - 1);
    assert_eq!(purge_counts(&control).await, []);
    control.clock.advance(1);
    let purged = [
        ("logs", 1),
        ("sessions", 1),
        ("links", 1),
        ("revoked_tokens", 1),
    ];
    assert_eq!(purge_counts(&control).await, purged);
    // Devices get answers for an hour, and a reused code is noticed for a day.
    control.clock.advance(3599);
    assert_eq!(purge_counts(&control).await, []);
    control.clock.advance(1);
    assert_eq!(purge_counts(&control).await, [("device_grants", 1)]);
    control.clock.advance(DAY - 3601);
    assert_eq!(purge_counts(&control).await, []);
    control.clock.advance(1);
    assert_eq!(purge_counts(&control).await, [("oauth_codes", 1)]);
    control.clock.advance(DAY + 1);
    assert_eq!(purge_counts(&control).await, [("idempotency_keys", 1)]);
    control.clock.advance(2 * DAY);
    assert_eq!(purge_counts(&control).await, [("audit", 1)]);
    assert_eq!(purge_counts(&control).await, []);
}

/// By default the audit log is kept for a year and a month.
async fn the_audit_log_has_a_default_retention(control: TestControl) {
    let person = control.person("ada").await;
    fill(&control, &person).await;
    control.clock.advance(400 * DAY);
    let purged = purge_counts(&control).await;
    assert!(
        !purged.iter().any(|(kind, _)| *kind == "audit"),
        "{purged:?}"
    );
    control.clock.advance(1);
    assert_eq!(purge_counts(&control).await, [("audit", 1)]);
}

/// Expired credentials, deleted webhooks and old usage are removed.
async fn ended_rows_are_removed(control: TestControl) {
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
        sealed_secret: SealedBytes(vec![1]),
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
        !purge_counts(&control)
            .await
            .iter()
            .any(|(kind, _)| *kind == "webhooks")
    );
    control.clock.advance(1);
    assert!(purge_counts(&control).await.contains(&("webhooks", 1)));
    control.clock.advance(60 * DAY);
    assert!(purge_counts(&control).await.contains(&("credentials", 1)));
    assert_eq!(control.get("/api/whoami", &person.token).await.status, 200);
    control.clock.advance(310 * DAY + 1);
    assert!(purge_counts(&control).await.contains(&("usage", 1)));
}

/// Disconnected engines, inactive browsers, and an invitation that was never used.
async fn abandoned_rows_are_removed(control: TestControl) {
    control.person("Ada").await;
    let mut ada = control.signed_in("Ada").await;
    let team = team(&mut ada).await;
    invite(&mut ada, &team, "grace@example.com", "viewer").await;
    let now = control.now();
    let engine = engines::LinkedEngine {
        id: "one".to_owned(),
        cluster_domain: "engine.example.com".to_owned(),
        address: "192.0.2.1".to_owned(),
        program_version: None,
        linked_at: now,
        version: 1,
        seen_at: now,
    };
    let mut tx = control.app.store.begin().await.unwrap();
    engines::record_link(&mut tx, &engine).await.unwrap();
    engines::record_batch(&mut tx, "engine.example.com", "spool", 1, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    for (seconds, kind) in [
        (95, "engines"),
        (7 * DAY, "unused_sessions"),
        (90 * DAY, "engines"),
        // A week for these, and 90 days.
        (97 * DAY, "invitations"),
    ] {
        let is_gone = |purged: &[(&str, u64)]| purged.contains(&(kind, 1));
        let end = now + SignedDuration::from_secs(seconds);
        control.clock.set(end - SignedDuration::from_secs(1));
        assert!(!is_gone(&purge_counts(&control).await), "{kind}");
        control.clock.set(end);
        let purged = purge_counts(&control).await;
        assert!(is_gone(&purged), "{kind}: {purged:?}");
    }
}

/// The configuration can keep the audit log forever.
async fn the_audit_log_is_kept_if_configured(control: TestControl) {
    let control = control
        .configured(json!({"retention": {"audit_days": 0}}))
        .await;
    let person = control.person("ada").await;
    fill(&control, &person).await;
    control.clock.advance(30 * 365 * DAY);
    let purged = purge_counts(&control).await;
    assert!(
        !purged.iter().any(|(kind, _)| *kind == "audit"),
        "{purged:?}"
    );
    let mut read = control.app.store.read().await.unwrap();
    assert_eq!(
        audit::list_all(&mut read, Paging::DEFAULT)
            .await
            .unwrap()
            .total,
        1
    );
}

/// More than one batch, by two parallel processes. Each row is removed once.
async fn many_rows_are_removed_in_batches_and_once(control: TestControl) {
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
        purge(&control.app, ExpiringRows::RevokedTokens, &stop),
        purge(&control.app, ExpiringRows::RevokedTokens, &stop),
    );
    let left = purge(&control.app, ExpiringRows::RevokedTokens, &stop)
        .await
        .unwrap();
    assert_eq!(one.unwrap() + two.unwrap() + left, 1200);
    stop.cancel();
    revoke_one(&control, now).await;
    let stopped = purge(&control.app, ExpiringRows::RevokedTokens, &stop)
        .await
        .unwrap();
    assert_eq!(stopped, 0, "a stopped cleanup removes nothing");
}

async fn a_pass_has_a_limit_of_batches(control: TestControl) {
    let now = control.now().as_microsecond();
    let text = format!(
        "INSERT INTO revoked_tokens (jti, expires_at, revoked_at) \
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500001) \
         SELECT 't' || i, {now}, {now} FROM n"
    );
    control.raw(&text).await;
    let stop = CancellationToken::new();
    for rows in [500_000, 1] {
        let purged = purge(&control.app, ExpiringRows::RevokedTokens, &stop).await;
        assert_eq!(purged.unwrap(), rows);
    }
}

/// Two platforms start cleanups at the same time. One of them completes all kinds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_parallel_cleanups_one_completes() {
    let control = TestControl::postgres().await;
    let second = control.second_process().await.unwrap();
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
        assert_eq!(purge_counts(&control).await, [], "in round {round}");
    }
}

/// The background task of a running platform cleans up, and ends with the platform.
async fn the_background_task_cleans_up(control: TestControl) {
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
    running.wait_until_stopped().await;
}

async fn revoke_one(control: &TestControl, now: Timestamp) {
    let mut tx = control.app.store.begin().await.unwrap();
    revoked_tokens::revoke(&mut tx, "one", now, now)
        .await
        .unwrap();
    tx.commit().await.unwrap();
}
