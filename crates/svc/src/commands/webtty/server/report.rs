//! Output of `svc webtty server` about its address and its sessions, as text or JSON lines.

use std::{net::SocketAddr, sync::Arc};

use client::{CloseReason, HostPort, Status};
use jiff::Timestamp;
use serde::Serialize;
use terminal::{
    inventory::Transport,
    server::{Event, Observer},
};
use tokio::sync::mpsc;
use tty::message::TerminationReason;

use crate::engine_client::lines::StatusLine;
use crate::failure::Failure;
use crate::output;
use crate::output::Format;

/// Writer of a tunnel's status changes.
pub(super) struct Report {
    format: Format,
    engine: HostPort,
    was_online: bool,
    /// The last reported error, so that a long outage is one line.
    last_error: Option<String>,
}

impl Report {
    pub(super) fn new(format: Format, engine: HostPort) -> Self {
        Self {
            format,
            engine,
            was_online: false,
            last_error: None,
        }
    }

    pub(super) fn status(&mut self, status: &Status) -> Result<(), Failure> {
        match status {
            Status::Online(online) => {
                self.was_online = true;
                self.last_error = None;
                match self.format {
                    Format::Json => output::json(&StatusLine::online(
                        online,
                        TERMINALS.to_owned(),
                        self.engine.port(),
                    )),
                    Format::Text => output::line(&format!("{} -> {TERMINALS}", online.forwarding)),
                }
            }
            Status::Disconnected {
                error, retry_in, ..
            } => {
                if self.last_error.as_deref() != Some(error) {
                    output::message(&format!(
                        "not connected to {}: {error}; trying again",
                        self.engine
                    ));
                    self.last_error = Some(error.as_ref().to_owned());
                }
                if self.format == Format::Json && self.was_online {
                    return output::json(&StatusLine::disconnected(error, *retry_in));
                }
                Ok(())
            }
            // The failure that follows also contains the reason.
            Status::Closed(closed) if self.format == Format::Json => {
                output::json(&StatusLine::closed(closed))
            }
            Status::Connecting | Status::Closed(_) => Ok(()),
        }
    }

    /// Reports a requested shutdown.
    pub(super) fn closed(&self) -> Result<(), Failure> {
        match self.format {
            Format::Json => output::json(&StatusLine::closed(&CloseReason::Asked)),
            Format::Text => output::line("closed"),
        }
    }
}

/// Session events, passed through a bounded queue so that a slow reader does not delay terminals.
pub(super) struct Sessions {
    format: Format,
    lines: mpsc::Receiver<SessionReport>,
}

/// A session that started or ended.
#[derive(Debug, Serialize)]
pub(super) struct SessionReport {
    #[serde(skip)]
    format: Format,
    session: &'static str,
    session_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_ip: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    account: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    terminal: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    date: String,
}

/// A listening address.
#[derive(Serialize)]
struct ListenAddress {
    status: &'static str,
    #[serde(rename = "listening")]
    address: String,
    forwarding: String,
}

impl Sessions {
    pub(super) fn new(format: Format) -> (Self, Observer) {
        let (told, lines) = mpsc::channel(LINES);
        let observer: Observer = Arc::new(move |event| {
            // If the queue is full, the line is dropped. The session is not affected.
            drop(told.try_send(SessionReport::of(&event, format)));
        });
        (Self { format, lines }, observer)
    }

    /// The next line. Cancel safe.
    pub(super) async fn next(&mut self) -> Option<SessionReport> {
        self.lines.recv().await
    }

    /// Prints the remaining lines after the last session.
    pub(super) fn write_remaining(&mut self) -> Result<(), Failure> {
        while let Ok(line) = self.lines.try_recv() {
            line.write()?;
        }
        Ok(())
    }

    /// Reports the address for clients.
    pub(super) fn listening(&self, address: SocketAddr, speaks: Transport) -> Result<(), Failure> {
        let scheme = match speaks {
            Transport::WebSocket => "ws",
            Transport::Plain => "tcp",
        };
        let forwarding = format!("{scheme}://{address}");
        match self.format {
            Format::Json => output::json(&ListenAddress {
                status: "online",
                address: address.to_string(),
                forwarding,
            }),
            Format::Text => output::line(&format!("{forwarding} -> {TERMINALS}")),
        }
    }
}

impl SessionReport {
    fn of(event: &Event<'_>, format: Format) -> Self {
        let line = |session, session_id: &str| Self {
            format,
            session,
            session_id: session_id.to_owned(),
            source_ip: None,
            account: None,
            terminal: None,
            exit_code: None,
            reason: None,
            duration_ms: None,
            date: format!("{:.3}", Timestamp::now()),
        };
        match event {
            Event::Opened {
                session_id,
                source,
                account,
                has_terminal,
            } => Self {
                source_ip: source.map(|ip| ip.to_string()),
                account: account.map(str::to_owned),
                terminal: Some(*has_terminal),
                ..line("opened", session_id)
            },
            Event::Closed {
                session_id,
                exit_code,
                reason,
                duration,
            } => Self {
                exit_code: *exit_code,
                reason: reason.map(name),
                duration_ms: Some(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)),
                ..line("closed", session_id)
            },
        }
    }

    pub(super) fn write(&self) -> Result<(), Failure> {
        if self.format == Format::Json {
            return output::json(self);
        }
        let mut text = format!("{} {} {}", self.date, self.session_id, self.session);
        let exit = self.exit_code.map(|code| format!("exit {code}"));
        let parts = [&self.source_ip, &self.account, &exit].map(Option::as_deref);
        for part in parts.into_iter().chain([self.reason]).flatten() {
            text.push(' ');
            text.push_str(&output::plain(part));
        }
        output::line(&text)
    }
}

/// The reason of a session's end, as a machine-readable name.
fn name(reason: TerminationReason) -> &'static str {
    match reason {
        TerminationReason::Unspecified => "unknown",
        TerminationReason::Exited => "exited",
        TerminationReason::Signalled => "signalled",
        TerminationReason::ClientLost => "client_lost",
        TerminationReason::Idle => "idle",
        TerminationReason::Duration => "duration",
        TerminationReason::Drain => "drain",
        TerminationReason::Terminated => "terminated",
        TerminationReason::Recording => "recording",
    }
}

/// Shown as the target of the tunnel.
const TERMINALS: &str = "terminals";

/// Lines that wait for the reader: start and end of more sessions than the default limit.
const LINES: usize = 256;
