//! A real browser in front of a real platform.
//!
//! A test starts a [`Site`], creates the users and links that it needs, and runs a script of
//! `tests/node/` with them as JSON. The script drives Chromium through `tests/node/browser.mjs` and
//! asserts with `node:assert`. The test shows the reason of a failed script. The clock of the site
//! stands still, close to the browser's. A script may therefore use authenticator codes of the
//! previous, the current and the next time step.

use std::ops::Deref;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use daemon::shutdown::Shutdown;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::process::Command;

use crate::support::{TestControl, engines};

/// A platform that listens at `http://localhost:<port>`. Browsers trust this name without TLS, and
/// passkeys can be bound to it, which is impossible for an IP address.
pub(crate) struct Site {
    control: TestControl,
    pub(crate) url: String,
    shutdown: Shutdown,
}

impl Site {
    pub(crate) async fn start() -> Self {
        Self::start_beside(&engines(), "").await
    }

    /// Starts a platform with these engines and further configuration sections.
    pub(crate) async fn start_beside(engines: &Value, sections: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = format!("http://localhost:{port}");
        let control = TestControl::at(&url, jiff::Timestamp::now(), engines, sections).await;
        let shutdown = Shutdown::new(Duration::from_secs(1));
        let app = Arc::clone(&control.app);
        control::start_on(app, listener, shutdown.clone())
            .await
            .unwrap();
        Self {
            control,
            url,
            shutdown,
        }
    }

    /// Runs `tests/node/<script>`. It receives the site's address, the time of the clock, the
    /// folder of sent mails, a folder for screenshots, and the `given` values.
    pub(crate) async fn run(&self, script: &str, given: Value) {
        self.run_with(Stdio::null(), script, given).await;
    }

    /// The same with a listening socket, which the script receives as its standard input.
    pub(crate) async fn run_on(&self, listener: std::net::TcpListener, script: &str, given: Value) {
        let socket = Stdio::from(OwnedFd::from(listener));
        self.run_with(socket, script, given).await;
    }

    async fn run_with(&self, stdin: Stdio, script: &str, given: Value) {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/node");
        let shots = Path::new(env!("CARGO_TARGET_TMPDIR")).join(script);
        let world = json!({
            "url": self.url,
            "now": self.app.now().as_millisecond(),
            "mail": self.directory().join("data/mail"),
            "shots": shots,
            "given": given,
        });
        let mut command = Command::new(variable("SVC_TEST_NODE"));
        command
            .arg(scripts.join(script))
            .env("SVC_TEST_NODE_PACKAGES", variable("SVC_TEST_NODE_PACKAGES"))
            .env("SVC_TEST_CHROMIUM", variable("SVC_TEST_CHROMIUM"))
            .env("SVC_TEST_WORLD", world.to_string())
            .stdin(stdin)
            .kill_on_drop(true);
        let output = tokio::time::timeout(WAIT_LIMIT, command.output()).await;
        let output = output.expect("the script timed out").unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{script} failed:\n{text}\n{errors}"
        );
    }
}

impl Deref for Site {
    type Target = TestControl;

    fn deref(&self) -> &TestControl {
        &self.control
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.shutdown.request();
    }
}

/// A missing prerequisite of the machine fails the test instead of skipping it.
fn variable(name: &str) -> PathBuf {
    let value = std::env::var_os(name);
    value
        .unwrap_or_else(|| panic!("{name} is not set: run `cargo xtask test`, which sets it"))
        .into()
}

/// Time limit of a script. A script that takes longer hangs. The limit allows for a machine that
/// builds at the same time.
const WAIT_LIMIT: Duration = Duration::from_mins(10);
