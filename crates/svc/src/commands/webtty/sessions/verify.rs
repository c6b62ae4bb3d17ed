//! `svc webtty sessions verify`: checks the integrity of a recording.
//!
//! The hash chain is verified locally, so the storage of the recording need not be trusted. The
//! engine stores the end of the chain separately, because a chain alone does not reveal that its
//! end is missing.

use std::{
    fs::File,
    io::{BufRead, BufReader, Read},
    path::{Path, PathBuf},
};

use api::webtty::{RecordingVerdict, VERIFY};
use clap::Parser;
use client::api::{ApiError, Call};
use serde_json::{Value, json};
use tty::recording::{ChainError, ChainFault, Head, Record, Verifier};

use super::{
    OutputArgs, SessionArgs,
    export::{Export, IncludeArgs, begin},
};
use crate::{
    failure::{Code, Failure},
    output,
    output::Format,
};

/// The flags of `svc webtty sessions verify`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc webtty sessions verify wts_…
  svc webtty sessions export wts_… --format ndjson --file kept.ndjson
  svc webtty sessions verify wts_… --file kept.ndjson")]
pub(crate) struct VerifyArgs {
    /// Check this exported file instead: ndjson or json. The engine is not contacted
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,

    #[command(flatten)]
    written: OutputArgs,

    #[command(flatten)]
    on: SessionArgs,
}

/// Verifies the recording. A broken chain results in exit code 1.
pub(super) async fn verify(mut args: VerifyArgs) -> Result<(), Failure> {
    let found = match &args.file {
        Some(path) => of_file(&args.on.session, path)?,
        None => of_engine(&mut args.on).await?,
    };
    print_result(&args, &found)?;
    match found.broken {
        None => Ok(()),
        Some(broken) => Err(broken_chain_failure(broken, args.file.is_some())),
    }
}

fn broken_chain_failure(broken: ChainError, is_file: bool) -> Failure {
    let message = format!("the recording was altered: {broken}");
    let failure = Failure::new(Code::Failed, message).named("recording_broken");
    match broken.fault {
        ChainFault::Sequence { .. } if is_file => failure.hint(
            "an export with --from-seq has gaps, as has one of an old recording without \
             --include-stdin: export it again with --format ndjson --include-stdin",
        ),
        _ => failure,
    }
}

fn print_result(args: &VerifyArgs, found: &VerifyReport) -> Result<(), Failure> {
    match args.written.output {
        Format::Json => output::json(&json!({
            "session_id": args.on.session,
            "whole": found.broken.is_none(),
            "records": found.end.seq.to_string(),
            "withheld": found.withheld.to_string(),
            "head": found.end,
            "end_is_known": found.end_is_known,
            "broken": found.broken.map(|broken| json!({
                "seq": broken.seq.to_string(),
                "fault": broken.fault.to_string(),
            })),
        })),
        Format::Text if found.broken.is_none() => {
            let records = found.end.seq;
            output::line(&format!("OK: {records} records, hash chain intact"))?;
            if found.withheld > 0 {
                let withheld = found.withheld;
                output::message(&format!(
                    "{withheld} of them are in the export without their content"
                ));
            }
            if !found.end_is_known {
                output::message("these records do not show whether more were recorded");
            }
            Ok(())
        }
        Format::Text => Ok(()),
    }
}

/// Verifies the recording on the engine against the stored end.
async fn of_engine(on: &mut SessionArgs) -> Result<VerifyReport, Failure> {
    let api = on.open().await?;
    // The end is read first. Records that arrive meanwhile come after it.
    let path = on.path(VERIFY);
    let requested = api.call(Call::get(&path));
    let answer = match requested.await {
        Ok(answer) => answer,
        // An engine that only supports exports.
        Err(ApiError::Refused(problem)) if problem.status == 405 => Value::Null,
        Err(error) => return Err(error.into()),
    };
    let verdict: Option<RecordingVerdict> = serde_json::from_value(answer).ok();
    let head = verdict.as_ref().and_then(stored_end);
    // The complete recording. Otherwise the chain would have gaps.
    let all = IncludeArgs {
        stdin: true,
        ..IncludeArgs::default()
    };
    let mut download = begin(&api, on, Export::Ndjson, all).await?;
    let mut lines = Lines::default();
    let mut chain = Chain::new(&on.session, head, invalid_response_failure);
    while let Some(bytes) = download.next().await? {
        lines.push(&bytes, |line| chain.line(line))?;
    }
    lines.finish(|line| chain.line(line))?;
    let found = chain.finish();
    let is_broken = matches!(&found, Ok(found) if found.broken.is_some());
    match verdict {
        Some(verdict) if !verdict.ok && !is_broken => {
            let seq = verdict.broken_at.unwrap_or_else(|| "-".to_owned());
            let fault = verdict.fault.unwrap_or_default();
            let (seq, fault) = (output::plain(&seq), output::plain(&fault));
            let message = format!(
                "the engine reports that its recording is broken at record \
                                   {seq}: {fault}"
            );
            Err(Failure::new(Code::Failed, message).named("recording_broken"))
        }
        _ => found,
    }
}

