//! What `svc forward` says: plain lines, or JSON lines.
//!
//! The first JSON line is that of a tunnel that is ready; until then only stderr says what is
//! going on. Later lines have a `status`, or are a connection.

use std::io::{IsTerminal, stdout};

use client::{Closed, Connection, HostPort, Status, tunnel::Online};
use jiff::Timestamp;

use super::{panel::screen, qr::Qr};
use crate::{
    failure::Failure,
    lines::{StatusLine, StreamLine, stream_text, why},
    output,
    output::Format,
};

/// The writer of one run.
pub(crate) struct Report {
    format: Format,
    target: String,
    engine: HostPort,
    /// A QR code of the address is still to be printed.
    code: bool,
    /// Where requests can be looked at.
    inspector: Option<String>,
    was_online: bool,
    /// The last trouble told, so that a long outage is one line.
    trouble: Option<String>,
}

impl Report {
    /// A report on a tunnel to `target` through `engine`.
    pub(crate) fn new(format: Format, target: String, engine: HostPort) -> Self {
        Self {
            format,
            target,
            engine,
            code: false,
            inspector: None,
            was_online: false,
            trouble: None,
        }
    }

    /// The same, with a QR code of the address when it is known.
    #[must_use]
    pub(crate) fn with_code(self, code: bool) -> Self {
        Self { code, ..self }
    }

    /// Says where requests can be looked at, once the tunnel is ready.
    pub(crate) fn inspector(&mut self, url: Option<String>) {
        self.inspector = url;
    }

    /// Tells a change. The end is told by [`Report::closed`].
    pub(crate) fn status(&mut self, status: &Status) -> Result<(), Failure> {
        match status {
            Status::Online(online) => self.online(online),
            Status::Disconnected {
                error, retry_in, ..
            } => {
                if self.trouble.as_deref() != Some(error) {
                    output::message(&format!(
                        "not connected to {}: {error}; trying again",
                        self.engine
                    ));
                    self.trouble = Some(error.as_ref().to_owned());
                }
                if self.format == Format::Json && self.was_online {
                    return output::json(&StatusLine::disconnected(error, *retry_in));
                }
                Ok(())
            }
            Status::Connecting | Status::Closed(_) => Ok(()),
        }
    }

    /// Tells the end.
    pub(crate) fn closed(&mut self, closed: &Closed) -> Result<(), Failure> {
        match self.format {
            Format::Json => output::json(&StatusLine::closed(closed)),
            Format::Text if why(closed).is_none() => output::line("closed"),
            // The failure that follows says it.
            Format::Text => Ok(()),
        }
    }

    /// Tells a stream.
    pub(crate) fn stream(&mut self, stream: &Connection) -> Result<(), Failure> {
        let now = Timestamp::now();
        match self.format {
            Format::Json => output::json(&StreamLine::of(stream, now)),
            Format::Text => output::line(&format!("{now:.0} {}", stream_text(stream))),
        }
    }

    fn online(&mut self, online: &Online) -> Result<(), Failure> {
        self.was_online = true;
        self.trouble = None;
        match self.format {
            Format::Json => {
                let line = StatusLine::online(online, self.target.clone(), self.engine.port());
                output::json(&line.inspected(self.inspector.as_deref()))
            }
            Format::Text => {
                let ready = format!("{} -> {}", online.forwarding, self.target);
                match &self.inspector {
                    Some(url) => output::line(&format!("{ready} (inspector: {url})"))?,
                    None => output::line(&ready)?,
                }
                let colours = stdout().is_terminal() && screen::has_colours();
                match Qr::of(&online.forwarding) {
                    Some(qr) if std::mem::take(&mut self.code) => output::line(&qr.text(colours)),
                    _ => Ok(()),
                }
            }
        }
    }
}
