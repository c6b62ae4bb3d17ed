//! Killed engines, full disks, unreachable stores, and limits.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use engine::config::S3;

use super::*;

/// Environment variable with the working directory of a process that a test starts.
const INNER: &str = "SVC_TEST_RECORDINGS_DIR";

/// Line prefix with which that process announces stored segments of its session.
const STORED: &str = "stored: ";

/// Runs this test program again, with one test of this module and a directory.
fn again(test: &str, dir: &Path) -> Command {
    let (_program, module) = module_path!().split_once("::").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .arg(format!("{module}::{test}"))
        .args(["--exact", "--nocapture"])
        .env(INNER, dir);
    command
}

fn inner() -> Option<PathBuf> {
    std::env::var_os(INNER).map(PathBuf::from)
}

/// WT-2: recordings that a killed engine has stored are kept. The next engine reports the session
/// as ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_engine_keeps_its_stored_recordings() {
    if let Some(dir) = inner() {
        return records_until_killed(&dir).await;
    }
    let place = TestStorage::new();
    let mut child = again(
        "a_killed_engine_keeps_its_stored_recordings",
        place.dir.path(),
    )
    .stdout(Stdio::piped())
    .spawn()
    .unwrap();
    // Some segments are stored, and more are being written.
    let mut child_lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let id = child_lines.find_map(|line| line.unwrap().strip_prefix(STORED)?.parse().ok());
    let id: WebttySessionId = id.unwrap();
    // SIGKILL.
    child.kill().unwrap();
    child.wait().unwrap();

    let recorder = place.open().await;
    let session = wait_stored(&recorder, id).await;
    assert_eq!(session.status, SessionStatus::Errored);
    assert_eq!(session.error_code.as_deref(), Some("interrupted"));
    let read = records(&recorder, id).await;
    assert!(!read.is_empty());
    for (number, record) in (0_u32..).zip(&read) {
        let piece = format!("{number:08}");
        assert!(record.payload.starts_with(piece.as_bytes()), "{number}");
    }
    let verdict = recorder.verify("default", &id).await.unwrap();
    assert_eq!(verdict.broken, None);
    assert_eq!(usize::try_from(verdict.records), Ok(read.len()));
    let marks = place.folder().join("open/default");
    until(&recorder, "place without a mark of a session", async || {
        let marked = std::fs::read_dir(&marks).is_ok_and(|mut marks| marks.next().is_some());
        (!marked).then_some(())
    })
    .await;
}

async fn records_until_killed(dir: &Path) {
    let clock: Arc<dyn Clock> = Arc::new(ManualClock::at(Timestamp::from_second(NOW).unwrap()));
    let recorder = Recorder::open(&config(dir), Arc::clone(&clock))
        .await
        .unwrap();
    let id = session_id(clock.now());
    let recording = recorder.start(&meta(id, clock.now())).unwrap();
    let folder = dir.join(format!("recordings/sessions/default/{id}"));
    let mut is_announced = false;
    for number in 0_u32.. {
        let piece = format!("{number:08}").repeat(1024);
        let entry = Entry::output(StreamType::Stdout, piece.into());
        if recording.record(entry, clock.now()) == RecordingPace::Hold {
            wait_for_pace(&recording, RecordingPace::Go).await;
        }
        if !is_announced && std::fs::read_dir(&folder).is_ok_and(|stored| stored.count() >= 3) {
            // On its own line, after the line that announces the test.
            println!("\n{STORED}{id}");
            is_announced = true;
        }
    }
}

/// WT-2: on a full disk, `strict` ends the session and refuses new ones until there is space.
/// `best_effort` continues and reports the lost records.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_ends_sessions_or_leaves_gaps() {
    if let Some(dir) = inner() {
        on_a_small_disk(&dir).await;
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let inner = again("a_full_disk_ends_sessions_or_leaves_gaps", dir.path());
    let mut command = Command::new("unshare");
    if nix::unistd::Uid::effective().is_root() {
        command.arg("--mount");
    } else {
        command.args(["--user", "--map-root-user", "--mount"]);
    }
    let output = command
        .arg(inner.get_program())
        .args(inner.get_args())
        .env(INNER, dir.path())
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{stdout}\n{stderr}");
    assert!(stdout.contains("1 passed"), "{stdout}");
}

