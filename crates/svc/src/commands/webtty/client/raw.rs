//! The person's terminal, handed over to a command and given back.

use std::io::{self, Write};

use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use memchr::{memchr_iter, memrchr};
use tty::size::Size;

use crate::failure::Failure;

/// A terminal without lines, echo and signals of its own, for as long as this lives. It is given back
/// by the drop: at the end, after a failure, a signal or a panic.
pub(super) struct Raw {
    screen: Modes,
}

impl Raw {
    /// Takes the terminal that stdin is.
    pub(super) fn enter() -> Result<Self, Failure> {
        enable_raw_mode()
            .map_err(|error| Failure::of("the terminal cannot be taken over", error))?;
        Ok(Self {
            screen: Modes::default(),
        })
    }

    /// Remembers what a program did to the terminal, so that it can be undone when the program cannot.
    pub(super) fn sees(&mut self, bytes: &[u8]) {
        self.screen.see(bytes);
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        // A terminal that is gone needs nothing any more.
        let mut out = io::stdout().lock();
        let undo = self.screen.undo();
        drop(out.write_all(undo.as_bytes()).and_then(|()| out.flush()));
        drop(disable_raw_mode());
    }
}

/// The size of the terminal that stdout is.
pub(super) fn size() -> Option<Size> {
    let (width, height) = terminal_size::terminal_size_of(io::stdout())?;
    Size::new(height.0.into(), width.0.into())
}

/// The private modes of a terminal that outlive a program which was cut off.
#[derive(Debug, Default)]
struct Modes {
    on: Vec<&'static str>,
    /// The end of what was seen, where a sequence may have begun.
    tail: Vec<u8>,
}

impl Modes {
    fn see(&mut self, bytes: &[u8]) {
        let joined;
        let seen = if self.tail.is_empty() {
            bytes
        } else {
            joined = [&std::mem::take(&mut self.tail), bytes].concat();
            &joined
        };
        for start in memchr_iter(ESCAPE, seen) {
            let rest = seen.get(start..).unwrap_or_default();
            let Some(rest) = rest.strip_prefix(b"\x1b[?") else {
                continue;
            };
            let length = rest.iter().position(|byte| matches!(byte, b'h' | b'l'));
            let Some((modes, rest)) = length.and_then(|length| rest.split_at_checked(length))
            else {
                continue;
            };
            let is_on = rest.first() == Some(&b'h');
            for mode in modes.split(|byte| *byte == b';') {
                let known = MODES.iter().find(|(number, _)| number.as_bytes() == mode);
                if let Some((number, usual)) = known {
                    self.on.retain(|on| on != number);
                    if is_on != *usual {
                        self.on.push(number);
                    }
                }
            }
        }
        let keep = seen.len().saturating_sub(LONGEST);
        let last = memrchr(ESCAPE, seen);
        if let Some(last) = last.filter(|last| *last >= keep) {
            let rest = seen.get(last..).unwrap_or_default();
            // A sequence that is whole was read.
            if !rest.iter().any(u8::is_ascii_alphabetic) {
                self.tail = rest.to_vec();
            }
        }
    }

    /// The sequences that bring everything back.
    fn undo(&self) -> String {
        let back = |number: &&str| {
            let usual = MODES.iter().any(|(known, usual)| known == number && *usual);
            format!("\x1b[?{number}{}", if usual { 'h' } else { 'l' })
        };
        let mut text: String = self.on.iter().map(back).collect();
        if !text.is_empty() {
            text.push_str("\x1b[0m");
        }
        text
    }
}

/// Cursor keys, mouse, focus, alternate screen, bracketed paste, and the cursor itself: the number of
/// the mode, and how it usually is.
const MODES: [(&str, bool); 12] = [
    ("1", false),
    ("7", true),
    ("25", true),
    ("47", false),
    ("1000", false),
    ("1002", false),
    ("1003", false),
    ("1004", false),
    ("1006", false),
    ("1047", false),
    ("1049", false),
    ("2004", false),
];

const ESCAPE: u8 = 0x1b;

/// The longest sequence that sets modes which programs write.
const LONGEST: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn undone(pieces: &[&str]) -> String {
        let mut modes = Modes::default();
        for piece in pieces {
            modes.see(piece.as_bytes());
        }
        modes.undo()
    }

    #[test]
    fn what_a_program_left_on_is_put_off() {
        assert_eq!(undone(&["plain text \x1b[31mred\x1b[0m"]), "");
        assert_eq!(
            undone(&["\x1b[?1049h\x1b[?25lx"]),
            "\x1b[?1049l\x1b[?25h\x1b[0m"
        );
        assert_eq!(undone(&["\x1b[?1049h", "x\x1b[?1049l"]), "");
        assert_eq!(
            undone(&["\x1b[?1000;1006h"]),
            "\x1b[?1000l\x1b[?1006l\x1b[0m"
        );
        // A sequence in two pieces.
        assert_eq!(undone(&["x\x1b[?20", "04h"]), "\x1b[?2004l\x1b[0m");
        assert_eq!(undone(&["\x1b", "[?2004h"]), "\x1b[?2004l\x1b[0m");
    }
}
