//! `POST /link/v1/reports`: reports from engines.
//!
//! A batch and the record of its arrival are one transaction. An interruption therefore stores
//! either all of it or nothing. A malformed record rejects the batch. Records about a project that
//! the engine does not serve are skipped, because the project may have been deleted or moved while
//! the batch waited at the engine.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use api::link::{
    CertificateOrderRecord, CredentialUseRecord, EDGE_SESSION, EDGE_SESSION_SECONDS, EventRecord,
    InventoryRecord, MAX_PROBLEM_BYTES, MAX_RECORDS, MAX_REPORT_BYTES, Receipt, Record, Report,
    SessionEndedRecord, StreamRecord, TurnUsageRecord, UsageRecord, VERSION,
};
use axum::Json;
use axum::extract::{Request, State};
use axum::response::{IntoResponse as _, Response};
use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize as _;
use serde_json::Value;
use store::domains::{self, OrderState};
use store::stored_records::{self, StoredRecords};
use store::usage::{TurnUsage, Usage};
use store::{Tx, directory, engines, events, logs, revoked_tokens, usage};
use types::event::{Event, EventType};
use types::id::{CredentialId, ProjectId};
use types::json::Limits;
use types::problem::Problem;

use super::caller::{Engine, LINK_VERSION};
use super::certificates;
use super::cluster::Cluster;
use super::credential_use;
use super::report_counts::{ReportCounts, ServedProjects};
use super::streams::{Stream, store_stream};
use super::traffic::{TrafficSums, Visit};
use super::tunnel_closed::{self, ClosedTunnel};
use crate::app::App;
use crate::billing::plans::Catalogue;
use crate::http_api::extract::{read_body, read_json_within};
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::http_api::user_text::printable;
use crate::runtime::metrics;
use crate::webhooks;

/// Stores a batch, unless it was stored before.
pub(super) async fn receive(
    engine: Engine,
    State(app): State<Arc<App>>,
    request: Request,
) -> HandlerResult<Response> {
    let body = read_body(request.into_body(), MAX_REPORT_BYTES).await?;
    let report: Report = read_json_within(&body, LIMITS)?;
    drop(body);
    // Relays are exposed to the internet and report only TURN usage.
    let is_relay = engine.cluster.relay_realm.is_some();
    let is_foreign = |record: &Record| !matches!(record, Record::TurnUsage(_) | Record::Unknown);
    if is_relay && let Some(index) = report.records.iter().position(is_foreign) {
        let field = format!("records.{index}.record");
        return Err(bad(&field, "a relay may only report turn_usage"));
    }
    let batch = Batch::of(report, app.now())?;
    let through = batch.store(&app, &engine.cluster).await?;
    let mut response = Json(Receipt { through }).into_response();
    let version = HeaderValue::from_static(VERSION);
    response.headers_mut().insert(LINK_VERSION, version);
    Ok(response)
}

/// Sums of a project by the start of the hour.
type Hourly<T> = BTreeMap<(ProjectId, Timestamp), T>;

/// A report with validated values that can be stored.
struct Batch {
    reporter: String,
    sequence: i64,
    now: Timestamp,
    streams: Vec<Stream>,
    events: Vec<(ProjectId, Event)>,
    /// Sorted by project and time, so that two concurrent batches lock rows in the same order.
    usage: Hourly<Usage>,
    turn: Hourly<TurnUsage>,
    inventory: BTreeMap<ProjectId, (u32, u32)>,
    /// Ended sessions at tunnels.
    sessions: BTreeSet<(ProjectId, String)>,
    /// Certificates that the engine orders, by project and name.
    orders: BTreeMap<(ProjectId, String), OrderState>,
    /// Certificates of the engine's own names: the last record of the batch.
    certificates: Option<Value>,
    /// The last use of each credential.
    uses: BTreeMap<CredentialId, Timestamp>,
    closed: Vec<ClosedTunnel>,
}

