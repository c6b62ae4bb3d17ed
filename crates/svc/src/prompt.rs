//! Questions to the user at the terminal.

use std::io::{self, BufRead, IsTerminal, Write};

use self::quiet::Quiet;
use crate::failure::Failure;

/// True if a user can be asked.
pub(crate) fn is_possible() -> bool {
    io::stdin().is_terminal()
}

/// Asks a yes/no question. Only `y` and `yes` mean yes.
pub(crate) fn confirm(question: &str) -> Result<bool, Failure> {
    ask(&format!("{question} [y/N] "))?;
    let answer = read_line()?;
    Ok(matches!(
        answer.trim().to_ascii_lowercase().as_str(),
        "y" | "yes"
    ))
}

/// Reads a secret without echo.
pub(crate) fn secret(question: &str) -> Result<String, Failure> {
    // Echo is disabled first. Earlier input is not the answer, and is discarded.
    let quiet = Quiet::begin()?;
    ask(question)?;
    let answer = read_line();
    drop(quiet);
    ask("\n")?;
    Ok(answer?.trim().to_owned())
}

/// Writes to stderr, because stdout may be piped.
fn ask(text: &str) -> Result<(), Failure> {
    let mut out = io::stderr().lock();
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .map_err(|error| Failure::from_error("cannot show the question", error))
}

fn read_line() -> Result<String, Failure> {
    let mut line = String::new();
    io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| Failure::from_error("no answer was given", error))?;
    Ok(line)
}

#[cfg(unix)]
mod quiet {
    use std::io::stdin;

    use nix::sys::termios::{LocalFlags, SetArg, Termios, tcgetattr, tcsetattr};

    use crate::failure::Failure;

    /// A terminal without echo. Dropping it enables echo again.
    pub(super) struct Quiet {
        before: Termios,
    }

    impl Quiet {
        pub(super) fn begin() -> Result<Self, Failure> {
            let failed = |error| Failure::from_error("cannot turn off terminal echo", error);
            let before = tcgetattr(stdin()).map_err(failed)?;
            let mut quiet = before.clone();
            quiet.local_flags.remove(LocalFlags::ECHO);
            tcsetattr(stdin(), SetArg::TCSAFLUSH, &quiet).map_err(failed)?;
            Ok(Self { before })
        }
    }

    impl Drop for Quiet {
        fn drop(&mut self) {
            // Errors are ignored, because the terminal may be closed.
            tcsetattr(stdin(), SetArg::TCSANOW, &self.before).ok();
        }
    }
}

/// Systems on which this program cannot disable echo. There it refuses to read a secret, so that
/// the secret is not displayed.
#[cfg(not(unix))]
mod quiet {
    use crate::failure::Failure;

    pub(super) enum Quiet {}

    impl Quiet {
        pub(super) fn begin() -> Result<Self, Failure> {
            Err(Failure::usage(
                "cannot prompt for a secret on this system without showing it".to_owned(),
            )
            .hint("give it on standard input, or in a file"))
        }
    }
}
