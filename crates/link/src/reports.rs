//! Reports: records in memory, batches on disk, each of which the platform counts once.
//!
//! An accepted record reaches the platform exactly once, even if the connection fails or, once its
//! batch is written, the process crashes. A batch is written before it is sent, and is sent again
//! until a receipt arrives. The platform recognises it by its reporter and number. Records above
//! the capacity in memory or on disk are dropped and counted, so that no caller has to wait for a
//! report.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::link::{MAX_RECORDS, MAX_REPORT_BYTES, REPORTS, Receipt, Record, VERSION};
use reqwest::header::CONTENT_TYPE;
use reqwest::{Method, StatusCode};
use tokio::sync::{Notify, mpsc};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tracing::{error, warn};
use types::causes::chain;

use crate::endpoint::{Endpoint, LINK_VERSION};
use crate::spool::{Batch, Kind, Spool, SpoolLimits};
use crate::times::{LinkTimes, random, spread};

/// Queue for new records. Cheap to clone; never waits.
#[derive(Clone, Debug)]
pub struct Records {
    visits: mpsc::Sender<Record>,
    /// Records other than visits. They have their own queue, because any visitor can cause any
    /// number of visits.
    others: mpsc::Sender<Record>,
    counts: Arc<Counts>,
}

/// The sending half of the link.
#[derive(Debug)]
pub struct Reporter {
    endpoint: Endpoint,
    pace: LinkTimes,
    visits: mpsc::Receiver<Record>,
    others: mpsc::Receiver<Record>,
    shared: Arc<ReporterState>,
    generation: u64,
    id: String,
}

#[derive(Debug)]
struct ReporterState {
    spool: Spool,
    /// Notified of a new batch.
    batch_added: Notify,
    counts: Arc<Counts>,
}

/// Records, by state.
#[derive(Debug, Default)]
struct Counts {
    /// Records that wait on disk.
    spooled: AtomicU64,
    dropped: AtomicU64,
    sent: AtomicU64,
}

/// Counters of records, for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReportCounts {
    /// Records that wait, in memory and on disk.
    pub waiting: u64,
    /// Records that the platform has received.
    pub sent: u64,
    /// Records that exceeded the capacity, or that the platform could not read.
    pub dropped: u64,
}

