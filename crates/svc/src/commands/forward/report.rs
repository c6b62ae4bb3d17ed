//! Output of `svc forward` as plain lines or JSON lines.
//!
//! The first JSON line appears when the tunnel is ready. Progress before that goes only to stderr.
//! Later lines have a `status`, or describe a connection or an inspected request.

use std::io::{IsTerminal, stdout};

use client::{CloseReason, Connection, HostPort, Status, tunnel::Online};
use inspector::Summary;
use jiff::Timestamp;

use super::{panel::screen, qr::Qr};
use crate::engine_client::lines::{RequestLine, StatusLine, StreamLine, close_reason, stream_text};
use crate::failure::Failure;
use crate::output;
use crate::output::Format;

/// Writer of the output of one run.
pub(crate) struct Report {
    format: Format,
    target: String,
    engine: HostPort,
    /// True while the QR code of the address is still to be printed.
    code: bool,
    /// Address of the inspector.
    inspector: Option<String>,
    was_online: bool,
    /// The last reported error, so that a long outage is one line.
    last_error: Option<String>,
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
            last_error: None,
        }
    }

    /// Prints a QR code of the address as well, once it is known.
    #[must_use]
    pub(crate) fn with_code(self, code: bool) -> Self {
        Self { code, ..self }
    }

    /// Prints the inspector's address once the tunnel is ready.
    pub(crate) fn set_inspector(&mut self, url: Option<String>) {
        self.inspector = url;
    }

    /// Reports a status change. [`Report::closed`] reports the end.
    ///
    /// `failure` explains a disconnection, if its cause is known.
    pub(crate) fn status(
        &mut self,
        status: &Status,
        failure: Option<&Failure>,
    ) -> Result<(), Failure> {
        match status {
            Status::Online(online) => self.online(online),
            Status::Disconnected {
                error, retry_in, ..
            } => {
                if self.last_error.as_deref() != Some(error) {
                    let message = failure.map_or(error.as_ref(), Failure::message);
                    output::message(&format!(
                        "not connected to {}: {message}; trying again",
                        self.engine
                    ));
                    if let Some(hint) = failure.and_then(Failure::next_step) {
                        output::message(&format!("hint: {hint}"));
                    }
                    self.last_error = Some(error.as_ref().to_owned());
                }
                if self.format == Format::Json && self.was_online {
                    return output::json(&StatusLine::disconnected(error, *retry_in));
                }
                Ok(())
            }
            Status::Connecting | Status::Closed(_) => Ok(()),
        }
    }

    /// Reports the end of the tunnel.
    pub(crate) fn closed(&mut self, closed: &CloseReason) -> Result<(), Failure> {
        match self.format {
            Format::Json => output::json(&StatusLine::closed(closed)),
            Format::Text if close_reason(closed).is_none() => output::line("closed"),
            // The failure that follows contains the reason.
            Format::Text => Ok(()),
        }
    }

    /// Reports a stream.
    pub(crate) fn stream(&mut self, stream: &Connection) -> Result<(), Failure> {
        let now = Timestamp::now();
        match self.format {
            Format::Json => output::json(&StreamLine::of(stream, now)),
            Format::Text => output::line(&format!("{now:.0} {}", stream_text(stream))),
        }
    }

    /// Reports a request that has ended, as a JSON line.
    pub(crate) fn request(request: &Summary) -> Result<(), Failure> {
        output::json(&RequestLine { request })
    }

    fn online(&mut self, online: &Online) -> Result<(), Failure> {
        self.was_online = true;
        self.last_error = None;
        match self.format {
            Format::Json => {
                let line = StatusLine::online(online, self.target.clone(), self.engine.port());
                output::json(&line.with_inspector(self.inspector.as_deref()))
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
