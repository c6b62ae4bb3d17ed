//! Messages of releases: this version reads and writes them in the same way.
//!
//! `tests/releases/VERSION.txt` has a line for each message, with every field set: its name and its
//! bytes. A release adds a file; an existing file never changes.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use wire::lane::{self, Event};
use wire::message::{self, Kind};
use wire::pool::{self, StreamOpen, StreamReset};
use wire::{frame, properties};

/// The messages of every release, with their names.
fn recorded() -> Vec<(String, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/releases");
    let mut messages = Vec::new();
    for file in fs::read_dir(folder).unwrap() {
        let text = fs::read_to_string(file.unwrap().path()).unwrap();
        for line in text.lines() {
            let (name, digits) = line.split_once(' ').unwrap();
            let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap();
            let bytes = (0..digits.len()).step_by(2).map(byte).collect();
            messages.push((name.to_owned(), bytes));
        }
    }
    assert!(!messages.is_empty());
    messages
}

#[test]
fn frames_of_releases_are_read_and_written_the_same() {
    let mut kinds = BTreeSet::new();
    for (name, bytes) in recorded() {
        if name == "lane" || name.starts_with("pool.") {
            continue;
        }
        let mut decoder = frame::Decoder::new();
        decoder.push(&bytes);
        let message = decoder.next().unwrap().unwrap();
        let kind = message.kind.as_ref().map(|kind| format!("{kind:?}"));
        let kind = kind.unwrap_or_default();
        assert!(kind.starts_with(&format!("{name}(")), "{name}: {kind}");
        let mut written = Vec::new();
        frame::encode(&message, &mut written).unwrap();
        assert_eq!(
            written, bytes,
            "{name}: a field is lost or has another number"
        );
        kinds.insert(name);
    }
    // All kinds of the first release.
    assert_eq!(kinds.len(), 18, "{kinds:?}");
}

#[test]
fn properties_of_releases_are_understood() {
    let mut read = 0;
    for (_, bytes) in recorded() {
        let mut decoder = frame::Decoder::new();
        decoder.push(&bytes);
        let Ok(Some(message)) = decoder.next() else {
            continue;
        };
        if let Some(Kind::OpenTunnelReq(request)) = message.kind {
            let properties = message::TunnelProperties {
                // Set by engines.
                id: None,
                creation_date: None,
                host: None,
                // Refused by every version so far.
                mtls_cacert_pem: None,
                ..request.tunnel_properties.unwrap()
            };
            let understood = properties::requested(&properties).unwrap();
            assert_eq!(properties::request(&understood), properties);
            read += 1;
        }
    }
    assert!(read > 0);
}

#[test]
fn streams_of_releases_are_read_and_written_the_same() {
    for (name, bytes) in recorded() {
        let mut written = Vec::new();
        match name.as_str() {
            "pool.StreamOpen" => {
                let open = StreamOpen::decode_payload(&bytes[pool::HEAD_LEN..]).unwrap();
                open.encode_frame(&mut written).unwrap();
            }
            "pool.StreamReset" => {
                let reset = StreamReset::decode_payload(&bytes[pool::HEAD_LEN..]).unwrap();
                reset.encode_frame(&mut written).unwrap();
            }
            "lane" => {
                let mut decoder = lane::Decoder::new();
                let mut input = bytes.as_slice();
                while let Some(event) = decoder.next(&mut input).unwrap() {
                    match event {
                        Event::Open { stream, open } => {
                            lane::encode_open(stream, &open, &mut written).unwrap();
                        }
                        Event::Step { stream, bytes, .. } if !bytes.is_empty() => {
                            lane::encode_data(stream, bytes, &mut written);
                        }
                        Event::Step { stream, error, .. } => {
                            lane::encode_reset(stream, error.as_ref(), &mut written);
                        }
                    }
                }
                assert!(decoder.is_between_frames());
            }
            _ => continue,
        }
        assert_eq!(written, bytes, "{name}");
    }
}
