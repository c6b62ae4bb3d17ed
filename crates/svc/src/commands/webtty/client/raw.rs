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

/// What of a terminal outlives a program which was cut off.
#[derive(Debug, Default)]
struct Modes {
    /// Private modes that are not as usual.
    on: Vec<&'static str>,
    /// How keys are told, on the usual screen and on the alternate one: each has its own.
    keyboard: [Keyboard; 2],
    /// Keys with modifiers have sequences of their own (xterm's `modifyOtherKeys`).
    modified_keys: bool,
    /// Less than the whole screen scrolls.
    scroll_region: bool,
    /// Something was shown.
    shown: bool,
    /// The end of what was seen, where a sequence may have begun.
    tail: Vec<u8>,
}

/// The keyboard protocol of kitty: a stack of flags, of which the last are in force.
#[derive(Debug, Default)]
struct Keyboard {
    pushed: usize,
    /// Flags below what was pushed.
    is_set: bool,
}

impl Modes {
    fn see(&mut self, bytes: &[u8]) {
        self.shown |= !bytes.is_empty();
        let joined;
        let seen = if self.tail.is_empty() {
            bytes
        } else {
            joined = [&std::mem::take(&mut self.tail), bytes].concat();
            &joined
        };
        for start in memchr_iter(ESCAPE, seen) {
            let rest = seen.get(start..).unwrap_or_default();
            let Some(rest) = rest.strip_prefix(b"\x1b[") else {
                continue;
            };
            let length = rest.iter().position(|byte| !is_parameter(*byte));
            if let Some((parameters, rest)) =
                length.and_then(|length| rest.split_at_checked(length))
                && let Some(last) = rest.first()
            {
                self.sequence(parameters, *last);
            }
        }
        let keep = seen.len().saturating_sub(LONGEST);
        let last = memrchr(ESCAPE, seen).filter(|last| *last >= keep);
        let rest = last.and_then(|last| seen.get(last..)).unwrap_or_default();
        // A sequence that is whole was read.
        let is_begun = match rest {
            [ESCAPE] => true,
            [ESCAPE, b'[', parameters @ ..] => parameters.iter().all(|byte| is_parameter(*byte)),
            _ => false,
        };
        if is_begun {
            self.tail = rest.to_vec();
        }
    }

    /// A control sequence (ECMA-48 section 5.4): what stands between `CSI` and its last byte.
    fn sequence(&mut self, parameters: &[u8], last: u8) {
        match (parameters, last) {
            ([b'?', modes @ ..], b'h' | b'l') => {
                for mode in modes.split(|byte| *byte == b';') {
                    let known = MODES.iter().find(|(number, _)| number.as_bytes() == mode);
                    if let Some((number, usual)) = known {
                        self.on.retain(|on| on != number);
                        if (last == b'h') != *usual {
                            self.on.push(number);
                        }
                    }
                }
            }
            ([b'>', ..], b'u') => {
                let keyboard = self.keyboard();
                keyboard.pushed = keyboard.pushed.saturating_add(1);
            }
            ([b'<', count @ ..], b'u') => {
                let count = std::str::from_utf8(count).ok();
                let count = count.and_then(|count| count.parse().ok()).unwrap_or(1);
                let keyboard = self.keyboard();
                // Without anything left, there are no flags either.
                keyboard.is_set &= count <= keyboard.pushed;
                keyboard.pushed = keyboard.pushed.saturating_sub(count);
            }
            ([b'=', flags @ ..], b'u') => {
                let keyboard = self.keyboard();
                if keyboard.pushed == 0 {
                    keyboard.is_set = flags.first() != Some(&b'0');
                }
            }
            (b">4" | b">4;0" | b">", b'm') => self.modified_keys = false,
            ([b'>', b'4', b';', ..], b'm') => self.modified_keys = true,
            (b"", b'r') => self.scroll_region = false,
            ([b'0'..=b'9' | b';', ..], b'r') => self.scroll_region = true,
            _ => {}
        }
    }

    fn is_alternate(&self) -> bool {
        let alternate = ["47", "1047", "1049"];
        self.on.iter().any(|on| alternate.contains(on))
    }

    /// That of the screen which is shown.
    fn keyboard(&mut self) -> &mut Keyboard {
        let is_alternate = self.is_alternate();
        let [usual, alternate] = &mut self.keyboard;
        if is_alternate { alternate } else { usual }
    }

