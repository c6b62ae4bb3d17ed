//! The thread behind the access log.

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
    shared: Arc<AccessLogState>,
    /// When it was last told that lines cannot be written.
    told: Option<Instant>,
    /// It was told, and that it is over was not.
    is_open: bool,
}

impl Writer {
    pub(super) fn new(
        target: Target,
        messages: Receiver<Message>,
        shared: Arc<AccessLogState>,
    ) -> Self {
        let out = BufWriter::with_capacity(MAX_LINE_BYTES + 2, target);
        Self {
            out,
            messages,
            shared,
            told: None,
            is_open: false,
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
        self.flush();
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
        // That it went into the buffer says nothing about the disk.
        if let Err(error) = written {
            self.shared.drop_line();
            self.failed(&error);
        }
    }

    /// Lines taken so far belong to the old file, so they are written before it is let go.
    fn reopen(&mut self) {
        self.flush();
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

    fn flush(&mut self) {
        if self.out.buffer().is_empty() {
            return;
        }
        match self.out.flush() {
            Ok(()) => {
                self.shared.failing.store(false, Ordering::Relaxed);
                if std::mem::take(&mut self.is_open) {
                    tracing::info!("the access log is written again");
                }
            }
            Err(error) => self.failed(&error),
        }
    }

    /// A disk that is full stays so for a while, and may take a line now and then: that is one
    /// message in [`TOLD_AGAIN`].
    fn failed(&mut self, error: &io::Error) {
        let is_told = self.told.is_some_and(|at| at.elapsed() < TOLD_AGAIN);
        let was_failing = self.shared.failing.swap(true, Ordering::Relaxed);
        if !was_failing && !is_told {
            tracing::error!(%error, "the access log cannot be written, lines are dropped");
            self.told = Some(Instant::now());
            self.is_open = true;
        }
    }
}

/// Between two messages that lines are dropped: the count is in the metrics.
const TOLD_AGAIN: Duration = Duration::from_mins(5);

/// How long lines gather before they are written: short for somebody who follows the log, long
/// for requests, of which thousands then share a wake-up.
const COALESCE: Duration = Duration::from_millis(10);

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::mpsc::channel;

    use super::*;

    /// What is logged, one message a line.
    #[derive(Clone, Default)]
    struct Logged(Arc<Mutex<Vec<u8>>>);

    impl Write for Logged {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_disk_that_stays_full_is_one_message() {
        let logged = Logged::default();
        let to = logged.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || to.clone())
            .finish();
        let shared = Arc::new(AccessLogState::default());
        let (queue, messages) = channel();
        let target = Target::open(Path::new("/dev/full")).unwrap();
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
