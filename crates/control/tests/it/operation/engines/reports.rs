//! Reports of engines about their events.

use http::{Method, Request};
use jiff::SignedDuration;
use serde_json::{Value, json};
use store::usage::{self, TurnUsage, Usage};
use store::{Period, domains, engines, users};
use types::id::{EventId, ProjectId, TunnelId};

use super::{OTHER_SECRET, SECRET, linkable, linkable_with};
use crate::support::{Answer, Person, Project, TestControl, both, next};

both! {
    a_batch_is_stored_and_counts_once,
    the_state_of_an_ordered_certificate_is_shown,
    online_tunnels_expire_with_their_engine,
    an_engine_reports_only_about_projects_that_it_serves,
    malformed_fields_are_refused_by_name,
    records_have_the_retention_of_the_plan,
    records_per_project_are_limited,
    a_use_of_a_token_at_an_engine_is_its_last_use,
    a_tunnel_that_was_closed_is_in_the_audit_log,
}

const REPORTER: &str = "00112233445566778899aabbccddeeff";

pub(super) async fn report(
    control: &TestControl,
    secret: &str,
    sequence: u64,
    records: Value,
) -> Answer {
    let report = json!({"reporter": REPORTER, "sequence": sequence, "records": records});
    send(control, secret, report.to_string()).await
}

async fn send(control: &TestControl, secret: &str, body: String) -> Answer {
    let request = Request::builder()
        .method(Method::POST)
        .uri("/link/v1/reports")
        .header("authorization", format!("Bearer {secret}"))
        .header("svc-link-version", "1")
        .header("content-type", "application/json")
        .body(body.into())
        .unwrap();
    control.send_raw(request).await
}

fn stream(project: &str, number: u64) -> Value {
    json!({"record": "stream", "project_id": project, "stream_id": format!("{number:024x}"),
        "tunnel_id": TunnelId::new(1, [1; 10]), "user_id": "usr_x", "outcome": "connected",
        "created_at": "2026-01-01T00:00:00Z",
        "summary": {"request": {"http": {"request": {"host": "a.example", "path": "/Found"}}}}})
}

fn event(project: &str, id: EventId) -> Value {
    json!({"record": "event", "project_id": project, "event": {"id": id, "type": "tunnel.created",
        "created_at": "2026-01-01T00:00:00.000Z", "user_id": "usr_x", "workspace_id": "wks_forged",
        "object": {"id": "tun_1"}}})
}

fn counted(project: &str) -> Value {
    json!({"record": "usage", "project_id": project, "hour": "2026-01-01T00:00:00Z", "streams": 5,
        "failed_streams": 1, "upstream_bytes": 100, "downstream_bytes": 200})
}

async fn one(control: TestControl) -> (TestControl, Person, Project) {
    let control = linkable(control).await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    (control, ada, project)
}

async fn usage_of(control: &TestControl, project: ProjectId) -> (Usage, TurnUsage) {
    let mut read = control.app.store.read().await.unwrap();
    let all = Period::default();
    (
        usage::sum(&mut read, project, all).await.unwrap(),
        usage::sum_turn(&mut read, project, all).await.unwrap(),
    )
}

