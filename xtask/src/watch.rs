//! `cargo xtask watch SECONDS UNTIL PROGRAM [ARGS]`: cargo's runner of test programs in unattended
//! runs. A program that runs for longer than these seconds, or past that time (in seconds since
//! 1970), hangs: it is killed and named. Processes that it started are killed with it in any case,
//! because a remaining one would keep the output open, and the reader of the output would wait
//! forever.
//!
//! The logs of failed tests are also kept for the end of the whole run ([`failures`]).

pub(crate) mod failures;

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};

use crate::program;

/// Runs the program, and stores the logs of its failed tests.
pub(crate) fn run(args: &[String]) -> Result<()> {
    let Some(failure) = supervise(args)? else {
        return Ok(());
    };
    failures::record(&failure.program, &failure.error, &failure.logs)?;
    bail!(failure.error)
}

/// A program that failed.
struct Failure {
    program: String,
    error: String,
    /// The logs of its failed tests.
    logs: String,
}

/// Runs the program in a separate process group, and kills the group when it ends.
fn supervise(args: &[String]) -> Result<Option<Failure>> {
    let [seconds, until, name, args @ ..] = args else {
        bail!("cargo xtask watch SECONDS UNTIL PROGRAM [ARGS]")
    };
    let seconds = Duration::from_secs(seconds.parse().context("SECONDS is no number")?);
    let until = Duration::from_secs(until.parse().context("UNTIL is no number")?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let time_limit = seconds.min(until.saturating_sub(now));
    let mut child = Command::new(name)
        .args(args)
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start `{name}`"))?;
    let group = child.id();
    let output = child.stdout.take().context("the output is not a pipe")?;
    let copied = failures::copy(output, io::stdout());
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
    let program = name.clone();
    Ok(Some(Failure {
        program,
        error,
        logs,
    }))
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
    use std::time::Instant;

    use super::*;

    const FAR: &str = "99999999999";

    fn words(text: &[&str]) -> Vec<String> {
        text.iter().map(|word| (*word).to_owned()).collect()
    }

    #[test]
    fn an_exit_status_is_passed_on() {
        assert!(supervise(&words(&["60", FAR, "true"])).unwrap().is_none());
        let failure = supervise(&words(&["60", FAR, "false"])).unwrap().unwrap();
        assert!(
            failure.error.contains("exit status: 1"),
            "{}",
            failure.error
        );
    }

    #[test]
    fn a_hanging_program_is_killed_with_its_children() {
        let begun = Instant::now();
        for [most, until] in [["1", FAR], ["60", "1"]] {
            let hangs = ["sh", "-c", "sleep 600 & sleep 600"];
            let hangs = supervise(&words(&[&[most, until], &hangs[..]].concat()));
            let error = hangs.unwrap().unwrap().error;
            assert!(error.contains("`sh` hung"), "{error}");
        }
        assert!(begun.elapsed() < Duration::from_mins(1));
    }
}
