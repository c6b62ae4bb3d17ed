//! Test programs with a time limit. A program that exceeds it hangs: it is killed and named. Processes
//! that it started are killed with it in any case, because a remaining one would keep the output open,
//! and the reader of the output would wait forever.
//!
//! The logs of failed tests are also kept for the end of the whole run ([`failures`]).

pub(crate) mod failures;

use std::io::Write;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::program;

/// A program that failed.
pub(crate) struct Failure {
    pub(crate) error: String,
    /// The logs of its failed tests.
    pub(crate) logs: String,
}

/// Runs the command in a separate process group, copies its output to `to`, and kills the group when
/// the command ends. `name` is for errors.
pub(crate) fn supervise(
    command: &mut Command,
    name: &str,
    time_limit: Duration,
    to: impl Write + Send + 'static,
) -> Result<Option<Failure>> {
    let mut child = command
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start `{name}`"))?;
    let group = child.id();
    let output = child.stdout.take().context("the output is not a pipe")?;
    let copied = failures::copy(output, to);
    let ended = wait(child, time_limit);
    // Normally the group is empty.
    program::succeeds(Command::new("kill").args(["-KILL", "--", &format!("-{group}")]));
    let logs = failures::copied(&copied);
    let error = match ended? {
        None => format!(
            "`{name}` hung: it was ended after {} s; the tests that it had not ended are the ones \
             that have no line above",
            time_limit.as_secs()
        ),
        Some(status) if !status.success() => format!("`{name}` ended with {status}"),
        Some(_) => return Ok(None),
    };
    Ok(Some(Failure { error, logs }))
}

/// Waits for the program's exit, up to the time limit.
pub(crate) fn wait(mut child: Child, time_limit: Duration) -> Result<Option<ExitStatus>> {
    let (tell, receiver) = mpsc::channel();
    let waiting = thread::spawn(move || tell.send(child.wait()));
    match receiver.recv_timeout(time_limit) {
        Ok(status) => {
            // The thread has sent its result, so it has ended.
            drop(waiting.join());
            Ok(Some(status.context("cannot wait for the program")?))
        }
        Err(RecvTimeoutError::Timeout) => Ok(None),
        Err(RecvTimeoutError::Disconnected) => bail!("nobody waits for the program"),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::time::Instant;

    use super::*;

    fn supervised(program: &str, args: &[&str], time_limit: Duration) -> Option<Failure> {
        let mut command = Command::new(program);
        supervise(command.args(args), program, time_limit, io::sink()).unwrap()
    }

    #[test]
    fn an_exit_status_is_passed_on() {
        let minute = Duration::from_mins(1);
        assert!(supervised("true", &[], minute).is_none());
        let failure = supervised("false", &[], minute).unwrap();
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
        let error = supervised("sh", &hangs, Duration::from_secs(1))
            .unwrap()
            .error;
        assert!(error.contains("`sh` hung"), "{error}");
        assert!(started.elapsed() < Duration::from_mins(1));
    }
}
