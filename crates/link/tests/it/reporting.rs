//! The sending half: every accepted record is delivered once.

use std::io::ErrorKind;
use std::path::Path;

use api::link::{InventoryRecord, Record, StreamRecord};
use link::{Endpoint, LinkTimes, Records, SpoolLimits, reports};
use testing::{FakePlatform, within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::support::{endpoint, pace};

struct Reporting {
    records: Records,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Reporting {
    async fn start(platform: &FakePlatform, folder: &Path, limits: SpoolLimits) -> Self {
        Self::with(platform, folder, limits, pace()).await
    }

    async fn with(
        platform: &FakePlatform,
        folder: &Path,
        limits: SpoolLimits,
        pace: LinkTimes,
    ) -> Self {
        let endpoint = endpoint(&platform.url(), platform.secret(), folder);
        Self::at(endpoint, folder, limits, pace).await
    }

    async fn at(endpoint: Endpoint, folder: &Path, limits: SpoolLimits, pace: LinkTimes) -> Self {
        let open = || {
            reports(
                endpoint.clone(),
                &folder.join("reports"),
                limits,
                pace.clone(),
            )
        };
        // A killed process may still be writing its last batch.
        let opened = within("the folder", async {
            loop {
                match open() {
                    Err(error) if error.kind() == ErrorKind::WouldBlock => {
                        tokio::task::yield_now().await;
                    }
                    opened => return opened,
                }
            }
        });
        let (records, reporter) = opened.await.unwrap();
        let stop = CancellationToken::new();
        let task = tokio::spawn(reporter.run(stop.clone()));
        Self {
            records,
            stop,
            task,
        }
    }

    async fn stop(self) {
        self.stop.cancel();
        within("end of the reporter", self.task).await.unwrap();
    }

    /// Stops like a killed process.
    async fn kill(self) {
        self.task.abort();
        self.task.await.unwrap_err();
    }
}

/// A record with a number.
fn record(number: u32) -> Record {
    Record::Inventory(InventoryRecord {
        project_id: "prj_1".to_owned(),
        clients: number,
        tunnels: 0,
    })
}

fn visit(number: u32) -> Record {
    Record::Stream(Box::new(StreamRecord {
        project_id: "prj_1".to_owned(),
        stream_id: number.to_string(),
        tunnel_id: None,
        tunnel_name: None,
        user_id: None,
        outcome: "denied".to_owned(),
        created_at: "2026-01-01T00:00:00Z".parse().unwrap(),
        summary: serde_json::Value::Null,
    }))
}

fn number(record: &Record) -> Option<u32> {
    match record {
        Record::Inventory(inventory) => Some(inventory.clients),
        _ => None,
    }
}

fn numbers(platform: &FakePlatform) -> Vec<u32> {
    let mut numbers: Vec<u32> = platform.records().iter().filter_map(number).collect();
    numbers.sort_unstable();
    numbers
}

async fn arrives(platform: &FakePlatform, wanted: u32) {
    let is = |record: &Record| number(record).filter(|number| *number == wanted);
    platform.wait_for_record(is).await;
}

#[tokio::test]
async fn reports_are_delivered_and_leave_no_files() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    let reporting = Reporting::start(&platform, folder.path(), SpoolLimits::default()).await;
    for number in 0..3000 {
        reporting.records.push(record(number));
    }
    arrives(&platform, 2999).await;
    assert_eq!(numbers(&platform), (0..3000).collect::<Vec<_>>());
    let records = reporting.records.clone();
    reporting.stop().await;
    let counts = records.counts();
    assert_eq!((counts.waiting, counts.sent, counts.dropped), (0, 3000, 0));
}

#[tokio::test]
async fn a_lost_receipt_does_not_duplicate_a_record() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    platform.lose_receipts(3);
    let reporting = Reporting::start(&platform, folder.path(), SpoolLimits::default()).await;
    reporting.records.push(record(1));
    platform.wait_for_reports(4).await;
    reporting.records.push(record(2));
    arrives(&platform, 2).await;
    assert_eq!(numbers(&platform), [1, 2]);
}

/// Answers each of these requests once, in this order, and counts them.
async fn answering(
    answers: Vec<(&'static str, impl Into<String> + Send + 'static)>,
) -> (String, watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (count, counted) = watch::channel(0);
    tokio::spawn(async move {
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"]}") {
                stream.read_buf(&mut request).await.unwrap();
            }
            let body: String = body.into();
            let length = body.len();
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
            );
            stream.write_all(answer.as_bytes()).await.unwrap();
            count.send_modify(|count| *count += 1);
        }
    });
    (url, counted)
}

