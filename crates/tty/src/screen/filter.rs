//! Output of a program, before the emulated terminal gets it.
//!
//! Concealed text (SGR 8, ECMA-48 section 8.3.117), for instance a password that is echoed
//! nevertheless, becomes blanks of the same width, so that no snapshot, drawn screen or list of
//! rows can show it. Attributes and modes that the emulated terminal does not have are stored here.
//! Strings that draw nothing are dropped, and so are characters without a width: they would take a
//! cell of their own.

use std::borrow::Cow;

use unicode_width::UnicodeWidthChar as _;

use super::MAX_COLS;
use super::modes::{self, Modes};
use super::style::{Attribute, Style, Styles};

/// State of the output up to now.
#[derive(Debug, Default)]
pub(super) struct Filter {
    state: State,
    /// The incomplete sequence, from its start.
    incomplete: String,
    style: Style,
    styles: Styles,
    /// Styles that were saved with the cursor of the main and the alternate screen.
    saved: [Style; 2],
    is_alternate: bool,
    modes: Modes,
}

/// State of the parser, as in DEC's terminals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After ESC and an intermediate character.
    EscapeIntermediate,
    /// In a control sequence.
    Sequence,
    /// In a control sequence that is too long.
    LongSequence,
    /// In an operating system command, which BEL ends as well.
    Command,
    /// In another string.
    String,
}

