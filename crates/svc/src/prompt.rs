//! Questions to the person at the terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use self::quiet::Quiet;
use crate::failure::Failure;

/// Whether somebody is there to be asked.
pub(crate) fn is_possible() -> bool {
    io::stdin().is_terminal()
}

/// Asks a question that only `y` and `yes` answer with yes.
pub(crate) fn confirm(question: &str) -> Result<bool, Failure> {
    ask(&format!("{question} [y/N] "))?;
    let answer = read_line()?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}

/// Asks for a secret, which the terminal does not show.
pub(crate) fn secret(question: &str) -> Result<String, Failure> {
    // Quiet first: what was typed before is not the answer, and is dropped.
    let quiet = Quiet::begin()?;
    ask(question)?;
    let answer = read_line();
    drop(quiet);
    ask("\n")?;
    Ok(answer?.trim().to_owned())
}

/// To stderr: the data on stdout may be going somewhere else.
fn ask(text: &str) -> Result<(), Failure> {
    let mut out = io::stderr().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::of("the question cannot be asked", error))
}

fn read_line() -> Result<String, Failure> {
    let mut line = String::new();
    io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| Failure::of("there is no answer", error))?;
    Ok(line)
}

#[cfg(unix)]
mod quiet {
    use std::io::stdin;

    use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

    use crate::failure::Failure;

    /// A terminal that does not show what is typed, until this is dropped.
    pub(super) struct Quiet {
        before: Termios,
    }

    impl Quiet {
        pub(super) fn begin() -> Result<Self, Failure> {
            let failed = |error| Failure::of("the terminal cannot be made quiet", error);
            let before = tcgetattr(stdin()).map_err(failed)?;
            let mut quiet = before.clone();
            quiet.local_flags.remove(LocalFlags::ECHO);
            tcsetattr(stdin(), SetArg::TCSAFLUSH, &quiet).map_err(failed)?;
            Ok(Self { before })
        }
    }

    impl Drop for Quiet {
        fn drop(&mut self) {
            // A terminal that is gone needs nothing any more.
            tcsetattr(stdin(), SetArg::TCSANOW, &self.before).ok();
        }
    }
}

/// Systems whose terminals this program does not know how to make quiet: there a secret is not
/// asked for, rather than shown.
#[cfg(not(unix))]
mod quiet {
    use crate::failure::Failure;

    pub(super) enum Quiet {}

    impl Quiet {
        pub(super) fn begin() -> Result<Self, Failure> {
            Err(Failure::usage(
                "a secret cannot be asked for on this system without showing it".to_owned(),
            )
            .hint("give it on standard input, or in a file"))
        }
    }
}
