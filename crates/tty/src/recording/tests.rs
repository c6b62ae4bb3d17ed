mod without_content;

use proptest::prelude::*;

use super::export::{
    Cast, CastOptions, Hashes, TextOptions, cast, has_pipes, json, ndjson, sanitized, text,
};
use super::vault::{HEADER_LEN, Opener, Sealer, VaultError, VaultKey};
use super::*;

const SESSION: &str = "wts_01h455vb4pex5vsknk084sn02q";
const SALT: [u8; SALT_LEN] = [7; SALT_LEN];

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millisecond(1_700_000_000_000 + millis).unwrap()
}

fn record_all(entries: Vec<Entry>) -> (Vec<Record>, Head) {
    let mut recorder = Recorder::new(SESSION, u64::MAX);
    let mut records = Vec::new();
    for (number, entry) in (0..).zip(entries) {
        let record = recorder.next(entry, at(number * 250), SALT).unwrap();
        recorder.commit(&record);
        records.push(record);
    }
    (records, recorder.head().clone())
}

fn sample() -> Vec<Entry> {
    let size = Size { rows: 4, cols: 20 };
    vec![
        Entry {
            size: Some(size),
            ..Entry::internal(RecordType::Open, Some("p1"), "sh")
        },
        Entry::output(StreamType::Stdout, "$ ".into()),
        Entry::input("p1", "ls\r".into(), false),
        Entry::output(StreamType::Stdout, "ls\r\n\x1b[31mred\x1b[0m caf".into()),
        // A character that is split into two pieces.
        Entry::output(StreamType::Stdout, Bytes::from_static(b"\xc3")),
        Entry::output(StreamType::Stdout, Bytes::from_static(b"\xa9\r\n")),
        Entry::internal(RecordType::Control, Some("p2"), "granted"),
        Entry::input("p2", "hunter2".into(), true),
        Entry::resize("p2", Size { rows: 5, cols: 30 }),
        Entry {
            exit_code: Some(7),
            ..Entry::new(RecordType::Close, RecordDirection::ServerToClient)
        },
    ]
}

#[test]
fn a_whole_chain_is_verified_and_survives_json() {
    let (records, head) = record_all(sample());
    assert_eq!(verify(SESSION, &records, Some(&head)), Ok(head.clone()));
    let lines: Vec<String> = records
        .iter()
        .map(|record| serde_json::to_string(record).unwrap())
        .collect();
    let read: Vec<Record> = lines
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(read, records);
    // The recording of another session.
    let other = verify("wts_other", &records, Some(&head));
    assert_eq!(
        other,
        Err(ChainError {
            seq: 1,
            fault: ChainFault::Link
        })
    );
}

#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn the_first_changed_record_is_reported() {
    type Change = fn(&mut Vec<Record>);
    let changes: &[(&str, Change, u64, ChainFault)] = &[
        (
            "bytes",
            |r| r[3].payload = "rm -rf".into(),
            4,
            ChainFault::Content,
        ),
        (
            "whose",
            |r| r[2].participant_id = Some("p2".to_owned()),
            3,
            ChainFault::Content,
        ),
        (
            "nobody's",
            |r| r[2].participant_id = None,
            3,
            ChainFault::Content,
        ),
        ("time", |r| r[5].created_at = at(1), 6, ChainFault::Content),
        (
            "kind",
            |r| r[6].record_type = RecordType::Participant,
            7,
            ChainFault::Content,
        ),
        (
            "stream",
            |r| r[3].stream_type = Some(StreamType::Stderr),
            4,
            ChainFault::Content,
        ),
        (
            "way",
            |r| r[1].direction = RecordDirection::ClientToServer,
            2,
            ChainFault::Content,
        ),
        ("mask", |r| r[7].masked = false, 8, ChainFault::Content),
        (
            "length",
            |r| r[7].payload_length = 1,
            8,
            ChainFault::Content,
        ),
        (
            "size",
            |r| r[8].terminal_size = Size::new(1, 1),
            9,
            ChainFault::Content,
        ),
        (
            "exit",
            |r| r[9].exit_code = Some(0),
            10,
            ChainFault::Content,
        ),
        ("detail", |r| r[6].detail = None, 7, ChainFault::Content),
        ("hash", |r| r[4].hash[0] ^= 1, 5, ChainFault::Content),
        ("link", |r| r[4].prev_hash[0] ^= 1, 5, ChainFault::Link),
        (
            "removed",
            |r| drop(r.remove(4)),
            5,
            ChainFault::Sequence { found: 6 },
        ),
        (
            "moved",
            |r| r.swap(3, 4),
            4,
            ChainFault::Sequence { found: 5 },
        ),
        (
            "doubled",
            |r| r.insert(4, r[3].clone()),
            5,
            ChainFault::Sequence { found: 4 },
        ),
        ("cut", |r| r.truncate(6), 7, ChainFault::Missing),
        ("emptied", Vec::clear, 1, ChainFault::Missing),
    ];
    let (records, head) = record_all(sample());
    for (name, change, seq, fault) in changes {
        let mut changed = records.clone();
        change(&mut changed);
        let expected = Err(ChainError {
            seq: *seq,
            fault: *fault,
        });
        assert_eq!(verify(SESSION, &changed, Some(&head)), expected, "{name}");
    }
    // An attacker that can compute hashes changes a record and all later ones: the head detects it.
    let mut entries = sample();
    entries[3].payload = "other".into();
    let (forged, _) = record_all(entries);
    assert_eq!(verify(SESSION, &forged, None).unwrap().seq, 10);
    assert_eq!(
        verify(SESSION, &forged, Some(&head)),
        Err(ChainError {
            seq: 10,
            fault: ChainFault::Link
        })
    );
    // An attacker adds records.
    let (longer, _) = record_all([sample(), sample()].concat());
    assert_eq!(
        verify(SESSION, &longer, Some(&head)),
        Err(ChainError {
            seq: 11,
            fault: ChainFault::Added
        })
    );
}

