//! Converts events of the inspector and the agent to rows of the panel. Only this module uses their
//! types.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use client::Connection;
use inspector::{Kind, Summary};
use jiff::{Timestamp, tz::TimeZone};

use super::model::{Key, Model, Row, Rows};

/// Adds or updates a request.
pub(super) fn request(model: &mut Model, summary: &Summary, now: Instant) {
    let since = Timestamp::now().duration_since(summary.began);
    let since = Duration::try_from(since).unwrap_or_default();
    let path = match &summary.error {
        // The request was not received before its service failed.
        Some(error) if summary.path.is_empty() => format!("({error})").into(),
        Some(error) => format!("{} ({error})", summary.path).into(),
        None => Arc::clone(&summary.path),
    };
    let method = match summary.kind {
        Kind::WebSocket => "WS".into(),
        _ => Arc::clone(&summary.method),
    };
    let row = Row {
        key: Key::Request(summary.id),
        clock: clock(summary.began),
        started_at: now.checked_sub(since).unwrap_or(now),
        duration: summary.duration,
        method,
        path,
        status: summary.status,
        source: summary
            .source_ip
            .map(|ip| ip.to_string())
            .unwrap_or_default(),
        failed: summary.error.is_some(),
    };
    model.upsert_row(row, now);
}

/// Adds or updates a stream. If requests are shown, only failed streams are added.
pub(super) fn stream(model: &mut Model, stream: &Connection, now: Instant) {
    if model.about.rows == Rows::Requests {
        if let Some(error) = &stream.error {
            model.show_notice(error.clone());
        }
        return;
    }
    let key = Key::Stream(stream.stream_id.as_str().into());
    let began = model.start_of(&key);
    if began.is_none() && !stream.active {
        // The start of the stream was dropped, and is counted as missed.
        return;
    }
    let (path, failed): (Arc<str>, bool) = match (&stream.error, stream.active) {
        (Some(error), _) => (error.as_str().into(), true),
        (None, true) => ("open".into(), false),
        (None, false) => ("closed".into(), false),
    };
    let row = Row {
        clock: clock(Timestamp::now() - now.saturating_duration_since(began.unwrap_or(now))),
        started_at: began.unwrap_or(now),
        duration: began
            .filter(|_| !stream.active)
            .map(|began| now.saturating_duration_since(began)),
        key,
        method: "".into(),
        path,
        status: None,
        source: stream
            .source_ip
            .map(|ip| ip.to_string())
            .unwrap_or_default(),
        failed,
    };
    model.upsert_row(row, now);
}

/// Local time of day.
fn clock(at: Timestamp) -> String {
    at.to_zoned(TimeZone::system())
        .strftime("%H:%M:%S")
        .to_string()
}
