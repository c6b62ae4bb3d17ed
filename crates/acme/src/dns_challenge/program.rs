//! The operator's program that publishes and removes TXT records.
//!
//! `PROGRAM present NAME VALUE` adds the record and ends with 0 when the name's authoritative
//! servers answer with it; `PROGRAM cleanup NAME VALUE` removes it.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, Command};

use crate::error::{OrderError, printable};

/// A program that publishes and removes TXT records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsProgram {
    /// The program.
    pub path: PathBuf,
    /// Time limit of one call.
    pub timeout: Duration,
    /// Delay between the last record and the request for its validation.
    pub propagation: Duration,
}

/// A record that a program has published, or may have.
#[derive(Debug)]
pub(crate) struct DnsRecord {
    /// `_acme-challenge.<name>`
    pub(crate) name: String,
    pub(crate) value: String,
}

impl DnsProgram {
    /// Publishes a record.
    ///
    /// # Errors
    /// The program cannot be started, fails, or exceeds its time limit.
    pub(crate) async fn present(&self, record: &DnsRecord) -> Result<(), OrderError> {
        self.run("present", record).await
    }

    /// Removes a record.
    ///
    /// # Errors
    /// As [`DnsProgram::present`].
    pub(crate) async fn clean_up(&self, record: &DnsRecord) -> Result<(), OrderError> {
        self.run("cleanup", record).await
    }

    async fn run(&self, action: &str, record: &DnsRecord) -> Result<(), OrderError> {
        let failed = |problem: String| OrderError::Program {
            path: self.path.clone(),
            problem,
        };
        let mut child = Command::new(&self.path)
            .args([action, &record.name, &record.value])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            // Its own children end with it.
            .process_group(0)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| failed(format!("cannot be started: {error}")))?;
        let group = ProcessGroup::of(&child);
        let ended = tokio::time::timeout(self.timeout, output(&mut child)).await;
        drop(group);
        match ended {
            Err(_) => Err(failed(format!(
                "{action} did not end within {} seconds",
                self.timeout.as_secs()
            ))),
            Ok(Err(error)) => Err(failed(format!("{action} cannot be observed: {error}"))),
            Ok(Ok((true, _))) => Ok(()),
            Ok(Ok((false, text))) => Err(failed(format!("{action} failed: {text}"))),
        }
    }
}

/// The processes of a call, which are killed when this is dropped: also when the order is stopped.
struct ProcessGroup(Option<Pid>);

impl ProcessGroup {
    fn of(child: &Child) -> Self {
        let id = child.id().and_then(|id| i32::try_from(id).ok());
        Self(id.map(Pid::from_raw))
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Fails if all of them have ended.
            killpg(group, Signal::SIGKILL).ok();
        }
    }
}

/// Waits for the end: if it succeeded, and the start of its error output.
async fn output(child: &mut Child) -> std::io::Result<(bool, String)> {
    let mut text = Vec::new();
    if let Some(errors) = child.stderr.take() {
        let mut errors = errors.take(MAX_OUTPUT_BYTES);
        errors.read_to_end(&mut text).await?;
        // The rest is discarded, so that the program does not wait for a reader.
        tokio::io::copy(&mut errors.into_inner(), &mut tokio::io::sink()).await?;
    }
    let status = child.wait().await?;
    let text = String::from_utf8_lossy(&text);
    let text = format!("{status}: {}", printable(text.trim()));
    Ok((status.success(), text))
}

/// The first lines of an error name its cause.
const MAX_OUTPUT_BYTES: u64 = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    /// Programs of the system: a script that a test writes may still be open in a child of another
    /// test, and cannot be started then.
    fn program(path: &str, timeout: Duration) -> DnsProgram {
        DnsProgram {
            path: path.into(),
            timeout,
            propagation: Duration::ZERO,
        }
    }

    fn record() -> DnsRecord {
        DnsRecord {
            name: "_acme-challenge.t.h.example".to_owned(),
            value: "digest".to_owned(),
        }
    }

    #[tokio::test]
    async fn a_program_that_ends_with_0_has_published_the_record() {
        let program = program("/bin/echo", Duration::from_secs(30));
        program.present(&record()).await.unwrap();
        program.clean_up(&record()).await.unwrap();
    }

    #[tokio::test]
    async fn a_program_gets_action_name_and_value_and_its_error_is_kept() {
        // It lists its arguments as missing files.
        let program = program("/bin/ls", Duration::from_secs(30));
        let error = program.present(&record()).await.unwrap_err().to_string();
        for part in ["'present'", "'_acme-challenge.t.h.example'", "'digest'"] {
            assert!(error.contains(part), "{error}");
        }
        assert!(error.ends_with("with the same arguments"), "{error}");
        let error = program.clean_up(&record()).await.unwrap_err().to_string();
        assert!(error.contains("'cleanup'"), "{error}");
    }

    #[tokio::test]
    async fn a_program_that_hangs_is_killed() {
        let program = program("/usr/bin/yes", Duration::from_millis(100));
        let error = program.present(&record()).await.unwrap_err().to_string();
        assert!(error.contains("did not end within"), "{error}");
    }

    #[tokio::test]
    async fn a_missing_program_is_named() {
        let program = program("/missing/program", Duration::from_secs(30));
        let error = program.present(&record()).await.unwrap_err().to_string();
        assert!(
            error.contains("/missing/program cannot be started"),
            "{error}"
        );
    }
}