async fn a_batch_is_stored_and_counts_once(control: TestControl) {
    let (control, ada, project) = one(control).await;
    let id = project.id.as_str();
    let records = json!([
        stream(id, next()),
        event(id, EventId::new(1, [1; 10])),
        counted(id),
        counted(id),
        {"record": "inventory", "project_id": id, "clients": 2, "tunnels": 3},
        {"record": "turn_usage", "project_id": id, "hour": "2026-01-01T00:00:00Z",
            "allocations": 4, "relayed_bytes": 5},
        {"record": "weather", "sun": true},
    ]);
    let answer = report(&control, SECRET, 1, records.clone()).await;
    assert_eq!(answer.expect(200), json!({"through": 1}));
    assert_eq!(answer.header("svc-link-version"), "1");
    // A repeated report adds nothing, even if its content differs under the same number.
    assert_eq!(
        report(&control, SECRET, 1, records).await.expect(200)["through"],
        1
    );
    let more = json!([counted(id)]);
    assert_eq!(
        report(&control, SECRET, 2, more.clone()).await.expect(200)["through"],
        2
    );
    assert_eq!(
        report(&control, SECRET, 1, more).await.expect(200)["through"],
        2
    );
    let (usage, turn) = usage_of(&control, project.id).await;
    assert_eq!(
        (usage.streams, usage.failed_streams, usage.downstream_bytes),
        (15, 3, 600)
    );
    assert_eq!(
        (turn.credentials, turn.allocations, turn.relayed_bytes),
        (0, 4, 5)
    );
    let at = format!("/api/projects/tunnels/{id}");
    control.clock.advance(60);
    let path = format!("{at}/logs?q=found&outcome=connected");
    let logs = control.get(&path, &ada.token).await.expect(200);
    assert_eq!(
        (&logs["total"], &logs["logs"][0]["userId"]),
        (&json!(1), &json!("usr_x"))
    );
    let events = control
        .get(&format!("{at}/events"), &ada.token)
        .await
        .expect(200);
    assert_eq!(
        (&events["total"], &events["events"][0]["eventType"]),
        (&json!(1), &json!("tunnel.created"))
    );
    assert_eq!(events["events"][0]["payload"], json!({"id": "tun_1"}));
    // The engine does not decide to which workspace an event belongs.
    assert_eq!(events["events"][0]["workspaceId"], ada.workspace.as_str());
    assert_eq!(events["events"][0]["clusterId"], "engine.example");
    let mut read = control.app.store.read().await.unwrap();
    let since = |minutes| control.app.now() - SignedDuration::from_mins(minutes);
    let online = engines::inventory(&mut read, "engine.example", since(15));
    let online = online.await.unwrap();
    assert_eq!((online.clients, online.tunnels), (2, 3));
}

/// A crashed engine removes nothing. Its last report counts for 15 minutes.
async fn online_tunnels_expire_with_their_engine(control: TestControl) {
    let (control, ada, project) = one(control).await;
    let id = project.id.as_str();
    let records = json!([{"record": "inventory", "project_id": id, "clients": 2, "tunnels": 3}]);
    report(&control, SECRET, 1, records).await.expect(200);
    let mut tx = control.app.store.begin().await.unwrap();
    let role = users::set_role(&mut tx, ada.user, users::Role::Admin, control.now());
    role.await.unwrap();
    tx.commit().await.unwrap();
    let online = async || {
        let list = control.get("/api/operator/engines", &ada.token).await;
        let list = list.expect(200);
        let cluster = &list["clusters"][0];
        (cluster["clients"].clone(), cluster["tunnels"].clone())
    };
    assert_eq!(online().await, (json!(2), json!(3)));
    control.clock.advance(14 * 60);
    assert_eq!(online().await, (json!(2), json!(3)));
    control.clock.advance(60);
    assert_eq!(online().await, (json!(0), json!(0)));
}

async fn an_engine_reports_only_about_projects_that_it_serves(control: TestControl) {
    let (control, _, project) = one(control).await;
    let id = project.id.as_str();
    let nobody = ProjectId::new(7, [7; 10]);
    let records = json!([stream(id, next()), counted(id), counted(nobody.as_str())]);
    // With the secret of another cluster the batch is accepted and ignored.
    assert_eq!(
        report(&control, OTHER_SECRET, 1, records.clone())
            .await
            .expect(200)["through"],
        1
    );
    assert_eq!(usage_of(&control, project.id).await.0.streams, 0);
    // Numbers are counted per cluster. Items of unknown projects do not affect the rest.
    assert_eq!(
        report(&control, SECRET, 1, records.clone())
            .await
            .expect(200)["through"],
        1
    );
    assert_eq!(usage_of(&control, project.id).await.0.streams, 5);
    assert_eq!(usage_of(&control, nobody).await.0.streams, 0);
    report(&control, "wrong", 2, records).await.refused(401);
}