#[tokio::test]
async fn a_receipt_has_a_maximum_size() {
    let folder = tempfile::tempdir().unwrap();
    let receipt = |bytes: usize| ("200 OK", format!("{:bytes$}", r#"{"through":1}"#));
    let (url, mut answered) = answering(vec![receipt(4097), receipt(4096)]).await;
    let endpoint = endpoint(&url, "secret", folder.path());
    let limits = SpoolLimits::default();
    let reporting = Reporting::at(endpoint, folder.path(), limits, pace()).await;
    reporting.records.push(record(1));
    let sent = within("a receipt", answered.wait_for(|count| *count == 2)).await;
    drop(sent.unwrap());
    let records = reporting.records.clone();
    reporting.stop().await;
    assert_eq!((records.counts().waiting, records.counts().sent), (0, 1));
}

/// Reports are kept if the platform has another link version or if a proxy answers instead. A
/// report that the platform cannot read is dropped.
#[tokio::test]
async fn a_report_is_dropped_only_if_the_platform_cannot_read_it() {
    let folder = tempfile::tempdir().unwrap();
    let version = r#"{"status":400,"code":"invalid_request","field":"svc-link-version"}"#;
    let unread = r#"{"status":400,"code":"invalid_request","field":"records.0"}"#;
    let (url, mut answered) = answering(vec![
        ("400 Bad Request", version),
        ("413 Content Too Large", "<html>too large</html>"),
        ("200 OK", r#"{"through":1}"#),
        ("400 Bad Request", unread),
    ])
    .await;
    let limits = SpoolLimits::default();
    let endpoint = endpoint(&url, "secret", folder.path());
    let reporting = Reporting::at(endpoint, folder.path(), limits, pace()).await;
    reporting.records.push(record(1));
    let sent = within("a receipt", answered.wait_for(|count| *count == 3)).await;
    drop(sent.unwrap());
    reporting.records.push(record(2));
    let refused = within("a refusal", answered.wait_for(|count| *count == 4)).await;
    drop(refused.unwrap());
    let records = reporting.records.clone();
    reporting.stop().await;
    let counts = records.counts();
    assert_eq!((counts.waiting, counts.sent, counts.dropped), (0, 1, 1));
}

#[tokio::test]
async fn written_reports_survive_the_process_and_are_delivered_once() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    // The platform has received the first batch, and this process never gets the receipt.
    platform.lose_receipts(usize::MAX);
    let reporting = Reporting::start(&platform, folder.path(), SpoolLimits::default()).await;
    reporting.records.push(record(1));
    platform.wait_for_reports(2).await;
    platform.set_unavailable(true);
    reporting.records.push(record(2));
    let spool = folder.path().join("reports");
    let files = || std::fs::read_dir(&spool).unwrap().count();
    // Including the lock file.
    within("the second batch on disk", async {
        while files() < 3 {
            tokio::task::yield_now().await;
        }
    })
    .await;
    reporting.kill().await;

    platform.lose_receipts(0);
    platform.set_unavailable(false);
    let reporting = Reporting::start(&platform, folder.path(), SpoolLimits::default()).await;
    reporting.records.push(record(3));
    arrives(&platform, 3).await;
    assert_eq!(numbers(&platform), [1, 2, 3]);
    reporting.stop().await;
    assert_eq!(files(), 1, "the lock alone");
}

#[tokio::test]
async fn a_stop_sends_accepted_records_or_leaves_them_for_the_next_process() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    let pace = LinkTimes {
        batch: std::time::Duration::from_mins(1),
        ..pace()
    };
    let limits = SpoolLimits::default();
    let reporting = Reporting::with(&platform, folder.path(), limits, pace.clone()).await;
    reporting.records.push(record(1));
    reporting.stop().await;
    assert_eq!(numbers(&platform), [1]);

    platform.set_unavailable(true);
    let reporting = Reporting::with(&platform, folder.path(), limits, pace.clone()).await;
    reporting.records.push(record(2));
    reporting.stop().await;
    assert_eq!(numbers(&platform), [1]);
    platform.set_unavailable(false);
    let reporting = Reporting::with(&platform, folder.path(), limits, pace).await;
    arrives(&platform, 2).await;
    reporting.stop().await;
    assert_eq!(numbers(&platform), [1, 2]);
}

#[tokio::test]
async fn records_beyond_the_limit_are_counted_and_no_caller_waits() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    platform.set_unavailable(true);
    let limits = SpoolLimits {
        batches: 2,
        ..SpoolLimits::default()
    };
    let reporting = Reporting::start(&platform, folder.path(), limits).await;
    // Without a pause, so that the queue is not drained in the meantime.
    for number in 0..10_000 {
        reporting.records.push(record(number));
    }
    let dropped = reporting.records.counts().dropped;
    assert!(dropped > 1000, "{dropped}");
    let records = reporting.records.clone();
    reporting.stop().await;
    let counts = records.counts();
    assert_eq!(counts.waiting + counts.dropped, 10_000);
    assert!(counts.waiting <= 2000, "{counts:?}");
    platform.set_unavailable(false);
    let reporting = Reporting::start(&platform, folder.path(), limits).await;
    reporting.records.push(record(10_001));
    arrives(&platform, 10_001).await;
    assert_eq!(numbers(&platform).len() as u64, counts.waiting + 1);
}

/// Visitors can cause visits without end, of which some are then dropped. Other records are not.
#[tokio::test]
async fn visits_do_not_displace_other_records() {
    let folder = tempfile::tempdir().unwrap();
    let platform = FakePlatform::start().await;
    let reporting = Reporting::start(&platform, folder.path(), SpoolLimits::default()).await;
    for number in 0..20_000 {
        reporting.records.push(visit(number));
    }
    for number in 0..100 {
        reporting.records.push(record(number));
    }
    let dropped = reporting.records.counts().dropped;
    assert!((1..20_000).contains(&dropped), "{dropped}");
    reporting.stop().await;
    assert_eq!(numbers(&platform), (0..100).collect::<Vec<_>>());
}
