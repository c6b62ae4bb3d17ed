//! The user's terminal in raw mode, and its restoration.

use std::io::{self, Write};

use crossterm::terminal::{disable_raw_mode, enable_raw_mode};
use memchr::{memchr_iter, memrchr};
use tty::size::Size;

use crate::failure::Failure;

/// A terminal in raw mode, without line editing, echo and signal keys (Ctrl-C). Dropping it
/// restores the terminal, also after a failure, a signal or a panic.
pub(super) struct RawMode {
    modes: TerminalModes,
}

impl RawMode {
    /// Switches the terminal of stdin to raw mode.
    pub(super) fn enter() -> Result<Self, Failure> {
        enable_raw_mode().map_err(|error| {
            Failure::from_error("cannot switch the terminal to raw mode", error)
        })?;
        Ok(Self {
            modes: TerminalModes::default(),
        })
    }

    /// Records the terminal modes that a program sets, so that they can be reset if the program
    /// cannot do it.
    pub(super) fn record_output(&mut self, bytes: &[u8]) {
        self.modes.scan_output(bytes);
    }
}

impl Drop for RawMode {
    fn drop(&mut self) {
        // Errors are ignored, because the terminal may be closed.
        let mut out = io::stdout().lock();
        let reset = self.modes.reset_sequences();
        drop(out.write_all(reset.as_bytes()).and_then(|()| out.flush()));
        drop(disable_raw_mode());
    }
}

/// The size of the terminal of stdout.
pub(super) fn size() -> Option<Size> {
    let (width, height) = terminal_size::terminal_size_of(io::stdout())?;
    Size::new(height.0.into(), width.0.into())
}

/// Terminal modes that an interrupted program leaves set.
#[derive(Debug, Default)]
struct TerminalModes {
    /// Private modes that differ from their default.
    changed_modes: Vec<&'static str>,
    /// The keyboard protocols of the main and the alternate screen. Each screen has its own.
    keyboard: [KeyboardStack; 2],
    /// xterm's `modifyOtherKeys` is active: keys with modifiers send their own sequences.
    modified_keys: bool,
    /// A scroll region is set.
    scroll_region: bool,
    /// True if there was any output.
    has_output: bool,
    /// The end of the output, if it may be the start of a sequence.
    tail: Vec<u8>,
}

/// kitty's keyboard protocol: a stack of flags, of which the top entry is active.
#[derive(Debug, Default)]
struct KeyboardStack {
    pushed: usize,
    /// True if flags are set below the pushed entries.
    base_flags_set: bool,
}

