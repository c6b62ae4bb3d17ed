//! Properties that must hold for any bytes of a peer. `fuzz/` calls these functions with generated
//! inputs, the tests with those in `tests/corpus`.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use jiff::Timestamp;
use tty::admission::{self, Subject};
use tty::frame::{self, Decoder};
use tty::identity::{EndpointIdentity, PublicIdentity, SigningPublicKey};
use tty::message::{Kind, MessageError, decode};
use tty::recording::export::{self, Cast, CastOptions, TextOptions};
use tty::recording::{Record, verify};
use tty::screen::{MAX_SNAPSHOT, Screen};
use tty::size::Size;

/// Frames of the plain transport; the first byte is the size of the pieces. The result of the
/// decoder does not depend on the split, and accepted messages survive encoding and decoding.
pub(crate) fn webtty_message(data: &[u8]) {
    let Some((size, bytes)) = data.split_first() else {
        return;
    };
    // The same bytes as one message of a WebSocket.
    if let Ok(kind) = decode(Bytes::copy_from_slice(bytes)) {
        again(&kind);
    }
    let whole = read(bytes, bytes.len().max(1));
    assert_eq!(whole, read(bytes, usize::from(*size) + 1));
    for kind in whole.0 {
        again(&kind);
    }
}

fn again(kind: &Kind) {
    // A message may be longer after encoding than before: varints have one encoding here and many
    // on the wire.
    if let Ok(frame) = frame::encode(kind) {
        assert_eq!(read(&frame, frame.len()), (vec![kind.clone()], None));
    }
}

fn read(bytes: &[u8], piece: usize) -> (Vec<Kind>, Option<MessageError>) {
    let mut decoder = Decoder::new();
    let mut kinds = Vec::new();
    for piece in bytes.chunks(piece) {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(kind)) => kinds.push(kind),
                Ok(None) => break,
                Err(error) => return (kinds, Some(error)),
            }
        }
    }
    (kinds, None)
}

/// Output of a command, for a screen whose size is in the first two bytes. The third byte decides
/// the position of splits and resizes. The snapshot draws the same screen, also below rows that have
/// scrolled off it.
pub(crate) fn webtty_screen(data: &[u8]) {
    let [rows, cols, cut, output @ ..] = data else {
        return;
    };
    let size = |rows: &u8, cols: &u8| Size {
        rows: u16::from(rows % 24) + 1,
        cols: u16::from(cols % 80) + 1,
    };
    let Some(mut screen) = Screen::with_scrollback(size(rows, cols)) else {
        return;
    };
    let (before, after) = output.split_at(usize::from(*cut).min(output.len()));
    screen.feed(before);
    let last = size(cut, rows);
    screen.resize(last);
    screen.feed(after);
    let snapshot = screen.snapshot();
    assert!(snapshot.len() <= MAX_SNAPSHOT);
    let Some(mut late) = Screen::new(last) else {
        return;
    };
    late.feed(&snapshot);
    assert_eq!(late.rows(), screen.rows());
}

/// Stored records, one per line: reading, verifying and exporting terminate, and a transcript is
/// harmless for a terminal.
pub(crate) fn webtty_recording(data: &[u8]) {
    let lines = data.split(|byte| *byte == b'\n');
    let records: Vec<Record> = lines
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    // A fuzzer does not find hashes, so only the execution of the check is tested, not its success.
    assert!(verify("s", &records, None).is_ok() || !records.is_empty());
    let options = TextOptions {
        input: true,
        markers: true,
        timestamps: false,
        pipes: records.first().is_some_and(export::has_pipes),
    };
    let mut shown = Vec::new();
    export::text(records.clone(), options, &mut shown).unwrap();
    for line in String::from_utf8(shown).unwrap().split('\n') {
        assert_eq!(export::sanitized(line), line);
    }
    let options = CastOptions {
        input: true,
        pipes: options.pipes,
    };
    for version in [Cast::V2, Cast::V3] {
        let mut written = Vec::new();
        export::cast(version, None, options, records.clone(), &mut written).unwrap();
        for line in String::from_utf8(written).unwrap().lines() {
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }
}

/// The proof of a server, and the texts of identities. The private key does not exist, so no proof
/// is accepted. The text of an endpoint has one spelling.
pub(crate) fn webtty_admission(data: &[u8]) {
    let key = SigningPublicKey::parse(KEY_WITHOUT_PRIVATE_KEY).unwrap();
    let labels = BTreeMap::new();
    let subject = Subject {
        project_id: "proj_1",
        server_id: "wtty_1",
        tunnel_protocol: "webtty",
        tunnel_type: "bytestream",
        labels: &labels,
    };
    let now = Timestamp::UNIX_EPOCH;
    // The label itself, and the JSON in it.
    let texts = [
        String::from_utf8_lossy(data),
        URL_SAFE_NO_PAD.encode(data).into(),
    ];
    for text in texts {
        assert!(admission::verify(&text, &key, subject, now).is_err());
        if let Ok(identity) = text.parse::<PublicIdentity>() {
            assert_eq!(identity.to_string(), text);
        }
        if let Ok(identity) = EndpointIdentity::from_file(&text) {
            let again = EndpointIdentity::from_file(&identity.to_file(now)).unwrap();
            assert_eq!(again.public(), identity.public());
        }
    }
}

/// A P-256 key whose private key was not kept.
const KEY_WITHOUT_PRIVATE_KEY: &str = "MFkwEwYHKoZIzj0CAQYIKoZIzj0DAQcDQgAEwfwhhfiL6dNdhypCNgmCNdcQ4HlzoSH-m4H6J8P17fxFXSXSWdndUtGPcGXvWsyrjWcXlJ7pit0JL9uAlQy7KQ";
