//! Exports, and other programs that read them.

use std::process::Command;

use engine::webtty::recordings::{Export, Format, ReadError};
use serde::Deserialize as _;
use serde_json::Value;
use tty::recording::export::sanitized;
use tty::recording::verify;

use super::*;

async fn exported(recorder: &Recorder, id: WebttySessionId, export: Export) -> String {
    let mut pieces = recorder.export("default", &id, export).await.unwrap();
    let mut bytes = Vec::new();
    while let Some(piece) = within("an export", pieces.recv()).await {
        bytes.extend_from_slice(&piece.unwrap());
    }
    String::from_utf8(bytes).unwrap()
}

fn of(format: Format) -> Export {
    Export {
        format,
        ..Export::default()
    }
}

/// A program installed on the test machine.
fn program(variable: &str) -> Command {
    Command::new(std::env::var_os(variable).unwrap_or_else(|| panic!("{variable} is not set")))
}

/// EN-8: each format contains the requested data and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_format_contains_the_requested_data() {
    let place = TestStorage::new();
    let recorder = place.open().await;
    let id = record_session(&recorder, &place.clock, sample()).await;
    let text = exported(&recorder, id, of(Format::Text)).await;
    assert_eq!(text, "$ sudo ls\nPassword:\nred caf\u{e9}\n$ a warning\n");
    let quiet = Export {
        stderr: false,
        ..of(Format::Text)
    };
    assert!(!exported(&recorder, id, quiet).await.contains("warning"));
    let all = Export {
        stdin: true,
        markers: true,
        ..of(Format::Text)
    };
    let all = exported(&recorder, id, all).await;
    assert!(all.contains("typed \"sudo ls\\r\"") && all.contains("18 characters, not shown"));
    assert!(all.contains("wtp_b] participant attached"), "{all}");

    let json: Value =
        serde_json::from_str(&exported(&recorder, id, of(Format::Json)).await).unwrap();
    assert_eq!(json["session"]["id"], id.as_str());
    let events = json["events"].as_array().unwrap();
    // The two stdin records keep their positions, so that the chain can be verified (WT-4).
    assert_eq!(events.len(), 10);
    let typed = |event: &&Value| event["stream_type"] == "stdin";
    for event in events.iter().filter(typed) {
        let content = [&event["payload"], &event["salt"], &event["detail"]];
        assert_eq!(content, [&Value::Null; 3], "{event}");
    }
    let records = events
        .iter()
        .map(|event| Record::deserialize(event).unwrap());
    let records: Vec<Record> = records.collect();
    let verdict = recorder.verify("default", &id).await.unwrap();
    assert_eq!(
        verify(id.as_str(), &records, Some(&verdict.head)),
        Ok(verdict.head.clone())
    );
    let some = Export {
        from_seq: 3,
        max_events: 2,
        stdin: true,
        ..of(Format::Ndjson)
    };
    let lines = exported(&recorder, id, some).await;
    let lines: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines[0]["session"]["id"], id.as_str());
    let numbers: Vec<_> = lines[1..].iter().map(|line| line["seq"].as_str()).collect();
    assert_eq!(numbers, [Some("3"), Some("4")]);
    for format in [Format::Asciicast, Format::AsciicastV3] {
        let cast = exported(&recorder, id, of(format)).await;
        let lines: Vec<Value> = cast
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert!(lines[1..].iter().all(|line| line[1] != "i"));
        assert!(!cast.contains("hunter2"));
        let typed = Export {
            stdin: true,
            ..of(format)
        };
        let cast = exported(&recorder, id, typed).await;
        assert!(cast.contains(r#""i","sudo ls\r""#) && !cast.contains("hunter2"));
    }
}

/// Output of a command cannot affect the terminal of a reader of the text, however it is encoded.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_escape_sequence_passes_into_a_text() {
    let attacks: &[&[u8]] = &[
        b"\x1b]0;title\x07",
        b"\x1b]52;c;cm0gLXJm\x07",
        b"\xc2\x9b31m",
        b"\xc2\x9d0;title\xc2\x9c",
        b"\x9b31m",
        b"\x1b[2J\x1b[3J\x1b[H",
        b"\x1bP+q544e\x1b\\",
        b"\x1b[6n\x1b[c\x1b[>c",
        b"\x1b]8;;http://x\x07link\x1b]8;;\x07",
        b"\x1b_Gf=100;AAAA\x1b\\",
        b"\x1b^pm\x1b\\",
        b"\xe2\x80\xaetxt.exe\xe2\x81\xa6",
        b"\x1b[?1049h\x1b[?47h",
        b"\x1b",
        b"\x07\x08\x0b\x0c\x0e\x7f\x00",
    ];
    let place = TestStorage::new();
    let recorder = place.open().await;
    let mut entries = Vec::new();
    for attack in attacks {
        let name = String::from_utf8_lossy(attack).into_owned();
        entries.push(Entry::output(StreamType::Stdout, attack.to_vec().into()));
        entries.push(Entry::input(&name, attack.to_vec().into(), false));
        entries.push(Entry::internal(RecordType::Control, Some(&name), &name));
        entries.push(Entry::output(StreamType::Stdout, "\r\nfind me\r\n".into()));
    }
    let id = record_session(&recorder, &place.clock, entries).await;
    let all = Export {
        stdin: true,
        markers: true,
        timestamps: true,
        ..of(Format::Text)
    };
    let text = exported(&recorder, id, all).await;
    assert!(text.lines().count() > 30);
    for line in text.split('\n') {
        assert_eq!(sanitized(line), line);
    }
}

