//! Recordings of managed terminals: their content, the search in them, and failures of their
//! storage.

#[cfg(test)]
mod exports;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod routes;
#[cfg(test)]
mod s3;
#[cfg(test)]
mod stored;
#[cfg(test)]
mod tampered;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use api::webtty::{Session, SessionLive};
use engine::clock::{Clock, ManualClock};
use engine::config::{RecordingLocation, RecordingPolicy, Recordings};
use engine::webtty::recordings::{Meta, Recorder, Recording, RecordingPace};
use jiff::Timestamp;
use tempfile::TempDir;
use testing::within;
use tty::recording::{Entry, Record};
use tty::size::Size;
use types::client::Client;
use types::id::{ClientId, TunnelId, WebttySessionId};
use types::tunnel::Tunnel;
use types::webtty::{
    EncryptionMode, RecordDirection, RecordType, RecordingMode, SessionMode, SessionStatus,
    StreamType, Transport,
};

use crate::support::NOW;

/// Storage of a test's recordings.
struct TestStorage {
    dir: TempDir,
    clock: Arc<ManualClock>,
}

impl TestStorage {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            clock: Arc::new(ManualClock::at(Timestamp::from_second(NOW).unwrap())),
        }
    }

    fn folder(&self) -> PathBuf {
        self.dir.path().join("recordings")
    }

    fn config(&self) -> Recordings {
        config(self.dir.path())
    }

    async fn open(&self) -> Recorder {
        self.open_with(|_| {}).await
    }

    async fn open_with(&self, change: impl FnOnce(&mut Recordings)) -> Recorder {
        let mut config = self.config();
        change(&mut config);
        let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&self.clock);
        Recorder::open(&config, clock).await.unwrap()
    }

    /// The only segment or object of a session with this name.
    fn object(&self, session: &str, name: &str) -> PathBuf {
        self.folder()
            .join(format!("sessions/default/{session}/{name}"))
    }
}

/// A folder in `dir`, with the key file next to it.
fn config(dir: &Path) -> Recordings {
    Recordings {
        location: Some(RecordingLocation::Folder(dir.join("recordings"))),
        key_file: Some(dir.join("recordings.key")),
        makes_key: true,
        owner_file: Some(dir.join("recordings/.owner")),
        policy: RecordingPolicy::Strict,
        max_bytes_per_session: 1024 * 1024 * 1024,
        max_bytes_per_project: 1024 * 1024 * 1024,
        retention: None,
    }
}

/// The id of a session that starts at this time.
fn session_id(at: Timestamp) -> WebttySessionId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let millis = u64::try_from(at.as_millisecond()).unwrap();
    let mut random = [0; types::id::RANDOM_BYTES];
    // Ids of one millisecond are in the order of their creation.
    random[2..].copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    WebttySessionId::new(millis, random)
}

/// A session that starts now.
fn meta(id: WebttySessionId, at: Timestamp) -> Meta {
    let tunnel = Tunnel {
        id: TunnelId::new(1, [7; types::id::RANDOM_BYTES]),
        ..tunnel_named("terminals")
    };
    Meta {
        project_id: "default".into(),
        session: Session {
            id: id.to_string(),
            workspace_id: None,
            project_id: Some("default".to_owned()),
            cluster_id: None,
            server_id: Some("wsv_a".to_owned()),
            tunnel_id: tunnel.id.to_string(),
            client_id: None,
            initiator_user_id: Some("ann".to_owned()),
            group_id: None,
            status: SessionStatus::Opening,
            session_mode: SessionMode::Interactive,
            recording_mode: RecordingMode::Recorded,
            encryption_mode: EncryptionMode::Managed,
            downstream_transport: Some(Transport::Websocket),
            upstream_transport: Some(Transport::Plain),
            command_meta: None,
            context: None,
            started_at: format!("{at:.3}"),
            ended_at: None,
            exit_code: None,
            error_code: None,
            error_message: None,
            live: SessionLive {
                available: true,
                attachable: true,
                participant_count: 1,
                controller_participant_id: Some("wtp_a".to_owned()),
                has_upstream: true,
            },
        },
        tunnel: Arc::new(tunnel),
        sealed: false,
    }
}

