use std::os::unix::fs::PermissionsExt as _;

use engine::webtty::recordings::OpenError;
use tokio_util::sync::CancellationToken;

use super::*;

/// EN-8, WT-2: recordings survive a restart, in order and with the session's exit status, and other
/// users cannot read the files.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recordings_survive_a_restart() {
    let place = TestStorage::new();
    let recorder = place.open().await;
    let id = record_session(&recorder, &place.clock, sample()).await;
    recorder.finish().await;
    drop(recorder);

    let recorder = place.open().await;
    let all = recorder.sessions("default", 10, |_, _| true).await.unwrap();
    let [kept] = &all[..] else { panic!("{all:?}") };
    assert_eq!(kept.session.id, id.as_str());
    assert_eq!(kept.session.status, SessionStatus::Closed);
    assert_eq!(kept.session.exit_code, Some(7));
    assert!(!kept.session.live.available && kept.session.live.participant_count == 0);
    let read = records(&recorder, id).await;
    let (shown, wanted): (Vec<_>, Vec<_>) = read
        .iter()
        .zip(sample())
        .map(|(record, entry)| {
            (
                (record.record_type, record.payload.clone(), record.exit_code),
                (entry.record_type, entry.payload, entry.exit_code),
            )
        })
        .unzip();
    assert_eq!(shown, wanted);
    assert_eq!(read.len(), sample().len());
    let verdict = recorder.verify("default", &id).await.unwrap();
    assert_eq!((verdict.records, verdict.broken), (10, None));

    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&place.folder()), 0o700);
    assert_eq!(mode(&place.dir.path().join("recordings.key")), 0o600);
    let mut folders = vec![place.folder()];
    let mut files = 0;
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files += 1;
                assert_eq!(mode(&path), 0o600, "{}", path.display());
            }
        }
    }
    assert!(files > 2, "{files}");
    // There is nothing of another project.
    assert!(recorder.session("prj_b", &id).await.unwrap().is_none());
    assert!(
        recorder
            .sessions("prj_b", 10, |_, _| true)
            .await
            .unwrap()
            .is_empty()
    );
}

/// A password is never stored, neither sealed nor open.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn input_without_echo_is_not_stored() {
    let place = TestStorage::new();
    let recorder = place.open().await;
    let id = record_session(&recorder, &place.clock, sample()).await;
    let read = records(&recorder, id).await;
    let masked: Vec<_> = read.iter().filter(|record| record.masked).collect();
    assert_eq!(masked.len(), 1);
    assert_eq!(masked[0].payload_length, 18);
    let clear = serde_json::to_string(&read).unwrap();
    let typed = "hunter2 is secret\r";
    let encoded = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, typed);
    assert!(!clear.contains("hunter2") && !clear.contains(&encoded));
    // No file in the folder is readable without the key.
    let mut files = 0;
    let mut folders = vec![place.folder()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            files += 1;
            let bytes = std::fs::read(&path).unwrap();
            for word in ["hunter2", "sudo", "wtp_a", "Password", "terminals"] {
                let found = bytes.windows(word.len()).any(|at| at == word.as_bytes());
                assert!(!found, "{word} in {}", path.display());
            }
        }
    }
    assert!(files >= 4, "{files} files were looked at");
}

/// Of a private session only its existence is stored.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_existence_of_a_private_session_is_stored() {
    let place = TestStorage::new();
    let recorder = place.open().await;
    let now = place.clock.now();
    let id = session_id(now);
    let mut private = meta(id, now);
    private.session.recording_mode = RecordingMode::Private;
    let recording = recorder.start(&private).unwrap();
    record_all(&recording, sample(), now);
    recording.finish(&ended(&private, 0, now));
    let session = wait_stored(&recorder, id).await;
    assert_eq!(session.recording_mode, RecordingMode::Private);
    assert!(records(&recorder, id).await.is_empty());
    let verdict = recorder.verify("default", &id).await.unwrap();
    assert_eq!((verdict.records, verdict.broken), (0, None));
}