    /// The sequences that bring everything back.
    fn undo(&self) -> String {
        if !self.shown {
            return String::new();
        }
        let mut text = String::new();
        let [usual, alternate] = &self.keyboard;
        if self.is_alternate() {
            text.push_str(&alternate.undo());
        }
        let back = |number: &&str| {
            let usual = MODES.iter().any(|(known, usual)| known == number && *usual);
            format!("\x1b[?{number}{}", if usual { 'h' } else { 'l' })
        };
        text.extend(self.on.iter().map(back));
        text.push_str(&usual.undo());
        if self.modified_keys {
            text.push_str("\x1b[>4m");
        }
        if self.scroll_region {
            // It would move the cursor.
            text.push_str("\x1b7\x1b[r\x1b8");
        }
        text.push_str(PLAIN);
        text
    }
}

impl Keyboard {
    fn undo(&self) -> String {
        let mut text = String::new();
        if self.pushed > 0 {
            text = format!("\x1b[<{}u", self.pushed);
        }
        if self.is_set {
            text.push_str("\x1b[=0u");
        }
        text
    }
}

/// What stands between the begin of a control sequence and its last byte.
fn is_parameter(byte: u8) -> bool {
    matches!(byte, 0x20..=0x3f)
}

/// No attributes, letters instead of lines, and the digits of the keypad. A terminal that has them
/// already does nothing.
const PLAIN: &str = "\x1b[0m\x1b(B\x0f\x1b>";

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

    /// What is sent beside what is always sent.
    fn beside(pieces: &[&str]) -> String {
        undone(pieces).strip_suffix(PLAIN).unwrap().to_owned()
    }

    #[test]
    fn what_a_program_left_on_is_put_off() {
        assert_eq!(beside(&["\x1b[?1049h\x1b[?25lx"]), "\x1b[?1049l\x1b[?25h");
        assert_eq!(beside(&["\x1b[?1049h", "x\x1b[?1049l"]), "");
        assert_eq!(beside(&["\x1b[?1000;1006h"]), "\x1b[?1000l\x1b[?1006l");
        // A sequence in two pieces.
        assert_eq!(beside(&["x\x1b[?20", "04h"]), "\x1b[?2004l");
        assert_eq!(beside(&["\x1b", "[?2004h"]), "\x1b[?2004l");
    }

    #[test]
    fn where_something_was_shown_the_terminal_is_plain_again() {
        assert_eq!(undone(&[]), "");
        assert_eq!(undone(&["\x1b[31mred"]), "\x1b[0m\x1b(B\x0f\x1b>");
    }

    #[test]
    fn keys_are_told_as_before() {
        assert_eq!(beside(&["\x1b[>1u", "\x1b[>31u"]), "\x1b[<2u");
        assert_eq!(beside(&["\x1b[>1u\x1b[>3u\x1b[<u"]), "\x1b[<1u");
        // A sequence is counted once, however it comes.
        assert_eq!(beside(&["\x1b[>1u", "\x1b[>", "1", "u", "x"]), "\x1b[<2u");
        assert_eq!(beside(&["\x1b[>1u\x1b[<2u"]), "");
        assert_eq!(beside(&["\x1b[=5;1u"]), "\x1b[=0u");
        assert_eq!(beside(&["\x1b[=5;1u\x1b[=0;1u"]), "");
        // What is asked is no change.
        assert_eq!(beside(&["\x1b[?u\x1b[u"]), "");
        // Each screen has its own.
        assert_eq!(
            beside(&["\x1b[>1u\x1b[?1049h\x1b[>5u\x1b[=7u"]),
            "\x1b[<1u\x1b[?1049l\x1b[<1u"
        );
        assert_eq!(beside(&["\x1b[>4;2m"]), "\x1b[>4m");
        assert_eq!(beside(&["\x1b[>4;2m\x1b[>4;0m"]), "");
        assert_eq!(beside(&["\x1b[>4;2m\x1b[>4m"]), "");
    }

    #[test]
    fn the_whole_screen_scrolls_again() {
        assert_eq!(beside(&["\x1b[2;10r"]), "\x1b7\x1b[r\x1b8");
        assert_eq!(beside(&["\x1b[2;10r", "\x1b[r"]), "");
        // That is another sequence.
        assert_eq!(beside(&["\x1b[?1r"]), "");
    }
}