fn tunnel_named(name: &str) -> Tunnel {
    let client = Client::online(ClientId::new(1, [9; types::id::RANDOM_BYTES]));
    serde_json::from_value(serde_json::json!({
        "id": TunnelId::new(1, [8; types::id::RANDOM_BYTES]),
        "client_id": client.id,
        "status": "online",
        "name": name,
        "protocol": "webtty",
        "type": "bytestream",
        "publish": false,
    }))
    .unwrap()
}

/// The session as it ends.
fn ended(meta: &Meta, code: i32, at: Timestamp) -> Session {
    Session {
        status: SessionStatus::Closed,
        ended_at: Some(format!("{at:.3}")),
        exit_code: Some(code),
        ..meta.session.clone()
    }
}

/// Events of a short session with a password.
fn sample() -> Vec<Entry> {
    vec![
        Entry {
            size: Some(Size { rows: 4, cols: 40 }),
            ..Entry::internal(RecordType::Open, Some("wtp_a"), "sh")
        },
        Entry::output(StreamType::Stdout, "$ ".into()),
        Entry::input("wtp_a", "sudo ls\r".into(), false),
        Entry::output(StreamType::Stdout, "sudo ls\r\nPassword: ".into()),
        Entry::input("wtp_a", "hunter2 is secret\r".into(), true),
        Entry::output(
            StreamType::Stdout,
            "\r\n\x1b[31mred\x1b[0m caf\u{e9}\r\n$ ".into(),
        ),
        Entry::output(StreamType::Stderr, "a warning\r\n".into()),
        Entry::internal(RecordType::Participant, Some("wtp_b"), "attached"),
        Entry::resize("wtp_a", Size { rows: 5, cols: 50 }),
        Entry {
            exit_code: Some(7),
            ..Entry::new(RecordType::Close, RecordDirection::ServerToClient)
        },
    ]
}

fn record_all(recording: &Recording, entries: Vec<Entry>, from: Timestamp) {
    for (number, entry) in (0..).zip(entries) {
        let at = from + Duration::from_millis(number * 250);
        assert_eq!(recording.record(entry, at), RecordingPace::Go);
    }
}

/// Records a whole session of these entries; it is stored when this returns.
async fn record_session(
    recorder: &Recorder,
    clock: &ManualClock,
    entries: Vec<Entry>,
) -> WebttySessionId {
    let now = clock.now();
    let id = session_id(now);
    let meta = meta(id, now);
    let recording = recorder.start(&meta).unwrap();
    record_all(&recording, entries, now);
    recording.finish(&ended(&meta, 7, now));
    wait_stored(recorder, id).await;
    id
}

/// Waits until the end of a session is stored.
async fn wait_stored(recorder: &Recorder, id: WebttySessionId) -> Session {
    until(recorder, "the end of a session", async || {
        let kept = recorder.session("default", &id).await.unwrap()?;
        kept.session.ended_at.is_some().then_some(kept.session)
    })
    .await
}

/// Waits until a running session has this many records.
async fn wait_for_records(recorder: &Recorder, id: WebttySessionId, count: usize) {
    until(recorder, "records", async || {
        recorder.session("default", &id).await.unwrap()?;
        (records(recorder, id).await.len() >= count).then_some(())
    })
    .await;
}

/// Calls `look` now, and again after each change of the storage, until it returns a result.
async fn until<T>(recorder: &Recorder, what: &str, look: impl AsyncFn() -> Option<T>) -> T {
    let mut changes = recorder.changes().unwrap();
    let looking = async {
        loop {
            changes.mark_unchanged();
            if let Some(answer) = look().await {
                return answer;
            }
            changes.changed().await.unwrap();
        }
    };
    within(what, looking).await
}

/// True if every record of a session is unchanged.
async fn is_unchanged(recorder: &Recorder, id: WebttySessionId) -> bool {
    let verdict = recorder.verify("default", &id).await.unwrap();
    verdict.broken.is_none()
}

async fn records(recorder: &Recorder, id: WebttySessionId) -> Vec<Record> {
    let mut all = Vec::new();
    loop {
        let from = all.last().map_or(1, |record: &Record| record.seq + 1);
        let (page, _) = recorder.records("default", &id, from, 1000).await.unwrap();
        if page.is_empty() {
            return all;
        }
        all.extend(page);
    }
}

/// Waits until the session must keep this pace.
async fn wait_for_pace(recording: &Recording, wanted: RecordingPace) {
    let mut pace = recording.pace();
    let waiting = pace.wait_for(|pace| *pace == wanted);
    within("what a session has to do", waiting).await.unwrap();
}