impl Batch {
    fn of(report: Report, now: Timestamp) -> HandlerResult<Self> {
        let is_hex = |text: &str, digits| {
            text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        };
        if !is_hex(&report.reporter, 32) {
            return Err(bad("reporter", "expected 32 hexadecimal digits"));
        }
        let sequence = i64::try_from(report.sequence).ok();
        let sequence = sequence.filter(|sequence| *sequence >= 1);
        if report.records.len() > MAX_RECORDS {
            let message = format!("expected at most {MAX_RECORDS} records");
            return Err(bad("records", &message));
        }
        let mut batch = Self {
            reporter: report.reporter,
            sequence: sequence.ok_or_else(|| bad("sequence", "expected a number of at least 1"))?,
            now,
            streams: Vec::new(),
            events: Vec::new(),
            usage: BTreeMap::new(),
            turn: BTreeMap::new(),
            inventory: BTreeMap::new(),
            sessions: BTreeSet::new(),
            orders: BTreeMap::new(),
            certificates: None,
            uses: BTreeMap::new(),
            closed: Vec::new(),
        };
        for (index, record) in report.records.into_iter().enumerate() {
            let at = RecordPosition(index);
            match record {
                Record::Stream(record) => batch.stream(at, *record, is_hex)?,
                Record::Event(record) => batch.event(at, *record)?,
                Record::Usage(record) => batch.usage(at, &record)?,
                Record::TurnUsage(record) => batch.turn(at, &record)?,
                Record::Inventory(record) => batch.inventory(at, &record)?,
                Record::SessionEnded(record) => batch.session_ended(at, record)?,
                Record::CredentialUse(record) => batch.credential_use(at, &record)?,
                Record::CertificateOrder(record) => batch.order(at, *record)?,
                Record::EngineCertificates(record) => {
                    let stored = certificates::stored_value(*record);
                    let stored = stored.map_err(|(member, message)| at.bad(&member, message))?;
                    batch.certificates = Some(stored);
                }
                Record::TunnelClosed(record) => {
                    let closed = ClosedTunnel::read(*record, now);
                    let closed = closed.map_err(|(member, message)| at.bad(member, message));
                    batch.closed.push(closed?);
                }
                Record::Unknown => {}
            }
        }
        Ok(batch)
    }

    fn stream(
        &mut self,
        at: RecordPosition,
        record: StreamRecord,
        is_hex: impl Fn(&str, usize) -> bool,
    ) -> HandlerResult<()> {
        if !is_hex(&record.stream_id, 24) {
            return Err(at.bad("stream_id", "expected 24 hexadecimal digits"));
        }
        if !OUTCOMES.contains(&record.outcome.as_str()) {
            return Err(at.bad("outcome", "expected connected, failed or denied"));
        }
        if !record.summary.is_object() {
            return Err(at.bad("summary", "expected an object"));
        }
        let tunnel = record.tunnel_id.map(|id| id.parse());
        let tunnel = tunnel
            .transpose()
            .map_err(|_| at.bad("tunnel_id", "is not an id"))?;
        if record
            .user_id
            .as_ref()
            .is_some_and(|id| id.len() > MAX_ID_BYTES)
        {
            return Err(at.bad("user_id", "is too long"));
        }
        // A later engine may allow other names. Such a visit counts without its name.
        let name = record.tunnel_name.and_then(|name| name.parse().ok());
        self.streams.push(Stream {
            project: at.project(&record.project_id)?,
            id: record.stream_id,
            tunnel,
            tunnel_name: name,
            user: record.user_id,
            outcome: record.outcome,
            // An engine with a fast clock must not extend the retention.
            created_at: record.created_at.min(self.now),
            summary: record.summary,
        });
        Ok(())
    }

    fn event(&mut self, at: RecordPosition, record: EventRecord) -> HandlerResult<()> {
        let project = at.project(&record.project_id)?;
        let event =
            Event::deserialize(record.event).map_err(|_| at.bad("event", "is not an event"))?;
        if event.event_type == EventType::StateInitial {
            return Err(at.bad("event", "a snapshot is not an event"));
        }
        if event.event_type.is_domain() {
            return Err(at.bad("event", "only the platform reports domains"));
        }
        self.events.push((project, event));
        Ok(())
    }

    fn usage(&mut self, at: RecordPosition, record: &UsageRecord) -> HandlerResult<()> {
        let project = at.project(&record.project_id)?;
        let sum = self.usage.entry((project, record.hour)).or_default();
        let counts = [
            (&mut sum.streams, "streams", record.streams),
            (
                &mut sum.failed_streams,
                "failed_streams",
                record.failed_streams,
            ),
            (
                &mut sum.upstream_bytes,
                "upstream_bytes",
                record.upstream_bytes,
            ),
            (
                &mut sum.downstream_bytes,
                "downstream_bytes",
                record.downstream_bytes,
            ),
        ];
        counts.into_iter().try_for_each(|count| at.add(count))
    }

