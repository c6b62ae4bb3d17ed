//! `svc webtty exec`: runs one command, for scripts.

use std::time::{Duration, Instant};

use bytes::Bytes;
use clap::Parser;
use serde_json::{Map, Value, json};
use terminal::client::{Request, Session};
use tty::{message::Stream, size::Size};

use super::{
    command_end, piped,
    session_request::{CommandEnvironment, EncryptionArgs, StdinMode, StreamMode},
    target::{SessionMode, TargetArgs},
};
use crate::args::time;
use crate::failure::Failure;
use crate::output;
use crate::output::Format;

/// The flags of `svc webtty exec`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc webtty exec build -- uname -a
  svc webtty exec build -e DEBUG -w /srv -- make test | jq .exit_code
  tar c . | svc webtty exec build -i -o text -- tar x -C /srv")]
pub(crate) struct Args {
    /// The server: its name or id (`svc://NAME` works as well), or a ws:// or wss:// address
    #[arg(value_name = "SERVER")]
    target: String,

    /// The command with its arguments
    #[arg(last = true, required = true, value_name = "COMMAND")]
    command: Vec<String>,

    /// Pass stdin to the command
    #[arg(long, short)]
    interactive: bool,

    /// Give the command a terminal
    #[arg(long, short, overrides_with = "no_tty")]
    tty: bool,

    /// Give the command pipes (the default)
    #[arg(long, short = 'T', overrides_with = "tty")]
    no_tty: bool,

    /// Time limit, after which the command is terminated
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    timeout: Option<Duration>,

    /// One JSON object at the end, or the live output as text. Default: JSON when piped, text at a
    /// terminal
    #[arg(long, short, value_enum)]
    output: Option<Format>,

    #[command(flatten)]
    surroundings: CommandEnvironment,

    #[command(flatten)]
    sealing: EncryptionArgs,

    #[command(flatten)]
    reach: TargetArgs,
}

/// Runs the command, and exits with its exit code.
pub(super) async fn run(args: Args) -> Result<(), Failure> {
    let reached = args
        .reach
        .find(&args.target, SessionMode::NonInteractive)
        .await?;
    let seal = args.sealing.seal(&reached)?;
    let stdin = if args.interactive {
        StdinMode::Forward
    } else {
        StdinMode::Closed
    };
    let streams = if args.tty {
        StreamMode::Terminal
    } else {
        StreamMode::Pipes
    };
    let config = args.surroundings.config(&args.command, stdin, streams)?;
    let began = Instant::now();
    let (session, input) = Session::start(
        reached.endpoint,
        Request {
            size: args.tty.then_some(Size::DEFAULT),
            seal,
            ..Request::new(config)
        },
    );
    let format = args.output.unwrap_or(if output::is_terminal() {
        Format::Text
    } else {
        Format::Json
    });
    if format == Format::Text {
        let mut live = piped::StandardStreams;
        let shown = piped::run(session, input, &mut live, stdin, args.timeout);
        let ended = Box::pin(shown).await?;
        let ended = ended.map_err(|error| command_end::failed(error, &reached.url))?;
        return command_end::exit_as_command(&ended);
    }
    let mut kept = CapturedOutput::default();
    let shown = piped::run(session, input, &mut kept, stdin, args.timeout);
    let ended = Box::pin(shown).await?;
    let ended = ended.map_err(|error| command_end::failed(error, &reached.url))?;
    let mut result = json!({
        "url": reached.url,
        "command": args.command,
        "exit_code": ended.code,
        "stdout": String::from_utf8_lossy(&kept.stdout.bytes),
        "stderr": String::from_utf8_lossy(&kept.stderr.bytes),
        "duration_ms": u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX),
    });
    if let Some(result) = result.as_object_mut() {
        if !ended.signal.is_empty() {
            result.insert("signal".to_owned(), json!(ended.signal));
        }
        if let Some(reason) = command_end::reason(&ended) {
            result.insert("reason".to_owned(), json!(reason));
        }
        let cut = kept.truncated();
        if !cut.is_empty() {
            result.insert("truncated".to_owned(), Value::Object(cut));
        }
    }
    output::json(&result)?;
    command_end::exit_as_command(&ended)
}

/// The output, reported at the end.
#[derive(Default)]
struct CapturedOutput {
    stdout: LimitedOutput,
    stderr: LimitedOutput,
}

#[derive(Default)]
struct LimitedOutput {
    bytes: Vec<u8>,
    /// Bytes beyond the limit.
    left_out: usize,
}

impl piped::OutputSink for CapturedOutput {
    async fn show(&mut self, stream: Stream, bytes: Bytes) -> Result<(), Failure> {
        match stream {
            Stream::Stderr => self.stderr.push(&bytes),
            Stream::Stdout | Stream::Stdin => self.stdout.push(&bytes),
        }
        Ok(())
    }
}

impl CapturedOutput {
    /// Number of dropped bytes of each stream.
    fn truncated(&self) -> Map<String, Value> {
        [("stdout", &self.stdout), ("stderr", &self.stderr)]
            .into_iter()
            .filter(|(_, stream)| stream.left_out > 0)
            .map(|(name, stream)| (name.to_owned(), json!(stream.left_out)))
            .collect()
    }
}

impl LimitedOutput {
    /// Keeps the start of the output, which usually is the most informative part.
    fn push(&mut self, bytes: &[u8]) {
        let room = MAX_OUTPUT.saturating_sub(self.bytes.len()).min(bytes.len());
        let (kept, rest) = bytes.split_at_checked(room).unwrap_or((bytes, &[]));
        self.bytes.extend_from_slice(kept);
        self.left_out = self.left_out.saturating_add(rest.len());
    }
}

/// Limit of the captured output per stream, in bytes. Larger than a program reads as one JSON text,
/// and small enough to be held twice.
const MAX_OUTPUT: usize = 10 * 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_beyond_the_limit_is_counted_and_dropped() {
        let mut kept = CapturedOutput::default();
        for _ in 0..3 {
            kept.stdout.push(&vec![b'x'; MAX_OUTPUT / 2]);
        }
        kept.stderr.push(b"short");
        assert_eq!(kept.stdout.bytes.len(), MAX_OUTPUT);
        assert_eq!(
            Value::Object(kept.truncated()),
            json!({"stdout": MAX_OUTPUT / 2})
        );
    }
}
