//! What `svc forward` says: plain lines, or JSON lines.
//!
//! The first JSON line is that of a tunnel that is ready; until then only stderr says what is
//! going on. Later lines have a `status`, or are a connection.

use std::io::{IsTerminal, stdout};

use client::{Closed, Connection, HostPort, Status, tunnel::Online};
use jiff::Timestamp;
use serde::Serialize;

use super::{panel::screen, qr::Qr};
use crate::{cli::Format, failure::Failure, output};

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

/// A tunnel that changed.
#[derive(Serialize)]
struct StatusLine<'a> {
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tunnel_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hostname: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forwarding: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    forwarded: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    inspector: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_in_ms: Option<u64>,
}

/// A stream that began or ended.
#[derive(Serialize)]
struct StreamLine<'a> {
    stream_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_ip: Option<String>,
    active: bool,
    date: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
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
            Status::Disconnected { error, retry_in } => {
                if self.trouble.as_deref() != Some(error) {
                    output::message(&format!(
                        "not connected to {}: {error}; trying again",
                        self.engine
                    ));
                    self.trouble = Some(error.as_ref().to_owned());
                }
                if self.format == Format::Json && self.was_online {
                    let millis = u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX);
                    return output::json(&StatusLine {
                        error: Some(error),
                        retry_in_ms: Some(millis),
                        ..StatusLine::of("disconnected")
                    });
                }
                Ok(())
            }
            Status::Connecting | Status::Closed(_) => Ok(()),
        }
    }

    /// Tells the end.
    pub(crate) fn closed(&mut self, closed: &Closed) -> Result<(), Failure> {
        let error = match closed {
            Closed::Refused(refusal) => Some(refusal.message.as_str()),
            Closed::ByEngine => Some("the engine closed the tunnel"),
            Closed::Asked => None,
        };
        match self.format {
            Format::Json => output::json(&StatusLine {
                error,
                ..StatusLine::of("closed")
            }),
            Format::Text if error.is_none() => output::line("closed"),
            // The failure that follows says it.
            Format::Text => Ok(()),
        }
    }

    /// Tells a stream.
    pub(crate) fn stream(&mut self, stream: &Connection) -> Result<(), Failure> {
        let now = Timestamp::now();
        let source = stream.source_ip.map(|ip| ip.to_string());
        match self.format {
            Format::Json => output::json(&StreamLine {
                stream_id: &stream.stream_id,
                source_ip: source,
                active: stream.active,
                date: format!("{now:.3}"),
                error: stream.error.as_deref(),
            }),
            Format::Text => {
                let what = match (stream.active, &stream.error) {
                    (true, _) => "opened".to_owned(),
                    (false, None) => "closed".to_owned(),
                    (false, Some(error)) => format!("failed: {error}"),
                };
                let source = source.as_deref().unwrap_or("-");
                output::line(&format!("{now:.0} {} {source} {what}", stream.stream_id))
            }
        }
    }

    fn online(&mut self, online: &Online) -> Result<(), Failure> {
        self.was_online = true;
        self.trouble = None;
        let properties = &online.properties;
        match self.format {
            Format::Json => output::json(&StatusLine {
                tunnel_id: Some(&online.tunnel_id),
                client_id: Some(&online.client_id),
                name: properties.name.as_deref(),
                hostname: properties.hostname.as_deref(),
                port: properties
                    .hostname
                    .is_some()
                    .then(|| properties.port.unwrap_or(self.engine.port())),
                forwarding: Some(&online.forwarding),
                forwarded: Some(self.target.clone()),
                inspector: self.inspector.as_deref(),
                ..StatusLine::of("online")
            }),
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

impl StatusLine<'_> {
    fn of(status: &'static str) -> Self {
        Self {
            status,
            tunnel_id: None,
            client_id: None,
            name: None,
            hostname: None,
            port: None,
            forwarding: None,
            forwarded: None,
            inspector: None,
            error: None,
            retry_in_ms: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_fields_that_programs_read_and_no_others() {
        let line = StatusLine {
            tunnel_id: Some("tun_1"),
            hostname: Some("web.t.engine.localhost"),
            port: Some(8443),
            forwarding: Some("https://web.t.engine.localhost:8443"),
            forwarded: Some("localhost:3000".to_owned()),
            ..StatusLine::of("online")
        };
        assert_eq!(
            serde_json::to_string(&line).unwrap(),
            r#"{"status":"online","tunnel_id":"tun_1","hostname":"web.t.engine.localhost","port":8443,"forwarding":"https://web.t.engine.localhost:8443","forwarded":"localhost:3000"}"#
        );
        assert_eq!(
            serde_json::to_string(&StatusLine::of("closed")).unwrap(),
            r#"{"status":"closed"}"#
        );
    }
}
