//! Separates keys for the command from keys for this program.

/// Effect of a key.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Key {
    /// Input for the command.
    Typed(Vec<u8>),
    /// `~.`
    Leave,
    /// `~r`
    RequestControl,
    /// `~y` and `~n`
    Answer(bool),
    /// `~?`
    Help,
}

/// Parser of keys, for input in pieces of any size.
#[derive(Debug)]
pub(super) struct Keys {
    is_at_line_start: bool,
    /// A pending tilde that may start an escape sequence.
    has_tilde: bool,
}

impl Default for Keys {
    fn default() -> Self {
        Self {
            is_at_line_start: true,
            has_tilde: false,
        }
    }
}

impl Keys {
    /// Parses bytes. A viewer is always at the start of a line.
    pub(super) fn read(&mut self, bytes: &[u8], typing: bool) -> Vec<Key> {
        let mut keys = Vec::new();
        let mut typed = Vec::new();
        for byte in bytes {
            if std::mem::take(&mut self.has_tilde) {
                let escape = match byte {
                    b'.' => Some(Key::Leave),
                    b'r' => Some(Key::RequestControl),
                    b'y' => Some(Key::Answer(true)),
                    b'n' => Some(Key::Answer(false)),
                    b'?' => Some(Key::Help),
                    _ => None,
                };
                if let Some(escape) = escape {
                    flush(&mut typed, &mut keys);
                    keys.push(escape);
                    self.is_at_line_start = true;
                    continue;
                }
                typed.push(b'~');
                self.is_at_line_start = false;
                if *byte == b'~' {
                    continue;
                }
            }
            if *byte == b'~' && (self.is_at_line_start || !typing) {
                self.has_tilde = true;
                continue;
            }
            self.is_at_line_start = matches!(byte, b'\r' | b'\n');
            typed.push(*byte);
        }
        flush(&mut typed, &mut keys);
        keys
    }
}

fn flush(typed: &mut Vec<u8>, keys: &mut Vec<Key>) {
    if !typed.is_empty() {
        keys.push(Key::Typed(std::mem::take(typed)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(text: &str) -> Key {
        Key::Typed(text.as_bytes().to_vec())
    }

    #[test]
    fn escapes_need_the_start_of_a_line_with_control() {
        let read = |text: &str| Keys::default().read(text.as_bytes(), true);
        assert_eq!(read("~."), [Key::Leave]);
        assert_eq!(read("ls ~.\r"), [typed("ls ~.\r")]);
        assert_eq!(read("ls\r~r"), [typed("ls\r"), Key::RequestControl]);
        assert_eq!(read("~~x\r~?"), [typed("~x\r"), Key::Help]);
        assert_eq!(read("~x~."), [typed("~x~.")]);
        assert_eq!(read("~y~n"), [Key::Answer(true), Key::Answer(false)]);
    }

    #[test]
    fn escapes_work_anywhere_for_viewers() {
        let read = |text: &str| Keys::default().read(text.as_bytes(), false);
        assert_eq!(read("abc~."), [typed("abc"), Key::Leave]);
    }

    #[test]
    fn input_can_be_split_anywhere() {
        let text = b"a\r~~b\r~.";
        for size in 1..text.len() {
            let mut keys = Keys::default();
            let mut all = Vec::new();
            for piece in text.chunks(size) {
                all.extend(keys.read(piece, true));
            }
            let bytes: Vec<u8> = all
                .iter()
                .filter_map(|key| match key {
                    Key::Typed(bytes) => Some(bytes.clone()),
                    _ => None,
                })
                .flatten()
                .collect();
            assert_eq!(bytes, b"a\r~b\r", "in pieces of {size}");
            assert_eq!(all.last(), Some(&Key::Leave));
        }
    }
}