/// A text of megabytes is sent in pieces, at the pace of its reader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_export_is_generated_as_it_is_read() {
    let place = TestStorage::new();
    let recorder = place.open().await;
    let now = place.clock.now();
    let id = session_id(now);
    let meta = meta(id, now);
    let recording = recorder.start(&meta).unwrap();
    for _ in 0..40 {
        let entry = Entry::output(StreamType::Stdout, "a line of text\r\n".repeat(8192).into());
        if recording.record(entry, now) == RecordingPace::Hold {
            wait_for_pace(&recording, RecordingPace::Go).await;
        }
    }
    recording.finish(&ended(&meta, 0, now));
    wait_stored(&recorder, id).await;
    let mut pieces = recorder
        .export("default", &id, of(Format::Ndjson))
        .await
        .unwrap();
    let mut bytes = 0;
    let mut largest = 0;
    while let Some(piece) = within("a piece", pieces.recv()).await {
        let piece = piece.unwrap();
        bytes += piece.len();
        largest = largest.max(piece.len());
    }
    assert!(bytes > 5 * 1024 * 1024, "{bytes}");
    assert!(largest < 512 * 1024, "{largest}");
    // A client that disconnects ends its export and frees its slot. There are fewer slots than
    // this.
    let going = async {
        let mut begun = 0;
        while begun < 20 {
            match recorder.export("default", &id, of(Format::Ndjson)).await {
                Ok(_) => begun += 1,
                Err(ReadError::Busy) => tokio::task::yield_now().await,
                Err(other) => panic!("{other}"),
            }
        }
    };
    within("place for a reader", going).await;
}

/// EN-8: `asciinema` plays a cast of version 2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asciinema_plays_a_cast_of_version_2() {
    let place = TestStorage::new();
    let recorder = place.open().await;
    let id = record_session(&recorder, &place.clock, sample()).await;
    let cast = exported(&recorder, id, of(Format::Asciicast)).await;
    let file = place.dir.path().join("session.cast");
    std::fs::write(&file, cast).unwrap();
    // `asciinema` requires a terminal, though it only writes.
    let on_a_terminal = "import pty, sys; sys.exit(pty.spawn(sys.argv[1:]))";
    let played = program("SVC_TEST_PYTHON")
        .args(["-c", on_a_terminal])
        .arg(program("SVC_TEST_ASCIINEMA").get_program())
        .arg("cat")
        .arg(&file)
        .stdin(std::process::Stdio::null())
        .env("LC_ALL", "C.UTF-8")
        .env("HOME", place.dir.path())
        .output()
        .unwrap();
    assert!(
        played.status.success(),
        "{}",
        String::from_utf8_lossy(&played.stderr)
    );
    let shown = "$ sudo ls\r\nPassword: \r\n\x1b[31mred\x1b[0m caf\u{e9}\r\n$ a warning\r\n";
    assert_eq!(String::from_utf8_lossy(&played.stdout), shown);
}

/// EN-8: `asciinema-player` plays a cast of version 3, in a browser.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asciinema_player_plays_a_cast_of_version_3() {
    let place = TestStorage::new();
    let recorder = place.open().await;
    let id = record_session(&recorder, &place.clock, sample()).await;
    let cast = exported(&recorder, id, of(Format::AsciicastV3)).await;
    let file = place.dir.path().join("session.cast");
    std::fs::write(&file, cast).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/node/play-cast.mjs");
    let played = program("SVC_TEST_NODE")
        .arg(script)
        .arg(&file)
        .output()
        .unwrap();
    let stderr = String::from_utf8_lossy(&played.stderr);
    assert!(played.status.success(), "{stderr}");
    let seen: Value = serde_json::from_slice(&played.stdout).unwrap();
    let screen = seen["screen"].as_str().unwrap();
    for shown in ["$ sudo ls", "Password:", "red caf\u{e9}", "$ a warning"] {
        assert!(screen.contains(shown), "{shown} in {screen}");
    }
    assert_eq!(seen["ended"], true);
}
