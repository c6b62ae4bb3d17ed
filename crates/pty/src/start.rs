//! From what is wanted to a process that runs.

use std::ffi::{CString, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use nix::sys::signal::{SigHandler, Signal};
use tokio::process::Command;

use crate::account::{Account, AccountError, Identity};
use crate::process::{Process, Streams};

/// A command that is to be started.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The program: a path, or a name that is looked for in the `PATH` of `environment`.
    pub program: OsString,
    /// What it is told to be called, where that is not `program`: `-sh` makes a login shell.
    pub arg0: Option<OsString>,
    /// Its arguments.
    pub arguments: Vec<OsString>,
    /// Its whole environment: nothing is inherited.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it starts.
    pub directory: Directory,
    /// As whom it runs; `None` is as this process.
    pub account: Option<Account>,
    /// How large its terminal is; `None` gives it pipes.
    pub terminal: Option<Size>,
}

/// Where a command starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Directory {
    /// There, or nowhere.
    Exactly(PathBuf),
    /// There if it can be entered, else at `/`, as login(1) does it.
    OrRoot(PathBuf),
}

/// Rows and columns of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Rows of characters.
    pub rows: u16,
    /// Columns of characters.
    pub cols: u16,
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// It would have to run as somebody that it cannot run as.
    #[error(transparent)]
    Account(#[from] AccountError),
    /// There is no terminal to be had.
    #[error("there is no terminal for it: {0}")]
    Terminal(#[source] io::Error),
    /// It cannot start where it should.
    #[error("{}: {error}", path.display())]
    Directory {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        error: io::Error,
    },
    /// The system refused.
    #[error("{}: {error}", Path::new(program).display())]
    Program {
        /// The program.
        program: OsString,
        /// What is wrong with it.
        error: io::Error,
    },
}

impl Spec {
    /// Starts it, in a session of its own. Must be called on a tokio runtime.
    ///
    /// # Errors
    /// Everything that [`StartError`] lists.
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
        // Programs open their terminal by its name, too, as the account that they run as.
        if let Some(identity) = &child.identity {
            nix::unistd::fchown(&pts, Some(identity.uid), None)
                .map_err(|error| StartError::Terminal(error.into()))?;
        }
        let command = pty_process::Command::from(command);
        #[expect(
            unsafe_code,
            reason = "what a new process does before its program is told only so"
        )]
        // SAFETY: `Child::prepare` makes system calls alone: it takes no lock and no memory, which
        // is what may be done between fork and exec.
        let command = unsafe { command.pre_exec(move || child.prepare()) };
        let started = command.spawn(pts).map_err(|error| StartError::Program {
            program: self.program.clone(),
            error: plain(error),
        })?;
        Ok(Process::new(started, Streams::Terminal(Box::new(pty))))
    }

    /// The new process can tell that something failed, but not what. So what a person is likely to
    /// get wrong is looked at before; as another account it may still turn out otherwise.
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
        reason = "what a new process does before its program is told only so"
    )]
    // SAFETY: setsid(2) is a system call, and of `Child::prepare` see above.
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

/// What the new process does before it becomes the program.
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
        // Root gives up what it is; whoever is that account already has nothing to take on.
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
        for signal in INHERITED {
            #[expect(unsafe_code, reason = "signal(2) is unsafe for its handlers")]
            // SAFETY: the default is no handler of ours, and signal(2) is a system call.
            unsafe {
                nix::sys::signal::signal(signal, SigHandler::SigDfl)?;
            }
        }
        if let Some(identity) = &self.identity {
            identity.take_on()?;
        }
        // As the account that it is now, so that nobody enters what is not theirs.
        match nix::unistd::chdir(self.directory.as_c_str()) {
            Err(_nowhere) if self.or_root => Ok(nix::unistd::chdir(c"/")?),
            entered => Ok(entered?),
        }
    }
}

/// Signals that this process may have been told to ignore (nohup(1) does), which a program would
/// inherit: a terminal that cannot be hung up, a job that cannot be stopped.
const INHERITED: [Signal; 8] = [
    Signal::SIGHUP,
    Signal::SIGINT,
    Signal::SIGQUIT,
    Signal::SIGTERM,
    Signal::SIGCHLD,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
];

/// What the library for terminals says went wrong.
fn plain(error: pty_process::Error) -> io::Error {
    match error {
        pty_process::Error::Io(error) => error,
        error => io::Error::other(error.to_string()),
    }
}
