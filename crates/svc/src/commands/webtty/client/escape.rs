//! Escape sequences for this program: `~` at the start of a line, followed by a letter.

/// Parsed input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EscapeInput {
    /// Input for the command.
    Keys(Vec<u8>),
    /// Disconnect.
    Leave,
    /// Show the help.
    Help,
    /// Answer to a question.
    Answer(bool),
}

/// Parser of escape sequences in the input.
#[derive(Debug)]
pub(super) struct Escape {
    at_line_start: bool,
    /// A pending `~` that may start an escape sequence.
    has_tilde: bool,
}

impl Escape {
    pub(super) fn new() -> Self {
        Self {
            at_line_start: true,
            has_tilde: false,
        }
    }

    /// Parses input. `~y` and `~n` are answers only while a question is open.
    pub(super) fn read(&mut self, typed: &[u8], is_asked: bool) -> Vec<EscapeInput> {
        let mut inputs = Vec::new();
        let mut keys = Vec::new();
        for &byte in typed {
            if std::mem::take(&mut self.has_tilde) {
                let other = match byte {
                    b'.' => Some(EscapeInput::Leave),
                    b'?' => Some(EscapeInput::Help),
                    b'y' | b'n' if is_asked => Some(EscapeInput::Answer(byte == b'y')),
                    _ => None,
                };
                if let Some(other) = other {
                    if !keys.is_empty() {
                        inputs.push(EscapeInput::Keys(std::mem::take(&mut keys)));
                    }
                    inputs.push(other);
                    self.at_line_start = true;
                    continue;
                }
                keys.push(b'~');
                self.at_line_start = false;
                // A double tilde is a single one for the command.
                if byte == b'~' {
                    continue;
                }
            }
            if byte == b'~' && self.at_line_start {
                self.has_tilde = true;
                continue;
            }
            // Return, and keys that clear or leave a line.
            self.at_line_start = matches!(byte, b'\r' | b'\n' | 0x03 | 0x04 | 0x15);
            keys.push(byte);
        }
        if !keys.is_empty() {
            inputs.push(EscapeInput::Keys(keys));
        }
        inputs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> EscapeInput {
        EscapeInput::Keys(text.as_bytes().to_vec())
    }

    #[test]
    fn escapes_are_recognised_at_the_start_of_a_line() {
        for (typed, inputs) in [
            ("~.", vec![EscapeInput::Leave]),
            ("ls\r~.", vec![keys("ls\r"), EscapeInput::Leave]),
            ("\u{3}~.", vec![keys("\u{3}"), EscapeInput::Leave]),
            ("cd ~.", vec![keys("cd ~.")]),
            ("~?x", vec![EscapeInput::Help, keys("x")]),
            ("~~.", vec![keys("~.")]),
            ("~/x", vec![keys("~/x")]),
            ("~\r~.", vec![keys("~\r"), EscapeInput::Leave]),
            ("~y", vec![keys("~y")]),
        ] {
            assert_eq!(
                Escape::new().read(typed.as_bytes(), false),
                inputs,
                "{typed:?}"
            );
        }
    }

    #[test]
    fn answers_are_recognised_while_a_question_is_open() {
        let mut escape = Escape::new();
        assert_eq!(escape.read(b"~y", true), [EscapeInput::Answer(true)]);
        assert_eq!(escape.read(b"~n", true), [EscapeInput::Answer(false)]);
        assert_eq!(escape.read(b"x~y", true), [keys("x~y")]);
    }

    #[test]
    fn escapes_can_be_split_into_single_keys() {
        let mut escape = Escape::new();
        assert_eq!(escape.read(b"~", false), []);
        assert_eq!(escape.read(b".", false), [EscapeInput::Leave]);
        assert_eq!(escape.read(b"~", false), []);
        assert_eq!(escape.read(b"a", false), [keys("~a")]);
        assert_eq!(escape.read(b"~", false), [keys("~")]);
        assert_eq!(escape.read(b".", false), [keys(".")]);
    }
}
