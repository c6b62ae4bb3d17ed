//! Record of a visit, for the access log, the metrics and the platform.

pub(super) mod outcome;
pub(super) mod summary;

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use api::link::StreamRecord;
use serde::Serialize;
use types::id::StreamId;
use types::problem::Problem;
use types::query_credential;
use types::trace::TraceId;
use types::tunnel::{Country, Tunnel};

pub(crate) use self::outcome::Outcome;
use self::summary::CompletedVisit;
use super::revocation::{RevocationGuard, RevocationSignal, access_ended};
use crate::access::{Proof, Rule, VisitorInfo};
use crate::agents::Agent;
use crate::core::Worker;
use crate::directory::Project;
use crate::edge::http2::body::ByteCounter;
use crate::edge::http2::in_flight::{InFlightGuard, InFlightRequests};
use crate::edge::response::error_format::ErrorFormat;
use crate::edge::response::local_response::EdgeResponse;
use crate::limits::{ConcurrencyError, SourceVisit, VisitPermit, permit_visit};
use crate::live::{LiveTunnel, PublishedName};
use crate::managed::Meter;
use crate::random::random_bytes;

/// Record of one request or connection, from its arrival to its end. It is written on drop, so that
/// no error path can lose it.
pub(crate) struct AccessRecord {
    worker: Arc<Worker>,
    started: Instant,
    line: AccessLogEntry,
    outcome: Outcome,
    discarded: bool,
    /// Data for the platform. `None` on a community engine.
    report: Option<Box<Report>>,
    revocation_guard: Option<RevocationGuard>,
    permit: Option<VisitPermit>,
    source_visit: Option<SourceVisit>,
    /// Marks the visitor's connection as busy.
    in_flight: Option<InFlightGuard>,
    /// Counter of the bytes to the service, if another task sends them.
    upload_counter: Option<ByteCounter>,
    /// Time until the stream to the service was open.
    time_to_stream: Option<Duration>,
    time_to_first_byte: Option<Duration>,
}

/// Reason in the log for a visit that was revoked.
const REVOKED: &str = "the visitor's access has ended";

/// Data for the platform that the log line does not contain.
struct Report {
    source: IpAddr,
    tunnel: Option<Arc<Tunnel>>,
    project: Option<Arc<Project>>,
    proof: Option<Proof>,
    /// Description in the response to a visitor without a valid credential.
    detail: Option<Cow<'static, str>>,
    meter: Option<Arc<Meter>>,
    /// Bytes from and to the visitor that are already metered.
    metered: (u64, u64),
}

/// Bytes of a running visit between two updates of the meter. A long download is visible before its
/// end, without an update for each packet.
const METER_STEP: u64 = 64 * 1024;

#[derive(Debug, Default, Serialize)]
struct AccessLogEntry {
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
    /// Without the query, which may contain a credential.
    #[serde(skip_serializing_if = "String::is_empty")]
    path: String,
    /// The trace that the visitor's request belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    trace_id: Option<TraceId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<u16>,
    source_ip: String,
    /// Country of the visitor, if it was looked up and found.
    #[serde(skip_serializing_if = "Option::is_none")]
    country: Option<Country>,
    rule: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<Cow<'static, str>>,
    /// Subject of the rule that refused the visitor.
    #[serde(skip_serializing_if = "Option::is_none")]
    explain: Option<&'static str>,
    /// Code of the problem in the response to the visitor.
    #[serde(skip_serializing_if = "Option::is_none")]
    failure: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    user_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    credential_id: Option<String>,
    /// Authentication method of the visitor.
    #[serde(skip_serializing_if = "Option::is_none")]
    auth_method: Option<&'static str>,
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

impl AccessRecord {
    /// Starts the record of a visit of this `kind` (`http`, `tls`, `tcp`, `dial`).
    pub(crate) fn start(worker: &Arc<Worker>, kind: &'static str, source: IpAddr) -> Self {
        let mut line = AccessLogEntry {
            kind,
            ..AccessLogEntry::default()
        };
        let report = worker.core.reports.is_some().then(|| {
            Box::new(Report {
                source,
                tunnel: None,
                project: None,
                proof: None,
                detail: None,
                meter: None,
                metered: (0, 0),
            })
        });
        if worker.core.access_log.is_some() || report.is_some() {
            line.source_ip = source.to_string();
            line.id = StreamId(random_bytes()).to_string();
        }
        worker.active.fetch_add(1, Ordering::Relaxed);
        Self {
            worker: Arc::clone(worker),
            started: Instant::now(),
            line,
            outcome: Outcome::Abandoned,
            discarded: false,
            report,
            revocation_guard: None,
            permit: None,
            source_visit: None,
            in_flight: None,
            upload_counter: None,
            time_to_stream: None,
            time_to_first_byte: None,
        }
    }

