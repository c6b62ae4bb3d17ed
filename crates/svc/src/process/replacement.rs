//! Replacement of a running engine by a new process of the same program: SIGUSR2.
//!
//! The new process is a child with the same arguments and the same environment. Its standard input is
//! a socket to this process, over which it receives the listening sockets.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::parent_id;
use std::path::PathBuf;
use std::process::Stdio;

use daemon::descriptors::InheritedSockets;
use daemon::shutdown::Shutdown;
use daemon::signals::{Signal, Signals};
use daemon::supervisor::Supervisor;
use engine::{Origin, Replacement};
use nix::unistd::dup2_stdin;
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tracing::{error, info};

use crate::failure::{Code, Failure, chain};
use crate::process::{environment, supervisor};

/// Process id of the process that a new one replaces, which is its parent.
const PREDECESSOR: &str = "SVC_PREDECESSOR";

/// Process id of the first process of a container, which ends with it.
const INIT: u32 = 1;

/// This program, and the signal that starts it once more.
pub(crate) struct Program {
    path: PathBuf,
    arguments: Vec<OsString>,
    signals: Signals,
}

impl Program {
    /// This program as it was started. Replaces the default action of the signal, which would end the
    /// process.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let failed = |error: io::Error| Failure::from_error("this program cannot be found", error);
        let mut arguments = env::args_os();
        // A package replaces the file, or the link through which it was started.
        let given = arguments.next().map(PathBuf::from);
        let given = given.filter(|path| path.components().count() > 1);
        let path = match given {
            Some(path) => std::path::absolute(path).map_err(failed)?,
            None => env::current_exe().map_err(failed)?,
        };
        let signals = Signals::new(Signal::User2)
            .map_err(|error| Failure::from_error("signal handlers cannot be installed", error))?;
        Ok(Self {
            path,
            arguments: arguments.collect(),
            signals,
        })
    }

    /// Starts it. Returns this end of its standard input.
    fn start(&self) -> io::Result<(UnixStream, Child)> {
        let (ours, theirs) = UnixStream::pair()?;
        let child = Command::new(&self.path)
            .args(&self.arguments)
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .env(PREDECESSOR, std::process::id().to_string())
            // They name this process.
            .env_remove("WATCHDOG_PID")
            .env_remove("LISTEN_PID")
            .env_remove("LISTEN_FDS")
            .env_remove("LISTEN_FDNAMES")
            .spawn()?;
        Ok((ours, child))
    }

    /// Replaces the engine at each signal, until that succeeds or the engine stops. The task returns
    /// an error if no process serves any more.
    pub(crate) fn replace_on_signal(
        mut self,
        replacement: Replacement,
        shutdown: &Shutdown,
    ) -> Result<JoinHandle<Result<(), Failure>>, Failure> {
        let supervisor = supervisor::connect()?;
        let drain = shutdown.drain().clone();
        Ok(tokio::spawn(async move {
            while drain
                .run_until_cancelled(self.signals.recv())
                .await
                .is_some()
            {
                info!("received SIGUSR2: starting a new process");
                supervisor.reloading();
                let replaced = self.replace(&replacement, &supervisor).await;
                let Err(reason) = replaced else { return Ok(()) };
                if replacement.replaced().is_cancelled() {
                    let message = format!("the new process does not serve: {reason}");
                    return Err(Failure::new(Code::Failed, message));
                }
                error!(reason, "the engine was not replaced, and serves as before");
                supervisor.ready();
                supervisor.status(&format!("not replaced: {reason}"));
            }
            Ok(())
        }))
    }

    /// Returns the reason if the engine was not replaced.
    async fn replace(
        &self,
        replacement: &Replacement,
        supervisor: &Supervisor,
    ) -> Result<(), String> {
        if std::process::id() == INIT {
            return Err("the first process of a container cannot be replaced".to_owned());
        }
        let started = self.start();
        let (stream, mut child) = started.map_err(|error| {
            let path = self.path.display();
            format!("{path} cannot be started: {}", chain(&error))
        })?;
        let pid = child.id();
        let announce = || {
            if let Some(pid) = pid {
                supervisor.replaced_by(pid);
            }
        };
        let handed_over = replacement.hand_over(stream, announce).await;
        let Err(error) = handed_over else {
            return Ok(());
        };
        if replacement.replaced().is_cancelled() {
            return Err(chain(&error));
        }
        // Its failure is harmless: the process has ended already.
        child.start_kill().ok();
        let status = child.wait().await.ok();
        let status = status.map_or_else(String::new, |status| format!(" ({status})"));
        Err(format!("{}{status}", chain(&error)))
    }
}

/// The sockets with which this process starts: those of the process that it replaces, those of its
/// supervisor, or none.
pub(crate) async fn origin() -> Result<Origin, Failure> {
    let failed = |error| Failure::from_error("the old process cannot be replaced", error);
    if let Some(stream) = predecessor().map_err(failed)? {
        return Origin::of_predecessor(stream).await.map_err(failed);
    }
    inherited_sockets().map(Origin::of_sockets)
}

/// The listening sockets of the supervisor, or none.
pub(crate) fn inherited_sockets() -> Result<InheritedSockets, Failure> {
    let sockets = InheritedSockets::of_environment(environment::variables(), std::process::id());
    sockets.map_err(|error| Failure::from_error("the inherited sockets cannot be used", error))
}

/// The process that this one replaces, if it was started for that.
fn predecessor() -> io::Result<Option<UnixStream>> {
    // Programs that this process starts inherit the variable.
    let parent = parent_id().to_string();
    if environment::variable(PREDECESSOR).is_none_or(|pid| pid != parent) {
        return Ok(None);
    }
    let input = io::stdin().as_fd().try_clone_to_owned()?;
    // Another copy would hide the end of the connection from the old process, and programs that this
    // process starts could inherit it.
    dup2_stdin(File::open("/dev/null")?)?;
    Ok(Some(UnixStream::from(input)))
}
