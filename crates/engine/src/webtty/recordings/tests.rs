//! Limits of storing, listing and searching, tested with a store in memory.

use std::time::Duration;

use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{ObjectStore, ObjectStoreExt as _, PutPayload};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};
use tty::recording::Record;
use tty::recording::vault::{VaultError, VaultKey};
use types::id::{ClientId, RANDOM_BYTES, WebttySessionId};
use types::webtty::StreamType;

use super::layout::StoreError;
use super::search::Work;
use super::*;
use crate::clock::ManualClock;

const PROJECT: &str = "prj_a";

fn config(policy: RecordingPolicy) -> Recordings {
    Recordings {
        location: None,
        key_file: None,
        makes_key: false,
        owner_file: None,
        policy,
        max_bytes_per_session: u64::MAX,
        max_bytes_per_project: u64::MAX,
        retention: None,
    }
}

fn store(objects: Arc<dyn ObjectStore>) -> Store {
    Store {
        objects,
        prefix: Path::default(),
        key: VaultKey::new([1; 32]),
        owner: "test".to_owned(),
        folder: None,
    }
}

fn clock() -> Arc<dyn Clock> {
    Arc::new(ManualClock::at(Timestamp::UNIX_EPOCH))
}

/// Recordings without maintenance: time passes for readers only.
fn inner(objects: Arc<dyn ObjectStore>) -> Arc<Inner> {
    let config = config(RecordingPolicy::BestEffort);
    Arc::new(Inner::new(store(objects), &config, clock(), nobody()))
}

fn recorder(objects: Arc<dyn ObjectStore>, policy: RecordingPolicy) -> Recorder {
    Recorder::with_store(store(objects), &config(policy), clock(), nobody())
}

/// There is no earlier process.
fn nobody() -> CancellationToken {
    let nobody = CancellationToken::new();
    nobody.cancel();
    nobody
}

fn slow() -> Arc<ThrottledStore<InMemory>> {
    Arc::new(ThrottledStore::new(
        InMemory::new(),
        ThrottleConfig::default(),
    ))
}

fn id(number: u64) -> WebttySessionId {
    WebttySessionId::new(number + 1, [0; RANDOM_BYTES])
}

fn tunnel() -> Tunnel {
    serde_json::from_value(serde_json::json!({
        "id": types::id::TunnelId::new(1, [8; RANDOM_BYTES]),
        "client_id": ClientId::new(1, [9; RANDOM_BYTES]),
        "status": "online",
        "protocol": "webtty",
        "type": "bytestream",
        "publish": false,
    }))
    .unwrap()
}

fn session(id: WebttySessionId) -> api::webtty::Session {
    serde_json::from_value(serde_json::json!({
        "id": id,
        "tunnel_id": types::id::TunnelId::new(1, [8; RANDOM_BYTES]),
        "status": "closed",
        "session_mode": "interactive",
        "recording_mode": "recorded",
        "encryption_mode": "managed",
        "started_at": "2026-01-01T00:00:00.000Z",
        "ended_at": "2026-01-01T00:00:01.000Z",
        "live": {
            "available": false,
            "attachable": false,
            "participant_count": 0,
            "has_upstream": false,
        },
    }))
    .unwrap()
}

fn over(number: u64) -> StoredSession {
    StoredSession {
        version: 1,
        session: session(id(number)),
        tunnel: tunnel(),
        sealed: false,
        ended: true,
        head: None,
        deleted: None,
    }
}

/// Stores `count` ended sessions without records.
async fn put_sessions(inner: &Inner, count: u64) {
    for number in 0..count {
        let stored = over(number);
        inner.store.put_session(PROJECT, &stored).await.unwrap();
    }
}

fn output(text: &str) -> Entry {
    Entry::output(StreamType::Stdout, text.to_owned().into())
}

/// Stores a session that showed `text`.
async fn put_recording(inner: &Inner, number: u64, text: &str) {
    inner
        .store
        .put_session(PROJECT, &over(number))
        .await
        .unwrap();
    let id = id(number);
    let chain = tty::recording::Recorder::new(id.as_str(), u64::MAX);
    let record = chain.next(output(text), Timestamp::UNIX_EPOCH, [0; 16]);
    let line = serde_json::to_vec(&record.unwrap()).unwrap();
    let put = inner.store.put_segment(PROJECT, id.as_str(), 1, &line);
    put.await.unwrap();
}

async fn newest(inner: &Inner) -> Vec<Arc<StoredSession>> {
    let newest = inner.newest(PROJECT, usize::MAX, |_| true).await;
    newest.unwrap()
}

fn for_text(query: &str) -> Search {
    Search {
        query: query.to_owned(),
        limit: usize::from(api::webtty::MAX_HITS),
        session_id: None,
        server_id: None,
        user_id: None,
        before: None,
    }
}