    /// The reference of the record for another engine, if there is one and the record is written.
    pub(crate) fn reference(&self) -> Option<StreamId> {
        self.worker.core.cluster.as_ref()?;
        self.line.id.parse().ok()
    }

    /// Discards the record, because there was no visit to record.
    pub(crate) fn discard(mut self) {
        self.discarded = true;
    }

    /// Continues the earlier record of the same visit, which is discarded.
    pub(crate) fn resume(&mut self, earlier: Self) {
        self.started = earlier.started;
        earlier.discard();
    }

    /// Counts the visit as in flight on a shared connection, until the visit ends.
    pub(crate) fn track_in_flight(&mut self, activity: &Arc<InFlightRequests>) {
        self.in_flight = Some(InFlightRequests::track(activity));
    }

    /// Counts the visit among those of its source address, until the visit ends.
    pub(crate) fn track_source(&mut self, visit: SourceVisit) {
        self.source_visit = Some(visit);
    }

    fn is_logged(&self) -> bool {
        self.worker.core.access_log.is_some() || self.report.is_some()
    }

    /// Sets the request data. It is stored only if it will be written.
    pub(crate) fn set_request(&mut self, method: &str, host: &str, path: &str) {
        if self.is_logged() {
            method.clone_into(&mut self.line.method);
            host.clone_into(&mut self.line.host);
            self.line.path = query_credential::redact_path(path).into_owned();
        }
    }

    /// Sets the trace of the request. `find` is called only if it will be written.
    pub(crate) fn set_trace(&mut self, find: impl FnOnce() -> Option<TraceId>) {
        if self.is_logged() {
            self.line.trace_id = find();
        }
    }

    pub(crate) fn set_tunnel(&mut self, tunnel: &LiveTunnel<Agent>) {
        if self.is_logged() {
            self.line.tunnel_id = Some(tunnel.view.id.to_string());
            self.line.client_id = Some(tunnel.view.client_id.to_string());
        }
        if let Some(report) = &mut self.report {
            report.tunnel = Some(Arc::clone(&tunnel.view));
            report.project = Some(Arc::clone(&tunnel.project));
        }
    }

    /// Sets the country of the visitor, if it was looked up and found.
    pub(crate) fn set_country(&mut self, country: Option<&Country>) {
        if self.is_logged() {
            self.line.country = country.cloned();
        }
    }

    /// Sets the rule that admitted or refused the visitor, and a reason that appears only in the
    /// log.
    pub(crate) fn set_rule(&mut self, rule: &'static str, reason: Option<Cow<'static, str>>) {
        self.line.rule = rule;
        self.line.reason = reason;
    }

    /// Sets the rule that refused the visitor, with its subject.
    pub(crate) fn set_refusal(&mut self, rule: Rule, reason: Option<Cow<'static, str>>) {
        self.set_rule(rule.as_str(), reason);
        self.line.explain = Some(rule.explain());
    }

    /// Error response of the edge. It contains the id of this record as its reference, so that the
    /// operator can find the reason.
    pub(crate) fn problem_answer(&mut self, problem: &Problem, form: ErrorFormat) -> EdgeResponse {
        self.set_status(problem.status);
        self.line.failure = Some(problem.code);
        if problem.status == 401
            && let Some(report) = &mut self.report
        {
            report.detail = Some(problem.detail.clone());
        }
        if self.line.id.is_empty() {
            self.line.id = StreamId(random_bytes()).to_string();
        }
        let problem = problem.clone().with_reference(self.line.id.as_str());
        EdgeResponse::problem(&problem, form, &self.worker.core.page_footer)
    }

    /// Value of `Server-Timing` in milliseconds: the time until the stream to the service was open,
    /// and the time since then.
    pub(crate) fn server_timing(&self) -> String {
        let now = self.started.elapsed();
        let opened = self.time_to_stream.unwrap_or(now);
        format!(
            "edge;desc=\"decision and stream\";dur={}, service;desc=\"answer\";dur={}",
            millis(opened),
            millis(now.saturating_sub(opened)),
        )
    }

    pub(crate) fn set_proof(&mut self, proof: &Proof) {
        if self.is_logged() {
            self.line.user_id = proof.user_id().map(str::to_owned);
            self.line.credential_id = proof.credential_id().map(str::to_owned);
            self.line.auth_method = Some(proof.method());
        }
        if let Some(report) = &mut self.report {
            report.proof = Some(proof.clone());
        }
    }

    /// Acquires a slot among the visits of a project, until this visit ends.
    ///
    /// # Errors
    /// No slot is free. The record states this as the reason.
    pub(crate) fn acquire_slot(&mut self, project: &Arc<Project>) -> Result<(), ConcurrencyError> {
        self.permit = permit_visit(&self.worker.core, project).inspect_err(|error| {
            self.set_refusal(Rule::RateLimit, Some(error.to_string().into()));
        })?;
        Ok(())
    }