async fn malformed_fields_are_refused_by_name(control: TestControl) {
    let (control, _, project) = one(control).await;
    let id = project.id.as_str();
    let mut broken = stream(id, next());
    broken["outcome"] = json!("lost");
    let answer = report(&control, SECRET, 1, json!([counted(id), broken])).await;
    assert_eq!(answer.refused(400).1.as_deref(), Some("records.1.outcome"));
    // None of it counts, and its number is still free.
    assert_eq!(usage_of(&control, project.id).await.0.streams, 0);
    for (length, status) in [(257, 400), (256, 200)] {
        let mut of = stream(id, next());
        of["user_id"] = json!("u".repeat(length));
        let answer = report(&control, SECRET, 1, json!([of])).await;
        assert_eq!(answer.status, status, "{}", answer.text);
    }
    let many: Vec<_> = (0..1001).map(|_| counted(id)).collect();
    let answer = report(&control, SECRET, 2, json!(many)).await;
    assert_eq!(answer.refused(400).1.as_deref(), Some("records"));
    let answer = report(&control, SECRET, 0, json!([])).await;
    assert_eq!(answer.refused(400).1.as_deref(), Some("sequence"));
    let body = json!({"reporter": "x", "sequence": 2, "records": []});
    let answer = send(&control, SECRET, body.to_string()).await;
    assert_eq!(answer.refused(400).1.as_deref(), Some("reporter"));
    let answer = report(&control, SECRET, 2, json!([{"record": "usage"}])).await;
    assert_eq!(
        answer.refused(400).1.as_deref(),
        Some("records.0.project_id")
    );
    // Events about domains come from the platform alone.
    let mut forged = event(id, EventId::new(3, [3; 10]));
    forged["event"]["type"] = json!("domain.verified");
    let answer = report(&control, SECRET, 2, json!([forged])).await;
    assert_eq!(answer.refused(400).1.as_deref(), Some("records.0.event"));
    assert_eq!(send(&control, SECRET, "{".to_owned()).await.status, 400);
    let large = format!("{}{{}}", " ".repeat(4 * 1024 * 1024));
    assert_eq!(send(&control, SECRET, large).await.status, 413);
    assert_eq!(
        report(&control, SECRET, 2, json!([counted(id)]))
            .await
            .expect(200)["through"],
        2
    );
}

async fn records_have_the_retention_of_the_plan(control: TestControl) {
    let days = json!({"plans": [{"plan": "basic", "log_retention_days": 2}]});
    let control = linkable_with(control, days).await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let id = project.id.as_str();
    let mut ahead = stream(id, next());
    // An engine with a fast clock does not extend the retention.
    ahead["created_at"] = json!("2030-01-01T00:00:00Z");
    let records = json!([ahead, event(id, EventId::new(2, [2; 10]))]);
    report(&control, SECRET, 1, records).await.expect(200);
    let stop = tokio_util::sync::CancellationToken::new();
    let kept = async || {
        control::runtime::jobs::pass(&control.app, &stop).await;
        let at = format!("/api/projects/tunnels/{id}");
        let logs = control
            .get(&format!("{at}/logs?timeline=1w"), &ada.token)
            .await
            .expect(200);
        let events = control
            .get(&format!("{at}/events?timeline=1w"), &ada.token)
            .await
            .expect(200);
        (
            logs["total"].as_u64().unwrap(),
            events["total"].as_u64().unwrap(),
        )
    };
    control.clock.advance(2 * 24 * 3600 - 1);
    assert_eq!(kept().await, (1, 1));
    control.clock.advance(2);
    assert_eq!(kept().await, (0, 0));
}

/// A caller of an engine is the actor. The time of an engine with a fast clock is not used.
async fn a_tunnel_that_was_closed_is_in_the_audit_log(control: TestControl) {
    let (control, ada, project) = one(control).await;
    let tunnel = TunnelId::new(1, [1; 10]).to_string();
    let closed = |project: &str| {
        json!({"record": "tunnel_closed", "project_id": project, "tunnel_id": tunnel,
            "tunnel_name": "web", "user_id": ada.user, "closed_at": "2030-01-01T00:00:00Z"})
    };
    let unknown = ProjectId::new(1, [1; 10]).to_string();
    let records = json!([closed(project.id.as_str()), closed(&unknown)]);
    report(&control, SECRET, 1, records).await.expect(200);
    let path = format!("/api/workspaces/{}/audit?target={tunnel}", ada.workspace);
    let log = control.get(&path, &ada.token).await.expect(200);
    assert_eq!(log["total"], 1);
    let entry = &log["entries"][0];
    assert_eq!(entry["action"], "tunnel.closed");
    assert_eq!(entry["targetKind"], "tunnel");
    assert_eq!(entry["actorUserId"], ada.user.as_str());
    let details = json!({"project": project.id.as_str(), "name": "web"});
    assert_eq!(entry["details"], details);
    let at: jiff::Timestamp = entry["createdAt"].as_str().unwrap().parse().unwrap();
    assert!(at <= control.now(), "{at}");
    let mut bad = closed(project.id.as_str());
    bad["tunnel_id"] = json!("web");
    let refused = report(&control, SECRET, 2, json!([bad])).await;
    assert_eq!(
        refused.refused(400).1.as_deref(),
        Some("records.0.tunnel_id")
    );
}

