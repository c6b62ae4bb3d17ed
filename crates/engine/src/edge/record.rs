//! What is written down about a visit: one line of JSON, and the metrics.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::access::Proof;
use crate::agents::{Agent, random_bytes};
use crate::core::Worker;
use crate::live::LiveTunnel;
use types::id::StreamId;

/// One request or one connection, from its arrival to its end. Written when it is dropped, so
/// that nothing that happens on the way loses it.
pub(crate) struct Record {
    worker: Arc<Worker>,
    begun: Instant,
    line: Line,
    outcome: Outcome,
    forgotten: bool,
    /// When the stream to the service was there.
    opened: Option<Duration>,
    first_byte: Option<Duration>,
}

/// How a visit ended, for the metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Outcome {
    /// Answered by the service to the end.
    Served,
    /// Answered by the edge, before the service heard of it.
    Refused,
    /// The service could not be reached, or broke off.
    Failed,
    /// The visitor left before the end.
    Abandoned,
}

impl Outcome {
    /// Name in metrics, as in the log.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Served => "served",
            Self::Refused => "refused",
            Self::Failed => "failed",
            Self::Abandoned => "abandoned",
        }
    }
}

#[derive(Debug, Default, Serialize)]
struct Line {
    /// RFC 3339, with microseconds.
    time: String,
    id: String,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    tunnel_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    client_id: Option<String>,
    #[serde(skip_serializing_if = "String::is_empty")]
    host: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    method: String,
    /// Without the query, which may hold a credential.
    #[serde(skip_serializing_if = "String::is_empty")]
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    source_ip: String,
    rule: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'static, str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential_id: Option<String>,
    bytes_in: u64,
    bytes_out: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    open_ms: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    first_byte_ms: Option<f64>,
    total_ms: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    outcome: Option<Outcome>,
}

impl Record {
    /// Begins the record of a visit of this `kind` (`http`, `tls`, `tcp`, `dial`).
    pub(crate) fn begin(worker: &Arc<Worker>, kind: &'static str, source: IpAddr) -> Self {
        let mut line = Line {
            kind,
            ..Line::default()
        };
        if worker.core.access_log.is_some() {
            line.source_ip = source.to_string();
            line.id = StreamId(random_bytes()).to_string();
        }
        worker.active.fetch_add(1, Ordering::Relaxed);
        Self {
            worker: Arc::clone(worker),
            begun: Instant::now(),
            line,
            outcome: Outcome::Abandoned,
            forgotten: false,
            opened: None,
            first_byte: None,
        }
    }

    /// There was nothing to record yet.
    pub(crate) fn forget(mut self) {
        self.forgotten = true;
    }

    fn wanted(&self) -> bool {
        self.worker.core.access_log.is_some()
    }

    /// What was asked for. Kept only where it will be written.
    pub(crate) fn request(&mut self, method: &str, host: &str, path: &str) {
        if self.wanted() {
            method.clone_into(&mut self.line.method);
            host.clone_into(&mut self.line.host);
            path.clone_into(&mut self.line.path);
        }
    }

    pub(crate) fn tunnel(&mut self, tunnel: &LiveTunnel<Agent>) {
        if self.wanted() {
            self.line.tunnel_id = Some(tunnel.view.id.to_string());
            self.line.client_id = Some(tunnel.view.client_id.to_string());
        }
    }

    /// Which rule let the visitor in or kept it out, and what the log alone may know about it.
    pub(crate) fn decided(&mut self, rule: &'static str, reason: Option<Cow<'static, str>>) {
        self.line.rule = rule;
        self.line.reason = reason;
    }

    pub(crate) fn proof(&mut self, proof: &Proof) {
        if self.wanted() {
            self.line.user_id = proof.user_id().map(str::to_owned);
            self.line.credential_id = proof.credential_id().map(str::to_owned);
        }
    }

    pub(crate) fn opened(&mut self) {
        self.opened = Some(self.begun.elapsed());
    }

    pub(crate) fn first_byte(&mut self) {
        self.first_byte = Some(self.begun.elapsed());
    }

    pub(crate) fn status(&mut self, status: u16) {
        self.line.status = Some(status);
    }

    pub(crate) fn ended(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    pub(crate) fn failed(&mut self, reason: impl Into<Cow<'static, str>>) {
        self.outcome = Outcome::Failed;
        self.line.reason = Some(reason.into());
    }

    /// Bytes from and to the visitor.
    pub(crate) fn bytes(&mut self, from_visitor: u64, to_visitor: u64) {
        self.line.bytes_in = from_visitor;
        self.line.bytes_out = to_visitor;
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        self.worker.active.fetch_sub(1, Ordering::Relaxed);
        if self.forgotten {
            return;
        }
        let total = self.begun.elapsed();
        let metrics = &self.worker.core.metrics;
        metrics.visit_ended(
            self.line.kind,
            self.outcome,
            self.line.status,
            self.line.rule,
        );
        metrics.bytes_in.increment(self.line.bytes_in);
        metrics.bytes_out.increment(self.line.bytes_out);
        metrics.visit_seconds.record(total.as_secs_f64());
        if let Some(first_byte) = self.first_byte {
            metrics.first_byte_seconds.record(first_byte.as_secs_f64());
        }
        let Some(log) = &self.worker.core.access_log else {
            return;
        };
        self.line.time = self.worker.core.clock.now().to_string();
        self.line.open_ms = self.opened.map(millis);
        self.line.first_byte_ms = self.first_byte.map(millis);
        self.line.total_ms = millis(total);
        self.line.outcome = Some(self.outcome);
        if let Ok(line) = serde_json::to_vec(&self.line) {
            log.write(line);
        }
    }
}

impl std::fmt::Debug for Record {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Record")
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

fn millis(duration: Duration) -> f64 {
    // Microseconds are precise enough, and short to read.
    (duration.as_secs_f64() * 1_000_000.0).round() / 1000.0
}
