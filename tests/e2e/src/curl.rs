use std::env;
use std::fs;
use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use tempfile::TempDir;

use crate::Svc;

/// curl as a visitor that trusts the engine's authority. Every name resolves to this machine.
pub struct Curl {
    ca_file: Option<PathBuf>,
}

/// Result of a curl run.
#[derive(Debug)]
pub struct Answer {
    /// The status of the last head.
    pub status: u64,
    /// The HTTP version as curl prints it: `1.1`, `2`.
    pub version: String,
    /// Heads and trailers as received, including interim ones.
    pub heads: String,
    /// The body.
    pub body: Vec<u8>,
    /// All facts that curl reports (`--write-out '%{json}'`).
    pub facts: Value,
}

/// A running curl whose answer is read as it arrives.
pub struct Download {
    child: Child,
    body: ChildStdout,
    directory: TempDir,
}

impl Curl {
    /// A visitor of the engine's host names.
    pub fn new(svc: &Svc) -> Self {
        Self {
            ca_file: Some(svc.ca_file().to_owned()),
        }
    }

    /// A client of a server without TLS.
    pub fn plain() -> Self {
        Self { ca_file: None }
    }

    /// A visitor that trusts another authority.
    pub fn trusting(ca_file: PathBuf) -> Self {
        let ca_file = Some(ca_file);
        Self { ca_file }
    }

    /// The status of an answer, if the rest does not matter.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn status(&self, args: &[&str]) -> Result<u64> {
        Ok(self.get(args)?.status)
    }

    /// Runs curl to its end.
    ///
    /// # Errors
    /// curl reports a failure: a refused or broken connection, or a truncated body. A status of 400
    /// and above is not a failure.
    pub fn get(&self, args: &[&str]) -> Result<Answer> {
        let directory = tempfile::tempdir()?;
        let head = directory.path().join("head");
        let body = directory.path().join("body");
        let output = self
            .command(args)?
            .arg("--dump-header")
            .arg(&head)
            .arg("--output")
            .arg(&body)
            .args(["--write-out", "%{json}\n"])
            .output()?;
        ensure!(
            output.status.success(),
            "curl {args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        // One line for each of several addresses, of which the last one counts.
        let facts = String::from_utf8(output.stdout)?;
        let facts: Value = serde_json::from_str(facts.lines().last().context("no facts")?)?;
        Ok(Answer {
            status: facts["http_code"].as_u64().unwrap_or_default(),
            version: facts["http_version"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            heads: fs::read_to_string(head)?,
            // curl creates no file for an empty body.
            body: fs::read(body).unwrap_or_default(),
            facts,
        })
    }

    /// Starts curl, and returns the answer's body as it arrives.
    ///
    /// # Errors
    /// curl is not installed.
    pub fn start(&self, args: &[&str]) -> Result<Download> {
        let directory = tempfile::tempdir()?;
        let mut child = self
            .command(args)?
            .arg("--no-buffer")
            .arg("--dump-header")
            .arg(directory.path().join("head"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            // A file, because stderr is not read while the body arrives.
            .stderr(fs::File::create(directory.path().join("stderr"))?)
            .spawn()?;
        let body = child.stdout.take().context("no standard output")?;
        Ok(Download {
            child,
            body,
            directory,
        })
    }

    fn command(&self, args: &[&str]) -> Result<Command> {
        let curl = env::var_os("SVC_TEST_CURL")
            .context("SVC_TEST_CURL is not set: run `cargo xtask test`")?;
        let mut command = Command::new(curl);
        command
            // The first argument: no configuration file of this machine.
            .arg("--disable")
            .args(["--silent", "--show-error", "--noproxy", "*"])
            // Names under `localhost` resolve to this machine, while older versions use a resolver.
            .args(["--connect-to", "::127.0.0.1:", "--max-time", MAX_SECONDS])
            .args(args);
        if let Some(ca_file) = &self.ca_file {
            command.arg("--cacert").arg(ca_file);
        }
        Ok(command)
    }
}

impl Answer {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The body as JSON, or `null` if it is not JSON.
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }

    /// The value of a header field, in any head and in the trailers.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.heads.lines().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }
}

impl Download {
    /// The next `length` bytes.
    ///
    /// # Errors
    /// The body ends early, or curl times out.
    pub fn read(&mut self, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.body.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    /// The rest of the body.
    ///
    /// # Errors
    /// curl reports a failure, such as a truncated body.
    pub fn rest(mut self) -> Result<Vec<u8>> {
        self.finish()
    }

    /// Waits for the end, and returns heads and trailers as received.
    ///
    /// # Errors
    /// As [`rest`](Self::rest).
    pub fn heads(mut self) -> Result<String> {
        self.finish()?;
        Ok(fs::read_to_string(self.directory.path().join("head"))?)
    }

    fn finish(&mut self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.body.read_to_end(&mut bytes)?;
        let status = self.child.wait()?;
        let read = |name: &str| fs::read_to_string(self.directory.path().join(name));
        ensure!(
            status.success(),
            "{status}: {}{}",
            read("stderr")?,
            read("head")?
        );
        Ok(bytes)
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        // It may have exited already.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// No request takes this long. A test that waits without a result fails with curl's message.
const MAX_SECONDS: &str = "120";