impl Filter {
    /// The part of `text` that the emulated terminal gets.
    pub(super) fn filter<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        if self.is_plain() && plain_len(text) == text.len() {
            return Cow::Borrowed(text);
        }
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            if self.is_plain() {
                let (plain, other) = rest.split_at(plain_len(rest));
                out.push_str(plain);
                rest = other;
            }
            let mut chars = rest.chars();
            let Some(c) = chars.next() else { break };
            self.step(c, &mut out);
            rest = chars.as_str();
        }
        Cow::Owned(out)
    }

    /// The styles that cells refer to.
    pub(super) fn styles(&self) -> &Styles {
        &self.styles
    }

    /// True if a style that was saved with the cursor of this screen conceals text.
    pub(super) fn saved_conceals(&self, is_alternate: bool) -> bool {
        let [main, alternate] = self.saved;
        let style = if is_alternate { alternate } else { main };
        style.has(Attribute::Concealed)
    }

    /// Writes the end of a snapshot: modes, concealment and the incomplete sequence.
    pub(super) fn write_end(&self, out: &mut String) {
        self.modes.write(out);
        if self.style.has(Attribute::Concealed) {
            out.push_str(CONCEAL);
        }
        match self.state {
            State::Text => {}
            State::Command => out.push_str(IGNORED_COMMAND),
            State::String => out.push_str(IGNORED_STRING),
            _ => out.push_str(&self.incomplete),
        }
    }

    /// True if printed characters reach the terminal as they are.
    fn is_plain(&self) -> bool {
        self.state == State::Text
            && !self.style.has(Attribute::Concealed)
            && !self.style.shows_blanks()
    }

    fn step(&mut self, c: char, out: &mut String) {
        // Terminals treat characters beyond their code tables as a letter, which ends a sequence.
        let class = if c >= '\u{a0}' { 'A' } else { c };
        match (self.state, class) {
            (_, '\x1b') => self.begin(State::Escape, "\x1b"),
            (_, '\u{9b}') => self.begin(State::Sequence, "\x1b["),
            (_, '\u{9d}') => self.begin(State::Command, ""),
            (_, '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}') => self.begin(State::String, ""),
            (_, '\x18' | '\x1a' | '\u{9c}') => self.state = State::Text,
            (_, '\u{80}'..='\u{9a}') => {
                self.state = State::Text;
                out.push(c);
            }
            (State::Text, _) => self.print(c, out),
            (State::Command, '\x07') => self.state = State::Text,
            (State::Command | State::String, _) => {}
            // Controls are executed in the middle of a sequence.
            (_, '\0'..='\x1f') => out.push(c),
            (_, '\x7f') => {}
            (State::Escape, '[') => self.begin(State::Sequence, "\x1b["),
            (State::Escape, ']') => self.begin(State::Command, ""),
            (State::Escape, 'P' | 'X' | '^' | '_') => self.begin(State::String, ""),
            (State::Escape | State::EscapeIntermediate, ' '..='/') => {
                self.state = State::EscapeIntermediate;
                self.collect(c);
            }
            (State::Escape, _) => self.escape(c, out),
            (State::EscapeIntermediate, _) => {
                self.state = State::Text;
                out.push_str(&self.incomplete);
                out.push(c);
            }
            (State::Sequence | State::LongSequence, ' '..='?') => self.collect(c),
            (State::LongSequence, _) => self.state = State::Text,
            (State::Sequence, _) => self.sequence(c, out),
        }
    }

    fn begin(&mut self, state: State, introducer: &str) {
        self.state = state;
        self.incomplete.clear();
        self.incomplete.push_str(introducer);
    }

    fn collect(&mut self, c: char) {
        if self.incomplete.len() < MAX_SEQUENCE {
            self.incomplete.push(c);
        } else if self.state == State::Sequence {
            self.state = State::LongSequence;
        }
    }

    fn print(&mut self, c: char, out: &mut String) {
        match c {
            '\x7f' => return,
            _ if c.is_control() => {
                out.push(c);
                return;
            }
            _ => {}
        }
        let width = c.width().unwrap_or(0);
        if self.style.has(Attribute::Concealed) {
            let blank = if self.style.shows_blanks() {
                PRINTED_BLANK
            } else {
                ' '
            };
            out.extend(std::iter::repeat_n(blank, width));
        } else if c == ' ' && self.style.shows_blanks() {
            out.push(PRINTED_BLANK);
        } else if width > 0 {
            out.push(c);
        }
    }

    /// Handles an escape sequence without intermediate characters.
    fn escape(&mut self, last: char, out: &mut String) {
        self.state = State::Text;
        match last {
            '7' => self.save(),
            '8' => self.restore(),
            '=' => self.modes.set_keypad(true),
            '>' => self.modes.set_keypad(false),
            'c' => *self = Self::default(),
            _ => {}
        }
        out.push('\x1b');
        out.push(last);
    }

    /// Handles a control sequence.
    fn sequence(&mut self, last: char, out: &mut String) {
        self.state = State::Text;
        let incomplete = std::mem::take(&mut self.incomplete);
        let parameters = incomplete.get(INTRODUCER..).unwrap_or_default();
        match last {
            'm' => {
                if is_plain_parameters(parameters) {
                    self.style.apply(parameters);
                    self.styles.stored(self.style).write(out);
                }
                return;
            }
            'h' | 'l' => {
                if let Some(modes) = parameters.strip_prefix('?') {
                    self.private_modes(modes, last, out);
                    return;
                }
            }
            's' if parameters.is_empty() => self.save(),
            'u' if parameters.is_empty() => self.restore(),
            'p' if parameters == "!" => {
                self.soft_reset(out);
                return;
            }
            'b' => {
                // A repetition of one character: a few bytes would take as long to draw as 64 KiB.
                let count = parameters.split(';').next().unwrap_or_default();
                if count.len() > 2 && count.bytes().all(|byte| byte.is_ascii_digit()) {
                    let count = count
                        .parse()
                        .map_or(MAX_COLS, |count: u16| count.min(MAX_COLS));
                    super::put(out, format_args!("\x1b[{count}b"));
                    return;
                }
            }
            'q' => {
                if let Some(form) = parameters.strip_suffix(' ') {
                    self.modes.set_cursor(form.parse().unwrap_or(0));
                }
                return;
            }
            _ => {}
        }
        out.push_str(&incomplete);
        out.push(last);
    }

    fn private_modes(&mut self, modes: &str, last: char, out: &mut String) {
        let is_set = last == 'h';
        for mode in modes.split(';') {
            let Ok(mode) = mode.parse::<u16>() else {
                continue;
            };
            match (mode, is_set) {
                (1048, true) => self.save(),
                (1048, false) => self.restore(),
                (47 | 1047, _) => self.is_alternate = is_set,
                (1049, true) => {
                    self.save();
                    self.is_alternate = true;
                }
                (1049, false) => {
                    self.is_alternate = false;
                    self.restore();
                }
                _ => self.modes.set_private(mode, is_set),
            }
            // The emulated terminal has the alternate screen under its newer number only.
            let mode = if mode == 47 { 1047 } else { mode };
            super::put(out, format_args!("\x1b[?{mode}{last}"));
        }
    }

    /// Soft reset. The emulated terminal does not reset the form of the cursor keys and the
    /// automatic wrap.
    fn soft_reset(&mut self, out: &mut String) {
        self.style = Style::default();
        self.modes.soft_reset();
        *self.saved_style() = Style::default();
        out.push_str("\x1b[!p\x1b[?1l\x1b[?7h");
    }

    fn save(&mut self) {
        *self.saved_style() = self.style;
    }

    fn restore(&mut self) {
        self.style = *self.saved_style();
    }

    fn saved_style(&mut self) -> &mut Style {
        let [main, alternate] = &mut self.saved;
        if self.is_alternate { alternate } else { main }
    }
}