/// The separately stored end, if the engine reports no fault.
fn stored_end(verdict: &RecordingVerdict) -> Option<Head> {
    if !verdict.ok {
        return None;
    }
    let head = json!({"seq": verdict.records.to_string(), "hash": verdict.head});
    serde_json::from_value(head).ok()
}

fn of_file(session: &str, path: &Path) -> Result<VerifyReport, Failure> {
    let cannot = |error| Failure::from_error(&format!("{} cannot be read", path.display()), error);
    let mut reader = BufReader::new(File::open(path).map_err(cannot)?);
    let mut chain = Chain::new(session, None, not_an_export_failure);
    let mut line = Vec::new();
    loop {
        line.clear();
        let limit = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
        let read = reader.by_ref().take(limit).read_until(b'\n', &mut line);
        match read.map_err(cannot)? {
            0 => return chain.finish(),
            _ if line.len() >= MAX_LINE => return Err(too_long()),
            _ => chain.line(&line)?,
        }
    }
}

/// The failure for a file that is not an export. Nothing in it was verified.
fn not_an_export_failure() -> Failure {
    Failure::usage("the file is not an export with records")
        .named("not_an_export")
        .hint("export it with --format ndjson")
}

/// The failure for an engine's response that is not an export.
fn invalid_response_failure() -> Failure {
    Failure::new(
        Code::Failed,
        "the engine did not send an export with records",
    )
    .named("engine_protocol")
}

/// The records of an export, read line by line.
struct Chain {
    verifier: Verifier,
    end: Head,
    broken: Option<ChainError>,
    withheld: u64,
    /// The separately stored end of the chain.
    expected_end: Option<Head>,
    /// The failure if there are no records.
    empty_failure: fn() -> Failure,
}

/// The result of the verification.
struct VerifyReport {
    /// The last record with an intact chain before it.
    end: Head,
    broken: Option<ChainError>,
    /// Number of records without content.
    withheld: u64,
    /// True if the expected end is known.
    end_is_known: bool,
}

impl Chain {
    fn new(session: &str, kept: Option<Head>, none: fn() -> Failure) -> Self {
        Self {
            verifier: Verifier::new(session),
            end: Head::begin(session),
            broken: None,
            withheld: 0,
            expected_end: kept,
            empty_failure: none,
        }
    }

    /// Handles a line of an export: a record, or a line before or after the records.
    fn line(&mut self, line: &[u8]) -> Result<(), Failure> {
        let line = line.trim_ascii();
        let line = line.strip_suffix(b",").unwrap_or(line);
        if !line.starts_with(br#"{"seq":"#) {
            let is_envelope = line.starts_with(br#"{"export_version":"#) || line == b"]}";
            return if is_envelope || line.is_empty() {
                Ok(())
            } else {
                Err((self.empty_failure)())
            };
        }
        let record: Record = serde_json::from_slice(line).map_err(|error| {
            // Exports of old engines without input have no hashes.
            Failure::from_error("a line of the recording is not a record", error)
                .hint("export it with --include-stdin")
        })?;
        if self.broken.is_some() {
            return Ok(());
        }
        if let Err(broken) = self.verifier.check(&record) {
            self.broken = Some(broken);
            return Ok(());
        }
        self.end = record.head();
        self.withheld += u64::from(record.is_withheld());
        let is_other = |kept: &Head| kept.seq == record.seq && kept.hash != record.hash;
        if self.expected_end.as_ref().is_some_and(is_other) {
            let fault = ChainFault::Link;
            let seq = record.seq;
            self.broken = Some(ChainError { seq, fault });
        }
        Ok(())
    }

    fn finish(self) -> Result<VerifyReport, Failure> {
        // A separately stored end of zero records is trusted like any other end.
        if self.end.seq == 0 && self.broken.is_none() && self.expected_end.is_none() {
            return Err((self.empty_failure)());
        }
        let reaches = |kept: &Head| kept.seq <= self.end.seq;
        let missing = ChainError {
            seq: self.end.seq.saturating_add(1),
            fault: ChainFault::Missing,
        };
        let is_short = !self.expected_end.as_ref().is_none_or(reaches);
        Ok(VerifyReport {
            broken: self.broken.or(is_short.then_some(missing)),
            end: self.end,
            withheld: self.withheld,
            end_is_known: self.expected_end.is_some(),
        })
    }
}

/// Splits pieces of any length into lines of bounded length.
#[derive(Default)]
struct Lines {
    partial_line: Vec<u8>,
}

impl Lines {
    fn push(
        &mut self,
        bytes: &[u8],
        mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.partial_line.len() + piece.len() > MAX_LINE {
                return Err(too_long());
            }
            self.partial_line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                take(&self.partial_line)?;
                self.partial_line.clear();
            }
        }
        Ok(())
    }

    fn finish(self, mut take: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        take(&self.partial_line)
    }
}

fn too_long() -> Failure {
    Failure::new(Code::Failed, "a line of the recording is too long").named("engine_protocol")
}

/// Maximum line length: the largest record in base64, or the header before the records.
const MAX_LINE: usize = 1024 * 1024;

