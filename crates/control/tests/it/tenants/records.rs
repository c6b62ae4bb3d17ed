//! Plan, usage, logs and events, with rows as reported by engines.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use store::{events, logs, usage};
use types::id::{EventId, LogId, ProjectId, TunnelId};

use crate::support::{Person, TestControl, both, next};
use crate::tenants::projects::{path, project};

both! {
    the_plan_and_the_usage_are_returned,
    logs_are_filtered_and_paged,
    events_are_filtered_and_paged,
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn the_plan_and_the_usage_are_returned(control: TestControl) {
    control.clock.set(NOON.parse().unwrap());
    let person = control.person("ada").await;
    let project = project(&control, &person).await;
    let id: ProjectId = project["id"].as_str().unwrap().parse().unwrap();
    let token = &person.token;
    let plan = control
        .get(&format!("{}/plan", path(&project)), token)
        .await
        .expect(200);
    assert_eq!(
        (&plan["plan"], &plan["logRetentionDays"]),
        (&json!("basic"), &json!(7))
    );
    assert_eq!(plan.get("monthly"), None);

    let used = |streams, bytes| usage::Usage {
        streams,
        failed_streams: 1,
        upstream_bytes: bytes,
        downstream_bytes: 2 * bytes,
    };
    let mut tx = control.app.store.begin().await.unwrap();
    for (at, streams) in [
        ("2026-04-16T10:05:00Z", 3),
        ("2026-04-16T10:55:00Z", 4),
        ("2026-04-14T00:00:00Z", 5),
    ] {
        usage::add(&mut tx, id, at.parse().unwrap(), &used(streams, 100))
            .await
            .unwrap();
    }
    let relayed = usage::TurnUsage {
        credentials: 1,
        allocations: 2,
        relayed_bytes: 3,
    };
    usage::add_turn(
        &mut tx,
        id,
        "2026-04-16T11:00:00Z".parse().unwrap(),
        &relayed,
    )
    .await
    .unwrap();
    tx.commit().await.unwrap();

    // It is noon, so the first of the last 24 hours started at noon yesterday.
    let ask = async |tail: &str| {
        control
            .get(&format!("{}{tail}", path(&project)), token)
            .await
    };
    let day = ask("/usage").await.expect(200);
    assert_eq!(
        day,
        json!({
            "start": "2026-04-15T12:00:00.000Z",
            "end": "2026-04-16T12:00:00.000Z",
            "total": {"streams": 7, "failedStreams": 2, "upstreamBytes": 200, "downstreamBytes": 400},
            "hours": [{"start": "2026-04-16T10:00:00.000Z", "streams": 7, "failedStreams": 2, "upstreamBytes": 200, "downstreamBytes": 400}],
        })
    );
    assert_eq!(
        ask("/usage?timeline=3d").await.expect(200)["total"]["streams"],
        12
    );
    assert_eq!(
        ask("/usage?timeline=30m").await.expect(200)["total"]["streams"],
        0
    );
    let part = ask("/usage?start=2026-04-16T10:30:00Z&end=2026-04-16T10:31:00Z")
        .await
        .expect(200);
    assert_eq!(
        (&part["start"], &part["total"]["streams"]),
        (&json!("2026-04-16T10:00:00.000Z"), &json!(7))
    );
    let turn = ask("/turn/usage").await.expect(200);
    assert_eq!(
        turn["total"],
        json!({"credentials": 1, "allocations": 2, "relayedBytes": 3})
    );
    assert_eq!(turn["hours"].as_array().unwrap().len(), 1);
    for (tail, field) in [
        ("/usage?timeline=2h", "timeline"),
        ("/usage?timeline=1h&end=2026-04-16T10:31:00Z", "timeline"),
        ("/usage?start=x", "start"),
        ("/turn/usage?start=2026-01-01T00:00:00Z", "start"),
        ("/plan?x=1", "x"),
    ] {
        assert_eq!(
            ask(tail).await.refused(400).1.as_deref(),
            Some(field),
            "{tail}"
        );
    }
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn logs_are_filtered_and_paged(control: TestControl) {
    control.clock.set(NOON.parse().unwrap());
    let person = control.person("ada").await;
    let project = project(&control, &person).await;
    let tunnel = TunnelId::new(1, [1; 10]);
    for (minutes, outcome, path) in [
        (5, "connected", "/a"),
        (10, "denied", "/b"),
        (15, "connected", "/Search-me"),
        (2000, "failed", "/old"),
    ] {
        let tunnel = (minutes == 10).then_some(tunnel);
        log(&control, &person, &project, minutes, outcome, path, tunnel).await;
    }
    let token = &person.token;
    let ask = async |query: &str| {
        control
            .get(&format!("{}/logs{query}", path(&project)), token)
            .await
    };
    let paths = |answer: &serde_json::Value| -> Vec<String> {
        answer["logs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|log| log["payload"]["path"].as_str().unwrap().to_owned())
            .collect()
    };
    let day = ask("").await.expect(200);
    assert_eq!(
        (paths(&day), &day["total"]),
        (
            vec!["/a".to_owned(), "/b".to_owned(), "/Search-me".to_owned()],
            &json!(3)
        )
    );
    let first = &day["logs"][0];
    assert_eq!(
        (&first["eventType"], &first["eventCategory"]),
        (&json!("stream.summary"), &json!("stream_log"))
    );
    assert_eq!(first["createdAt"], "2026-04-16T11:55:00.000Z");
    assert_eq!(first["workspaceId"], person.workspace.as_str());
    assert_eq!(paths(&ask("?outcome=denied").await.expect(200)), ["/b"]);
    assert_eq!(
        paths(&ask(&format!("?tunnelId={tunnel}")).await.expect(200)),
        ["/b"]
    );
    assert_eq!(
        paths(&ask("?q=SEARCH-ME").await.expect(200)),
        ["/Search-me"]
    );
    assert_eq!(
        paths(
            &ask("?order=asc&pageSize=1&page=2&eventType=stream.summary")
                .await
                .expect(200)
        ),
        ["/b"]
    );
    assert_eq!(
        paths(&ask("?timeline=1w&outcome=failed").await.expect(200)),
        ["/old"]
    );
    // A stream is found by its reference, however old it is.
    let week = ask("?timeline=1w&outcome=failed").await.expect(200);
    let stream = week["logs"][0]["payload"]["stream_id"].as_str().unwrap();
    for (query, there) in [
        (format!("?streamId={stream}"), vec!["/old"]),
        (format!("?streamId={}", stream.to_uppercase()), vec!["/old"]),
        (format!("?streamId={stream}&timeline=24h"), vec![]),
        (format!("?streamId={}", "f".repeat(24)), vec![]),
    ] {
        assert_eq!(paths(&ask(&query).await.expect(200)), there, "{query}");
    }
    let after = day["logs"][1]["eventId"].as_str().unwrap();
    assert_eq!(
        paths(&ask(&format!("?afterEventId={after}")).await.expect(200)),
        ["/Search-me"]
    );
    assert_eq!(
        paths(
            &ask(&format!("?afterEventId={after}&order=asc"))
                .await
                .expect(200)
        ),
        ["/a"]
    );
    for (query, field) in [
        ("?outcome=lost", "outcome"),
        ("?order=up", "order"),
        ("?tunnelId=x", "tunnelId"),
        ("?streamId=x", "streamId"),
        ("?afterEventId=evt_1", "afterEventId"),
        ("?eventType=tunnel.created", "eventType"),
        ("?page=0", "page"),
    ] {
        assert_eq!(
            ask(query).await.refused(400).1.as_deref(),
            Some(field),
            "{query}"
        );
    }
}

async fn events_are_filtered_and_paged(control: TestControl) {
    let person = control.person("ada").await;
    let project = project(&control, &person).await;
    for (minutes, kind) in [
        (1, "tunnel.deleted"),
        (2, "tunnel.created"),
        (3, "client.created"),
    ] {
        event(&control, &person, &project, minutes, kind).await;
    }
    let token = &person.token;
    let ask = async |query: &str| {
        control
            .get(&format!("{}/events{query}", path(&project)), token)
            .await
    };
    let kinds = |answer: &serde_json::Value| -> Vec<String> {
        answer["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| event["eventType"].as_str().unwrap().to_owned())
            .collect()
    };
    let all = ask("").await.expect(200);
    assert_eq!(
        kinds(&all),
        ["tunnel.deleted", "tunnel.created", "client.created"]
    );
    assert_eq!(all["events"][0]["eventCategory"], "lifecycle");
    assert_eq!(
        kinds(&ask("?eventType=tunnel.created").await.expect(200)),
        ["tunnel.created"]
    );
    assert_eq!(
        kinds(&ask("?order=asc&pageSize=2").await.expect(200)),
        ["client.created", "tunnel.created"]
    );
    let after = all["events"][1]["eventId"].as_str().unwrap();
    assert_eq!(
        kinds(
            &ask(&format!("?order=asc&afterEventId={after}"))
                .await
                .expect(200)
        ),
        ["tunnel.deleted"]
    );
    assert_eq!(
        ask("?outcome=denied").await.refused(400).1.as_deref(),
        Some("outcome")
    );
}

const NOON: &str = "2026-04-16T12:00:00Z";

fn ago(control: &TestControl, minutes: i64) -> Timestamp {
    control.app.now() - SignedDuration::from_mins(minutes)
}

async fn log(
    control: &TestControl,
    person: &Person,
    project: &serde_json::Value,
    minutes: i64,
    outcome: &str,
    path: &str,
    tunnel: Option<TunnelId>,
) {
    let at = ago(control, minutes);
    let millis = u64::try_from(at.as_millisecond()).unwrap();
    let stream = format!("{:024x}", next());
    let log = logs::Log {
        id: LogId::new(millis, [1; 10]),
        workspace_id: person.workspace,
        project_id: project["id"].as_str().unwrap().parse().unwrap(),
        stream_id: stream.clone(),
        tunnel_id: tunnel,
        user_id: None,
        outcome: outcome.to_owned(),
        summary: json!({"path": path, "stream_id": stream}),
        created_at: at,
        expires_at: at + SignedDuration::from_hours(7 * 24),
    };
    let mut tx = control.app.store.begin().await.unwrap();
    assert!(logs::insert(&mut tx, &log, path).await.unwrap());
    tx.commit().await.unwrap();
}

async fn event(
    control: &TestControl,
    person: &Person,
    project: &serde_json::Value,
    minutes: i64,
    kind: &str,
) {
    let at = ago(control, minutes);
    let millis = u64::try_from(at.as_millisecond()).unwrap();
    let event = events::Event {
        id: EventId::new(millis, [1; 10]),
        kind: kind.to_owned(),
        category: "lifecycle".to_owned(),
        workspace_id: person.workspace,
        project_id: project["id"].as_str().unwrap().parse().unwrap(),
        cluster_id: None,
        user_id: None,
        payload: json!({}),
        created_at: at,
        expires_at: at + SignedDuration::from_hours(7 * 24),
    };
    let mut tx = control.app.store.begin().await.unwrap();
    assert!(events::insert(&mut tx, &event).await.unwrap());
    tx.commit().await.unwrap();
}
