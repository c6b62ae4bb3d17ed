//! What a person says to this program rather than to the command: `~` at the beginning of a line, and
//! a letter.

/// What was typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum EscapeInput {
    /// For the command.
    Keys(Vec<u8>),
    /// Hang up.
    Leave,
    /// What there is.
    Help,
    /// The answer to a question.
    Answer(bool),
}

/// Finds escapes in what is typed.
#[derive(Debug)]
pub(super) struct Escape {
    at_line_start: bool,
    /// A `~` that may begin one.
    held: bool,
}

impl Escape {
    pub(super) fn new() -> Self {
        Self {
            at_line_start: true,
            held: false,
        }
    }

    /// Takes what was typed. Answers are only looked for while somebody asks: `~y` may be anything.
    pub(super) fn read(&mut self, typed: &[u8], is_asked: bool) -> Vec<EscapeInput> {
        let mut said = Vec::new();
        let mut keys = Vec::new();
        for &byte in typed {
            if std::mem::take(&mut self.held) {
                let other = match byte {
                    b'.' => Some(EscapeInput::Leave),
                    b'?' => Some(EscapeInput::Help),
                    b'y' | b'n' if is_asked => Some(EscapeInput::Answer(byte == b'y')),
                    _ => None,
                };
                if let Some(other) = other {
                    if !keys.is_empty() {
                        said.push(EscapeInput::Keys(std::mem::take(&mut keys)));
                    }
                    said.push(other);
                    self.at_line_start = true;
                    continue;
                }
                keys.push(b'~');
                self.at_line_start = false;
                // Twice is once for the command.
                if byte == b'~' {
                    continue;
                }
            }
            if byte == b'~' && self.at_line_start {
                self.held = true;
                continue;
            }
            // Return, and what clears or leaves a line.
            self.at_line_start = matches!(byte, b'\r' | b'\n' | 0x03 | 0x04 | 0x15);
            keys.push(byte);
        }
        if !keys.is_empty() {
            said.push(EscapeInput::Keys(keys));
        }
        said
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(text: &str) -> EscapeInput {
        EscapeInput::Keys(text.as_bytes().to_vec())
    }

    #[test]
    fn an_escape_is_at_the_beginning_of_a_line() {
        for (typed, said) in [
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
                said,
                "{typed:?}"
            );
        }
    }

    #[test]
    fn an_answer_is_one_while_somebody_asks() {
        let mut escape = Escape::new();
        assert_eq!(escape.read(b"~y", true), [EscapeInput::Answer(true)]);
        assert_eq!(escape.read(b"~n", true), [EscapeInput::Answer(false)]);
        assert_eq!(escape.read(b"x~y", true), [keys("x~y")]);
    }

    #[test]
    fn keys_come_one_at_a_time() {
        let mut escape = Escape::new();
        assert_eq!(escape.read(b"~", false), []);
        assert_eq!(escape.read(b".", false), [EscapeInput::Leave]);
        assert_eq!(escape.read(b"~", false), []);
        assert_eq!(escape.read(b"a", false), [keys("~a")]);
        assert_eq!(escape.read(b"~", false), [keys("~")]);
        assert_eq!(escape.read(b".", false), [keys(".")]);
    }
}