    fn turn(&mut self, at: RecordPosition, record: &TurnUsageRecord) -> HandlerResult<()> {
        let project = at.project(&record.project_id)?;
        let sum = self.turn.entry((project, record.hour)).or_default();
        let counts = [
            (&mut sum.allocations, "allocations", record.allocations),
            (
                &mut sum.relayed_bytes,
                "relayed_bytes",
                record.relayed_bytes,
            ),
        ];
        counts.into_iter().try_for_each(|count| at.add(count))
    }

    fn inventory(&mut self, at: RecordPosition, record: &InventoryRecord) -> HandlerResult<()> {
        let project = at.project(&record.project_id)?;
        self.inventory
            .insert(project, (record.clients, record.tunnels));
        Ok(())
    }

    fn session_ended(
        &mut self,
        at: RecordPosition,
        record: SessionEndedRecord,
    ) -> HandlerResult<()> {
        let project = at.project(&record.project_id)?;
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if record.id.is_empty() || record.id.len() > MAX_ID || !record.id.bytes().all(is_part) {
            return Err(at.bad("id", "expected the id of a session"));
        }
        self.sessions.insert((project, record.id));
        Ok(())
    }

    fn order(&mut self, at: RecordPosition, record: CertificateOrderRecord) -> HandlerResult<()> {
        let project = at.project(&record.project_id)?;
        if record.hostname.len() > MAX_NAME_BYTES {
            return Err(at.bad("hostname", "is too long"));
        }
        let problem = record.problem;
        if problem
            .as_ref()
            .is_some_and(|it| it.len() > MAX_PROBLEM_BYTES)
        {
            return Err(at.bad("problem", "is too long"));
        }
        let order = OrderState {
            expires_at: record.expires_at,
            // A part of it is the text of another server.
            problem: problem.map(|problem| printable(&problem)),
            next_attempt_at: record.next_attempt_at,
        };
        self.orders.insert((project, record.hostname), order);
        Ok(())
    }

    fn credential_use(
        &mut self,
        at: RecordPosition,
        record: &CredentialUseRecord,
    ) -> HandlerResult<()> {
        let id: Result<CredentialId, _> = record.credential_id.parse();
        let id = id.map_err(|_| at.bad("credential_id", "is not the id of a credential"))?;
        // An engine with a fast clock must not suppress later uses.
        let used_at = record.used_at.min(self.now);
        let last = self.uses.entry(id).or_insert(used_at);
        *last = used_at.max(*last);
        Ok(())
    }

    /// Stores the batch, unless it was stored before. Returns the last stored sequence number of
    /// the reporter.
    async fn store(self, app: &App, cluster: &Cluster) -> HandlerResult<u64> {
        let now = self.now;
        let mut tx = app.store.begin().await?;
        let (domain, reporter) = (&cluster.domain, &self.reporter);
        if !engines::record_batch(&mut tx, domain, reporter, self.sequence, now).await? {
            let through = engines::through(&mut tx, domain, reporter).await?;
            metrics::report("repeated");
            return Ok(through);
        }
        let sequence = u64::try_from(self.sequence).unwrap_or_default();
        let served = self.served(&mut tx, cluster).await?;
        let catalogue = app.plan_service.catalogue();
        let mut counted = ReportCounts::default();
        let mut added: BTreeMap<ProjectId, StoredRecords> = BTreeMap::new();
        let mut traffic = TrafficSums::new(now);
        for stream in self.streams {
            let Some(project) = counted.of(&served, stream.project, "stream") else {
                continue;
            };
            let visit = Visit::of(&stream);
            if store_stream(&mut tx, catalogue, project, stream, now).await? {
                added.entry(project.id).or_insert(NO_RECORDS).logs += 1;
                traffic.add(project.id, &visit);
            }
        }
        for (id, event) in self.events {
            let Some(project) = counted.of(&served, id, "event") else {
                continue;
            };
            if store_event(&mut tx, catalogue, (cluster, project), event, now).await? {
                added.entry(project.id).or_insert(NO_RECORDS).events += 1;
            }
        }
        logs::index(&mut tx, MAX_INDEXED_ROWS).await?;
        // After all inserts, and in the order of projects, because the purge locks in this order.
        let limits = StoredRecords {
            logs: app.config.limits.log_rows_per_project.into(),
            events: app.config.limits.event_rows_per_project.into(),
        };
        let mut removed = 0;
        for (project, added) in added {
            removed +=
                stored_records::count(&mut tx, project, &added, &limits, MAX_REMOVED_ROWS).await?;
        }
        traffic.store(&mut tx).await?;
        let used = (self.usage, self.turn);
        store_usage(&mut tx, &mut counted, &served, used).await?;
        for (id, online) in self.inventory {
            if counted.of(&served, id, "inventory").is_some() {
                engines::set_inventory(&mut tx, id, domain, online, now).await?;
            }
        }
        for (id, session) in self.sessions {
            if counted.of(&served, id, "session_ended").is_some() {
                end_session(&mut tx, &session, now).await?;
            }
        }
        for ((id, hostname), order) in self.orders {
            if counted.of(&served, id, "certificate_order").is_some() {
                domains::set_order(&mut tx, id, &hostname, &order).await?;
            }
        }
        let closed = tunnel_closed::record(&mut tx, &served, self.closed).await?;
        counted.add("tunnel_closed", closed);
        let names = self.certificates.as_ref();
        let stored = certificates::store(&mut tx, (domain, reporter), names, now);
        counted.add("engine_certificates", stored.await?);
        let uses = credential_use::record(&mut tx, cluster, self.uses, now).await?;
        counted.add("credential_use", uses);
        tx.commit().await?;
        app.webhooks.wake();
        counted.record_metrics(cluster);
        metrics::records_removed(removed);
        Ok(sequence)
    }