#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
async fn on_a_small_disk(dir: &Path) {
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=2m,mode=0700", "tmpfs"])
        .arg(dir)
        .status();
    assert!(mounted.unwrap().success());
    let clock = Arc::new(ManualClock::at(Timestamp::from_second(NOW).unwrap()));
    let ballast = dir.join("ballast");
    let fill = || {
        let mut file = std::fs::File::create(&ballast).unwrap();
        std::io::copy(&mut std::io::repeat(0), &mut file).unwrap_err();
    };
    let output = |text: &str| Entry::output(StreamType::Stdout, text.to_owned().into());

    let time = Arc::<ManualClock>::clone(&clock);
    let strict = Recorder::open(&config(dir), time).await.unwrap();
    let now = clock.now();
    let (first, recorded) = (session_id(now), meta(session_id(now), now));
    let recording = strict.start(&meta(first, now)).unwrap();
    record_all(&recording, vec![output("before")], now);
    wait_for_records(&strict, first, 1).await;
    fill();
    recording.record(output(&"lost ".repeat(20_000)), now);
    wait_for_pace(&recording, RecordingPace::End).await;
    assert!(strict.start(&recorded).is_err(), "no other session starts");
    std::fs::remove_file(&ballast).unwrap();
    let mut end = ended(&meta(first, now), 0, now);
    end.status = SessionStatus::Errored;
    recording.finish(&end);
    assert_eq!(
        wait_stored(&strict, first).await.status,
        SessionStatus::Errored
    );
    let details: Vec<_> = records(&strict, first).await;
    let details: Vec<_> = details
        .iter()
        .filter_map(|record| record.detail.as_deref())
        .collect();
    assert_eq!(details, ["lost: 1", "the end was not stored"]);
    assert!(is_unchanged(&strict, first).await);
    until(&strict, "room for others", async || {
        strict.start(&recorded).ok()
    })
    .await;
    strict.finish().await;
    drop(strict);

    let time = Arc::<ManualClock>::clone(&clock);
    let mut lenient = config(dir);
    lenient.policy = RecordingPolicy::BestEffort;
    let lenient = Recorder::open(&lenient, time).await.unwrap();
    let id = session_id(now);
    let recording = lenient.start(&meta(id, now)).unwrap();
    record_all(&recording, vec![output("before")], now);
    wait_for_records(&lenient, id, 1).await;
    fill();
    assert_eq!(
        recording.record(output(&"lost ".repeat(20_000)), now),
        RecordingPace::Go
    );
    // It continues while nothing can be stored.
    until(&lenient, "disk that is full", async || {
        (!lenient.is_healthy()).then_some(())
    })
    .await;
    std::fs::remove_file(&ballast).unwrap();
    assert_eq!(recording.record(output("after"), now), RecordingPace::Go);
    recording.finish(&ended(&meta(id, now), 0, now));
    assert_eq!(
        wait_stored(&lenient, id).await.status,
        SessionStatus::Closed
    );
    let read = records(&lenient, id).await;
    let seen: Vec<_> = read
        .iter()
        .map(|record| {
            record
                .detail
                .as_deref()
                .unwrap_or(std::str::from_utf8(&record.payload).unwrap())
        })
        .collect();
    assert_eq!(seen, ["before", "lost: 1", "after"]);
    assert!(is_unchanged(&lenient, id).await);
}