/// Strict recordings wait 15 seconds for the store and others 5; a slower write fails.
#[tokio::test(start_paused = true)]
async fn the_policy_limits_the_wait_for_a_store_that_hangs() {
    use RecordingPolicy::{BestEffort, Strict};

    for (policy, seconds, pace, details) in [
        (Strict, 14, RecordingPace::Go, vec![]),
        (Strict, 16, RecordingPace::End, vec!["lost: 1"]),
        (BestEffort, 4, RecordingPace::Go, vec![]),
        (BestEffort, 6, RecordingPace::Go, vec!["lost: 1"]),
    ] {
        let objects = slow();
        let recorder = recorder(Arc::<ThrottledStore<_>>::clone(&objects), policy);
        let meta = Meta {
            project_id: PROJECT.into(),
            session: session(id(1)),
            tunnel: Arc::new(tunnel()),
            sealed: false,
        };
        let recording = recorder.start(&meta).unwrap();
        recording.record(output("before"), Timestamp::UNIX_EPOCH);
        sleep(Duration::from_secs(10)).await;
        objects.config_mut(|config| config.wait_put_per_call = Duration::from_secs(seconds));
        recording.record(output("slow"), Timestamp::UNIX_EPOCH);
        sleep(Duration::from_mins(1)).await;
        assert_eq!(*recording.pace().borrow(), pace, "{policy} {seconds}");
        objects.config_mut(|config| *config = ThrottleConfig::default());
        recording.finish(&meta.session);
        sleep(Duration::from_mins(1)).await;
        let (records, _) = recorder.records(PROJECT, &id(1), 1, 10).await.unwrap();
        let found: Vec<_> = records
            .iter()
            .filter_map(|record: &Record| record.detail.as_deref())
            .filter(|detail| detail.starts_with("lost"))
            .collect();
        assert_eq!(found, details, "{policy} {seconds}");
        recorder.finish().await;
    }
}

/// The end of a session is retried for ten minutes.
#[tokio::test(start_paused = true)]
async fn storing_the_end_of_a_session_is_retried_for_ten_minutes() {
    for (minutes, ends) in [(9, true), (12, false)] {
        let objects = slow();
        let policy = RecordingPolicy::BestEffort;
        let recorder = recorder(Arc::<ThrottledStore<_>>::clone(&objects), policy);
        let meta = Meta {
            project_id: PROJECT.into(),
            session: session(id(1)),
            tunnel: Arc::new(tunnel()),
            sealed: false,
        };
        let recording = recorder.start(&meta).unwrap();
        sleep(Duration::from_secs(10)).await;
        objects.config_mut(|config| config.wait_put_per_call = Duration::from_hours(1));
        recording.finish(&meta.session);
        sleep(Duration::from_mins(minutes)).await;
        objects.config_mut(|config| *config = ThrottleConfig::default());
        sleep(Duration::from_mins(1)).await;
        let inner = recorder.inner.as_ref().unwrap();
        assert!(inner.running.lock().is_empty());
        let known = inner.find(PROJECT, id(1).as_str()).await.unwrap();
        assert_eq!(known.ended, ends, "{minutes}");
        recorder.finish().await;
    }
}

/// Both processes record. A recording that looks as if it was left open is ended when the old
/// process has ended.
#[tokio::test(start_paused = true)]
async fn a_new_process_does_not_end_recordings_of_the_old_one() {
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let policy = RecordingPolicy::Strict;
    let meta = |number| Meta {
        project_id: PROJECT.into(),
        session: session(id(number)),
        tunnel: Arc::new(tunnel()),
        sealed: false,
    };
    let old = recorder(Arc::clone(&objects), policy);
    let [first, lost] = [1, 2].map(|number| old.start(&meta(number)).unwrap());
    sleep(Duration::from_secs(10)).await;

    let predecessor = CancellationToken::new();
    let new = Recorder::with_store(
        store(Arc::clone(&objects)),
        &config(policy),
        clock(),
        predecessor.clone(),
    );
    old.stop_maintenance();
    let second = new.start(&meta(3)).unwrap();
    // Both would have maintained the store by now.
    sleep(Duration::from_mins(21)).await;
    let inner = new.inner.as_ref().unwrap();
    for number in [1, 2, 3] {
        let known = inner.find(PROJECT, id(number).as_str()).await.unwrap();
        assert!(!known.ended, "{number}");
    }
    first.finish(&meta(1).session);
    sleep(Duration::from_mins(1)).await;
    let known = inner.find(PROJECT, id(1).as_str()).await.unwrap();
    assert_eq!(known.session.error_code, None);
    assert!(known.ended);

    // The old process is killed, so one of its recordings stays open.
    predecessor.cancel();
    sleep(Duration::from_mins(1)).await;
    let known = inner.find(PROJECT, id(2).as_str()).await.unwrap();
    assert_eq!(known.session.error_code.as_deref(), Some("interrupted"));
    let known = inner.find(PROJECT, id(3).as_str()).await.unwrap();
    assert!(!known.ended);
    drop((lost, second));
    new.finish().await;
}

