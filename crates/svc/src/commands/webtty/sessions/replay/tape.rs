//! Events of a recording with their positions relative to its start.

use std::{collections::VecDeque, time::Duration};

use api::webtty::RecordedEvent;
use jiff::Timestamp;
use serde_json::Value;
use tty::screen::SET_NEW_LINE_MODE;
use tty::size::Size;
use types::webtty::{RecordType, StreamType};

/// The sequence of steps.
#[derive(Debug)]
pub(super) struct Tape {
    steps: VecDeque<(Duration, TapeStep)>,
    /// Limit of pauses.
    idle_limit: Option<Duration>,
    /// Original time of the previous record.
    before: Option<Timestamp>,
    /// Position of the last step.
    last: Duration,
}

/// One step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TapeStep {
    /// Output of the command.
    Output(Vec<u8>),
    /// New size of the terminal.
    Resized(Size),
    /// An event without output.
    Message(String),
}

impl Tape {
    /// An empty tape.
    pub(super) fn new(idle_limit: Option<Duration>) -> Self {
        Self {
            steps: VecDeque::new(),
            idle_limit,
            before: None,
            last: Duration::ZERO,
        }
    }

    /// Adds records of the API. Invalid records are skipped.
    pub(super) fn extend(&mut self, records: &[Value]) {
        for record in records {
            if let Ok(event) = serde_json::from_value(record.clone()) {
                self.push(&event);
            }
        }
    }

    fn push(&mut self, event: &RecordedEvent) {
        let Ok(at) = event.created_at.parse::<Timestamp>() else {
            return;
        };
        let is_first = self.before.is_none();
        // A replay never runs backwards.
        let since = at.duration_since(self.before.unwrap_or(at));
        let gap = Duration::try_from(since).unwrap_or_default();
        self.before = Some(self.before.map_or(at, |before| before.max(at)));
        let what = steps_of(event, is_first);
        self.last = self
            .last
            .saturating_add(self.idle_limit.map_or(gap, |limit| gap.min(limit)));
        let at = self.last;
        self.steps.extend(what.into_iter().map(|what| (at, what)));
    }

    /// Position of the next step.
    pub(super) fn next_at(&self) -> Option<Duration> {
        self.steps.front().map(|(at, _)| *at)
    }

    /// The next step, if its position is not later than `by`.
    pub(super) fn take(&mut self, by: Duration) -> Option<TapeStep> {
        let is_due = self.next_at().is_some_and(|at| at <= by);
        let next = is_due.then(|| self.steps.pop_front()).flatten();
        next.map(|(_, what)| what)
    }

    /// Position of the last loaded step.
    pub(super) fn last(&self) -> Duration {
        self.last
    }

    /// Number of remaining steps.
    pub(super) fn len(&self) -> usize {
        self.steps.len()
    }
}

/// The steps for a record.
fn steps_of(event: &RecordedEvent, is_first: bool) -> Vec<TapeStep> {
    let metadata = event.metadata.as_ref();
    let number = |name: &str| {
        let size = metadata?.get("terminal_size")?;
        u32::try_from(size.get(name)?.as_u64()?).ok()
    };
    let size = match (number("row"), number("col")) {
        (Some(rows), Some(cols)) => Size::new(rows, cols),
        _ => None,
    };
    let detail = metadata.and_then(|metadata| metadata.get("detail"));
    let detail = detail.and_then(Value::as_str).unwrap_or_default();
    match (event.event_type, event.stream_type) {
        (RecordType::Data, Some(StreamType::Stdout | StreamType::Stderr)) => {
            let bytes = event.payload_plaintext.as_deref();
            let bytes = bytes.and_then(super::super::decoded);
            bytes.map(TapeStep::Output).into_iter().collect()
        }
        (RecordType::Data, _) => Vec::new(),
        // Output to pipes has lines without a carriage return, which a terminal would add.
        (RecordType::Open, _) if is_first && size.is_none() => {
            vec![TapeStep::Output(SET_NEW_LINE_MODE.as_bytes().to_vec())]
        }
        (RecordType::Open | RecordType::Resize, _) => {
            size.map(TapeStep::Resized).into_iter().collect()
        }
        (RecordType::Close, _) => {
            let code = metadata.and_then(|metadata| metadata.get("exit_code"));
            let code = code.and_then(Value::as_i64);
            vec![TapeStep::Message(code.map_or_else(
                || "it ended".to_owned(),
                |code| format!("ended with exit code {code}"),
            ))]
        }
        (kind, _) if !detail.is_empty() => {
            let who = event.participant_id.as_deref().unwrap_or("the platform");
            vec![TapeStep::Message(format!("{kind}: {who} {detail}"))]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn record(seq: u32, at: &str, more: &Value) -> Value {
        let mut record = json!({
            "id": "evt_1", "session_id": "wts_1", "seq": seq.to_string(),
            "created_at": at, "type": "data", "direction": "server_to_client", "payload_length": 2,
        });
        let members = record.as_object_mut().unwrap();
        members.extend(more.as_object().unwrap().clone());
        record
    }

    fn shown(text: &str) -> Value {
        json!({"stream_type": "stdout", "payload_plaintext": text})
    }

    fn recording() -> Vec<Value> {
        vec![
            record(
                1,
                "2026-01-02T03:04:05.000Z",
                &json!({
                    "type": "open", "metadata": {"terminal_size": {"row": 5, "col": 40}},
                }),
            ),
            record(2, "2026-01-02T03:04:05.500Z", &shown("JCA=")),
            record(
                3,
                "2026-01-02T03:04:06.000Z",
                &json!({
                    "stream_type": "stdin", "payload_plaintext": "bHM=",
                }),
            ),
            record(4, "2026-01-02T03:05:06.000Z", &shown("bHM=")),
            // The clock was set back.
            record(
                5,
                "2026-01-02T03:04:00.000Z",
                &json!({
                    "type": "close", "metadata": {"exit_code": 3},
                }),
            ),
        ]
    }

    #[test]
    fn steps_have_their_original_times() {
        let mut tape = Tape::new(None);
        tape.extend(&recording());
        let size = Size { rows: 5, cols: 40 };
        assert_eq!(tape.take(Duration::ZERO), Some(TapeStep::Resized(size)));
        assert_eq!(tape.take(Duration::from_millis(499)), None);
        let half = Duration::from_millis(500);
        assert_eq!(tape.take(half), Some(TapeStep::Output(b"$ ".to_vec())));
        assert_eq!(tape.next_at(), Some(Duration::from_secs(61)));
        let end = Duration::from_secs(61);
        assert_eq!(tape.take(end), Some(TapeStep::Output(b"ls".to_vec())));
        let said = "ended with exit code 3".to_owned();
        assert_eq!(tape.take(end), Some(TapeStep::Message(said)));
        assert_eq!((tape.len(), tape.last()), (0, end));
    }

    #[test]
    fn long_pauses_are_shortened() {
        let mut tape = Tape::new(Some(Duration::from_secs(1)));
        tape.extend(&recording());
        // Half a second, half a second, one second.
        assert_eq!(tape.last(), Duration::from_secs(2));
    }

    #[test]
    fn lines_of_pipes_get_carriage_returns() {
        let mut tape = Tape::new(None);
        tape.extend(&[record(1, "2026-01-02T03:04:05Z", &json!({"type": "open"}))]);
        let mode = TapeStep::Output(b"\x1b[20h".to_vec());
        assert_eq!(tape.take(Duration::ZERO), Some(mode));
    }
}
