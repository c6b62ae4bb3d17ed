//! Writer of the access log. Lines go through a bounded queue to a separate thread, so that a slow
//! or full disk never delays a request. Lines above the capacity are dropped and counted.

mod writer;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

use tokio_util::task::AbortOnDropHandle;

use self::writer::{LogTarget, Writer};
use crate::signals::{Signal, Signals};

/// Counts lines that were not written.
pub const DROPPED_METRIC: &str = "svc_access_log_dropped_total";

/// Handle for writing lines; cheap to clone.
#[derive(Clone, Debug)]
pub struct AccessLog {
    queue: SyncSender<Message>,
    shared: Arc<AccessLogState>,
}

/// The writing thread. Its owner calls `finish` after the last request.
#[derive(Debug)]
pub struct AccessLogThread {
    log: AccessLog,
    thread: JoinHandle<()>,
    /// Task that waits for SIGHUP.
    reopening: Option<AbortOnDropHandle<()>>,
}

#[derive(Debug, Default)]
struct AccessLogState {
    queued_bytes: AtomicUsize,
    dropped: AtomicU64,
    reopen: AtomicBool,
    finish: AtomicBool,
    /// The last write failed.
    failing: AtomicBool,
}

#[derive(Debug)]
enum Message {
    Line(Vec<u8>),
    /// Wakes the thread to check the flags.
    Wake,
}

impl AccessLog {
    /// Opens the log at `path` for appending (mode 0640 if it is created), or standard output for
    /// `-`, and starts the thread.
    ///
    /// # Errors
    /// The file cannot be opened, or the thread cannot be started.
    pub fn open(path: &Path) -> io::Result<(Self, AccessLogThread)> {
        let target = LogTarget::open(path)?;
        let (queue, messages) = sync_channel(MAX_QUEUED_LINES);
        let shared = Arc::new(AccessLogState::default());
        let writer = Writer::new(target, messages, Arc::clone(&shared));
        let thread = thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || writer.run())?;
        let log = Self { queue, shared };
        let owner = AccessLogThread {
            log: log.clone(),
            thread,
            reopening: None,
        };
        Ok((log, owner))
    }

    /// Queues one line, to which the newline is added. Never blocks: a line that does not fit, or
    /// is longer than [`MAX_LINE_BYTES`], is dropped and counted.
    pub fn write(&self, line: impl Into<Vec<u8>>) {
        let line = line.into();
        let length = line.len();
        // The bytes are reserved before the slot in the queue, so the sum never exceeds the limit.
        let fits = length <= MAX_LINE_BYTES
            && self
                .shared
                .queued_bytes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |queued| {
                    (queued + length <= MAX_QUEUED_BYTES).then_some(queued + length)
                })
                .is_ok();
        if !fits {
            self.shared.drop_line();
        } else if self.queue.try_send(Message::Line(line)).is_err() {
            self.shared
                .queued_bytes
                .fetch_sub(length, Ordering::Relaxed);
            self.shared.drop_line();
        }
    }

    /// Reopens the path before the next line, after a rotation has renamed the file.
    pub fn reopen(&self) {
        self.shared.reopen.store(true, Ordering::Release);
        self.wake();
    }

    /// True while lines cannot be written, because the disk is full or broken.
    pub fn is_failing(&self) -> bool {
        self.shared.failing.load(Ordering::Relaxed)
    }

    /// Number of dropped lines.
    pub fn dropped(&self) -> u64 {
        self.shared.dropped.load(Ordering::Relaxed)
    }

    /// A full queue needs no wake-up: the thread checks the flags between lines.
    fn wake(&self) {
        drop(self.queue.try_send(Message::Wake));
    }
}

impl AccessLogThread {
    /// Reopens the file at each SIGHUP until [`Self::finish`]. The handler replaces the default
    /// action of the signal, which ends the process.
    ///
    /// # Errors
    /// The handler could not be installed.
    pub fn reopen_on_hangup(&mut self) -> io::Result<()> {
        let mut hangups = Signals::new(Signal::HangUp)?;
        let log = self.log.clone();
        let task = tokio::spawn(async move {
            loop {
                hangups.recv().await;
                log.reopen();
            }
        });
        self.reopening = Some(AbortOnDropHandle::new(task));
        Ok(())
    }

    /// Writes the queued lines and ends the thread; later lines are dropped. It blocks during the
    /// write, so it must not be called on a thread of the runtime.
    pub fn finish(self) {
        drop(self.reopening);
        self.log.shared.finish.store(true, Ordering::Release);
        self.log.wake();
        self.thread.thread().unpark();
        if self.thread.join().is_err() {
            tracing::error!("the access log's thread ended in a panic");
        }
    }
}

impl AccessLogState {
    fn drop_line(&self) {
        self.dropped.fetch_add(1, Ordering::Relaxed);
        metrics::counter!(DROPPED_METRIC).increment(1);
    }
}

/// A record has about 1 KiB; the longest legal target and host have 8 KiB and grow at most sixfold
/// when escaped.
pub const MAX_LINE_BYTES: usize = 64 * 1024;
/// At 50,000 requests per second, the disk may pause for a third of a second.
const MAX_QUEUED_LINES: usize = 16 * 1024;
/// Memory limit, independent of the length of the lines.
const MAX_QUEUED_BYTES: usize = 16 * 1024 * 1024;
