//! Recordings in an S3-compatible store, here `moto`.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use engine::config::S3;

use super::*;

/// The store, which stops when dropped.
struct Moto {
    child: Child,
    endpoint: String,
}

impl Moto {
    /// Starts on a free port with a bucket `recordings`.
    async fn start() -> Self {
        let python = std::env::var_os("SVC_TEST_PYTHON").expect("SVC_TEST_PYTHON");
        let mut child = Command::new(python)
            .args(["-m", "moto.server", "-H", "127.0.0.1", "-p", "0"])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines();
        let endpoint = said.by_ref().map_while(Result::ok).find_map(|line| {
            let (_, address) = line.split_once("Running on ")?;
            Some(address.trim().to_owned())
        });
        let endpoint = endpoint.expect("an address");
        // `moto` logs each request, and would block on a pipe that is not read.
        std::thread::spawn(move || said.for_each(drop));
        let bucket = reqwest::Client::new().put(format!("{endpoint}/recordings"));
        assert!(bucket.send().await.unwrap().status().is_success());
        Self { child, endpoint }
    }

    fn place(&self, dir: &Path) -> RecordingLocation {
        let secret = dir.join("secret");
        std::fs::write(&secret, "a secret\n").unwrap();
        RecordingLocation::S3(S3 {
            endpoint: self.endpoint.clone(),
            bucket: "recordings".to_owned(),
            region: "us-east-1".to_owned(),
            access_key_id: "an-id".to_owned(),
            secret_access_key_file: secret,
            prefix: "terminals/a".to_owned(),
        })
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// EN-8, WT-2: recordings are stored, found, verified and removed in a store that several engines
/// share. An engine does not touch the active recordings of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_keeps_recordings_of_many_engines() {
    let moto = Moto::start().await;
    let place = TestStorage::new();
    let engine = async |owner: &str, retention| {
        let owner = place.dir.path().join(owner);
        let at = moto.place(place.dir.path());
        place
            .open_with(|config| {
                config.location = Some(at);
                config.owner_file = Some(owner);
                config.retention = retention;
            })
            .await
    };
    let one = engine("one", None).await;
    let id = record_session(&one, &place.clock, sample()).await;
    place.clock.advance(10);
    let now = place.clock.now();
    let running = session_id(now);
    let goes_on = meta(running, now);
    let recording = one.start(&goes_on).unwrap();
    // Several segments, of which the last is written more than once.
    for number in 0..20_u8 {
        let entry = Entry::output(StreamType::Stdout, vec![b'a' + number; 64 * 1024].into());
        recording.record(entry, now);
        if number % 5 == 4 {
            wait_for_records(&one, running, usize::from(number) + 1).await;
        }
    }

    let two = engine("two", None).await;
    assert_eq!(records(&two, id).await.len(), 10);
    assert_eq!(two.verify("default", &id).await.unwrap().broken, None);
    let listed = two.sessions("default", 10, |_, _| true).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|kept| kept.session.status).collect();
    assert_eq!(listed, [SessionStatus::Opening, SessionStatus::Closed]);
    recording.finish(&ended(&goes_on, 3, now));
    let end = wait_stored(&one, running).await;
    assert_eq!(
        (end.status, end.exit_code),
        (SessionStatus::Closed, Some(3))
    );
    let read: usize = records(&two, running)
        .await
        .iter()
        .map(|record| record.payload.len())
        .sum();
    assert_eq!(read, 20 * 64 * 1024);
    assert_eq!(two.verify("default", &running).await.unwrap().broken, None);
    two.delete("default", &running, None).await.unwrap();
    assert!(one.records("default", &running, 1, 10).await.is_err());
    one.finish().await;
    two.finish().await;

    place.clock.advance(3600);
    let three = engine("three", Some(Duration::from_mins(30))).await;
    until(&three, "end of what is old", async || {
        let left = three.sessions("default", 10, |_, _| true).await.unwrap();
        left.is_empty().then_some(())
    })
    .await;
    three.finish().await;
}

/// WT-2: if the store becomes unreachable, sessions that must be recorded end, and new ones are
/// refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_store_ends_sessions() {
    let moto = Moto::start().await;
    let place = TestStorage::new();
    let at = moto.place(place.dir.path());
    let recorder = place
        .open_with(|config| {
            config.location = Some(at);
            config.owner_file = None;
        })
        .await;
    let now = place.clock.now();
    let id = session_id(now);
    let recording = recorder.start(&meta(id, now)).unwrap();
    record_all(&recording, sample(), now);
    wait_for_records(&recorder, id, 1).await;
    drop(moto);
    recording.record(Entry::output(StreamType::Stdout, "lost".into()), now);
    wait_for_pace(&recording, RecordingPace::End).await;
    assert!(recorder.start(&meta(session_id(now), now)).is_err());
    assert!(recorder.session("default", &id).await.is_err());
    drop(recording);
    within("the end of a recorder", recorder.finish()).await;
}
