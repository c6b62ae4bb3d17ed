//! Export of recordings for people and other programs. All formats are written while records are
//! read, so a recording of any size needs the same memory.
//!
//! A transcript is text for terminals, editors and logs, and output of a command is untrusted. A
//! transcript therefore contains nothing that moves a cursor, sets a title or changes the writing
//! direction ([`sanitized`]). A cast is for players, which are terminals, and contains the output
//! unchanged. JSON contains it in base64.

use std::borrow::Cow;
use std::io::{self, Write};

use jiff::Timestamp;
use serde::Serialize;
use serde_json::json;
use types::webtty::{RecordType, StreamType};

use super::Record;
use crate::screen::{SET_NEW_LINE_MODE, Utf8};
use crate::size::Size;

/// Optional parts of a transcript.
#[derive(Clone, Copy, Debug, Default)]
pub struct TextOptions {
    /// Adds lines with the input and its author.
    pub input: bool,
    /// Adds lines for joins, changes of control and changes of size.
    pub markers: bool,
    /// Prefixes each line with the time at which it was complete: when it scrolled off the screen,
    /// or the recording ended.
    pub timestamps: bool,
    /// True if the command had pipes ([`has_pipes`]).
    pub pipes: bool,
}

/// True if a session had pipes instead of a terminal, according to its first record. Its lines then
/// end without carriage returns.
pub fn has_pipes(first: &Record) -> bool {
    first.record_type == RecordType::Open && first.terminal_size.is_none()
}

/// Writes the shown output as lines of text. It omits overwritten text and the screens of
/// full-screen programs, and includes lines that scrolled off the screen.
///
/// # Errors
/// Errors of `out`.
pub fn text(
    records: impl IntoIterator<Item = Record>,
    options: TextOptions,
    mut out: impl Write,
) -> io::Result<()> {
    let mut terminal = avt::Terminal::new(Size::DEFAULT.cols.into(), Size::DEFAULT.rows.into())
        .map_err(io::Error::other)?;
    let mut transcript = avt::observer::Transcript::new();
    if options.pipes {
        terminal.feed(SET_NEW_LINE_MODE);
    }
    let mut streams = [Utf8::default(), Utf8::default()];
    let mut at = None;
    for record in records {
        at = options.timestamps.then_some(record.created_at);
        match (record.record_type, record.stream_type) {
            (RecordType::Data, Some(StreamType::Stdin)) if options.input => {
                let typed = if record.masked {
                    format!("{} characters, not shown", record.payload_length)
                } else {
                    format!("{:?}", String::from_utf8_lossy(&record.payload))
                };
                marker(&mut out, &record, &format!("typed {typed}"))?;
            }
            (RecordType::Data, Some(stream @ (StreamType::Stdout | StreamType::Stderr))) => {
                let [stdout, stderr] = &mut streams;
                let utf8 = if stream == StreamType::Stdout {
                    stdout
                } else {
                    stderr
                };
                let shown = utf8.push(&record.payload);
                let lines = terminal.feed_with(shown.as_str(), &mut transcript);
                write_lines(&mut out, at, &lines)?;
            }
            (RecordType::Data, _) => {}
            (kind, _) => {
                if let Some(size) = record.terminal_size {
                    let size = Size {
                        rows: size.rows.clamp(1, crate::screen::MAX_ROWS),
                        cols: size.cols.clamp(1, crate::screen::MAX_COLS),
                    };
                    let (cols, rows) = (size.cols.into(), size.rows.into());
                    let lines = terminal.resize_with(cols, rows, &mut transcript);
                    write_lines(&mut out, at, &lines)?;
                    if options.markers {
                        marker(&mut out, &record, &format!("{kind} {cols}x{rows}"))?;
                    }
                } else if options.markers {
                    let detail = record.detail.as_deref().unwrap_or_default();
                    marker(&mut out, &record, &format!("{kind} {detail}"))?;
                }
            }
        }
    }
    for utf8 in &mut streams {
        let lines = terminal.feed_with(utf8.finish(), &mut transcript);
        write_lines(&mut out, at, &lines)?;
    }
    write_lines(&mut out, at, &transcript.finish(&terminal))
}

