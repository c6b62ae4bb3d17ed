//! Test programs with a time limit. A program that exceeds it, or prints nothing for too long, hangs: it
//! is killed and named. Processes that it started are killed with it in any case, because a remaining one
//! would keep the output open, and the reader of the output would wait forever.
//!
//! The logs of failed tests are also kept for the end of the whole run ([`failures`]).

pub(crate) mod failures;

use std::io::{self, Write};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::program;

/// A program that failed.
pub(crate) struct Failure {
    pub(crate) error: String,
    /// The logs of its failed tests.
    pub(crate) logs: String,
}

/// The time limits of a program.
#[derive(Clone, Copy)]
pub(crate) struct TimeLimits {
    /// The time of the whole program.
    pub(crate) whole: Duration,
    /// The time without output. A test program prints a line for each test, so this one does not depend
    /// on the number of its tests and hardly on the speed of the machine.
    pub(crate) silence: Duration,
}

/// Runs the command in a separate process group, copies its output to `to`, and kills the group when
/// the command ends. `name` is for errors.
pub(crate) fn supervise(
    command: &mut Command,
    name: &str,
    limits: TimeLimits,
    to: impl Write + Send + 'static,
) -> Result<Option<Failure>> {
    let mut child = command
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start `{name}`"))?;
    let group = child.id();
    let output = child.stdout.take().context("the output is not a pipe")?;
    let last_output = LastOutput::default();
    let to = TimedOutput {
        to,
        last: last_output.clone(),
    };
    let copied = failures::copy(output, to);
    let started = Instant::now();
    let ended = wait_until(child, || {
        (started + limits.whole).min(last_output.get() + limits.silence)
    });
    // Normally the group is empty.
    program::succeeds(Command::new("kill").args(["-KILL", "--", &format!("-{group}")]));
    let logs = failures::copied(&copied);
    let error = match ended? {
        None => format!(
            "`{name}` hung: it was ended after {} s; the tests that it had not ended are the ones \
             that have no line above",
            started.elapsed().as_secs()
        ),
        Some(status) if !status.success() => format!("`{name}` ended with {status}"),
        Some(_) => return Ok(None),
    };
    Ok(Some(Failure { error, logs }))
}

/// Waits for the program's exit, up to the time limit.
pub(crate) fn wait(child: Child, time_limit: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + time_limit;
    wait_until(child, || deadline)
}

/// Waits for the program's exit until a deadline, which may move while it waits.
fn wait_until(mut child: Child, deadline: impl Fn() -> Instant) -> Result<Option<ExitStatus>> {
    let (tell, receiver) = mpsc::channel();
    let waiting = thread::spawn(move || tell.send(child.wait()));
    loop {
        let left = deadline().saturating_duration_since(Instant::now());
        match receiver.recv_timeout(left) {
            Ok(status) => {
                // The thread has sent its result, so it has ended.
                drop(waiting.join());
                return Ok(Some(status.context("cannot wait for the program")?));
            }
            Err(RecvTimeoutError::Timeout) if deadline() > Instant::now() => {}
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => bail!("nobody waits for the program"),
        }
    }
}

/// The time at which a program printed something last.
#[derive(Clone)]
struct LastOutput(Arc<Mutex<Instant>>);

impl LastOutput {
    fn get(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

impl Default for LastOutput {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }
}

/// An output that notes the time of each write.
struct TimedOutput<W> {
    to: W,
    last: LastOutput,
}

impl<W: Write> Write for TimedOutput<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.last.note();
        self.to.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_mins(1);

    fn supervised(
        program: &str,
        args: &[&str],
        whole: Duration,
        silence: Duration,
    ) -> Option<Failure> {
        let mut command = Command::new(program);
        let limits = TimeLimits { whole, silence };
        supervise(command.args(args), program, limits, io::sink()).unwrap()
    }

    #[test]
    fn an_exit_status_is_passed_on() {
        assert!(supervised("true", &[], MINUTE, MINUTE).is_none());
        let failure = supervised("false", &[], MINUTE, MINUTE).unwrap();
        assert!(
            failure.error.contains("exit status: 1"),
            "{}",
            failure.error
        );
    }

    #[test]
    fn a_hanging_program_is_killed_with_its_children() {
        let started = Instant::now();
        let hangs = ["-c", "sleep 600 & sleep 600"];
        let second = Duration::from_secs(1);
        for (whole, silence) in [(second, 10 * MINUTE), (10 * MINUTE, second)] {
            let error = supervised("sh", &hangs, whole, silence).unwrap().error;
            assert!(error.contains("`sh` hung"), "{error}");
        }
        assert!(started.elapsed() < MINUTE);
    }

    #[test]
    fn a_program_that_prints_is_not_ended_for_its_silence() {
        // It takes longer than its limit without output, and prints much more often.
        let prints = ["-c", "for i in $(seq 24); do echo $i; sleep 1; done"];
        let silence = Duration::from_secs(20);
        assert!(supervised("sh", &prints, MINUTE, silence).is_none());
    }
}
