//! Starting a process.

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{SigHandler, Signal};
use tokio::process::Command;

use crate::account::{Account, AccountError, Identity};
use crate::process::{Process, Streams};
use crate::size::Size;

/// A command to start.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The program: a path, or a name to search in the `PATH` of `environment`.
    pub program: OsString,
    /// Its `argv[0]`, if it is not `program`: `-sh` makes a login shell.
    pub arg0: Option<OsString>,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its whole environment: it inherits no variables.
    pub environment: Vec<(OsString, OsString)>,
    /// Its working directory.
    pub directory: Directory,
    /// Its account; `None` for that of this process.
    pub account: Option<Account>,
    /// Size of its terminal; `None` gives it pipes.
    pub terminal: Option<Size>,
}

/// Working directory of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Directory {
    /// This directory; if it cannot be entered, the start fails.
    Exactly(PathBuf),
    /// This directory if it can be entered, else `/`, as with login(1).
    OrRoot(PathBuf),
}

/// Reasons for which a command could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The account cannot be used.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// No terminal is available.
    #[error("cannot open a terminal: {0}")]
    Terminal(#[source] io::Error),
    /// The working directory cannot be entered.
    #[error("{}: {error}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// The cause.
        error: io::Error,
    },
    /// The system could not start the program.
    #[error("{}: {error}", Path::new(program).display())]
    Program {
        /// The program.
        program: OsString,
        /// The cause.
        error: io::Error,
    },
}

impl Spec {
    /// Starts the command in its own session. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// All errors of [`StartError`].
    pub fn start(&self) -> Result<Process, StartError> {
        if let Some(account) = &self.account {
            account.check()?;
        }
        self.check_directory()?;
        let refused = |error| StartError::Program {
            program: self.program.clone(),
            error,
        };
        let child = Child::of(self).map_err(refused)?;
        let mut command = Command::new(&self.program);
        command.args(&self.arguments);
        command.env_clear().envs(self.environment.iter().cloned());
        if let Some(name) = &self.arg0 {
            command.arg0(name);
        }
        match self.terminal {
            Some(size) => self.start_in_terminal(command, child, size),
            None => start_in_pipes(command, child).map_err(refused),
        }
    }

    fn start_in_terminal(
        &self,
        command: Command,
        child: Child,
        size: Size,
    ) -> Result<Process, StartError> {
        let no_terminal = |error| StartError::Terminal(plain(error));
        let (pty, pts) = pty_process::open().map_err(no_terminal)?;
        pty.resize(pty_process::Size::new(size.rows, size.cols))
            .map_err(no_terminal)?;
        // Programs also open their terminal by its name, as the account that they run as.
        if let Some(identity) = &child.identity {
            nix::unistd::fchown(&pts, Some(identity.uid), None)
                .map_err(|error| StartError::Terminal(error.into()))?;
        }
        let command = pty_process::Command::from(command);
        #[expect(
            unsafe_code,
            reason = "pre_exec is the only way to prepare a new process before its program"
        )]
        // SAFETY: `Child::prepare` only makes system calls. It takes no locks and allocates no
        // memory, so it is allowed between fork and exec.
        let command = unsafe { command.pre_exec(move || child.prepare()) };
        let started = command.spawn(pts).map_err(|error| StartError::Program {
            program: self.program.clone(),
            error: plain(error),
        })?;
        Ok(Process::new(started, Streams::Terminal(Box::new(pty))))
    }

    /// Checks the directory before the start, because the new process can report that it failed,
    /// but not the reason. For another account the start may still fail.
    fn check_directory(&self) -> Result<(), StartError> {
        let Directory::Exactly(path) = &self.directory else {
            return Ok(());
        };
        let is_folder = std::fs::metadata(path).and_then(|found| {
            if found.is_dir() {
                Ok(())
            } else {
                Err(io::ErrorKind::NotADirectory.into())
            }
        });
        is_folder.map_err(|error| StartError::Directory {
            path: path.clone(),
            error,
        })
    }
}

fn start_in_pipes(mut command: Command, child: Child) -> io::Result<Process> {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    #[expect(
        unsafe_code,
        reason = "pre_exec is the only way to prepare a new process before its program"
    )]
    // SAFETY: setsid(2) is a system call; for `Child::prepare` see above.
    unsafe {
        command.pre_exec(move || {
            nix::unistd::setsid()?;
            child.prepare()
        });
    }
    let mut started = command.spawn()?;
    let streams = Streams::Pipes {
        input: started.stdin.take(),
        output: started.stdout.take(),
        errors: started.stderr.take(),
    };
    Ok(Process::new(started, streams))
}

/// Setup of the new process between fork and exec.
struct Child {
    identity: Option<Identity>,
    directory: CString,
    or_root: bool,
}

impl Child {
    fn of(spec: &Spec) -> io::Result<Self> {
        let (path, or_root) = match &spec.directory {
            Directory::Exactly(path) => (path, false),
            Directory::OrRoot(path) => (path, true),
        };
        // Root drops its ids; a process that already runs as the account has nothing to change.
        let identity = match &spec.account {
            Some(account) if !account.is_own() => Some(account.identity()?),
            _ => None,
        };
        Ok(Self {
            identity,
            directory: CString::new(path.as_os_str().as_bytes())?,
            or_root,
        })
    }

    fn prepare(&self) -> io::Result<()> {
        for signal in RESET_SIGNALS {
            #[expect(unsafe_code, reason = "signal(2) is unsafe for its handlers")]
            // SAFETY: the default is not a handler of this program, and signal(2) is a system call.
            unsafe {
                nix::sys::signal::signal(signal, SigHandler::SigDfl)?;
            }
        }
        if let Some(identity) = &self.identity {
            identity.apply()?;
        }
        // This comes after the change of ids, so that the account's permissions apply to the
        // directory.
        match nix::unistd::chdir(self.directory.as_c_str()) {
            Err(_nowhere) if self.or_root => Ok(nix::unistd::chdir(c"/")?),
            entered => Ok(entered?),
        }
    }
}

/// Signals that this process may ignore (nohup(1) does this), which a program would inherit: its
/// terminal could then not be hung up, and its jobs not stopped.
const RESET_SIGNALS: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGCHLD,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
];

/// Converts an error of the terminal library.
fn plain(error: pty_process::Error) -> io::Error {
    match error {
        pty_process::Error::Io(error) => error,
        error => io::Error::other(error.to_string()),
    }
}