/// Reason why a batch has no receipt.
#[derive(Debug, thiserror::Error)]
enum SendError {
    #[error("{0}")]
    Token(String),
    #[error("the platform refuses the enrolment secret ({0})")]
    Refused(StatusCode),
    /// Sending it again would have the same result.
    #[error("the platform rejected the report ({0})")]
    Rejected(StatusCode),
    /// The platform or this program is older; after an upgrade the report is accepted.
    #[error("the platform uses another version of the link than this program ({VERSION})")]
    Version,
    #[error("the platform responded with {0}")]
    Status(StatusCode),
    #[error("the connection failed")]
    Failed(#[source] reqwest::Error),
    #[error("the platform did not respond in time")]
    TimedOut,
    #[error("the receipt is not valid")]
    Receipt,
    #[error("the report cannot be read from disk: {0}")]
    Disk(#[from] io::Error),
}

/// Opens the queue and its sender. Reports that an earlier process left in `folder` are sent first.
///
/// # Errors
/// The folder cannot be used, or another process uses it.
pub fn reports(
    endpoint: Endpoint,
    folder: &Path,
    limits: SpoolLimits,
    pace: LinkTimes,
) -> io::Result<(Records, Reporter)> {
    let spool = Spool::open(folder, limits)?;
    let generation = spool.next_generation();
    let counts = Arc::<Counts>::default();
    counts.spooled.store(spool.records(), Ordering::Relaxed);
    let shared = Arc::new(ReporterState {
        spool,
        batch_added: Notify::new(),
        counts: Arc::clone(&counts),
    });
    let (put_visits, visits) = mpsc::channel(QUEUE);
    let (put_rest, rest) = mpsc::channel(QUEUE);
    let mut id = [0; 16];
    aws_lc_rs::rand::fill(&mut id).map_err(|_| io::Error::other("the system has no randomness"))?;
    let records = Records {
        visits: put_visits,
        others: put_rest,
        counts,
    };
    let reporter = Reporter {
        endpoint,
        pace,
        visits,
        others: rest,
        shared,
        generation,
        id: format!("{:032x}", u128::from_be_bytes(id)),
    };
    Ok((records, reporter))
}

/// Queued records of each kind: some seconds of a busy engine while the disk is slow.
const QUEUE: usize = 8192;
/// Maximum size of one record: a visit with all details has about two kilobytes.
const MAX_RECORD_BYTES: usize = 64 * 1024;
/// Maximum size of a receipt.
const MAX_RECEIPT_BYTES: usize = 4096;
/// Delay between two attempts to write a batch.
const DISK_RETRY: Duration = Duration::from_secs(1);

impl Records {
    /// Queues a record, or drops and counts it if the queue is full.
    pub fn push(&self, record: Record) {
        let queue = match record {
            Record::Stream(_) => &self.visits,
            _ => &self.others,
        };
        if queue.try_send(record).is_err() {
            self.counts.drop_records(1);
        }
    }

    /// Counters of records.
    pub fn counts(&self) -> ReportCounts {
        let queues = [&self.visits, &self.others];
        let queued: usize = queues
            .iter()
            .map(|queue| queue.max_capacity() - queue.capacity())
            .sum();
        ReportCounts {
            waiting: self.counts.spooled.load(Ordering::Relaxed) + queued as u64,
            sent: self.counts.sent.load(Ordering::Relaxed),
            dropped: self.counts.dropped.load(Ordering::Relaxed),
        }
    }
}

impl Counts {
    fn drop_records(&self, count: u64) {
        self.dropped.fetch_add(count, Ordering::Relaxed);
    }
}

impl ReporterState {
    fn drop_records(&self, count: u64) {
        self.counts.drop_records(count);
    }

    /// Updates the counter after a batch was added or removed.
    fn count_spooled(&self) {
        let records = self.spool.records();
        self.counts.spooled.store(records, Ordering::Relaxed);
    }
}

impl Reporter {
    /// Reports until `stop`. Then queued records are written and, as long as the platform accepts
    /// them without a pause, sent. The next process sends the rest.
    pub async fn run(self, stop: CancellationToken) {
        let Self {
            endpoint,
            pace,
            visits,
            others: rest,
            shared,
            generation,
            id,
        } = self;
        let all_written = CancellationToken::new();
        let (drafts, drafted) = mpsc::channel(1);
        let collector = |kind| Collector {
            shared: Arc::clone(&shared),
            kind,
            batch: pace.batch,
            drafts: drafts.clone(),
        };
        let (visit_collector, report_collector) = (collector(Kind::Visits), collector(Kind::Other));
        drop(drafts);
        let writer = Writer {
            shared: Arc::clone(&shared),
            generation,
            id,
            sequence: 0,
        };
        let sender = Sender {
            endpoint,
            pace,
            shared,
        };
        let writing = async {
            writer.run(drafted, &stop).await;
            all_written.cancel();
        };
        tokio::join!(
            visit_collector.run(visits, &stop),
            report_collector.run(rest, &stop),
            writing,
            sender.run(&all_written)
        );
    }
}

/// Collects batches of one kind.
struct Collector {
    shared: Arc<ReporterState>,
    kind: Kind,
    batch: Duration,
    drafts: mpsc::Sender<(Kind, ReportDraft)>,
}

/// Numbers batches and writes them one after the other, so that they are on disk in the order of
/// their numbers. The platform ignores a batch whose number is not above the last one.
struct Writer {
    shared: Arc<ReporterState>,
    generation: u64,
    id: String,
    /// Number of the last batch.
    sequence: u64,
}

/// A report in preparation, with its records in their serialised form.
#[derive(Default)]
struct ReportDraft {
    text: Vec<u8>,
    records: usize,
}

impl ReportDraft {
    /// Adds a record. Returns false if the record cannot be sent.
    fn add(&mut self, record: &Record) -> bool {
        let Ok(text) = serde_json::to_vec(record) else {
            return false;
        };
        if text.len() > MAX_RECORD_BYTES {
            return false;
        }
        if self.records > 0 {
            self.text.push(b',');
        }
        self.text.extend(text);
        self.records += 1;
        true
    }

    fn is_full(&self) -> bool {
        // One more record and the surrounding text always fit.
        self.records >= MAX_RECORDS || self.text.len() > MAX_REPORT_BYTES - 2 * MAX_RECORD_BYTES
    }

    fn report(&self, reporter: &str, sequence: u64) -> Vec<u8> {
        let head = format!(r#"{{"reporter":"{reporter}","sequence":{sequence},"records":["#);
        [head.as_bytes(), &self.text, b"]}"].concat()
    }
}

impl Collector {
    async fn run(self, mut queue: mpsc::Receiver<Record>, stop: &CancellationToken) {
        loop {
            let first = tokio::select! {
                record = queue.recv() => record,
                () = stop.cancelled() => {
                    queue.close();
                    queue.recv().await
                }
            };
            let Some(first) = first else { return };
            let mut draft = ReportDraft::default();
            self.add(&mut draft, &first);
            let full = tokio::time::sleep(self.batch);
            tokio::pin!(full);
            let mut is_urgent = is_urgent(&first);
            while !is_urgent && !draft.is_full() {
                let next = tokio::select! {
                    record = queue.recv() => record,
                    () = &mut full => None,
                    () = stop.cancelled() => queue.try_recv().ok(),
                };
                let Some(record) = next else { break };
                is_urgent = self::is_urgent(&record);
                self.add(&mut draft, &record);
            }
            if draft.records > 0 {
                // The writer runs until all collectors have ended.
                self.drafts.send((self.kind, draft)).await.ok();
            }
        }
    }

    fn add(&self, draft: &mut ReportDraft, record: &Record) {
        if !draft.add(record) {
            self.shared.drop_records(1);
        }
    }
}

/// True if a record does not wait for others to share its batch: the end of a session has to reach
/// all engines, and a user who closes a tunnel may read the audit log.
fn is_urgent(record: &Record) -> bool {
    matches!(record, Record::SessionEnded(_) | Record::TunnelClosed(_))
}

impl Writer {
    async fn run(
        mut self,
        mut drafts: mpsc::Receiver<(Kind, ReportDraft)>,
        stop: &CancellationToken,
    ) {
        while let Some((kind, draft)) = drafts.recv().await {
            self.write(kind, &draft, stop).await;
        }
    }

    /// Writes a batch, with any number of retries. While the disk is unusable only the queues in
    /// memory remain; records above their capacity are dropped and counted.
    async fn write(&mut self, kind: Kind, draft: &ReportDraft, stop: &CancellationToken) {
        self.sequence += 1;
        let (generation, sequence) = (self.generation, self.sequence);
        let report: Arc<[u8]> = draft.report(&self.id, sequence).into();
        let records = draft.records as u64;
        loop {
            let (shared, report) = (Arc::clone(&self.shared), Arc::clone(&report));
            let put = move || {
                let number = (generation, sequence);
                shared.spool.append(number, (records, kind), &report)
            };
            let written = tokio::task::spawn_blocking(put).await;
            match written
                .map_err(io::Error::other)
                .and_then(|written| written)
            {
                Ok(gone) => {
                    self.shared.drop_records(gone);
                    self.shared.count_spooled();
                    self.shared.batch_added.notify_one();
                    return;
                }
                Err(error) => warn!(%error, "a report could not be written"),
            }
            if stop.is_cancelled() {
                self.shared.drop_records(records);
                return;
            }
            tokio::select! {
                () = stop.cancelled() => {}
                () = tokio::time::sleep(DISK_RETRY) => {}
            }
        }
    }
}

/// Sends batches, oldest first.
struct Sender {
    endpoint: Endpoint,
    pace: LinkTimes,
    shared: Arc<ReporterState>,
}

impl Sender {
    async fn run(&self, all_written: &CancellationToken) {
        let mut retry = self.pace.retry.clone();
        let mut warned = false;
        loop {
            // Read before the spool, so that no batch written before the cancellation is missed.
            let last = all_written.is_cancelled();
            let Some(batch) = self.shared.spool.oldest() else {
                if last {
                    return;
                }
                tokio::select! {
                    () = self.shared.batch_added.notified() => {}
                    () = all_written.cancelled() => {}
                }
                continue;
            };
            let send_error = match self.send(&batch).await {
                Ok(taken) => {
                    // Evicted batches have already been counted.
                    let sent = if taken { batch.records } else { 0 };
                    self.shared.counts.sent.fetch_add(sent, Ordering::Relaxed);
                    self.forget(&batch).await;
                    retry.reset();
                    warned = false;
                    continue;
                }
                Err(send_error) => send_error,
            };
            let mut wait = retry.next_wait(random());
            match &send_error {
                SendError::Rejected(_) | SendError::Disk(_) => {
                    error!(reason = %send_error, records = batch.records, "a report is dropped");
                    self.shared.drop_records(batch.records);
                    self.forget(&batch).await;
                    continue;
                }
                SendError::Token(_) | SendError::Refused(_) | SendError::Version => {
                    error!(reason = %send_error, "reports cannot be sent until this is fixed");
                    wait = self.pace.refused.mul_f64(spread());
                }
                _ if !warned => {
                    warn!(reason = chain(&send_error), "reports are waiting on disk");
                    warned = true;
                }
                _ => {}
            }
            if last {
                return;
            }
            tokio::select! {
                () = all_written.cancelled() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn forget(&self, batch: &Batch) {
        let (shared, batch) = (Arc::clone(&self.shared), *batch);
        let removing = tokio::task::spawn_blocking(move || shared.spool.remove(&batch));
        if let Ok(Err(error)) = removing.await {
            warn!(%error, "a report that was sent cannot be removed");
        }
        self.shared.count_spooled();
    }

    /// Sends one batch and waits for its receipt. Returns false if the batch was evicted.
    async fn send(&self, batch: &Batch) -> Result<bool, SendError> {
        let (shared, wanted) = (Arc::clone(&self.shared), *batch);
        let reading = tokio::task::spawn_blocking(move || shared.spool.read(&wanted));
        let Some(report) = reading.await.map_err(io::Error::other)?? else {
            return Ok(false);
        };
        let request = self
            .endpoint
            .request(Method::POST, REPORTS)
            .map_err(SendError::Token)?
            .header(CONTENT_TYPE, "application/json")
            .body(report);
        let answering = timeout(self.pace.receipt, answer(request));
        let receipt = answering.await.map_err(|_| SendError::TimedOut)??;
        if receipt.through < batch.sequence {
            return Err(SendError::Receipt);
        }
        Ok(true)
    }
}

async fn answer(request: reqwest::RequestBuilder) -> Result<Receipt, SendError> {
    let failed = |error: reqwest::Error| SendError::Failed(error.without_url());
    let mut response = request.send().await.map_err(failed)?;
    match response.status() {
        StatusCode::OK => {}
        status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            return Err(SendError::Refused(status));
        }
        status @ (StatusCode::BAD_REQUEST
        | StatusCode::PAYLOAD_TOO_LARGE
        | StatusCode::UNPROCESSABLE_ENTITY) => {
            let body = body(&mut response).await?;
            return Err(refusal(status, &body));
        }
        status => return Err(SendError::Status(status)),
    }
    let body = body(&mut response).await?;
    serde_json::from_slice(&body).map_err(|_| SendError::Receipt)
}

/// A body of at most [`MAX_RECEIPT_BYTES`].
async fn body(response: &mut reqwest::Response) -> Result<Vec<u8>, SendError> {
    let failed = |error: reqwest::Error| SendError::Failed(error.without_url());
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await.map_err(failed)? {
        if body.len() + piece.len() > MAX_RECEIPT_BYTES {
            return Err(SendError::Receipt);
        }
        body.extend_from_slice(&piece);
    }
    Ok(body)
}

/// The error for a refused report. Only a problem response of the platform refers to the report
/// itself. A proxy in front of the platform that responds with the same status will be repaired, so
/// the report is sent again.
fn refusal(status: StatusCode, body: &[u8]) -> SendError {
    let problem: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let member = |name| problem.get(name).and_then(serde_json::Value::as_str);
    match (member("code"), member("field")) {
        (Some(_), Some(LINK_VERSION)) => SendError::Version,
        (Some(_), _) => SendError::Rejected(status),
        (None, _) => SendError::Status(status),
    }
}

#[cfg(test)]
mod tests {
    use api::link::{InventoryRecord, Report};

    use super::*;

    fn record(clients: u32) -> Record {
        Record::Inventory(InventoryRecord {
            project_id: "prj_1".to_owned(),
            clients,
            tunnels: 0,
        })
    }

    #[test]
    fn a_draft_becomes_a_report_within_its_limits() {
        let mut draft = ReportDraft::default();
        while !draft.is_full() {
            assert!(draft.add(&record(7)));
        }
        assert_eq!(draft.records, MAX_RECORDS);
        let text = draft.report("0af7", 3);
        let report: Report = serde_json::from_slice(&text).unwrap();
        assert_eq!((report.reporter.as_str(), report.sequence), ("0af7", 3));
        assert_eq!(report.records.len(), MAX_RECORDS);
        assert_eq!(report.records[0], record(7));
    }

    #[test]
    fn reports_are_limited_in_size_and_huge_records_are_refused() {
        let large = |bytes: usize| {
            Record::Inventory(InventoryRecord {
                project_id: "x".repeat(bytes),
                clients: 0,
                tunnels: 0,
            })
        };
        let mut draft = ReportDraft::default();
        assert!(!draft.add(&large(MAX_RECORD_BYTES)));
        assert_eq!(draft.records, 0);
        while !draft.is_full() {
            assert!(draft.add(&large(MAX_RECORD_BYTES - 200)));
        }
        assert!(draft.report("0af7", 1).len() <= MAX_REPORT_BYTES);
        assert!(draft.records > 10);
    }
}