    /// The projects of the batch that the cluster serves.
    async fn served(&self, tx: &mut Tx, cluster: &Cluster) -> HandlerResult<ServedProjects> {
        let mut ids: BTreeSet<ProjectId> = BTreeSet::new();
        ids.extend(self.streams.iter().map(|stream| stream.project));
        ids.extend(self.events.iter().map(|(id, _)| *id));
        ids.extend(self.usage.keys().map(|(id, _)| *id));
        ids.extend(self.turn.keys().map(|(id, _)| *id));
        ids.extend(self.inventory.keys().copied());
        ids.extend(self.sessions.iter().map(|(id, _)| *id));
        ids.extend(self.orders.keys().map(|(id, _)| *id));
        ids.extend(self.closed.iter().map(|closed| closed.project));
        let ids: Vec<_> = ids.into_iter().collect();
        let rows = cluster.directory.projects(tx, &ids).await?;
        Ok(rows.into_iter().map(|row| (row.id, row)).collect())
    }
}

const NO_RECORDS: StoredRecords = StoredRecords { logs: 0, events: 0 };
/// Maximum number of rows that one report adds to the index. It exceeds the rows of a report, so
/// that rows of earlier platform versions are indexed over time.
const MAX_INDEXED_ROWS: u32 = 2 * 1_000;
/// Maximum number of rows that one report removes. It exceeds the rows of a report, so that a lower
/// limit takes effect step by step.
const MAX_REMOVED_ROWS: u32 = 2 * 1_000;

/// The longest id of a session at a tunnel. Ids from codes have 26 characters after a prefix.
const MAX_ID: usize = 64;

/// The longest name of a domain (RFC 1035 section 2.3.4).
const MAX_NAME_BYTES: usize = 253;

/// Adds the transfer of tunnels and of relayed calls to the sums of the hours.
async fn store_usage(
    tx: &mut Tx,
    counted: &mut ReportCounts,
    served: &ServedProjects,
    (transferred, relayed): (Hourly<Usage>, Hourly<TurnUsage>),
) -> HandlerResult<()> {
    for ((id, hour), sum) in transferred {
        if counted.of(served, id, "usage").is_some() {
            usage::add(tx, id, hour, &sum).await?;
        }
    }
    for ((id, hour), sum) in relayed {
        if counted.of(served, id, "turn_usage").is_some() {
            usage::add_turn(tx, id, hour, &sum).await?;
        }
    }
    Ok(())
}

async fn end_session(tx: &mut Tx, session: &str, now: Timestamp) -> HandlerResult<()> {
    let until = SignedDuration::from_secs(EDGE_SESSION_SECONDS);
    let until = now.saturating_add(until).unwrap_or(Timestamp::MAX);
    let ended = format!("{EDGE_SESSION}{session}");
    revoked_tokens::revoke(tx, &ended, until, now).await?;
    Ok(())
}

