//! Traffic over time, from the visits that engines report.

use serde_json::{Value, json};
use types::id::TunnelId;

use super::reports::report;
use super::{SECRET, linkable};
use crate::operation::jobs::purge_counts;
use crate::support::{TestControl, both, next};

both! {
    visits_are_counted_by_the_minute_and_by_the_hour,
    a_range_has_a_limit_of_intervals,
    traffic_is_kept_for_a_day_and_for_a_month,
}

/// A visit of a tunnel at this time of 2026-01-01.
fn visit(project: &str, tunnel: Option<&str>, time: &str, status: u16) -> Value {
    let mut visit = json!({"record": "stream", "project_id": project,
        "stream_id": format!("{:024x}", next()), "tunnel_id": TunnelId::new(1, [1; 10]),
        "outcome": if status < 400 { "connected" } else { "failed" },
        "created_at": format!("2026-01-01T{time}Z"),
        "summary": {"response": {"http": {"status": status}, "metrics": {
            "duration_ms": 7.5, "upstream_bytes": 10, "downstream_bytes": 20}}}});
    if let Some(name) = tunnel {
        visit["tunnel_name"] = json!(name);
    }
    visit
}

fn noon() -> jiff::Timestamp {
    "2026-01-01T12:00:00Z".parse().unwrap()
}

async fn visits_are_counted_by_the_minute_and_by_the_hour(control: TestControl) {
    let control = linkable(control).await;
    let (ada, eve) = (control.person("ada").await, control.person("eve").await);
    let project = control.project(&ada).await;
    let id = project.id.as_str();
    control.clock.set(noon());
    let records = json!([
        visit(id, Some("web"), "11:30:10", 200),
        visit(id, Some("web"), "11:30:50", 502),
        visit(id, Some("api"), "11:31:00", 200),
        visit(id, None, "10:59:59", 404),
        // The name of a later engine.
        visit(id, Some("a b"), "11:31:00", 200),
    ]);
    // A repeated batch counts once.
    for _ in 0..2 {
        let sent = report(&control, SECRET, 1, records.clone()).await;
        sent.expect(200);
    }
    let path = format!("/api/projects/tunnels/{id}/traffic");
    let get = async |query: &str| {
        let answer = control.get(&format!("{path}{query}"), &ada.token).await;
        answer.expect(200)
    };
    let hour = get("?timeline=1h").await;
    assert_eq!(hour["resolution"], "minute");
    assert_eq!(hour["start"], "2026-01-01T11:00:00.000Z");
    let bounds = hour["bucketBounds"].as_array().unwrap().len();
    let points = hour["series"][0]["points"].as_array().unwrap();
    assert_eq!(points.len(), 2);
    assert_eq!(points[0]["at"], "2026-01-01T11:30:00.000Z");
    assert_eq!(
        (&points[0]["requests"], &points[0]["errors"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(points[0]["upstreamBytes"], 20);
    assert_eq!(points[0]["downstreamBytes"], 40);
    let durations = points[0]["durations"].as_array().unwrap();
    assert_eq!(durations.len(), bounds + 1);
    assert_eq!(durations[3], 2, "between 5 and 10 ms");

    let day = get("?timeline=24h&resolution=hour").await;
    let points = day["series"][0]["points"].as_array().unwrap();
    let counts: Vec<_> = points
        .iter()
        .map(|point| {
            (
                point["at"].as_str().unwrap(),
                point["requests"].as_i64().unwrap(),
            )
        })
        .collect();
    let wanted = [
        ("2026-01-01T10:00:00.000Z", 1),
        ("2026-01-01T11:00:00.000Z", 4),
    ];
    assert_eq!(counts, wanted);

    let tunnels = get("?timeline=1h&by=tunnel").await;
    let names: Vec<_> = tunnels["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|series| series["tunnel"].as_str())
        .collect();
    assert_eq!(names, [Some("web"), Some("api"), None]);
    let web = get("?timeline=24h&tunnel=web").await;
    assert_eq!(web["series"][0]["tunnel"], "web");
    assert_eq!(web["series"][0]["points"].as_array().unwrap().len(), 1);

    // CP-11, and another tenant.
    let weak = json!({"permissions": ["account.projects.read-only"]});
    let weak = control.delegated(&ada, weak).await;
    assert_eq!(control.get(&path, &weak).await.problem().0, 403);
    assert_eq!(control.get(&path, &eve.token).await.problem().0, 404);
}

async fn a_range_has_a_limit_of_intervals(control: TestControl) {
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    for (query, field) in [
        ("timeline=3d&resolution=minute", "resolution"),
        ("timeline=12h&by=tunnel", "by"),
        ("timeline=30d&by=tunnel", "by"),
        ("by=project&tunnel=web", "tunnel"),
        ("tunnel=", "tunnel"),
        ("tunnel=*", "tunnel"),
        ("resolution=day", "resolution"),
        ("by=user", "by"),
        ("page=1", "page"),
    ] {
        let path = format!("/api/projects/tunnels/{}/traffic?{query}", project.id);
        let answer = control.get(&path, &ada.token).await;
        assert_eq!(answer.refused(400).1.as_deref(), Some(field), "{query}");
    }
    for (query, resolution) in [
        ("", "minute"),
        ("?timeline=3d", "hour"),
        ("?timeline=1w&by=tunnel", "hour"),
        ("?timeline=1h&by=tunnel", "minute"),
    ] {
        let path = format!("/api/projects/tunnels/{}/traffic{query}", project.id);
        let answer = control.get(&path, &ada.token).await.expect(200);
        assert_eq!(answer["resolution"], resolution, "{query}");
    }
}

async fn traffic_is_kept_for_a_day_and_for_a_month(control: TestControl) {
    const HOUR: i64 = 3600;
    let control = linkable(control).await;
    let ada = control.person("ada").await;
    let project = control.project(&ada).await;
    let id = project.id.as_str();
    control.clock.set(noon());
    let records = json!([visit(id, Some("web"), "12:00:00", 200)]);
    report(&control, SECRET, 1, records).await.expect(200);
    let removed = async |kind: &str| {
        let purged = purge_counts(&control).await;
        purged.into_iter().find(|(name, _)| *name == kind)
    };
    control.clock.advance(24 * HOUR);
    assert_eq!(removed("traffic_minutes").await, None);
    control.clock.advance(1);
    // The sum and the tunnel.
    assert_eq!(
        removed("traffic_minutes").await,
        Some(("traffic_minutes", 2))
    );
    control.clock.set(noon());
    control.clock.advance(31 * 24 * HOUR);
    assert_eq!(removed("traffic_hours").await, None);
    control.clock.advance(1);
    assert_eq!(removed("traffic_hours").await, Some(("traffic_hours", 2)));
    // A report that arrives later is stored, but not counted.
    let late = json!([visit(id, Some("web"), "12:00:00", 200)]);
    report(&control, SECRET, 2, late).await.expect(200);
    assert_eq!(removed("traffic_hours").await, None);
}