/// Replaces each character that affects a terminal or an editor with U+FFFD: control characters of
/// both sets, and characters that change the writing direction.
pub fn sanitized(text: &str) -> Cow<'_, str> {
    if text.contains(affects_terminal) {
        let replaced = text.chars().map(|c| {
            if affects_terminal(c) {
                char::REPLACEMENT_CHARACTER
            } else {
                c
            }
        });
        Cow::Owned(replaced.collect())
    } else {
        Cow::Borrowed(text)
    }
}

/// True if a terminal or an editor does more with this character than show it.
pub(crate) fn affects_terminal(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}')
}

fn write_lines(out: &mut impl Write, at: Option<Timestamp>, lines: &[String]) -> io::Result<()> {
    lines.iter().try_for_each(|line| {
        if let Some(at) = at {
            write!(out, "[{at:.3}] ")?;
        }
        writeln!(out, "{}", sanitized(line))
    })
}

fn marker(out: &mut impl Write, record: &Record, what: &str) -> io::Result<()> {
    let who = record.participant_id.as_deref().unwrap_or("platform");
    let line = format!("[{:.3} {who}] {}", record.created_at, what.trim_end());
    writeln!(out, "{}", sanitized(&line))
}

/// Hashes in an export. If input is omitted, an unsalted hash would disclose it, as would each
/// later hash of its chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hashes {
    /// All of them.
    All,
    /// Only those of records whose hash does not disclose their content: with a salt, or without
    /// their content.
    Salted,
}

/// Writes a record in the format of an export.
fn write_record(record: &Record, hashes: Hashes, out: &mut impl Write) -> io::Result<()> {
    if hashes == Hashes::All || record.salt.is_some() || record.is_withheld() {
        return Ok(serde_json::to_writer(out, record)?);
    }
    let mut fields = match serde_json::to_value(record)? {
        serde_json::Value::Object(fields) => fields,
        _ => serde_json::Map::new(),
    };
    fields.retain(|name, _| !matches!(name.as_str(), "hash" | "prev_hash"));
    Ok(serde_json::to_writer(out, &fields)?)
}

/// Writes one JSON object: `export_version` 1, the time of the export, the session as in its API,
/// and all records.
///
/// # Errors
/// Errors of `out`.
pub fn json(
    session: &impl Serialize,
    generated_at: Timestamp,
    hashes: Hashes,
    records: impl IntoIterator<Item = Record>,
    mut out: impl Write,
) -> io::Result<()> {
    write!(
        out,
        "{{\"export_version\":1,\"generated_at\":\"{generated_at:.3}\",\"session\":"
    )?;
    serde_json::to_writer(&mut out, session)?;
    out.write_all(b",\"events\":[")?;
    for (number, record) in records.into_iter().enumerate() {
        if number > 0 {
            out.write_all(b",")?;
        }
        out.write_all(b"\n")?;
        write_record(&record, hashes, &mut out)?;
    }
    out.write_all(b"\n]}\n")
}

