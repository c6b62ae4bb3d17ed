//! An attacker who can write to the storage of recordings and does not have the key.

use engine::webtty::recordings::ReadError;

use super::*;

/// Two recordings of several segments, and a recorder that reads them.
async fn two() -> (TestStorage, Recorder, [WebttySessionId; 2]) {
    let place = TestStorage::new();
    let recorder = place.open().await;
    let mut ids = Vec::new();
    for _ in 0..2 {
        let large = Entry::output(StreamType::Stdout, vec![b'x'; 200 * 1024].into());
        let now = place.clock.now();
        let id = session_id(now);
        let meta = meta(id, now);
        let recording = recorder.start(&meta).unwrap();
        for number in 0..12_u8 {
            let mut entry = large.clone();
            entry.payload = vec![b'a' + number; 200 * 1024].into();
            if recording.record(entry, now) == RecordingPace::Hold {
                wait_for_pace(&recording, RecordingPace::Go).await;
            }
        }
        recording.finish(&ended(&meta, 0, now));
        wait_stored(&recorder, id).await;
        ids.push(id);
    }
    (place, recorder, [ids[0], ids[1]])
}

/// Segments of a session, in order.
fn segments(place: &TestStorage, id: WebttySessionId) -> Vec<PathBuf> {
    let folder = place.folder().join(format!("sessions/default/{id}"));
    let files = std::fs::read_dir(folder).unwrap();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.retain(|path| path.file_name().unwrap() != "session");
    files.sort();
    files
}

fn first_of(segment: &Path) -> u64 {
    segment
        .file_name()
        .unwrap()
        .to_str()
        .unwrap()
        .parse()
        .unwrap()
}

/// EN-8: any change of the stored data is detected at its position.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_are_detected_at_their_position() {
    type Change = fn(&[PathBuf], &[PathBuf]);
    let changes: &[(&str, Change, usize)] = &[
        (
            "a bit",
            |own, _| {
                let mut bytes = std::fs::read(&own[1]).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                std::fs::write(&own[1], bytes).unwrap();
            },
            1,
        ),
        (
            "a piece cut off",
            |own, _| {
                let bytes = std::fs::read(&own[1]).unwrap();
                std::fs::write(&own[1], &bytes[..bytes.len() - 100]).unwrap();
            },
            1,
        ),
        (
            "a segment gone",
            |own, _| std::fs::remove_file(&own[1]).unwrap(),
            1,
        ),
        (
            "the end gone",
            |own, _| std::fs::remove_file(own.last().unwrap()).unwrap(),
            usize::MAX,
        ),
        (
            "another session's",
            |own, other| {
                std::fs::copy(&other[1], &own[1]).unwrap();
            },
            1,
        ),
        (
            "another place",
            |own, _| {
                std::fs::copy(&own[0], &own[1]).unwrap();
            },
            1,
        ),
    ];
    let (place, recorder, [id, other]) = two().await;
    assert!(is_unchanged(&recorder, id).await);
    let (own, others) = (segments(&place, id), segments(&place, other));
    assert!(own.len() >= 3, "{own:?}");
    for (name, change, at) in changes {
        let kept: Vec<_> = own
            .iter()
            .map(|path| std::fs::read(path).unwrap())
            .collect();
        change(&own, &others);
        let verdict = recorder.verify("default", &id).await.unwrap();
        let at = first_of(&own[(*at).min(own.len() - 1)]);
        let (seq, fault) = verdict
            .broken
            .unwrap_or_else(|| panic!("{name}: not found"));
        assert_eq!(seq, at, "{name}: {fault}");
        assert_eq!(verdict.records, at - 1, "{name}");
        // An export that reaches the change is aborted.
        let export = engine::webtty::recordings::Export::default();
        let mut pieces = recorder.export("default", &id, export).await.unwrap();
        let reading = async {
            let mut last = None;
            while let Some(piece) = pieces.recv().await {
                last = Some(piece.is_ok());
            }
            last
        };
        assert_eq!(within("an export", reading).await, Some(false), "{name}");
        for (path, bytes) in own.iter().zip(kept) {
            std::fs::write(path, bytes).unwrap();
        }
        assert!(is_unchanged(&recorder, id).await);
    }
}

/// The metadata of a session is sealed as well. Swapped or changed metadata is not shown.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn session_metadata_cannot_be_changed() {
    let (place, recorder, [id, other]) = two().await;
    std::fs::copy(
        place.object(other.as_str(), "session"),
        place.object(id.as_str(), "session"),
    )
    .unwrap();
    let refused = recorder.session("default", &id).await.unwrap_err();
    assert!(matches!(refused, ReadError::Unopened { .. }), "{refused}");
    // The other sessions are listed.
    recorder.finish().await;
    drop(recorder);
    let recorder = place.open().await;
    let listed = recorder.sessions("default", 10, |_, _| true).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|kept| kept.session.id.as_str()).collect();
    assert_eq!(listed, [other.as_str()]);
}