/// A blank that a program printed in a style that is visible on blanks. An erased cell has the
/// background only. The character is for private use and has the width of a blank.
pub(super) const PRINTED_BLANK: char = '\u{f0020}';

/// The character that a cell shows.
pub(crate) fn printable(c: char) -> char {
    if c == PRINTED_BLANK { ' ' } else { c }
}

/// Number of bytes at the start of `text` that need no attention: ASCII without ESC and DEL.
fn plain_len(text: &str) -> usize {
    text.bytes()
        .position(|byte| matches!(byte, ESCAPE | 0x7f..))
        .unwrap_or(text.len())
}

/// True for parameters without a prefix and without intermediate characters.
fn is_plain_parameters(parameters: &str) -> bool {
    !parameters.starts_with(':')
        && parameters
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b';' | b':'))
}

const ESCAPE: u8 = 0x1b;

/// Length of the introducer of a control sequence.
const INTRODUCER: usize = 2;

const CONCEAL: &str = "\x1b[8m";

/// Start of a command that terminals do not have. Its end is on the way to the participant.
const IGNORED_COMMAND: &str = "\x1b]9999;";

/// Start of a string that terminals ignore.
const IGNORED_STRING: &str = "\x1bX";

/// Maximum bytes of a sequence: more than terminals accept.
const MAX_SEQUENCE: usize = 256;