impl TerminalModes {
    fn scan_output(&mut self, bytes: &[u8]) {
        self.has_output |= !bytes.is_empty();
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
                && let Some(final_byte) = rest.first()
            {
                self.apply_sequence(parameters, *final_byte);
            }
        }
        let keep = seen.len().saturating_sub(MAX_SEQUENCE_LEN);
        let last_escape = memrchr(ESCAPE, seen).filter(|at| *at >= keep);
        let rest = last_escape
            .and_then(|at| seen.get(at..))
            .unwrap_or_default();
        // Complete sequences were processed above, so only an incomplete one is kept.
        let is_incomplete = match rest {
            [ESCAPE] => true,
            [ESCAPE, b'[', parameters @ ..] => parameters.iter().all(|byte| is_parameter(*byte)),
            _ => false,
        };
        if is_incomplete {
            self.tail = rest.to_vec();
        }
    }

    /// Applies a control sequence (ECMA-48 section 5.4): the bytes between `CSI` and the final
    /// byte, and the final byte.
    fn apply_sequence(&mut self, parameters: &[u8], final_byte: u8) {
        match (parameters, final_byte) {
            ([b'?', modes @ ..], b'h' | b'l') => {
                for mode in modes.split(|byte| *byte == b';') {
                    let known = TRACKED_MODES
                        .iter()
                        .find(|(number, _)| number.as_bytes() == mode);
                    if let Some((number, default_on)) = known {
                        self.changed_modes.retain(|changed| changed != number);
                        if (final_byte == b'h') != *default_on {
                            self.changed_modes.push(number);
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
                // If the stack becomes empty, no flags remain.
                keyboard.base_flags_set &= count <= keyboard.pushed;
                keyboard.pushed = keyboard.pushed.saturating_sub(count);
            }
            ([b'=', flags @ ..], b'u') => {
                let keyboard = self.keyboard();
                if keyboard.pushed == 0 {
                    keyboard.base_flags_set = flags.first() != Some(&b'0');
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
        self.changed_modes
            .iter()
            .any(|changed| alternate.contains(changed))
    }

    /// The keyboard state of the active screen.
    fn keyboard(&mut self) -> &mut KeyboardStack {
        let is_alternate = self.is_alternate();
        let [main, alternate] = &mut self.keyboard;
        if is_alternate { alternate } else { main }
    }

    /// The sequences that restore the default modes.
    fn reset_sequences(&self) -> String {
        if !self.has_output {
            return String::new();
        }
        let mut text = String::new();
        let [main, alternate] = &self.keyboard;
        if self.is_alternate() {
            text.push_str(&alternate.reset_sequences());
        }
        let reset_mode = |number: &&str| {
            let default_on = TRACKED_MODES
                .iter()
                .any(|(known, default_on)| known == number && *default_on);
            format!("\x1b[?{number}{}", if default_on { 'h' } else { 'l' })
        };
        text.extend(self.changed_modes.iter().map(reset_mode));
        text.push_str(&main.reset_sequences());
        if self.modified_keys {
            text.push_str("\x1b[>4m");
        }
        if self.scroll_region {
            // This sequence also moves the cursor, so the position is saved around it.
            text.push_str("\x1b7\x1b[r\x1b8");
        }
        text.push_str(RESET_ATTRIBUTES);
        text
    }
}

impl KeyboardStack {
    fn reset_sequences(&self) -> String {
        let mut text = String::new();
        if self.pushed > 0 {
            text = format!("\x1b[<{}u", self.pushed);
        }
        if self.base_flags_set {
            text.push_str("\x1b[=0u");
        }
        text
    }
}

/// True for the bytes between the start of a control sequence and its final byte.
fn is_parameter(byte: u8) -> bool {
    matches!(byte, 0x20..=0x3f)
}

/// Resets attributes, character set and keypad mode. Has no effect on a terminal that is in this
/// state already.
const RESET_ATTRIBUTES: &str = "\x1b[0m\x1b(B\x0f\x1b>";

/// Cursor keys, mouse, focus, alternate screen, bracketed paste and cursor visibility: the number
/// of the mode and its default.
const TRACKED_MODES: [(&str, bool); 12] = [
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

/// An incomplete sequence is kept only if it starts within this many bytes of the end. A sequence
/// that sets all of [`TRACKED_MODES`] has 53 bytes.
const MAX_SEQUENCE_LEN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn undone(pieces: &[&str]) -> String {
        let mut modes = TerminalModes::default();
        for piece in pieces {
            modes.scan_output(piece.as_bytes());
        }
        modes.reset_sequences()
    }

    /// The sequences in addition to those that are always sent.
    fn extra(pieces: &[&str]) -> String {
        undone(pieces)
            .strip_suffix(RESET_ATTRIBUTES)
            .unwrap()
            .to_owned()
    }

    #[test]
    fn modes_that_a_program_left_set_are_reset() {
        assert_eq!(extra(&["\x1b[?1049h\x1b[?25lx"]), "\x1b[?1049l\x1b[?25h");
        assert_eq!(extra(&["\x1b[?1049h", "x\x1b[?1049l"]), "");
        assert_eq!(extra(&["\x1b[?1000;1006h"]), "\x1b[?1000l\x1b[?1006l");
        // A sequence in two pieces.
        assert_eq!(extra(&["x\x1b[?20", "04h"]), "\x1b[?2004l");
        assert_eq!(extra(&["\x1b", "[?2004h"]), "\x1b[?2004l");
    }

    #[test]
    fn attributes_are_reset_after_any_output() {
        assert_eq!(undone(&[]), "");
        assert_eq!(undone(&["\x1b[31mred"]), "\x1b[0m\x1b(B\x0f\x1b>");
    }

    #[test]
    fn keyboard_modes_are_restored() {
        assert_eq!(extra(&["\x1b[>1u", "\x1b[>31u"]), "\x1b[<2u");
        assert_eq!(extra(&["\x1b[>1u\x1b[>3u\x1b[<u"]), "\x1b[<1u");
        // A split sequence is counted once.
        assert_eq!(extra(&["\x1b[>1u", "\x1b[>", "1", "u", "x"]), "\x1b[<2u");
        assert_eq!(extra(&["\x1b[>1u\x1b[<2u"]), "");
        assert_eq!(extra(&["\x1b[=5;1u"]), "\x1b[=0u");
        assert_eq!(extra(&["\x1b[=5;1u\x1b[=0;1u"]), "");
        // A query changes nothing.
        assert_eq!(extra(&["\x1b[?u\x1b[u"]), "");
        // Each screen has its own state.
        assert_eq!(
            extra(&["\x1b[>1u\x1b[?1049h\x1b[>5u\x1b[=7u"]),
            "\x1b[<1u\x1b[?1049l\x1b[<1u"
        );
        assert_eq!(extra(&["\x1b[>4;2m"]), "\x1b[>4m");
        assert_eq!(extra(&["\x1b[>4;2m\x1b[>4;0m"]), "");
        assert_eq!(extra(&["\x1b[>4;2m\x1b[>4m"]), "");
    }

    #[test]
    fn the_scroll_region_is_reset() {
        assert_eq!(extra(&["\x1b[2;10r"]), "\x1b7\x1b[r\x1b8");
        assert_eq!(extra(&["\x1b[2;10r", "\x1b[r"]), "");
        // This is a different sequence.
        assert_eq!(extra(&["\x1b[?1r"]), "");
    }
}