/// A flood through one tunnel displaces the oldest visits of its own project, but neither its
/// events nor records of other projects.
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn records_per_project_are_limited(control: TestControl) {
    let control = linkable(control).await;
    let mut config = control.app.config.clone();
    config.limits.log_rows_per_project = 1000;
    config.limits.event_rows_per_project = 1000;
    let control = control.restarted_with(config).await;
    let ada = control.person("ada").await;
    let (flooded, other) = (control.project(&ada).await, control.project(&ada).await);
    let made = event(flooded.id.as_str(), EventId::new(1, [1; 10]));
    let first = json!([stream(other.id.as_str(), next()), made]);
    report(&control, SECRET, 1, first).await.expect(200);
    let mut newest = String::new();
    for sequence in 2..=4 {
        let minute = sequence - 2;
        let flood: Vec<_> = (0..700)
            .map(|_| {
                let mut visit = stream(flooded.id.as_str(), next());
                visit["created_at"] = json!(format!("2026-01-01T00:{minute:02}:00Z"));
                visit["stream_id"].as_str().unwrap().clone_into(&mut newest);
                visit
            })
            .collect();
        control.clock.advance(60);
        report(&control, SECRET, sequence, json!(flood))
            .await
            .expect(200);
    }
    control.clock.advance(60);
    let total = async |project: &Project, what: &str| {
        let path = format!("/api/projects/tunnels/{}/{what}?timeline=1w", project.id);
        let list = control.get(&path, &ada.token).await.expect(200);
        list["total"].as_u64().unwrap()
    };
    assert_eq!(total(&flooded, "logs").await, 1000);
    assert_eq!(total(&flooded, "events").await, 1);
    assert_eq!(total(&other, "logs").await, 1);
    let path = format!("/api/projects/tunnels/{}/logs?timeline=1w", flooded.id);
    let newest_first = control.get(&path, &ada.token).await.expect(200);
    let oldest = format!("{path}&page=10&pageSize=100");
    let oldest = control.get(&oldest, &ada.token).await.expect(200);
    let minute = |list: &Value, at: usize| {
        list["logs"][at]["createdAt"].as_str().unwrap()[14..16].to_owned()
    };
    let ends = [minute(&newest_first, 0), minute(&oldest, 99)];
    assert!(ends == ["02", "01"] || ends == ["01", "02"], "{ends:?}");
    let many: Vec<_> = (0..1000_u64)
        .map(|number| {
            event(
                flooded.id.as_str(),
                EventId::new(
                    2,
                    (number + 1)
                        .to_be_bytes()
                        .into_iter()
                        .chain([0; 2])
                        .collect::<Vec<_>>()
                        .try_into()
                        .unwrap(),
                ),
            )
        })
        .collect();
    report(&control, SECRET, 5, json!(many)).await.expect(200);
    assert_eq!(total(&flooded, "events").await, 1000);
    // Purged rows free space.
    let stop = tokio_util::sync::CancellationToken::new();
    control.clock.advance(400 * 24 * 3600);
    control::runtime::jobs::pass(&control.app, &stop).await;
    assert_eq!(total(&flooded, "logs").await, 0);
    let visits: Vec<_> = (0..1000)
        .map(|_| stream(flooded.id.as_str(), next()))
        .collect();
    report(&control, SECRET, 6, json!(visits)).await.expect(200);
    let mut read = control.app.store.read().await.unwrap();
    let list = store::logs::List {
        project: flooded.id,
        period: Period::default(),
        outcome: None,
        tunnel: None,
        stream: None,
        search: None,
        after: None,
        order: store::Order::Asc,
        paging: store::Paging::DEFAULT,
    };
    let kept = store::logs::list(&mut read, list).await.unwrap();
    assert_eq!(kept.total, 1000);
}