#[tokio::test]
async fn a_list_reads_5000_sessions_and_caches_4096_at_most() {
    let inner = inner(Arc::new(InMemory::new()));
    put_sessions(&inner, 5001).await;
    let found = newest(&inner).await;
    assert_eq!(found.len(), 5000);
    assert_eq!(found[0].session.id, id(5000).to_string());
    assert_eq!(found[4999].session.id, id(1).to_string());
    // The cache is cleared when it reaches its limit.
    assert_eq!(inner.ended.lock().len(), 5000 - 4096);
}

#[tokio::test(start_paused = true)]
async fn a_list_requests_16_objects_concurrently() {
    for (sessions, rounds) in [(32, 2), (33, 3)] {
        let objects = slow();
        let inner = inner(Arc::<ThrottledStore<_>>::clone(&objects));
        put_sessions(&inner, sessions).await;
        objects.config_mut(|config| config.wait_get_per_call = Duration::from_secs(1));
        let started = Instant::now();
        newest(&inner).await;
        assert_eq!(started.elapsed().as_secs(), rounds, "{sessions}");
    }
}

#[tokio::test]
async fn a_listing_has_200_000_names_at_most() {
    let objects = Arc::new(InMemory::new());
    let folder = Path::from("sessions").join(PROJECT);
    for number in 0..200_001 {
        let at = folder.clone().join(number.to_string()).join("session");
        objects.put(&at, PutPayload::new()).await.unwrap();
    }
    let names = store(objects).sessions(PROJECT).await.unwrap();
    assert_eq!(names.len(), 200_000);
}

#[tokio::test]
async fn an_object_that_is_too_large_is_not_opened() {
    let objects = Arc::new(InMemory::new());
    let store = store(Arc::<InMemory>::clone(&objects));
    let at = Path::from(format!("sessions/{PROJECT}/{}/session", id(1)));
    let most = 1024 * 1024 + 4096;
    for (len, too_large) in [(most, false), (most + 1, true)] {
        objects.put(&at, vec![0; len].into()).await.unwrap();
        let read = store.get_session(PROJECT, id(1).as_str()).await;
        let error = read.unwrap_err();
        let is_size = matches!(error, StoreError::Vault(VaultError::TooLarge));
        assert_eq!(is_size, too_large, "{len}: {error}");
    }
}

#[tokio::test]
async fn a_search_reads_500_sessions_and_returns_a_next_page() {
    let inner = inner(Arc::new(InMemory::new()));
    put_sessions(&inner, 501).await;
    let recorder = Recorder { inner: Some(inner) };
    let mut search = for_text("text");
    let answer = recorder.search(PROJECT, search.clone(), |_| true).await;
    let next = answer.unwrap().next;
    assert_eq!(next, Some(id(1).to_string()), "the 500th");
    search.before = next;
    let answer = recorder.search(PROJECT, search, |_| true).await;
    assert_eq!(answer.unwrap().next, None);
}

/// Runs a search on its own thread, because the clock advances while this waits.
async fn run(work: Work, sessions: Vec<Arc<StoredSession>>) -> SearchResult {
    let (done, answer) = oneshot::channel();
    let runtime = Handle::current();
    let searching = std::thread::spawn(move || {
        let _clock = runtime.enter();
        done.send(work.run(&sessions)).ok();
    });
    let answer = answer.await.unwrap();
    searching.join().unwrap();
    answer
}

#[tokio::test]
async fn a_search_reads_256_mib_and_returns_a_next_page() {
    let inner = inner(Arc::new(InMemory::new()));
    for number in 0..3 {
        put_recording(&inner, number, "text").await;
    }
    for (read, next, hits) in [(13, None, 3), (12, Some(id(0)), 3), (8, Some(id(1)), 2)] {
        let sessions = newest(&inner).await;
        let mut work = Work::new(Arc::clone(&inner), PROJECT.to_owned(), for_text("text"));
        // Simulates that the search has already read the rest.
        work.bytes = 256 * 1024 * 1024 - read;
        let answer = run(work, sessions).await;
        let next = next.map(|id| id.to_string());
        assert_eq!((answer.next, answer.hits.len()), (next, hits), "{read}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_search_takes_ten_seconds_and_returns_a_next_page() {
    for (seconds, next) in [(3, None), (4, Some(id(0))), (6, Some(id(1)))] {
        let objects = slow();
        let inner = inner(Arc::<ThrottledStore<_>>::clone(&objects));
        put_sessions(&inner, 3).await;
        let sessions = newest(&inner).await;
        objects.config_mut(|config| config.wait_get_per_call = Duration::from_secs(seconds));
        let work = Work::new(Arc::clone(&inner), PROJECT.to_owned(), for_text("text"));
        let answer = run(work, sessions).await;
        assert_eq!(answer.next, next.map(|id| id.to_string()), "{seconds}");
    }
}
