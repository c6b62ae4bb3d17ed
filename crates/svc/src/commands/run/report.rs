//! Output of `svc run`: plain lines, or the JSON lines of `svc forward` with the tunnel's key.
//!
//! Errors go to stderr in both formats, for log readers.

use std::collections::BTreeMap;

use client::{CloseReason, Connection, Status, Target};
use daemon::config::{ConfigError, Origin};
use jiff::Timestamp;
use serde::Serialize;

use super::agent_set::AppliedChanges;
use crate::engine_client::lines::{StatusLine, StreamLine, close_reason, stream_text};
use crate::failure::Failure;
use crate::output;
use crate::output::Format;

/// Writer of the output of one run.
pub(super) struct Report {
    format: Format,
    /// The last reported error of each tunnel, so that a long outage is one line.
    troubles: BTreeMap<String, String>,
}

/// A line about a tunnel.
#[derive(Serialize)]
struct TunnelLine<'a, T> {
    tunnel: &'a str,
    #[serde(flatten)]
    line: T,
}

/// An applied configuration.
#[derive(Serialize)]
struct AppliedLine<'a> {
    status: &'static str,
    added: &'a [String],
    changed: &'a [String],
    removed: &'a [String],
    unchanged: usize,
}

/// A rejected configuration. The previous one stays active.
#[derive(Serialize)]
struct RejectedLine<'a> {
    status: &'static str,
    errors: Vec<ErrorLine<'a>>,
}

#[derive(Default, Serialize)]
struct ErrorLine<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    column: Option<u64>,
    #[serde(skip_serializing_if = "str::is_empty")]
    key: &'a str,
    message: &'a str,
}

impl Report {
    /// A report in one of the formats.
    pub(super) fn new(format: Format) -> Self {
        Self {
            format,
            troubles: BTreeMap::new(),
        }
    }

    /// Reports a status change of a tunnel. `failure` explains a disconnection, if its cause is
    /// known.
    pub(super) fn status(
        &mut self,
        key: &str,
        status: &Status,
        target: &Target,
        engine_port: u16,
        failure: Option<&Failure>,
    ) -> Result<(), Failure> {
        match status {
            Status::Connecting => Ok(()),
            Status::Online(online) => {
                self.troubles.remove(key);
                match self.format {
                    Format::Json => json(
                        key,
                        StatusLine::online(online, target.to_string(), engine_port),
                    ),
                    Format::Text => {
                        output::line(&format!("{key}: {} -> {target}", online.forwarding))
                    }
                }
            }
            Status::Disconnected {
                error, retry_in, ..
            } => {
                if self.troubles.get(key).map(String::as_str) != Some(error) {
                    let message = failure.map_or(error.as_ref(), Failure::message);
                    output::message(&format!("{key}: not connected: {message}; trying again"));
                    if let Some(hint) = failure.and_then(Failure::next_step) {
                        output::message(&format!("hint: {hint}"));
                    }
                    self.troubles
                        .insert(key.to_owned(), error.as_ref().to_owned());
                }
                match self.format {
                    Format::Json => json(key, StatusLine::disconnected(error, *retry_in)),
                    Format::Text => Ok(()),
                }
            }
            Status::Closed(closed) => self.closed(key, closed),
        }
    }

    /// Reports the end of a tunnel.
    pub(super) fn closed(&mut self, key: &str, closed: &CloseReason) -> Result<(), Failure> {
        self.troubles.remove(key);
        if let Some(error) = close_reason(closed) {
            output::message(&format!("{key}: {}", output::plain(error)));
        }
        match self.format {
            Format::Json => json(key, StatusLine::closed(closed)),
            Format::Text => output::line(&format!("{key}: closed")),
        }
    }

    /// Reports a stream of a tunnel.
    pub(super) fn stream(&self, key: &str, stream: &Connection) -> Result<(), Failure> {
        let now = Timestamp::now();
        match self.format {
            Format::Json => json(key, StreamLine::of(stream, now)),
            Format::Text => output::line(&format!("{now:.0} {key} {}", stream_text(stream))),
        }
    }

    /// Reports the changes of a new configuration.
    pub(super) fn applied(&self, applied: &AppliedChanges) -> Result<(), Failure> {
        match self.format {
            Format::Json => output::json(&AppliedLine {
                status: "applied",
                added: &applied.added,
                changed: &applied.changed,
                removed: &applied.removed,
                unchanged: applied.unchanged,
            }),
            Format::Text => output::line(&format!(
                "applied: {} added, {} changed, {} removed, {} unchanged",
                applied.added.len(),
                applied.changed.len(),
                applied.removed.len(),
                applied.unchanged
            )),
        }
    }

    /// Reports why a configuration is rejected while the previous one stays active.
    pub(super) fn rejected(&self, errors: &[ConfigError]) -> Result<(), Failure> {
        for error in errors {
            output::message(&format!("error: {error}"));
        }
        output::message("nothing was changed: the previous configuration stays active");
        match self.format {
            Format::Json => output::json(&RejectedLine {
                status: "rejected",
                errors: errors.iter().map(ErrorLine::of).collect(),
            }),
            Format::Text => Ok(()),
        }
    }
}

fn json(tunnel: &str, line: impl Serialize) -> Result<(), Failure> {
    output::json(&TunnelLine { tunnel, line })
}

impl<'a> ErrorLine<'a> {
    fn of(error: &'a ConfigError) -> Self {
        let bare = Self {
            key: &error.key,
            message: &error.message,
            ..Self::default()
        };
        match &error.origin {
            Some(Origin::File { path, line, column }) => Self {
                file: Some(path),
                line: Some(*line),
                column: Some(*column),
                ..bare
            },
            _ => bare,
        }
    }
}