#[test]
fn input_without_an_echo_is_not_kept() {
    let (records, _) = record_all(sample());
    let everything = serde_json::to_string(&records).unwrap();
    let password = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, "hunter2");
    assert!(!everything.contains("hunter2") && !everything.contains(&password));
    assert_eq!((records[7].masked, records[7].payload_length), (true, 7));
}

#[test]
fn a_full_recording_reports_it_and_ends() {
    let mut recorder = Recorder::new(SESSION, 4000);
    let mut records = Vec::new();
    let entry = Entry::output(StreamType::Stdout, vec![b'x'; 1000].into());
    while let Some(record) = recorder.next(entry.clone(), at(0), SALT) {
        recorder.commit(&record);
        records.push(record);
    }
    assert!(recorder.is_full());
    let last = records.last().unwrap();
    assert_eq!(last.record_type, RecordType::RecordingState);
    assert_eq!(last.detail.as_deref(), Some("full"));
    assert_eq!(records.len(), 3);
    assert!(verify(SESSION, &records, Some(recorder.head())).is_ok());
}

#[test]
fn entries_that_were_not_stored_are_a_gap_in_a_valid_chain() {
    let mut recorder = Recorder::new(SESSION, u64::MAX);
    let entry = |text: &'static str| Entry::output(StreamType::Stdout, text.into());
    let first = recorder.next(entry("a"), at(0), SALT).unwrap();
    assert!(!recorder.commit(&first));
    // The disk is full for two entries.
    assert!(recorder.next(entry("b"), at(1), SALT).is_some());
    recorder.count_lost_entries(1);
    recorder.count_lost_entries(1);
    let gap = recorder.next(entry("d"), at(2), SALT).unwrap();
    assert_eq!(gap.detail.as_deref(), Some("lost: 2"));
    assert!(recorder.commit(&gap), "the entry is still to be recorded");
    let after = recorder.next(entry("d"), at(2), SALT).unwrap();
    assert!(!recorder.commit(&after));
    assert!(verify(SESSION, &[first, gap, after], Some(recorder.head())).is_ok());
}

/// A record without a salt, of a key that was pressed and echoed.
const UNSALTED: &str = r#"{"seq":"1","created_at":"2023-11-14T22:13:20.250Z","type":"data","direction":"client_to_server","stream_type":"stdin","participant_id":"p1","payload_length":1,"payload":"eA==","prev_hash":"551390e1edf08455ab01fbd7a643b87c2189c26f54a6da4b0a3ce3873b3a37f1","hash":"b285c7bd6c69379cd44bfa65da65bb2fb94275de57f2eb927b9a85e82922dec2"}
{"seq":"2","created_at":"2023-11-14T22:13:20.500Z","type":"data","direction":"server_to_client","stream_type":"stdout","payload_length":1,"payload":"eA==","prev_hash":"b285c7bd6c69379cd44bfa65da65bb2fb94275de57f2eb927b9a85e82922dec2","hash":"45b7b498ec5b84bb87b2b4ef554d2fb69baf74776cbe9f591e5e3458d0deee1f"}"#;

