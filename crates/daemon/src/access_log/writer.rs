//! The thread that writes the access log.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::Receiver;
use std::thread;
use std::time::{Duration, Instant};

use super::{AccessLogState, MAX_LINE_BYTES, Message};

/// Destination of the lines.
pub(super) enum LogTarget {
    File(PathBuf, File),
    Stdout(io::Stdout),
}

impl LogTarget {
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

impl Write for LogTarget {
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

/// Takes lines from the queue and writes them in as few system calls as the load allows.
pub(super) struct Writer {
    /// Larger than any line with its newline: a line enters the buffer completely or not at all, so
    /// a full disk drops whole lines.
    out: BufWriter<LogTarget>,
    messages: Receiver<Message>,
    shared: Arc<AccessLogState>,
    /// Time of the last log message about a failure.
    last_logged: Option<Instant>,
    /// True after a failure was logged, until its end is logged.
    is_failure_logged: bool,
}

impl Writer {
    pub(super) fn new(
        target: LogTarget,
        messages: Receiver<Message>,
        shared: Arc<AccessLogState>,
    ) -> Self {
        let out = BufWriter::with_capacity(MAX_LINE_BYTES + 2, target);
        Self {
            out,
            messages,
            shared,
            last_logged: None,
            is_failure_logged: false,
        }
    }

    pub(super) fn run(mut self) {
        while let Ok(first) = self.messages.recv() {
            self.handle_message(first);
            self.drain();
            if self.shared.finish.load(Ordering::Acquire) {
                // Lines that were queued before the flag was set may have been missed by the
                // previous drain, and are in the queue now.
                self.drain();
                return;
            }
            // While this thread is parked instead of waiting on the queue, a request that writes a
            // line needs no system call to wake it.
            thread::park_timeout(COALESCE);
        }
    }

    fn drain(&mut self) {
        while let Ok(message) = self.messages.try_recv() {
            self.handle_message(message);
        }
        self.flush();
    }

    fn handle_message(&mut self, message: Message) {
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
        // Success only means that the line is in the buffer, not on the disk.
        if let Err(error) = written {
            self.shared.drop_line();
            self.failed(&error);
        }
    }

    /// Lines taken so far belong to the old file, so they are written before it is closed.
    fn reopen(&mut self) {
        self.flush();
        let LogTarget::File(path, _) = self.out.get_ref() else {
            return;
        };
        match LogTarget::open(path) {
            Ok(target) => *self.out.get_mut() = target,
            Err(error) => {
                tracing::error!(%error, "the access log cannot be reopened, the old file is kept");
            }
        }
    }

    fn flush(&mut self) {
        if self.out.buffer().is_empty() {
            return;
        }
        match self.out.flush() {
            Ok(()) => {
                self.shared.failing.store(false, Ordering::Relaxed);
                if std::mem::take(&mut self.is_failure_logged) {
                    tracing::info!("the access log can be written again");
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    /// A full disk stays full for a while, and may accept a line now and then: that is logged once
    /// per [`LOG_INTERVAL`].
    fn failed(&mut self, error: &io::Error) {
        let was_logged_recently = self
            .last_logged
            .is_some_and(|at| at.elapsed() < LOG_INTERVAL);
        let was_failing = self.shared.failing.swap(true, Ordering::Relaxed);
        if !was_failing && !was_logged_recently {
            tracing::error!(%error, "the access log cannot be written, lines are dropped");
            self.last_logged = Some(Instant::now());
            self.is_failure_logged = true;
        }
    }
}

/// Interval between two messages about dropped lines; the count is in the metrics.
const LOG_INTERVAL: Duration = Duration::from_mins(5);

/// Time for which lines are collected before they are written: short for a person who follows the
/// log, and long enough that thousands of requests share one wake-up.
const COALESCE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::*;

    /// The log output, one message per line.
    #[derive(Clone, Default)]
    struct LogBuffer(Arc<Mutex<Vec<u8>>>);

    impl Write for LogBuffer {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_lasting_full_disk_is_logged_once() {
        let logged = LogBuffer::default();
        let to = logged.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || to.clone())
            .finish();
        let shared = Arc::new(AccessLogState::default());
        let (queue, messages) = channel();
        let target = LogTarget::open(Path::new("/dev/full")).unwrap();
        let mut writer = Writer::new(target, messages, Arc::clone(&shared));
        tracing::subscriber::with_default(subscriber, || {
            for _ in 0..100 {
                shared.queued_bytes.fetch_add(3, Ordering::Relaxed);
                queue.send(Message::Line(b"one".to_vec())).unwrap();
                writer.drain();
            }
        });
        assert!(shared.failing.load(Ordering::Relaxed));
        let logged = logged.0.lock().unwrap();
        let logged = String::from_utf8_lossy(&logged);
        assert_eq!(logged.lines().count(), 1, "{logged}");
    }
}
