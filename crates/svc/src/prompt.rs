//! Questions to the user at the terminal.

#[cfg(unix)]
mod echo_guard;

use std::io::{self, BufRead, IsTerminal, Write};

use zeroize::Zeroizing;

use self::echo_guard::EchoGuard;
use crate::failure::{Code, Failure};

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

/// Reads a secret without echo. Spaces are part of it.
pub(crate) fn secret(question: &str) -> Result<String, Failure> {
    // Echo is disabled first. Earlier input is not the answer, and is discarded.
    let quiet = EchoGuard::begin()?;
    ask(question)?;
    let answer = read_secret(io::stdin().lock(), quiet.interrupt_byte());
    drop(quiet);
    ask("\n")?;
    let answer = answer.map_err(|error| Failure::from_error("the answer cannot be read", error))?;
    answer.ok_or_else(|| {
        echo_guard::interrupt();
        // The signal may be ignored.
        Failure::new(Code::Failed, "interrupted")
    })
}

/// Reads a line without its end, or all if there is no line break. `None` if it contains the
/// character of an interrupt.
fn read_secret(input: impl BufRead, interrupt_byte: Option<u8>) -> io::Result<Option<String>> {
    let mut answer = Zeroizing::new(Vec::new());
    for byte in io::Read::bytes(input) {
        match byte? {
            b'\n' => break,
            byte if Some(byte) == interrupt_byte => return Ok(None),
            byte => answer.push(byte),
        }
    }
    let text = std::str::from_utf8(&answer)
        .map_err(|_invalid| io::Error::new(io::ErrorKind::InvalidData, "it is not UTF-8 text"))?;
    Ok(Some(text.to_owned()))
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

/// Systems on which this program cannot disable echo. There it refuses to read a secret, so that
/// the secret is not displayed.
#[cfg(not(unix))]
mod echo_guard {
    use crate::failure::Failure;

    pub(super) enum EchoGuard {}

    impl EchoGuard {
        pub(super) fn begin() -> Result<Self, Failure> {
            Err(Failure::usage(
                "cannot prompt for a secret on this system without showing it".to_owned(),
            )
            .hint("give it on standard input, or in a file"))
        }

        pub(super) fn interrupt_byte(&self) -> Option<u8> {
            match *self {}
        }
    }

    pub(super) fn interrupt() {}
}

#[cfg(test)]
mod tests {
    use super::read_secret;

    #[test]
    fn a_secret_is_a_line_with_its_spaces() {
        let cases: [(&[u8], Option<&str>); 6] = [
            (b" correct horse \nnext", Some(" correct horse ")),
            (b"correct horse", Some("correct horse")),
            (b"\n", Some("")),
            (b"", Some("")),
            (b"correct\x03", None),
            (b"\x03\n", None),
        ];
        for (input, expected) in cases {
            let read = read_secret(input, Some(3)).unwrap();
            assert_eq!(read.as_deref(), expected, "{input:?}");
        }
        assert_eq!(read_secret(&b"\0\n"[..], None).unwrap().unwrap(), "\0");
        assert!(read_secret(&b"\xff\n"[..], None).is_err());
    }
}