/// Writes one JSON object per line: first the fields of [`json()`] other than the records, then
/// each record.
///
/// # Errors
/// Errors of `out`.
pub fn ndjson(
    session: &impl Serialize,
    generated_at: Timestamp,
    hashes: Hashes,
    records: impl IntoIterator<Item = Record>,
    mut out: impl Write,
) -> io::Result<()> {
    write!(
        out,
        "{{\"export_version\":1,\"generated_at\":\"{generated_at:.3}\",\"session\":"
    )?;
    serde_json::to_writer(&mut out, session)?;
    out.write_all(b"}\n")?;
    for record in records {
        write_record(&record, hashes, &mut out)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// The versions of asciicast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cast {
    /// Times are relative to the start. <https://docs.asciinema.org/manual/asciicast/v2/>
    V2,
    /// Times are relative to the previous event, and the exit code is included.
    /// <https://docs.asciinema.org/manual/asciicast/v3/>
    V3,
}

/// Optional parts of a cast.
#[derive(Clone, Copy, Debug, Default)]
pub struct CastOptions {
    /// Adds the input, except masked input.
    pub input: bool,
    /// True if the command had pipes ([`has_pipes`]). Players are terminals and need carriage
    /// returns.
    pub pipes: bool,
}

/// Writes an asciicast, one event per line.
///
/// # Errors
/// Errors of `out`.
pub fn cast(
    version: Cast,
    title: Option<&str>,
    options: CastOptions,
    records: impl IntoIterator<Item = Record>,
    mut out: impl Write,
) -> io::Result<()> {
    let mut records = records.into_iter().peekable();
    // The first record of a session is its open, which contains the size.
    let begin = records
        .peek()
        .map_or(Timestamp::UNIX_EPOCH, |first| first.created_at);
    let size = records.peek().and_then(|first| first.terminal_size);
    let size = size.unwrap_or(Size::DEFAULT);
    let mut header = match version {
        Cast::V2 => json!({"version": 2, "width": size.cols, "height": size.rows}),
        Cast::V3 => json!({"version": 3, "term": {"cols": size.cols, "rows": size.rows}}),
    };
    if let Some(fields) = header.as_object_mut() {
        fields.insert("timestamp".to_owned(), begin.as_second().into());
        if let Some(title) = title {
            fields.insert("title".to_owned(), title.into());
        }
    }
    line(&mut out, &header)?;
    let mut streams = [Utf8::default(), Utf8::default(), Utf8::default()];
    let mut clock = CastClock {
        version,
        begin,
        last: 0,
    };
    for record in records {
        let [stdin, stdout, stderr] = &mut streams;
        let (code, text) = match (record.record_type, record.stream_type) {
            (RecordType::Data, Some(StreamType::Stdin)) if options.input && !record.masked => {
                ("i", stdin.push(&record.payload))
            }
            (RecordType::Data, Some(StreamType::Stdout)) => ("o", stdout.push(&record.payload)),
            (RecordType::Data, Some(StreamType::Stderr)) => ("o", stderr.push(&record.payload)),
            (RecordType::Resize, _) => match record.terminal_size {
                Some(size) => ("r", format!("{}x{}", size.cols, size.rows)),
                None => continue,
            },
            (RecordType::Participant | RecordType::Control, _) => {
                ("m", record.detail.clone().unwrap_or_default())
            }
            (RecordType::Close, _) if version == Cast::V3 => {
                ("x", record.exit_code.unwrap_or_default().to_string())
            }
            _ => continue,
        };
        let text = if options.pipes && code == "o" {
            text.replace("\r\n", "\n").replace('\n', "\r\n")
        } else {
            text
        };
        if !text.is_empty() {
            let at = clock.at(record.created_at);
            line(&mut out, &json!([at, code, text]))?;
        }
    }
    Ok(())
}

struct CastClock {
    version: Cast,
    begin: Timestamp,
    /// Microseconds from the start to the last event.
    last: i64,
}

impl CastClock {
    /// Time of an event in seconds, as the version requires. It never decreases in a cast.
    fn at(&mut self, at: Timestamp) -> f64 {
        let since = at.as_microsecond() - self.begin.as_microsecond();
        let since = since.max(self.last);
        let before = std::mem::replace(&mut self.last, since);
        let micros = match self.version {
            Cast::V2 => since,
            Cast::V3 => since - before,
        };
        #[expect(clippy::cast_precision_loss, reason = "exact for three hundred years")]
        let seconds = micros as f64 / 1_000_000.0;
        seconds
    }
}

fn line(out: &mut impl Write, value: &serde_json::Value) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}
