//! Text that a program conceals (SGR 8, ECMA-48 section 8.3.117), for instance a password that it
//! echoes nevertheless. The emulated terminal does not support this attribute. Concealed text
//! therefore becomes blanks of the same width before it reaches the terminal, so that no snapshot,
//! drawn screen or list of rows can show it.

use std::borrow::Cow;

use memchr::memchr2;
use unicode_width::UnicodeWidthChar as _;

/// Tracks the concealed state in the output of a program.
#[derive(Debug, Default)]
pub(super) struct Conceal {
    state: State,
    conceals: bool,
    /// Concealed state that was saved with the cursor.
    saved: bool,
}

/// State of the parser.
#[derive(Debug, Default)]
enum State {
    #[default]
    Text,
    /// After ESC; `true` with an intermediate character.
    Escape(bool),
    /// In a control sequence, with its parameters so far.
    Sequence(String),
    /// In a string that a terminal does not show; `true` where BEL ends it.
    String(bool),
}

impl Conceal {
    /// Returns `text` with blanks instead of concealed text.
    pub(super) fn filter<'t>(&mut self, text: &'t str) -> Cow<'t, str> {
        let mut shown: Option<String> = None;
        let mut rest = text;
        while !rest.is_empty() {
            // Only these characters start a sequence: ESC, and the first byte of the controls of
            // C1.
            if matches!(self.state, State::Text) && !self.conceals {
                let len = memchr2(ESCAPE, C1, rest.as_bytes()).unwrap_or(rest.len());
                let (plain, other) = rest.split_at(len);
                if let Some(shown) = &mut shown {
                    shown.push_str(plain);
                }
                rest = other;
            }
            let mut chars = rest.chars();
            let Some(c) = chars.next() else { break };
            let is_text = matches!(self.state, State::Text) && !c.is_control();
            if is_text && self.conceals {
                let at = text.len() - rest.len();
                let before = || text.get(..at).unwrap_or_default().to_owned();
                let width = c.width().unwrap_or(0);
                shown
                    .get_or_insert_with(before)
                    .extend(std::iter::repeat_n(' ', width));
            } else {
                if let Some(shown) = &mut shown {
                    shown.push(c);
                }
                self.step(c);
            }
            rest = chars.as_str();
        }
        shown.map_or(Cow::Borrowed(text), Cow::Owned)
    }

    /// Changes a snapshot so that later output is concealed as before. `snapshot` resets a
    /// terminal, draws the screen, and ends with an incomplete sequence, if there is one.
    pub(super) fn continue_after_snapshot(&self, reset: &str, snapshot: &mut String) {
        if self.saved {
            // A cursor that was saved at the initial position is not in the snapshot.
            if snapshot.contains(SAVE) {
                *snapshot = snapshot.replace(SAVE, SAVE_CONCEALED);
            } else {
                snapshot.insert_str(reset.len(), SAVE_CONCEALED);
            }
        }
        if !self.conceals {
            return;
        }
        let incomplete_at = match self.state {
            State::Text => None,
            _ => snapshot.rfind(|c| c == '\x1b' || is_introducer(c)),
        };
        snapshot.insert_str(incomplete_at.unwrap_or(snapshot.len()), CONCEAL);
    }

    fn step(&mut self, c: char) {
        // Terminals treat characters beyond their code tables as a letter, which ends a sequence.
        let c = if c >= '\u{a0}' { 'A' } else { c };
        let state = std::mem::take(&mut self.state);
        self.state = match (state, c) {
            (_, '\x1b') => State::Escape(false),
            (_, '\u{9b}') => State::Sequence(String::new()),
            (_, '\u{9d}') => State::String(true),
            (_, '\u{90}' | '\u{98}' | '\u{9e}' | '\u{9f}') => State::String(false),
            (_, '\x18' | '\x1a' | '\u{9c}') => State::Text,
            (State::Escape(false), '[') => State::Sequence(String::new()),
            (State::Escape(false), ']') => State::String(true),
            (State::Escape(false), 'P' | 'X' | '^' | '_') => State::String(false),
            (State::Escape(false), last @ '0'..='~') => {
                match last {
                    '7' => self.saved = self.conceals,
                    '8' => self.conceals = self.saved,
                    'c' => *self = Self::default(),
                    _ => {}
                }
                State::Text
            }
            (State::Escape(_), ' '..='/') => State::Escape(true),
            (State::Escape(true), '0'..='~') => State::Text,
            (State::Sequence(mut parameters), ' '..='?') => {
                if parameters.len() < MAX_PARAMETERS {
                    parameters.push(c);
                }
                State::Sequence(parameters)
            }
            (State::Sequence(parameters), last @ '@'..='~') => {
                self.sequence(&parameters, last);
                State::Text
            }
            (State::String(true), '\x07') => State::Text,
            // Controls are also executed in the middle of a sequence.
            (state, _) => state,
        };
    }

    fn sequence(&mut self, parameters: &str, last: char) {
        match (parameters, last) {
            ("!", 'p') => *self = Self::default(),
            ("", 's') | ("?1048" | "?1049", 'h') => self.saved = self.conceals,
            ("", 'u') | ("?1048" | "?1049", 'l') => self.conceals = self.saved,
            (parameters, 'm') if !parameters.starts_with(['?', '>', '<', '=']) => {
                self.set_attributes(parameters);
            }
            _ => {}
        }
    }

    fn set_attributes(&mut self, parameters: &str) {
        let mut all = parameters.split(';');
        while let Some(one) = all.next() {
            match one {
                "8" => self.conceals = true,
                "" | "0" | "00" | "28" => self.conceals = false,
                // A colour with semicolons has its numbers in the following parameters.
                "38" | "48" | "58" => {
                    let numbers = match all.next() {
                        Some("5") => 1,
                        Some("2") => 3,
                        _ => 0,
                    };
                    for _ in 0..numbers {
                        all.next();
                    }
                }
                _ => {}
            }
        }
    }
}