    /// Registers the admitted visit. It is revoked when the tunnel would no longer admit the
    /// visitor.
    pub(crate) fn register_visit(
        &mut self,
        tunnel: &Arc<LiveTunnel<Agent>>,
        visitor: VisitorInfo<'_>,
        proof: Option<&Proof>,
    ) {
        let guard = RevocationGuard::register(&self.worker, tunnel, visitor, proof);
        self.revocation_guard = Some(guard);
        if let (Some(report), Some(reports)) = (&mut self.report, &self.worker.core.reports) {
            let meter = reports.usage.meter(&tunnel.project.id);
            meter.begin();
            report.meter = Some(meter);
        }
    }

    /// Moves the visit to another tunnel, after a fail-over. From then on it is revoked when that
    /// tunnel would no longer admit the visitor.
    pub(crate) fn retarget(&mut self, tunnel: &Arc<LiveTunnel<Agent>>) {
        self.set_tunnel(tunnel);
        if let Some(guard) = &self.revocation_guard {
            guard.retarget(tunnel);
        }
    }

    /// Signal that the visit is revoked. `None` if it cannot be revoked.
    pub(crate) fn revocation(&self) -> Option<Arc<RevocationSignal>> {
        self.revocation_guard.as_ref().map(RevocationGuard::signal)
    }

    /// Ready when the visit is revoked, which is recorded. Otherwise the task is woken on
    /// revocation.
    pub(crate) fn poll_revoked(&mut self, cx: &Context<'_>) -> Poll<()> {
        match &self.revocation_guard {
            Some(guard) if guard.poll(cx).is_ready() => {
                self.set_failure(REVOKED);
                Poll::Ready(())
            }
            _ => Poll::Pending,
        }
    }

    pub(crate) fn mark_stream_opened(&mut self) {
        self.time_to_stream = Some(self.started.elapsed());
    }

    pub(crate) fn mark_first_byte(&mut self) {
        self.time_to_first_byte = Some(self.started.elapsed());
    }

    pub(crate) fn set_status(&mut self, status: u16) {
        self.line.status = Some(status);
    }

    pub(crate) fn set_outcome(&mut self, outcome: Outcome) {
        self.outcome = outcome;
    }

    pub(crate) fn set_failure(&mut self, reason: impl Into<Cow<'static, str>>) {
        self.outcome = Outcome::Failed;
        self.line.reason = Some(reason.into());
    }

    /// The visitor closed its connection before the end.
    pub(crate) fn set_abandoned(&mut self, reason: impl Into<Cow<'static, str>>) {
        self.outcome = Outcome::Abandoned;
        self.line.reason = Some(reason.into());
    }

    /// True if the visit has failed so far.
    pub(crate) fn has_failed(&self) -> bool {
        self.outcome == Outcome::Failed
    }

    /// The agent refused the stream that was open: no service received anything of the visit.
    pub(crate) fn set_unreachable(&mut self, reason: impl Into<Cow<'static, str>>) {
        self.time_to_stream = None;
        self.set_failure(reason);
    }

    /// Sets the bytes from and to the visitor so far. It is cheap enough to be called in each step
    /// of a long visit.
    pub(crate) fn set_bytes(&mut self, from_visitor: u64, to_visitor: u64) {
        self.line.bytes_in = from_visitor;
        self.line.bytes_out = to_visitor;
        if let Some(report) = &mut self.report {
            report.meter(from_visitor, to_visitor, METER_STEP);
        }
    }

    /// Sets the counter of the request body, which another task sends to the service.
    pub(crate) fn set_upload_counter(&mut self, counter: ByteCounter) {
        self.upload_counter = Some(counter);
    }

    /// Like [`Self::set_bytes`], with the bytes of the [upload counter](Self::set_upload_counter).
    pub(crate) fn add_sent_bytes(&mut self, to_visitor: u64) {
        let sent = self.upload_counter.as_ref().map_or(0, ByteCounter::bytes);
        // After a fail-over, parts of the request may have been sent to two tunnels in turn.
        self.set_bytes(self.line.bytes_in.max(sent), to_visitor);
    }