fn unsalted() -> Vec<Record> {
    let lines = UNSALTED.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

/// Keys that match the hash of a record.
fn guessed(record: &Record) -> Vec<u8> {
    let fits = |key: &u8| {
        let guess = Record {
            payload: Bytes::copy_from_slice(&[*key]),
            salt: None,
            content_hash: None,
            ..record.clone()
        };
        Verifier::from(&guess).check(&guess).is_ok()
    };
    (0..=u8::MAX).filter(fits).collect()
}

#[test]
fn recordings_without_salts_are_verified() {
    assert!(verify(SESSION, &unsalted(), None).is_ok());
    let mut changed = unsalted();
    changed[0].salt = Some(Salt(SALT));
    let broken = verify(SESSION, &changed, None).unwrap_err();
    assert_eq!((broken.seq, broken.fault), (1, ChainFault::Content));
}

/// WT-4: the hash of a record does not disclose its content.
#[test]
fn wt_4_a_hash_does_not_disclose_the_input() {
    assert_eq!(guessed(&unsalted()[0]), b"x", "the guess is a good one");
    let (records, _) = record_all(vec![Entry::input("p1", "x".into(), false)]);
    assert!(guessed(&records[0]).is_empty());
    let mut changed = records;
    changed[0].salt = Some(Salt([8; SALT_LEN]));
    let broken = verify(SESSION, &changed, None).unwrap_err();
    assert_eq!(broken.fault, ChainFault::Content);
}

/// WT-4: an export without input does not disclose it either. It contains no unsalted hashes, and
/// no salts of omitted contents.
#[test]
fn wt_4_an_export_without_input_has_no_hash_that_discloses_it() {
    for write in [
        |records: Vec<Record>| exported(|out| json(&(), at(0), Hashes::Salted, records, out)),
        |records: Vec<Record>| exported(|out| ndjson(&(), at(0), Hashes::Salted, records, out)),
    ] {
        let output = write(unsalted()[1..].to_vec());
        assert!(
            output.contains("payload") && !output.contains("hash"),
            "{output}"
        );
        let (records, _) = record_all(sample());
        let output = write(records);
        assert_eq!(output.matches("\"prev_hash\"").count(), 10, "{output}");
    }
}

fn exported(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_transcript_contains_the_shown_text() {
    let (records, _) = record_all(sample());
    let shown = exported(|out| text(records.clone(), TextOptions::default(), out));
    assert_eq!(shown, "$ ls\nred café\n");
    let all = TextOptions {
        input: true,
        markers: true,
        ..TextOptions::default()
    };
    let timed = TextOptions {
        timestamps: true,
        ..TextOptions::default()
    };
    let shown_at = exported(|out| text(records.clone(), timed, out));
    assert!(
        shown_at.starts_with("[2023-11-14T22:13:22.250Z] $ ls\n"),
        "{shown_at}"
    );
    let shown = exported(|out| text(records, all, out));
    for line in [
        "[2023-11-14T22:13:20.000Z p1] open 20x4",
        "[2023-11-14T22:13:20.500Z p1] typed \"ls\\r\"",
        "[2023-11-14T22:13:21.500Z p2] control granted",
        "[2023-11-14T22:13:21.750Z p2] typed 7 characters, not shown",
        "[2023-11-14T22:13:22.000Z p2] resize 30x5",
    ] {
        assert!(
            shown.lines().any(|shown| shown == line),
            "{line} in\n{shown}"
        );
    }
}

#[test]
fn a_transcript_omits_the_screens_of_full_screen_programs() {
    let (records, _) = record_all(vec![Entry::output(
        StreamType::Stdout,
        "before\r\n\x1b[?1049hvim\x1b[?1049lafter".into(),
    )]);
    let shown = exported(|out| text(records, TextOptions::default(), out));
    assert_eq!(shown, "before\nafter\n");
}

#[test]
fn a_transcript_is_harmless_for_a_terminal() {
    let attacks = [
        "\x1b]0;title\x07",
        "\x1b]52;c;cm0gLXJm\x07",
        "\u{9b}31m",
        "\u{9d}0;title\u{9c}",
        "\x1b[2J",
        "\x1bP+q544e\x1b\\",
        "\x7f",
        "\u{202e}txt.exe",
        "\x1b[6n",
        "\u{85}",
        "\x1b]8;;http://x\x07y",
        "\x1b^pm\x1b\\",
        "\x1b_apc\x1b\\",
        "\x08\x08",
        "\u{2066}a\u{2069}",
        "\x1b",
        "\x1b[",
    ];
    for attack in attacks {
        let entry = Entry {
            detail: Some(attack.to_owned()),
            participant_id: Some(attack.to_owned()),
            ..Entry::output(StreamType::Stdout, attack.as_bytes().into())
        };
        let typed = Entry::input(attack, attack.as_bytes().into(), false);
        let state = Entry::internal(RecordType::Control, Some(attack), attack);
        let (records, _) = record_all(vec![entry, typed, state]);
        let shown = exported(|out| {
            text(
                records,
                TextOptions {
                    input: true,
                    markers: true,
                    timestamps: true,
                    pipes: false,
                },
                out,
            )
        });
        for line in shown.lines() {
            assert_eq!(sanitized(line), line, "{attack:?}");
        }
    }
}

const WITH_INPUT: CastOptions = CastOptions {
    input: true,
    pipes: false,
};

/// Lines of pipes have no carriage returns, and readers need not handle this.
#[test]
fn lines_of_pipes_start_at_the_left() {
    let mut open = Entry::new(RecordType::Open, RecordDirection::ClientToServer);
    open.detail = Some("ls".to_owned());
    let shown = |text: &str| Entry::output(StreamType::Stdout, text.to_owned().into());
    let (records, _) = record_all(vec![open, shown("one\ntwo\n"), shown("three\r\n")]);
    assert!(has_pipes(&records[0]) && !has_pipes(&records[1]));
    let options = TextOptions {
        pipes: true,
        ..TextOptions::default()
    };
    let text = exported(|out| text(records.clone(), options, out));
    assert_eq!(text, "one\ntwo\nthree\n");
    let options = CastOptions {
        pipes: true,
        ..CastOptions::default()
    };
    let cast = exported(|out| cast(Cast::V3, None, options, records.clone(), out));
    assert!(
        cast.contains(r#""one\r\ntwo\r\n""#) && cast.contains(r#""three\r\n""#),
        "{cast}"
    );
    let mut searcher = super::search::Searcher::new("t").unwrap();
    let found = records.iter().flat_map(|record| searcher.push(record, 10));
    assert_eq!(
        found.map(|hit| hit.line).collect::<Vec<_>>(),
        ["two", "three"]
    );
}

#[test]
fn casts_have_the_lines_that_players_read() {
    let (records, _) = record_all(sample());
    let v2 = exported(|out| cast(Cast::V2, Some("a title"), WITH_INPUT, records.clone(), out));
    let lines = [
        r#"{"height":4,"timestamp":1700000000,"title":"a title","version":2,"width":20}"#,
        r#"[0.25,"o","$ "]"#,
        r#"[0.5,"i","ls\r"]"#,
        r#"[0.75,"o","ls\r\n\u001b[31mred\u001b[0m caf"]"#,
        r#"[1.25,"o","é\r\n"]"#,
        r#"[1.5,"m","granted"]"#,
        r#"[2.0,"r","30x5"]"#,
    ];
    assert_eq!(v2.lines().collect::<Vec<_>>(), lines);
    let v3 = exported(|out| cast(Cast::V3, None, CastOptions::default(), records, out));
    let lines = [
        r#"{"term":{"cols":20,"rows":4},"timestamp":1700000000,"version":3}"#,
        r#"[0.25,"o","$ "]"#,
        r#"[0.5,"o","ls\r\n\u001b[31mred\u001b[0m caf"]"#,
        r#"[0.5,"o","é\r\n"]"#,
        r#"[0.25,"m","granted"]"#,
        r#"[0.5,"r","30x5"]"#,
        r#"[0.25,"x","7"]"#,
    ];
    assert_eq!(v3.lines().collect::<Vec<_>>(), lines);
}

#[test]
fn json_has_every_record() {
    let (records, head) = record_all(sample());
    let session = serde_json::json!({"id": SESSION});
    let written = exported(|out| json(&session, at(0), Hashes::All, records.clone(), out));
    let read: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!(read["export_version"], 1);
    assert_eq!(read["session"], session);
    let events: Vec<Record> = serde_json::from_value(read["events"].clone()).unwrap();
    assert_eq!(events, records);
    assert!(verify(SESSION, &events, Some(&head)).is_ok());
}

fn vault(chunks: &[&[u8]]) -> Vec<Vec<u8>> {
    let mut sealer = Sealer::new(&VaultKey::new([1; 32]), SESSION, [2; 16]).unwrap();
    let mut file = vec![sealer.header().to_vec()];
    let (last, before) = chunks.split_last().unwrap();
    file.extend(before.iter().map(|chunk| sealer.chunk(chunk).unwrap()));
    file.push(sealer.finish(last).unwrap());
    file
}

fn unvault(file: &[u8], key: u8, session: &str) -> Result<Vec<Vec<u8>>, VaultError> {
    let mut opener = Opener::new(file, &VaultKey::new([key; 32]), session)?;
    let mut chunks = Vec::new();
    while let Some(chunk) = opener.chunk()? {
        chunks.push(chunk);
    }
    Ok(chunks)
}

#[test]
fn a_vault_opens_only_as_it_was_written() {
    let parts = vault(&[b"one", b"two", b"three"]);
    let file = parts.concat();
    let clear = unvault(&file, 1, SESSION).unwrap();
    assert_eq!(clear, [&b"one"[..], b"two", b"three"]);
    assert!(!file.windows(3).any(|bytes| bytes == b"two"));

    let broken = |parts: &[&Vec<u8>]| {
        let file: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).collect();
        unvault(&file, 1, SESSION).unwrap_err()
    };
    let [header, one, two, three] = &parts[..] else {
        panic!("four parts")
    };
    assert!(
        matches!(broken(&[header, two, one, three]), VaultError::Modified),
        "reordered"
    );
    assert!(
        matches!(broken(&[header, one, three]), VaultError::Modified),
        "removed"
    );
    assert!(
        matches!(
            broken(&[header, one, one, two, three]),
            VaultError::Modified
        ),
        "doubled"
    );
    assert!(
        matches!(broken(&[header, one, two]), VaultError::Truncated),
        "cut at a chunk"
    );
    assert!(
        matches!(broken(&[header]), VaultError::Truncated),
        "emptied"
    );
    assert!(
        matches!(
            broken(&[header, one, two, three, one]),
            VaultError::Modified
        ),
        "added"
    );
    assert!(
        matches!(unvault(&file, 9, SESSION), Err(VaultError::Modified)),
        "another key"
    );
    assert!(
        matches!(unvault(&file, 1, "wts_x"), Err(VaultError::Modified)),
        "another session"
    );
    assert!(matches!(
        unvault(b"{}", 1, SESSION),
        Err(VaultError::Truncated)
    ));
    assert!(matches!(
        unvault(&[0; 64], 1, SESSION),
        Err(VaultError::NotARecording)
    ));
    let long = [&header[..], &u32::MAX.to_be_bytes()].concat();
    assert!(matches!(
        unvault(&long, 1, SESSION),
        Err(VaultError::TooLarge)
    ));
}

proptest! {
    #[test]
    fn any_change_of_a_vault_is_found(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let mut file = vault(&[b"some clear text", b"", b"more of it"]).concat();
        let at = at.index(file.len());
        file[at] ^= 1 << bit;
        prop_assert!(unvault(&file, 1, SESSION).is_err());
    }

    #[test]
    fn any_truncation_of_a_vault_is_found(at in any::<prop::sample::Index>()) {
        let file = vault(&[b"some clear text", b"more of it"]).concat();
        let cut = &file[..at.index(file.len())];
        prop_assert!(unvault(cut, 1, SESSION).is_err());
        prop_assert!(cut.len() < HEADER_LEN || Opener::new(cut, &VaultKey::new([1; 32]), SESSION).is_ok());
    }

    /// For any output of a command, a transcript is harmless and every export succeeds.
    #[test]
    fn any_output_is_exported_harmlessly(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..12)) {
        let entries = pieces.iter().map(|piece| Entry::output(StreamType::Stdout, piece.clone().into()));
        let (records, _) = record_all(entries.collect());
        let shown = exported(|out| text(records.clone(), TextOptions { input: true, markers: true, timestamps: true, pipes: false }, out));
        for line in shown.split('\n') {
            prop_assert_eq!(sanitized(line), line);
        }
        let written = exported(|out| cast(Cast::V3, None, WITH_INPUT, records, out));
        for line in written.lines() {
            prop_assert!(serde_json::from_str::<serde_json::Value>(line).is_ok());
        }
    }
}
