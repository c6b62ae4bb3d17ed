//! JSON lines about tunnels and their streams, one object each.

use client::{CloseReason, Connection, tunnel::Online};
use inspector::Summary;
use jiff::Timestamp;
use serde::Serialize;

/// A status change of a tunnel. Values that are not known are omitted.
#[derive(Debug, Default, Serialize)]
pub(crate) struct StatusLine<'a> {
    pub(crate) status: &'static str,
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
    /// Address of the inspector.
    #[serde(skip_serializing_if = "Option::is_none")]
    inspector: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_in_ms: Option<u64>,
}

impl<'a> StatusLine<'a> {
    /// An online tunnel to `target`, through an engine on `engine_port`.
    pub(crate) fn online(online: &'a Online, target: String, engine_port: u16) -> Self {
        let properties = &online.properties;
        Self {
            status: "online",
            tunnel_id: Some(&online.tunnel_id),
            client_id: Some(&online.client_id),
            name: properties.name.as_deref(),
            hostname: properties.hostname.as_deref(),
            port: properties
                .hostname
                .is_some()
                .then(|| properties.port.unwrap_or(engine_port)),
            forwarding: Some(&online.forwarding),
            forwarded: Some(target),
            ..Self::default()
        }
    }

    /// Adds the address of the inspector.
    pub(crate) fn with_inspector(self, inspector: Option<&'a str>) -> Self {
        Self { inspector, ..self }
    }

    /// A tunnel that is reconnecting.
    pub(crate) fn disconnected(error: &'a str, retry_in: std::time::Duration) -> Self {
        Self {
            status: "disconnected",
            error: Some(error),
            retry_in_ms: Some(u64::try_from(retry_in.as_millis()).unwrap_or(u64::MAX)),
            ..Self::default()
        }
    }

    /// A closed tunnel.
    pub(crate) fn closed(closed: &'a CloseReason) -> Self {
        Self {
            status: "closed",
            error: close_reason(closed),
            ..Self::default()
        }
    }
}

/// A stream that started or ended.
#[derive(Debug, Serialize)]
pub(crate) struct StreamLine<'a> {
    stream_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_ip: Option<String>,
    active: bool,
    date: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<&'a str>,
}

impl<'a> StreamLine<'a> {
    /// A stream at the time `now`.
    pub(crate) fn of(stream: &'a Connection, now: Timestamp) -> Self {
        Self {
            stream_id: &stream.stream_id,
            source_ip: stream.source_ip.map(|ip| ip.to_string()),
            active: stream.active,
            date: format!("{now:.3}"),
            error: stream.error.as_deref(),
        }
    }
}

/// A request that has ended, as in the inspector's API.
#[derive(Debug, Serialize)]
pub(crate) struct RequestLine<'a> {
    pub(crate) request: &'a Summary,
}

/// A stream as one line of text.
pub(crate) fn stream_text(stream: &Connection) -> String {
    let what = match (stream.active, &stream.error) {
        (true, _) => "opened".to_owned(),
        (false, None) => "closed".to_owned(),
        (false, Some(error)) => format!("failed: {error}"),
    };
    let source = stream
        .source_ip
        .map_or_else(|| "-".to_owned(), |ip| ip.to_string());
    format!("{} {source} {what}", stream.stream_id)
}

/// The reason why a tunnel closed. `None` if its owner closed it.
pub(crate) fn close_reason(closed: &CloseReason) -> Option<&str> {
    match closed {
        CloseReason::Refused(refusal) => Some(&refusal.message),
        CloseReason::Asked => None,
        _ => Some("the engine closed the tunnel"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_exactly_the_documented_fields() {
        let online = Online::new(
            "tun_1",
            "cli_1",
            client::Properties::http().hostname("web.t.engine.localhost"),
            "https://web.t.engine.localhost:8443",
        );
        assert_eq!(
            serde_json::to_string(&StatusLine::online(
                &online,
                "localhost:3000".to_owned(),
                8443
            ))
            .unwrap(),
            r#"{"status":"online","tunnel_id":"tun_1","client_id":"cli_1","hostname":"web.t.engine.localhost","port":8443,"forwarding":"https://web.t.engine.localhost:8443","forwarded":"localhost:3000"}"#
        );
        assert_eq!(
            serde_json::to_string(&StatusLine::closed(&CloseReason::Asked)).unwrap(),
            r#"{"status":"closed"}"#
        );
    }
}