/// A recorder that is dropped without an end stores the end as interrupted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recording_that_is_dropped_ends_as_interrupted() {
    let place = TestStorage::new();
    let recorder = place.open().await;
    let now = place.clock.now();
    let id = session_id(now);
    let recording = recorder.start(&meta(id, now)).unwrap();
    record_all(&recording, sample(), now);
    drop(recording);
    let session = wait_stored(&recorder, id).await;
    assert_eq!(session.status, SessionStatus::Errored);
    assert_eq!(session.error_code.as_deref(), Some("interrupted"));
    assert_eq!(records(&recorder, id).await.len(), 10);
}

/// A recording that is larger than any queue or segment arrives completely, because the session
/// pauses on request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_flood_is_recorded_completely_and_read_in_pages() {
    let place = TestStorage::new();
    let recorder = place.open().await;
    let now = place.clock.now();
    let id = session_id(now);
    let meta = meta(id, now);
    let recording = recorder.start(&meta).unwrap();
    let mut pace = recording.pace();
    let mut sent = Vec::new();
    let mut held = 0;
    for number in 0..400_u32 {
        let piece = format!("{number:06}\n").repeat(4096 * 8 / 7);
        sent.extend_from_slice(piece.as_bytes());
        let entry = Entry::output(StreamType::Stdout, piece.into());
        if recording.record(entry, now) == RecordingPace::Hold {
            held += 1;
            within("room", pace.wait_for(|pace| *pace == RecordingPace::Go))
                .await
                .unwrap();
        }
    }
    recording.finish(&ended(&meta, 0, now));
    wait_stored(&recorder, id).await;
    assert!(held > 0, "thirteen megabytes exceed a queue");
    let (first, _) = recorder.records("default", &id, 1, 1000).await.unwrap();
    assert!(first.len() < 400, "a page has a maximum size in bytes");
    let read: Vec<u8> = records(&recorder, id)
        .await
        .iter()
        .flat_map(|record| record.payload.to_vec())
        .collect();
    assert!(read == sent, "{} of {} bytes", read.len(), sent.len());
    assert!(is_unchanged(&recorder, id).await);
    // A page from the middle, without the records before it.
    let (late, _) = recorder.records("default", &id, 390, 5).await.unwrap();
    assert_eq!(
        late.iter().map(|record| record.seq).collect::<Vec<_>>(),
        [390, 391, 392, 393, 394]
    );
}

/// A running session can be read up to its last stored record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_session_can_be_read() {
    let place = TestStorage::new();
    let recorder = place.open().await;
    let now = place.clock.now();
    let id = session_id(now);
    let meta = meta(id, now);
    let recording = recorder.start(&meta).unwrap();
    record_all(&recording, sample(), now);
    wait_for_records(&recorder, id, 10).await;
    let kept = recorder.session("default", &id).await.unwrap().unwrap();
    assert_eq!(kept.session.status, SessionStatus::Opening);
    assert!(is_unchanged(&recorder, id).await);
    let refused = recorder.delete("default", &id, None).await.unwrap_err();
    assert!(matches!(
        refused,
        engine::webtty::recordings::ReadError::Running
    ));
    // The same segment is extended.
    record_all(
        &recording,
        vec![Entry::output(StreamType::Stdout, "more".into())],
        now,
    );
    recording.finish(&ended(&meta, 0, now));
    wait_stored(&recorder, id).await;
    assert_eq!(records(&recorder, id).await.len(), 11);
    let segments = std::fs::read_dir(place.folder().join(format!("sessions/default/{id}")));
    assert_eq!(
        segments.unwrap().count(),
        2,
        "one segment, and the session metadata"
    );
}

/// Lists are sorted by time, newest first, and respect the limit and the filter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lists_are_limited_and_the_newest_first() {
    let place = TestStorage::new();
    let recorder = place.open().await;
    let mut ids = Vec::new();
    for _ in 0..5 {
        place.clock.advance(1);
        ids.push(
            record_session(&recorder, &place.clock, Vec::new())
                .await
                .to_string(),
        );
    }
    ids.reverse();
    let list = async |limit, skip: Option<&str>| {
        let wanted = |session: &Session, _: &Tunnel| Some(session.id.as_str()) != skip;
        let kept = recorder.sessions("default", limit, wanted).await.unwrap();
        kept.into_iter()
            .map(|kept| kept.session.id)
            .collect::<Vec<_>>()
    };
    assert_eq!(list(10, None).await, ids);
    assert_eq!(list(2, None).await, ids[..2]);
    assert_eq!(list(2, Some(&ids[0])).await, ids[1..3]);
    assert!(list(0, None).await.is_empty());
}