#[cfg(test)]
mod tests {
    use tty::recording::{Entry, Recorder};
    use types::webtty::StreamType;

    use super::*;

    /// An export with these displayed texts, one record each.
    fn export(texts: &[&str]) -> Vec<String> {
        let mut recorder = Recorder::new("wts_1", 1 << 20);
        let mut lines = vec![r#"{"export_version":1,"session":{"id":"wts_1"}}"#.to_owned()];
        for text in texts {
            let bytes = text.as_bytes().to_vec().into();
            let entry = Entry::output(StreamType::Stdout, bytes);
            let record = recorder
                .next(entry, jiff::Timestamp::UNIX_EPOCH, [7; 16])
                .unwrap();
            recorder.commit(&record);
            lines.push(serde_json::to_string(&record).unwrap());
        }
        lines
    }

    fn found(lines: &[String], kept: Option<Head>) -> VerifyReport {
        verify_text(&lines.join("\n"), kept).unwrap()
    }

    fn verify_text(text: &str, kept: Option<Head>) -> Result<VerifyReport, Failure> {
        let mut chain = Chain::new("wts_1", kept, not_an_export_failure);
        let mut read = Lines::default();
        for piece in text.as_bytes().chunks(7) {
            read.push(piece, |line| chain.line(line))?;
        }
        read.finish(|line| chain.line(line))?;
        chain.finish()
    }

    #[test]
    fn a_chain_is_intact_or_broken_at_a_record() {
        let lines = export(&["a", "b", "c"]);
        let whole = found(&lines, None);
        assert_eq!((whole.end.seq, whole.broken), (3, None));
        let fault = |lines: &[String], kept| found(lines, kept).broken.unwrap();
        // A different displayed byte.
        let mut changed = lines.clone();
        changed[2] = changed[2].replace("Yg==", "Yw==");
        let content = ChainFault::Content;
        assert_eq!(
            fault(&changed, None),
            ChainError {
                seq: 2,
                fault: content
            }
        );
        let mut removed = lines.clone();
        removed.remove(2);
        let found_3 = ChainFault::Sequence { found: 3 };
        assert_eq!(
            fault(&removed, None),
            ChainError {
                seq: 2,
                fault: found_3
            }
        );
        // A separately stored end reveals that records are missing.
        let short = &lines[..3];
        assert_eq!(found(short, None).broken, None);
        let missing = ChainFault::Missing;
        assert_eq!(
            fault(short, Some(whole.end.clone())),
            ChainError {
                seq: 3,
                fault: missing
            }
        );
        // Records after the stored end are accepted.
        let early = found(short, None).end;
        assert_eq!(found(&lines, Some(early)).broken, None);
        // The same number of different records.
        let others = export(&["a", "b", "d"]);
        let link = ChainFault::Link;
        assert_eq!(
            fault(&others, Some(whole.end)),
            ChainError {
                seq: 3,
                fault: link
            }
        );
    }

    #[test]
    fn both_exports_with_records_are_read() {
        let lines = export(&["a", "b"]);
        let json = [
            format!("{}[", lines[0].trim_end_matches('}')),
            format!("{},", lines[1]),
            lines[2].clone(),
            "]}".to_owned(),
        ];
        assert_eq!(found(&json, None).end.seq, 2);
    }

    #[test]
    fn an_export_without_records_is_not_verified() {
        let lines = export(&["a"]);
        let value: Value = serde_json::from_str(&lines[1]).unwrap();
        let pretty = serde_json::to_string_pretty(&value).unwrap();
        let foreign = format!("{}\n[0.1,\"o\",\"a\"]", lines.join("\n"));
        for text in [
            "",
            &lines[0],
            "{\"version\":2,\"width\":80,\"height\":24}\n[0.1,\"o\",\"a\"]\n",
            &pretty,
            &foreign,
        ] {
            let failure = verify_text(text, None).err().unwrap();
            assert_eq!(failure.name(), "not_an_export", "{text}");
        }
        // The stored end states that nothing was recorded.
        let none = Head::begin("wts_1");
        assert_eq!(verify_text("", Some(none)).unwrap().broken, None);
    }

    /// An export without input is distinguished from a modified one.
    #[test]
    fn gaps_of_an_export_have_a_next_step() {
        let mut lines = export(&["a", "b", "c"]);
        lines.remove(2);
        let broken = found(&lines, None).broken.unwrap();
        let hint = |is_file| {
            broken_chain_failure(broken, is_file)
                .next_step()
                .map(str::to_owned)
        };
        assert!(hint(true).unwrap().contains("--include-stdin"));
        assert_eq!(hint(false), None);
        let fault = ChainFault::Content;
        assert_eq!(
            broken_chain_failure(ChainError { fault, ..broken }, true).next_step(),
            None
        );
    }

    #[test]
    fn an_endless_line_is_refused() {
        let mut lines = Lines::default();
        let piece = vec![b'x'; 64 * 1024];
        let refused = (0..17).any(|_| lines.push(&piece, |_| Ok(())).is_err());
        assert!(refused);
    }
}