    /// Reports a completed visit of duration `total` to the platform, if it belongs to a project.
    fn report(&mut self, total: Duration) {
        let core = &self.worker.core;
        let (Some(mut report), Some(reports)) = (self.report.take(), &core.reports) else {
            return;
        };
        report.meter(self.line.bytes_in, self.line.bytes_out, 1);
        let is_revoked = self.line.reason.as_deref() == Some(REVOKED);
        let has_failed = self.outcome == Outcome::Failed && !is_revoked;
        if let Some(meter) = report.meter.as_ref().filter(|_| has_failed) {
            meter.fail();
        }
        // A request for an unpublished host name of a project is reported to the project as well.
        let named = || {
            let directory = core.tenancy.directory()?;
            match core.namespace.classify(&self.line.host)? {
                PublishedName::Domain(domain) => directory.project(&domain.project),
                label @ PublishedName::Label(_) => directory.project_at(label.endpoint()?),
            }
        };
        let Some(project) = report.project.clone().or_else(named) else {
            return;
        };
        if has_failed && report.meter.is_none() {
            // No agent was online, so the visit was not admitted to a tunnel.
            let meter = reports.usage.meter(&project.id);
            meter.begin();
            meter.fail();
        }
        let state = project.state();
        let tunnel = report.tunnel.as_deref();
        let visit = CompletedVisit {
            stream_id: &self.line.id,
            project_id: &project.id,
            workspace_id: state.workspace_id.as_deref(),
            cluster_id: Some(&core.config.host),
            tunnel_id: self.line.tunnel_id.as_deref(),
            client_id: self.line.client_id.as_deref(),
            user_id: tunnel.and_then(|tunnel| tunnel.user_id.as_deref()),
            kind: self.line.kind,
            source: report.source,
            country: self.line.country.as_ref(),
            method: &self.line.method,
            host: &self.line.host,
            path: &self.line.path,
            trace_id: self.line.trace_id,
            status: self.line.status,
            rule: self.line.rule,
            explain: self.line.explain,
            reason: self.line.reason.as_deref(),
            problem: self.line.failure,
            detail: report.detail.as_deref(),
            proof: report.proof.as_ref(),
            outcome: self.outcome,
            is_revoked,
            ended: core.clock.now(),
            total,
            time_to_stream: self.time_to_stream,
            upstream_bytes: self.line.bytes_in,
            downstream_bytes: self.line.bytes_out,
        };
        let record = StreamRecord {
            project_id: project.id.to_string(),
            stream_id: self.line.id.clone(),
            tunnel_id: self.line.tunnel_id.clone(),
            tunnel_name: tunnel.and_then(name_of),
            user_id: visit.user_id.map(str::to_owned),
            outcome: visit.outcome().to_owned(),
            created_at: visit.created_at(),
            summary: visit.summary(),
        };
        reports
            .records
            .push(api::link::Record::Stream(Box::new(record)));
    }
}

fn name_of(tunnel: &Tunnel) -> Option<String> {
    let name = tunnel.properties.name.as_ref();
    name.map(ToString::to_string)
}

impl Report {
    /// Meters the bytes since the last update of the meter, if there are at least `min_bytes`.
    fn meter(&mut self, from_visitor: u64, to_visitor: u64, min_bytes: u64) {
        let (before_from, before_to) = self.metered;
        let from = from_visitor.saturating_sub(before_from);
        let to = to_visitor.saturating_sub(before_to);
        if let Some(meter) = &self.meter
            && from + to >= min_bytes
        {
            meter.add(from, to);
            self.metered = (from_visitor, to_visitor);
        }
    }
}

impl Drop for AccessRecord {
    fn drop(&mut self) {
        if let Some(guard) = self.revocation_guard.take()
            && guard.is_revoked()
        {
            self.set_failure(REVOKED);
            if self.line.kind == "http" && self.line.status.is_none() {
                let problem = access_ended();
                self.set_status(problem.status);
                self.line.failure = Some(problem.code);
                guard.signal().set_unanswered(&self.line.id);
            }
        }
        self.worker.active.fetch_sub(1, Ordering::Relaxed);
        if self.discarded {
            return;
        }
        // Another task may have sent more bytes since the last update.
        self.add_sent_bytes(self.line.bytes_out);
        let total = self.started.elapsed();
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
        if let Some(first_byte) = self.time_to_first_byte {
            metrics.first_byte_seconds.record(first_byte.as_secs_f64());
        }
        self.report(total);
        let Some(log) = &self.worker.core.access_log else {
            return;
        };
        self.line.time = self.worker.core.clock.now().to_string();
        self.line.open_ms = self.time_to_stream.map(millis);
        self.line.first_byte_ms = self.time_to_first_byte.map(millis);
        self.line.total_ms = millis(total);
        self.line.outcome = Some(self.outcome);
        if let Ok(line) = serde_json::to_vec(&self.line) {
            log.write(line);
        }
    }
}

impl std::fmt::Debug for AccessRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("AccessRecord")
            .field("line", &self.line)
            .finish_non_exhaustive()
    }
}

fn millis(duration: Duration) -> f64 {
    // A resolution of microseconds is sufficient.
    (duration.as_secs_f64() * 1_000_000.0).round() / 1000.0
}