/// At most one write a minute, and only for credentials that the engine's cluster has.
async fn the_state_of_an_ordered_certificate_is_shown(control: TestControl) {
    let (control, ada, project) = one(control).await;
    let path = format!("/api/projects/tunnels/{}/domains", project.id);
    let name = "app.example.com";
    let body = json!({ "hostname": name });
    let added = control.post(&path, &ada.token, &body).await.expect(201);
    let id = added["id"].as_str().unwrap();
    let path = format!("{path}/{id}");
    let order = |problem: Option<&str>| {
        json!([{"record": "certificate_order", "project_id": project.id, "hostname": name,
            "expires_at": "2026-03-01T00:00:00Z", "problem": problem,
            "next_attempt_at": problem.map(|_| "2026-01-01T00:05:00Z")}])
    };
    let certificate = async || {
        let shown = control.get(&path, &ada.token).await.expect(200);
        shown["certificate"].clone()
    };
    let failed = order(Some("rateLimited:\u{202e} too many certificates"));
    report(&control, SECRET, 1, failed.clone())
        .await
        .expect(200);
    assert_eq!(certificate().await, json!({"source": "engine"}), "pending");

    let mut tx = control.app.store.begin().await.unwrap();
    let (project_id, id) = (project.id, id.parse().unwrap());
    let found = domains::by_id(&mut tx, project_id, id).await.unwrap();
    let mut domain = found.unwrap();
    let before = domain.state;
    domain.state = domains::State::Verified;
    let is_saved = domains::save(&mut tx, &domain, before, control.now()).await;
    assert!(is_saved.unwrap());
    tx.commit().await.unwrap();
    report(&control, SECRET, 2, failed).await.expect(200);
    let expected = json!({"source": "engine", "expiresAt": "2026-03-01T00:00:00.000Z",
        "problem": "rateLimited:  too many certificates",
        "nextAttemptAt": "2026-01-01T00:05:00.000Z"});
    assert_eq!(certificate().await, expected);
    report(&control, SECRET, 3, order(None)).await.expect(200);
    let expected = json!({"source": "engine", "expiresAt": "2026-03-01T00:00:00.000Z"});
    assert_eq!(certificate().await, expected);

    let long = "x".repeat(1_025);
    let refused = report(&control, SECRET, 4, order(Some(&long))).await;
    let (_, field) = refused.refused(400);
    assert_eq!(field.as_deref(), Some("records.0.problem"));
}

async fn a_use_of_a_token_at_an_engine_is_its_last_use(control: TestControl) {
    let (control, ada, _) = one(control).await;
    let eve = control.person("eve").await;
    let id = async |who: &Person| {
        let list = control
            .get("/api/credentials", &who.token)
            .await
            .expect(200);
        let id = list["credentials"][0]["id"].as_str();
        id.unwrap().to_owned()
    };
    let (adas, eves) = (id(&ada).await, id(&eve).await);
    let path = format!("/api/credentials/{adas}");
    let last_use = async || {
        let mut read = control.app.store.read().await.unwrap();
        let found = store::credentials::by_id(&mut read, adas.parse().unwrap()).await;
        let found = found.unwrap().unwrap();
        (found.last_used_at.unwrap().to_string(), found.last_used_ip)
    };
    control.get(&path, &ada.token).await.expect(200);
    let address = Some("192.0.2.1".to_owned());
    assert_eq!(
        last_use().await,
        ("2026-01-01T00:00:00Z".to_owned(), address.clone())
    );
    control.clock.advance(3600);
    let used = |id: &str, at: &str| json!({"record": "credential_use", "credential_id": id, "used_at": at});
    let mut sequence = 0;
    let mut send = async |records: Value| {
        sequence += 1;
        report(&control, SECRET, sequence, records).await
    };
    send(json!([used(&adas, "2026-01-01T00:00:59Z")]))
        .await
        .expect(200);
    assert_eq!(last_use().await.1, address, "less than a minute later");
    let uses = json!([
        used(&adas, "2026-01-01T00:30:00Z"),
        used(&adas, "2026-01-01T00:20:00Z"),
        used(&eves, "2026-01-01T00:30:00Z"),
    ]);
    send(uses).await.expect(200);
    assert_eq!(last_use().await, ("2026-01-01T00:30:00Z".to_owned(), None));
    // The clock of the engine is fast.
    send(json!([used(&adas, "2027-01-01T00:00:00Z")]))
        .await
        .expect(200);
    assert_eq!(last_use().await, ("2026-01-01T01:00:00Z".to_owned(), None));
    let mut read = control.app.store.read().await.unwrap();
    let eves = store::credentials::by_id(&mut read, eves.parse().unwrap()).await;
    let eves = eves.unwrap().unwrap().last_used_at.unwrap();
    assert_eq!(
        eves.to_string(),
        "2026-01-01T00:00:00Z",
        "she has no project there"
    );
    drop(read);
    let refused = send(json!([used("x", "2026-01-01T00:30:00Z")])).await;
    assert_eq!(
        refused.refused(400).1.as_deref(),
        Some("records.0.credential_id")
    );
}
