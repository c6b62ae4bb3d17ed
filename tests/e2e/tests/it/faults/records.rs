//! Logs, events and usage that the platform shows.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use e2e::{Curl, ManagedPair, eventually};
use serde_json::Value;

use super::{COUNTED, every_record_is_there, publish};

/// CP-11: logs, events and usage of a project match the requests of its visitors.
#[test]
fn logs_events_and_usage_add_up() -> Result<()> {
    let managed = ManagedPair::on_sqlite()?;
    let mut agent = publish(&managed)?;
    let curl = Curl::new(&managed.engine);
    let bearer = format!("Authorization: Bearer {}", managed.token());
    let mut bodies = 0;
    for _ in 0..ALLOWED {
        let answer = curl.get(&["-H", &bearer, &agent.url(COUNTED)])?;
        assert_eq!(answer.status, 200, "{answer:?}");
        bodies += answer.body.len();
    }
    for _ in 0..DENIED {
        let answer = curl.get(&["-HAuthorization: Bearer a.b.c", &agent.url(COUNTED)])?;
        assert_eq!(answer.status, 401, "{answer:?}");
    }
    every_record_is_there(&managed, ALLOWED + DENIED)?;
    let outcome = |outcome| -> Result<Vec<Value>> {
        let shown = managed.project_data("logs", &["--outcome", outcome, "--page-size", "100"])?;
        Ok(shown["logs"].as_array().context("no logs")?.clone())
    };
    let connected = outcome("connected")?;
    assert_eq!(
        (connected.len(), outcome("denied")?.len()),
        (ALLOWED, DENIED)
    );

    // Refused visitors used nothing. The bytes of all streams equal those of the project, and are
    // at least the bytes that visitors read.
    let sum = |field: &str| -> u64 {
        let streams = connected.iter().map(|log| &log["payload"]);
        streams
            .filter_map(|stream| stream["response"]["metrics"][field].as_u64())
            .sum()
    };
    let total = |usage: &Value, field: &str| usage["total"][field].as_u64();
    eventually("usage", || {
        Ok(total(&managed.project_data("usage", &[])?, "streams") == Some(ALLOWED as u64))
    })
    .with_context(|| format!("{:?}", managed.project_data("usage", &[])))?;
    let usage = managed.project_data("usage", &[])?;
    assert_eq!(
        total(&usage, "downstreamBytes"),
        Some(sum("downstream_bytes")),
        "{usage} {connected:?}"
    );
    assert!(sum("downstream_bytes") >= bodies as u64);

    let tunnel = agent.online()["tunnel_id"].clone();
    agent.process().terminate()?;
    let logged_streams = || -> Result<Vec<Value>> {
        let shown = managed.project_data("events", &[])?;
        Ok(shown["events"].as_array().context("no events")?.clone())
    };
    let kinds = || -> Result<BTreeSet<String>> {
        let kind = |event: &Value| Some(event["eventType"].as_str()?.to_owned());
        Ok(logged_streams()?.iter().filter_map(kind).collect())
    };
    let story = [
        "client.created",
        "client.deleted",
        "tunnel.created",
        "tunnel.deleted",
    ];
    let story = BTreeSet::from(story.map(str::to_owned));
    eventually("the last event", || Ok(story.is_subset(&kinds()?)))
        .with_context(|| format!("{:?}", kinds()))?;
    let events = logged_streams()?;
    assert!(
        events.iter().any(|event| event["payload"]["id"] == tunnel),
        "{events:?}"
    );
    Ok(())
}

const ALLOWED: usize = 12;
const DENIED: usize = 3;