/// An unreachable store stops no engine. With `strict` no session is recorded, so none starts. With
/// `best_effort` sessions continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_store_stops_sessions_only_in_strict_mode() {
    let place = TestStorage::new();
    let secret = place.dir.path().join("secret");
    std::fs::write(&secret, "secret\n").unwrap();
    // Nothing listens on port 9 of this machine.
    let s3 = S3 {
        endpoint: "http://127.0.0.1:9".to_owned(),
        bucket: "recordings".to_owned(),
        region: "us-east-1".to_owned(),
        access_key_id: "id".to_owned(),
        secret_access_key_file: secret,
        prefix: String::new(),
    };
    for policy in [RecordingPolicy::Strict, RecordingPolicy::BestEffort] {
        let recorder = place
            .open_with(|config| {
                config.location = Some(RecordingLocation::S3(s3.clone()));
                config.owner_file = None;
                config.policy = policy;
            })
            .await;
        let now = place.clock.now();
        let strict = policy == RecordingPolicy::Strict;
        if strict {
            until(&recorder, "refusal", async || {
                recorder.start(&meta(session_id(now), now)).err()
            })
            .await;
        } else {
            let recording = recorder.start(&meta(session_id(now), now)).unwrap();
            for _ in 0..20 {
                let entry = Entry::output(StreamType::Stdout, vec![0; 256 * 1024].into());
                if recording.record(entry, now) == RecordingPace::Hold {
                    wait_for_pace(&recording, RecordingPace::Go).await;
                }
            }
            recording.finish(&ended(&meta(session_id(now), now), 0, now));
        }
        within("the end of a recorder", recorder.finish()).await;
    }
}

/// A recording that reaches its limit ends with a reason. With `strict` so does the session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_recording_ends_with_a_reason() {
    for policy in [RecordingPolicy::Strict, RecordingPolicy::BestEffort] {
        let place = TestStorage::new();
        let recorder = place
            .open_with(|config| {
                config.policy = policy;
                config.max_bytes_per_session = 64 * 1024;
            })
            .await;
        let now = place.clock.now();
        let id = session_id(now);
        let recording = recorder.start(&meta(id, now)).unwrap();
        for _ in 0..30 {
            let entry = Entry::output(StreamType::Stdout, vec![b'x'; 4096].into());
            recording.record(entry, now);
        }
        if policy == RecordingPolicy::Strict {
            wait_for_pace(&recording, RecordingPace::End).await;
        }
        recording.finish(&ended(&meta(id, now), 0, now));
        wait_stored(&recorder, id).await;
        let wanted = match policy {
            RecordingPolicy::Strict => RecordingPace::End,
            RecordingPolicy::BestEffort => RecordingPace::Go,
        };
        assert_eq!(*recording.pace().borrow(), wanted);
        let read = records(&recorder, id).await;
        let last = read.last().unwrap();
        assert_eq!(last.record_type, RecordType::RecordingState);
        assert_eq!(last.detail.as_deref(), Some("full"));
        assert!(read.len() < 17, "{} records", read.len());
        assert!(is_unchanged(&recorder, id).await);
    }
}

/// A project that has used up its storage starts no session that must be recorded. Another project
/// does.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_project_without_storage_records_no_more() {
    let place = TestStorage::new();
    let small = |config: &mut Recordings| config.max_bytes_per_project = 1024 * 1024;
    let recorder = place.open_with(small).await;
    let now = place.clock.now();
    let id = session_id(now);
    let recording = recorder.start(&meta(id, now)).unwrap();
    let entry = Entry::output(StreamType::Stdout, vec![b'x'; 256 * 1024].into());
    while recording.record(entry.clone(), now) != RecordingPace::Hold {}
    wait_for_pace(&recording, RecordingPace::Go).await;
    recording.record(entry, now);
    wait_for_pace(&recording, RecordingPace::End).await;
    recording.finish(&ended(&meta(id, now), 0, now));
    wait_stored(&recorder, id).await;
    let details = records(&recorder, id).await;
    assert_eq!(details.last().unwrap().detail.as_deref(), Some("full"));
    assert!(recorder.start(&meta(session_id(now), now)).is_err());
    let mut other = meta(session_id(now), now);
    other.project_id = "prj_b".into();
    assert!(recorder.start(&other).is_ok());
    recorder.finish().await;
    drop(recorder);
    // Existing recordings are counted at the start, and deleted ones free storage.
    let recorder = place.open_with(small).await;
    until(&recorder, "count of what there is", async || {
        recorder.start(&meta(session_id(now), now)).err()
    })
    .await;
    recorder.delete("default", &id, Some("ann")).await.unwrap();
    assert!(recorder.start(&meta(session_id(now), now)).is_ok());
    assert!(recorder.session("default", &id).await.unwrap().is_some());
}