/// Recordings from before the retention period are deleted, and their storage is free again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn old_recordings_are_removed() {
    const DAY: i64 = 24 * 60 * 60;
    let place = TestStorage::new();
    let recorder = place.open().await;
    let old = record_session(&recorder, &place.clock, sample()).await;
    place.clock.advance(10 * DAY);
    let new = record_session(&recorder, &place.clock, sample()).await;
    recorder.finish().await;
    drop(recorder);
    // A fragment of a killed engine is not an object. It is deleted with its session.
    std::fs::write(place.object(old.as_str(), "session#1"), "left").unwrap();
    place.clock.advance(85 * DAY);
    let days = 90 * u64::try_from(DAY).unwrap();
    let recorder = place
        .open_with(|config| config.retention = Some(Duration::from_secs(days)))
        .await;
    let folder = place.folder().join(format!("sessions/default/{old}"));
    until(&recorder, "end of what is old", async || {
        let kept = recorder.session("default", &old).await.unwrap();
        (kept.is_none() && !folder.exists()).then_some(())
    })
    .await;
    assert!(recorder.session("default", &new).await.unwrap().is_some());
    assert_eq!(records(&recorder, new).await.len(), 10);
}

/// A folder belongs to one engine, and its recordings to one key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_belongs_to_one_engine_and_one_key() {
    let place = TestStorage::new();
    let recorder = place.open().await;
    let clock: Arc<dyn Clock> = Arc::<ManualClock>::clone(&place.clock);
    let again = Recorder::open(&place.config(), Arc::clone(&clock)).await;
    assert!(matches!(again, Err(OpenError::Folder { .. })), "{again:?}");
    // The process that replaces this one uses the folder as well.
    let is_locked = || {
        let lock = std::fs::File::open(place.folder().join(".lock")).unwrap();
        lock.try_lock().is_err()
    };
    let predecessor = CancellationToken::new();
    let config = place.config();
    let successor = Recorder::open_after(&config, Arc::clone(&clock), predecessor.clone());
    let successor = successor.await.unwrap();
    assert!(is_locked());
    recorder.finish().await;
    drop(recorder);
    assert!(!is_locked(), "the old process has not ended");
    predecessor.cancel();
    until(&successor, "lock of the folder", async || {
        is_locked().then_some(())
    })
    .await;
    successor.finish().await;
    drop(successor);
    assert!(!is_locked());

    let key = place.dir.path().join("recordings.key");
    std::fs::write(&key, "ab".repeat(32)).unwrap();
    let other = Recorder::open(&place.config(), Arc::clone(&clock)).await;
    assert!(matches!(other, Err(OpenError::OtherKey(_))), "{other:?}");
    std::fs::write(&key, "too short").unwrap();
    let none = Recorder::open(&place.config(), Arc::clone(&clock)).await;
    assert!(matches!(none, Err(OpenError::Key { .. })), "{none:?}");
    // A configured key file that does not exist is not created.
    let mut config = place.config();
    config.makes_key = false;
    config.key_file = Some(place.dir.path().join("missing"));
    let none = Recorder::open(&config, clock).await;
    assert!(matches!(none, Err(OpenError::Key { .. })), "{none:?}");
}

/// Without storage nothing is recorded, and participants do not get a recording notice.
#[tokio::test]
async fn without_storage_no_session_is_recorded() {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::UNIX_EPOCH));
    let recorder = Recorder::open(&Recordings::default(), clock).await.unwrap();
    assert!(!recorder.is_configured());
    let now = Timestamp::from_second(NOW).unwrap();
    let mut meta = meta(session_id(now), now);
    assert!(recorder.start(&meta).is_err());
    meta.session.recording_mode = RecordingMode::Private;
    let recording = recorder.start(&meta).unwrap();
    record_all(&recording, sample(), now);
    assert!(
        recorder
            .sessions("default", 10, |_, _| true)
            .await
            .unwrap()
            .is_empty()
    );
}
