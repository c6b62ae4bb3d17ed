//! The thread behind the access log.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::Duration;

use super::{MAX_LINE_BYTES, Message, Shared};

/// Where lines end up.
pub(super) enum Target {
    File(PathBuf, File),
    Stdout(io::Stdout),
}

impl Target {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        if path == Path::new("-") {
            return Ok(Self::Stdout(io::stdout()));
        }
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .mode(0o640)
            .open(path)?;
        Ok(Self::File(path.to_owned(), file))
    }
}

impl Write for Target {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::File(_, file) => file.write(bytes),
            Self::Stdout(stdout) => stdout.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::File(_, file) => file.flush(),
            Self::Stdout(stdout) => stdout.flush(),
        }
    }
}

/// Takes lines off the queue and writes them in as few calls as the load allows.
pub(super) struct Writer {
    /// Larger than any line with its newline: a line enters the buffer whole or not at all, so a
    /// full disk drops lines and never tears one.
    out: BufWriter<Target>,
    messages: Receiver<Message>,
    shared: Arc<Shared>,
    /// Whether the last write failed, so that a full disk is logged once.
    failing: bool,
}

impl Writer {
    pub(super) fn new(target: Target, messages: Receiver<Message>, shared: Arc<Shared>) -> Self {
        let out = BufWriter::with_capacity(MAX_LINE_BYTES + 2, target);
        Self {
            out,
            messages,
            shared,
            failing: false,
        }
    }

    pub(super) fn run(mut self) {
        while let Ok(first) = self.messages.recv() {
            self.take(first);
            self.drain();
            if self.shared.finish.load(Ordering::Acquire) {
                // Whatever was queued before the flag was set is in the queue now, and was not
                // all there when it was drained.
                self.drain();
                return;
            }
            // While this thread is parked, and not waiting on the queue, a request that leaves a
            // line makes no system call to wake it.
            thread::park_timeout(COALESCE);
        }
    }

    fn drain(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            self.take(message);
        }
        let flushed = self.out.flush();
        self.note(flushed);
    }

    fn take(&mut self, message: Message) {
        if self.shared.reopen.swap(false, Ordering::AcqRel) {
            self.reopen();
        }
        let Message::Line(mut line) = message else {
            return;
        };
        self.shared
            .queued_bytes
            .fetch_sub(line.len(), Ordering::Relaxed);
        line.push(b'\n');
        let written = self.out.write_all(&line);
        if written.is_err() {
            self.shared.drop_line();
        }
        self.note(written);
    }

    /// Lines taken so far belong to the old file, so they are written before it is let go.
    fn reopen(&mut self) {
        let flushed = self.out.flush();
        self.note(flushed);
        let Target::File(path, _) = self.out.get_ref() else {
            return;
        };
        match Target::open(path) {
            Ok(target) => *self.out.get_mut() = target,
            Err(error) => {
                tracing::error!(%error, "the access log cannot be reopened, the old file is kept");
            }
        }
    }

    fn note(&mut self, outcome: io::Result<()>) {
        let failing = outcome.is_err();
        match outcome {
            Err(error) if !self.failing => {
                tracing::error!(%error, "the access log cannot be written, lines are dropped");
            }
            Ok(()) if self.failing => tracing::info!("the access log is written again"),
            _ => {}
        }
        self.failing = failing;
    }
}

/// How long lines gather before they are written: short for somebody who follows the log, long
/// for requests, of which thousands then share a wake-up.
const COALESCE: Duration = Duration::from_millis(10);
