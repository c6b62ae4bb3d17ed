//! A screen that is drawn when it is needed.

use super::Screen;
use crate::size::Size;

/// A screen with buffered output, which is drawn later: most of a large amount of output has
/// scrolled off the screen by then.
#[derive(Debug)]
pub struct LazyScreen {
    screen: Screen,
    waiting: Vec<u8>,
}

impl LazyScreen {
    /// Creates an empty screen like [`Screen::with_scrollback`].
    pub fn new(size: Size) -> Option<Self> {
        Some(Self {
            screen: Screen::with_scrollback(size)?,
            waiting: Vec::new(),
        })
    }

    /// Adds output of the command, in any pieces.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.waiting.len() + bytes.len() > MAX_BUFFERED {
            self.draw();
        }
        if bytes.len() > MAX_BUFFERED {
            self.screen.feed(bytes);
        } else {
            let needed = self.waiting.len() + bytes.len();
            if needed > self.waiting.capacity() {
                // A vector could double its capacity beyond the limit.
                let capacity = needed.next_power_of_two().min(MAX_BUFFERED);
                self.waiting.reserve_exact(capacity - self.waiting.len());
            }
            self.waiting.extend_from_slice(bytes);
        }
    }

    /// Sets the size of the terminal.
    pub fn resize(&mut self, size: Size) {
        self.draw();
        self.screen.resize(size);
    }

    /// The current screen.
    pub fn current(&mut self) -> &Screen {
        self.draw();
        &self.screen
    }

    /// Draws the buffered output and frees the buffer.
    pub fn draw_and_free(&mut self) {
        self.draw();
        self.waiting = Vec::new();
    }

    fn draw(&mut self) {
        self.screen.feed(&self.waiting);
        self.waiting.clear();
    }
}

/// Maximum bytes of buffered output: several times the rows that are kept, so that most of a large
/// amount of plain text is not drawn. Other output of this size is drawn in some milliseconds.
const MAX_BUFFERED: usize = 256 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_shows_the_same_as_a_screen_that_draws_immediately() {
        let size = Size { rows: 5, cols: 20 };
        let mut at_once = Screen::with_scrollback(size).unwrap();
        let mut later = LazyScreen::new(size).unwrap();
        for n in 0..40_000 {
            let line = format!("{n} \x1b[3{}mx\x1b[m é\r\n", n % 8);
            at_once.feed(line.as_bytes());
            later.feed(line.as_bytes());
            assert!(later.waiting.capacity() <= MAX_BUFFERED);
        }
        let large = Size { rows: 9, cols: 30 };
        at_once.resize(large);
        later.resize(large);
        later.feed(b"after");
        at_once.feed(b"after");
        assert_eq!(later.current().snapshot(), at_once.snapshot());
        assert_eq!(later.current().rows()[4], "after");
        later.feed(b"x");
        later.draw_and_free();
        assert_eq!(later.waiting.capacity(), 0);
    }
}