/// Maximum bytes that [`Filter::write_end`] writes.
pub(super) const MAX_END: usize = modes::MAX_LEN + CONCEAL.len() + MAX_SEQUENCE;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::screen::tests::output;

    fn filtered(text: &str) -> String {
        Filter::default().filter(text).into_owned()
    }

    #[test]
    fn a_character_is_repeated_at_most_as_often_as_a_row_has_columns() {
        for (text, shown) in [
            ("a\x1b[9b", "a\x1b[9b"),
            ("a\x1b[601b", "a\x1b[600b"),
            ("a\x1b[99999999;1b", "a\x1b[600b"),
            ("a\x1b[?99999b", "a\x1b[?99999b"),
        ] {
            assert_eq!(filtered(text), shown, "{text:?}");
        }
    }

    #[test]
    fn concealed_text_becomes_blanks() {
        for (text, shown) in [
            ("a\x1b[8mhunter2\x1b[mb", "a\x1b[m       \x1b[mb"),
            ("\x1b[8mab\x1b[28mcd", "\x1b[m  \x1b[mcd"),
            ("\x1b[1;8;31mab\x1b[0mc", "\x1b[0;1;38;5;1m  \x1b[mc"),
            ("\x1b[8;0mab", "\x1b[mab"),
            ("\u{9b}8mab\u{9b}m", "\x1b[m  \x1b[m"),
            // A wide character becomes two blanks, a character without width none.
            ("\x1b[8m界e\u{301}\r\n", "\x1b[m   \r\n"),
            // A parameter of a colour, or another sequence with this number, does not conceal.
            ("\x1b[38;5;8mab", "\x1b[0;38;5;8mab"),
            ("\x1b[48;2;8;8;8mab", "\x1b[0;48;2;8;8;8mab"),
            ("\x1b[38:5:8mab", "\x1b[0;38;5;8mab"),
            ("\x1b[?8mab\x1b[8Hcd", "ab\x1b[8Hcd"),
            ("\x1b[38;5;1;8mab", "\x1b[0;38;5;1m  "),
            // Strings draw nothing, and controls stay.
            ("\x1b[8m\x1b]0;title\x07\tx", "\x1b[m\t "),
            ("\x1b[8m\x1bPdata\x1b\\x", "\x1b[m\x1b\\ "),
            // Saved and restored state, and resets.
            ("\x1b[8m\x1b7\x1b[mab\x1b8cd", "\x1b[m\x1b7\x1b[mab\x1b8  "),
            ("\x1b[8ma\x1bcb", "\x1b[m \x1bcb"),
            ("\x1b[8ma\x1b[!pb", "\x1b[m \x1b[!p\x1b[?1l\x1b[?7hb"),
        ] {
            assert_eq!(filtered(text), shown, "{text:?}");
        }
    }

    #[test]
    fn sequences_are_complete_before_they_are_passed_on() {
        for (text, shown) in [
            ("a\x1b[3", "a"),
            ("a\x1b[3\r1mb", "a\r\x1b[0;38;5;1mb"),
            ("a\x1b[3\x1b[1mb", "a\x1b[0;1mb"),
            ("a\x1b[3\x18b", "ab"),
            ("a\x1b]52;c;YQ==\x07b", "ab"),
            ("a\x1b]52;c;YQ==\u{84}b", "a\u{84}b"),
            ("e\u{301}\u{fe0f}!", "e!"),
            ("\x1b[?47;25h", "\x1b[?1047h\x1b[?25h"),
        ] {
            assert_eq!(filtered(text), shown, "{text:?}");
        }
        let long = format!("a\x1b[{}mb", "1;".repeat(MAX_SEQUENCE));
        assert_eq!(filtered(&long), "ab");
    }

    #[test]
    fn a_snapshot_ends_with_modes_and_the_incomplete_sequence() {
        for (text, end) in [
            ("plain", ""),
            ("\x1b[8mab", "\x1b[8m"),
            ("\x1b[8mab\x1b[3", "\x1b[8m\x1b[3"),
            ("ab\x1b]0;ti", "\x1b]9999;"),
            ("ab\x1bPq", "\x1bX"),
            (
                "\x1b[?1000h\x1b[?1002;1006;2004h\x1b=",
                "\x1b[?1002h\x1b[?1006h\x1b[?2004h\x1b=",
            ),
            ("\x1b[?2004h\x1b[?2004l\x1b[5 q", "\x1b[5 q"),
            ("\x1b[?1003;2004h\x1b[!p", "\x1b[?1003h"),
            ("\x1b[?1003;2004h\x1b[4 q\x1bc", ""),
        ] {
            let mut filter = Filter::default();
            filter.filter(text);
            let mut out = String::new();
            filter.write_end(&mut out);
            assert_eq!(out, end, "{text:?}");
            assert!(out.len() <= MAX_END);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn filtering_is_independent_of_splits(bytes in output(), cut in 1..9_usize) {
            let text = String::from_utf8_lossy(&bytes).replace('3', "8");
            let whole = filtered(&text);
            let mut filter = Filter::default();
            let chars: Vec<char> = text.chars().collect();
            let pieces = chars.chunks(cut).map(|piece| piece.iter().collect::<String>());
            let cuts: String = pieces.map(|piece| filter.filter(&piece).into_owned()).collect();
            prop_assert_eq!(whole, cuts);
        }
    }
}
