//! `cargo xtask watch SECONDS UNTIL PROGRAM [ARGS]`: cargo's runner of test programs where nobody
//! watches them. A program that runs for so many seconds, or until that time (in seconds since
//! 1970), hangs: it is ended and named. What it started ends with it in any case: a process left
//! behind would keep the output open, and whoever reads that would wait for ever.
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

/// Runs the program, and keeps the logs of its failed tests.
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

/// Runs the program in a process group of its own, and ends the group with it.
fn supervise(args: &[String]) -> Result<Option<Failure>> {
    let [seconds, until, name, args @ ..] = args else {
        bail!("cargo xtask watch SECONDS UNTIL PROGRAM [ARGS]")
    };
    let seconds = Duration::from_secs(seconds.parse().context("SECONDS is no number")?);
    let until = Duration::from_secs(until.parse().context("UNTIL is no number")?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?;
    let most = seconds.min(until.saturating_sub(now));
    let mut child = Command::new(name)
        .args(args)
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start `{name}`"))?;
    let group = child.id();
    let output = child.stdout.take().context("the output is not a pipe")?;
    let copied = failures::copy(output, io::stdout());
    let ended = wait(child, most);
    // The group may be empty, which is what it should be.
    program::succeeds(Command::new("kill").args(["-KILL", "--", &format!("-{group}")]));
    let logs = failures::copied(&copied);
    let error = match ended? {
        None => format!(
            "`{name}` hung: it was ended after {} s; the tests that it had not ended are the ones \
             that have no line above",
            most.as_secs()
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

/// The program's own end, if it comes in time.
pub(crate) fn wait(mut child: Child, most: Duration) -> Result<Option<ExitStatus>> {
    let (tell, told) = mpsc::channel();
    let waiting = thread::spawn(move || tell.send(child.wait()));
    match told.recv_timeout(most) {
        Ok(status) => {
            // It has sent, so it is over.
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
    fn an_end_is_passed_on() {
        assert!(supervise(&words(&["60", FAR, "true"])).unwrap().is_none());
        let failure = supervise(&words(&["60", FAR, "false"])).unwrap().unwrap();
        assert!(
            failure.error.contains("exit status: 1"),
            "{}",
            failure.error
        );
    }

    #[test]
    fn what_hangs_is_ended_and_named_with_what_it_started() {
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