fn is_introducer(c: char) -> bool {
    matches!(c, '\u{90}' | '\u{98}' | '\u{9b}' | '\u{9d}'..='\u{9f}')
}

const ESCAPE: u8 = 0x1b;

/// The first byte of U+0080 to U+009F.
const C1: u8 = 0xc2;

const CONCEAL: &str = "\x1b[8m";

const SAVE: &str = "\x1b7";

const SAVE_CONCEALED: &str = "\x1b[8m\x1b7\x1b[28m";

/// Maximum bytes that [`Conceal::continue_after_snapshot`] adds: two cursors may be saved.
pub(super) const MARGIN: usize = CONCEAL.len() + 2 * SAVE_CONCEALED.len();

/// Maximum bytes of parameters that are parsed: more than terminals accept.
const MAX_PARAMETERS: usize = 256;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::screen::tests::output;

    fn filtered(text: &str) -> String {
        Conceal::default().filter(text).into_owned()
    }

    #[test]
    fn concealed_text_becomes_blanks() {
        for (text, shown) in [
            ("a\x1b[8mhunter2\x1b[mb", "a\x1b[8m       \x1b[mb"),
            ("\x1b[8mab\x1b[28mcd", "\x1b[8m  \x1b[28mcd"),
            ("\x1b[1;8;31mab\x1b[0mc", "\x1b[1;8;31m  \x1b[0mc"),
            ("\x1b[8;0mab", "\x1b[8;0mab"),
            ("\u{9b}8mab\u{9b}m", "\u{9b}8m  \u{9b}m"),
            // A wide character becomes two blanks, a character without width none.
            ("\x1b[8m界e\u{301}\r\n", "\x1b[8m   \r\n"),
            // A parameter of a colour, or another sequence with this number, does not conceal.
            ("\x1b[38;5;8mab", "\x1b[38;5;8mab"),
            ("\x1b[48;2;8;8;8mab", "\x1b[48;2;8;8;8mab"),
            ("\x1b[38:5:8mab", "\x1b[38:5:8mab"),
            ("\x1b[?8mab\x1b[8Hcd", "\x1b[?8mab\x1b[8Hcd"),
            ("\x1b[38;5;1;8mab", "\x1b[38;5;1;8m  "),
            // Sequences and controls stay.
            ("\x1b[8m\x1b]0;title\x07\tx", "\x1b[8m\x1b]0;title\x07\t "),
            ("\x1b[8m\x1bPdata\x1b\\x", "\x1b[8m\x1bPdata\x1b\\ "),
            // Saved and restored state, and resets.
            ("\x1b[8m\x1b7\x1b[mab\x1b8cd", "\x1b[8m\x1b7\x1b[mab\x1b8  "),
            ("\x1b[8ma\x1bcb", "\x1b[8m \x1bcb"),
            ("\x1b[8ma\x1b[!pb", "\x1b[8m \x1b[!pb"),
        ] {
            assert_eq!(filtered(text), shown, "{text:?}");
        }
    }

    #[test]
    fn concealed_state_continues_after_a_snapshot() {
        for (before, snapshot, expected) in [
            ("\x1b[8mab", "\x1bc  ", "\x1bc  \x1b[8m"),
            ("\x1b[8mab\x1b[3", "\x1bc  \u{9b}3", "\x1bc  \x1b[8m\u{9b}3"),
            ("ab", "\x1bcab", "\x1bcab"),
            (
                "\x1b[8m\x1b7\x1b[m",
                "\x1bcab",
                "\x1bc\x1b[8m\x1b7\x1b[28mab",
            ),
            (
                "\x1b[8m\x1b7\x1b[m",
                "\x1bca\x1b7b",
                "\x1bca\x1b[8m\x1b7\x1b[28mb",
            ),
        ] {
            let mut conceal = Conceal::default();
            conceal.filter(before);
            let mut given = snapshot.to_owned();
            conceal.continue_after_snapshot("\x1bc", &mut given);
            assert_eq!(given, expected);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn filtering_is_independent_of_splits(bytes in output(), cut in 1..9_usize) {
            let text = String::from_utf8_lossy(&bytes).replace('3', "8");
            let whole = filtered(&text);
            let mut conceal = Conceal::default();
            let chars: Vec<char> = text.chars().collect();
            let pieces = chars.chunks(cut).map(|piece| piece.iter().collect::<String>());
            let cuts: String = pieces.map(|piece| conceal.filter(&piece).into_owned()).collect();
            prop_assert_eq!(whole, cuts);
        }
    }
}