async fn store_event(
    tx: &mut Tx,
    catalogue: &Catalogue,
    (cluster, project): (&Cluster, &directory::Project),
    event: Event,
    now: Timestamp,
) -> HandlerResult<bool> {
    // The platform determines the owner and does not rely on the engine for it.
    let event = Event {
        created_at: event.created_at.min(now),
        workspace_id: Some(project.workspace_id.to_string()),
        project_id: Some(project.id.to_string()),
        cluster_id: Some(cluster.domain.clone()),
        ..event
    };
    let row = events::Event {
        id: event.id,
        kind: event.event_type.to_string(),
        category: "lifecycle".to_owned(),
        workspace_id: project.workspace_id,
        project_id: project.id,
        cluster_id: event.cluster_id.clone(),
        user_id: event.user_id.clone(),
        payload: event.object.clone(),
        created_at: event.created_at,
        expires_at: retention_end(catalogue, project, now),
    };
    // An existing event was already handled.
    let is_new = events::insert(tx, &row).await?;
    if is_new {
        webhooks::on_event(tx, &event, now).await?;
    }
    Ok(is_new)
}

/// The end of the retention of a record that is stored now, according to the project's plan.
pub(super) fn retention_end(
    catalogue: &Catalogue,
    project: &directory::Project,
    now: Timestamp,
) -> Timestamp {
    let plan = project
        .plan
        .parse()
        .unwrap_or(api::control::plans::Plan::Basic);
    let days = catalogue.terms(plan).log_retention_days;
    let retention = SignedDuration::from_hours(24 * i64::from(days));
    now.saturating_add(retention).unwrap_or(Timestamp::MAX)
}

/// Position of a record in the report.
#[derive(Clone, Copy)]
struct RecordPosition(usize);

impl RecordPosition {
    fn bad(self, member: &str, message: &str) -> Refusal {
        bad(&format!("records.{}.{member}", self.0), message)
    }

    fn project(self, id: &str) -> HandlerResult<ProjectId> {
        let id = id.parse();
        id.map_err(|_| self.bad("project_id", "is not the id of a project"))
    }

    fn add(self, (sum, member, more): (&mut i64, &str, u64)) -> HandlerResult<()> {
        let more = i64::try_from(more).ok().filter(|more| *more <= MAX_COUNT);
        let more = more.ok_or_else(|| self.bad(member, "is too large"))?;
        *sum = sum.saturating_add(more);
        Ok(())
    }
}

fn bad(field: &str, message: &str) -> Refusal {
    let problem = Problem::invalid_request(format!("{field}: {message}"));
    problem.with_field(field).into()
}

const OUTCOMES: [&str; 3] = ["connected", "failed", "denied"];

/// The same limit as in tokens.
const MAX_ID_BYTES: usize = 256;
/// A pebibyte per hour. The sum of a thousand such values in each hour of a century does not
/// overflow.
const MAX_COUNT: i64 = 1 << 50;
/// The depth of a summary with headers.
const LIMITS: Limits = Limits {
    bytes: MAX_REPORT_BYTES,
    depth: 32,
};

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn refused(records: &Value) -> String {
        let report = json!({"reporter": "0".repeat(32), "sequence": 1, "records": records});
        let report = Report::deserialize(report).unwrap();
        let refusal = Batch::of(report, Timestamp::UNIX_EPOCH).err().unwrap();
        refusal.problem().field.clone().unwrap()
    }

    #[test]
    fn errors_name_the_wrong_member() {
        let project = ProjectId::new(1, [1; 10]).to_string();
        let at = "1970-01-01T00:00:00Z";
        let stream = |name: &str, value: Value| {
            let mut record = json!({"record": "stream", "project_id": project,
                "stream_id": "0".repeat(24), "outcome": "denied", "created_at": at, "summary": {}});
            record[name] = value;
            refused(&json!([{"record": "weather"}, record]))
        };
        assert_eq!(stream("project_id", json!("x")), "records.1.project_id");
        assert_eq!(stream("stream_id", json!("X")), "records.1.stream_id");
        assert_eq!(stream("outcome", json!("lost")), "records.1.outcome");
        assert_eq!(stream("summary", json!([])), "records.1.summary");
        assert_eq!(stream("tunnel_id", json!("x")), "records.1.tunnel_id");
        let event = json!([{"record": "event", "project_id": project, "event": {"type": "x"}}]);
        assert_eq!(refused(&event), "records.0.event");
        let usage = json!([{"record": "usage", "project_id": project, "hour": at, "streams": 1,
            "failed_streams": 0, "upstream_bytes": u64::MAX, "downstream_bytes": 0}]);
        assert_eq!(refused(&usage), "records.0.upstream_bytes");
    }
}
