//! Captures messages on stderr while the panel has the terminal, and prints them afterwards.

use std::{
    collections::VecDeque,
    io::{self, BufRead, BufReader, PipeReader, Write, pipe, stderr},
    os::fd::OwnedFd,
    sync::{Arc, mpsc},
    thread,
    time::Duration,
};

use nix::unistd::{dup, dup2_stderr};
use parking_lot::Mutex;

/// A redirected stderr.
pub(super) struct Messages {
    real: OwnedFd,
    buffer: Arc<Mutex<MessageBuffer>>,
    ended: mpsc::Receiver<()>,
}

#[derive(Default)]
struct MessageBuffer {
    lines: VecDeque<String>,
    /// Number of dropped lines.
    lost: usize,
    /// The newest line, until it is taken.
    newest: Option<String>,
}

impl Messages {
    /// Redirects stderr to a thread that only stores it, so that no writer of stderr waits for the
    /// terminal.
    pub(super) fn begin() -> io::Result<Self> {
        let (reader, writer) = pipe()?;
        let real = dup(stderr())?;
        let buffer = Arc::new(Mutex::new(MessageBuffer::default()));
        let (end, ended) = mpsc::channel();
        let keeper = Arc::clone(&buffer);
        thread::Builder::new()
            .name("svc-stderr".to_owned())
            .spawn(move || {
                store_lines(reader, &keeper);
                // It does not matter if the receiver has stopped waiting.
                end.send(()).ok();
            })?;
        dup2_stderr(&writer)?;
        Ok(Self {
            real,
            buffer,
            ended,
        })
    }

    /// Takes the newest line, if there is a new one.
    pub(super) fn newest(&self) -> Option<String> {
        self.buffer.lock().newest.take()
    }

    /// Restores stderr, and prints the stored lines there.
    pub(super) fn end(self) {
        dup2_stderr(&self.real).ok();
        // The pipe is closed now, unless a child process still has it.
        self.ended.recv_timeout(LAST_LINES).ok();
        let buffer = std::mem::take(&mut *self.buffer.lock());
        let mut out = stderr().lock();
        if buffer.lost > 0 {
            drop(writeln!(out, "({} earlier messages are lost)", buffer.lost));
        }
        for line in buffer.lines {
            drop(writeln!(out, "{line}"));
        }
    }
}

fn store_lines(from: PipeReader, buffer: &Mutex<MessageBuffer>) {
    let mut lines = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match lines.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        let text = String::from_utf8_lossy(&line).trim_end().to_owned();
        let mut buffer = buffer.lock();
        if buffer.lines.len() == LINES {
            buffer.lines.pop_front();
            buffer.lost += 1;
        }
        buffer.lines.push_back(text.clone());
        buffer.newest = Some(text);
    }
}

/// Maximum number of stored lines. A user does not read more afterwards.
const LINES: usize = 200;

/// Time limit for the thread that reads the rest of the pipe.
const LAST_LINES: Duration = Duration::from_millis(200);
