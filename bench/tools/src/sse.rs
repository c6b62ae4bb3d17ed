//! Watchers of server-sent events: number of received events, and their delay.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use crate::quantiles::Samples;
use crate::target::{Stream, Target};

/// Opens the watchers and prints `open`. After a line on stdin, it counts their events for some
/// seconds. An event is a `data:` line with a time stamp. Its delay only counts if the stamp is its
/// own, because events about older objects contain older stamps.
pub(crate) async fn watch(
    target: Target,
    header: &str,
    watchers: usize,
    seconds: f64,
) -> Result<()> {
    let fields = format!("Accept: text/event-stream\r\n{header}\r\n");
    let mut open = Vec::new();
    for _ in 0..watchers {
        open.push(target.ask(&fields, "200").await?);
    }
    println!("open");
    tokio::task::spawn_blocking(|| std::io::stdin().read_line(&mut String::new())).await??;
    let end = tokio::time::Instant::now() + Duration::from_secs_f64(seconds);
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for (stream, rest) in open {
        tasks.spawn(read(stream, rest, end));
    }
    let (mut events, mut samples, mut ended) = (0, Samples::default(), 0);
    while let Some(done) = tasks.join_next().await {
        let result = done?;
        events += result.events;
        ended += usize::from(result.ended);
        samples.merge(result.delays);
    }
    let (wall, fresh) = (begun.elapsed().as_secs_f64(), samples.len());
    let (p50, p99) = samples.p50_p99();
    println!(
        r#"{{"n": {events}, "fresh": {fresh}, "ended": {ended}, "wall": {wall}, "p50": {p50}, "p99": {p99}}}"#
    );
    Ok(())
}

#[derive(Default)]
struct ReceivedEvents {
    events: usize,
    delays: Samples,
    /// True if the peer closed before the time was over.
    ended: bool,
}

async fn read(
    mut stream: Box<dyn Stream>,
    mut bytes: Vec<u8>,
    end: tokio::time::Instant,
) -> ReceivedEvents {
    let mut result = ReceivedEvents::default();
    loop {
        match timeout_at(end, stream.read_buf(&mut bytes)).await {
            Err(_over) => return result,
            Ok(Ok(0) | Err(_)) => {
                result.ended = true;
                return result;
            }
            Ok(Ok(_)) => {}
        }
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut parsed = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if !line.ends_with(b"\n") {
                break;
            }
            parsed += line.len();
            let Some(stamp) = stamp(line) else { continue };
            result.events += 1;
            let delay = now.saturating_sub(stamp);
            if delay < FRESH {
                result.delays.add(delay);
            }
        }
        bytes.drain(..parsed);
    }
}

/// The time stamp in a `data:` line; a snapshot is not an event.
fn stamp(line: &[u8]) -> Option<Duration> {
    let line = std::str::from_utf8(line).ok()?.strip_prefix("data:")?;
    if line.contains("state.initial") {
        return None;
    }
    let (_, rest) = line.split_once("stamp=")?;
    let (nanoseconds, _) = rest.split_once(';')?;
    nanoseconds.parse().ok().map(Duration::from_nanos)
}

/// The publisher waits for longer than this before it publishes about the same object again.
const FRESH: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_only_read_from_data_lines() {
        assert_eq!(
            stamp(b"data: {\"a\":\"stamp=17;\"}\n"),
            Some(Duration::from_nanos(17))
        );
        assert_eq!(stamp(b": stamp=17;\n"), None);
        assert_eq!(stamp(b"data: {}\n"), None);
        assert_eq!(
            stamp(b"data: {\"type\":\"state.initial\",\"stamp=17;\"}\n"),
            None
        );
    }
}
