//! A screen that is drawn when somebody wants to see it.

use super::Screen;
use crate::size::Size;

/// A screen and the last of its output, which is drawn later: of much output at once, most has
/// scrolled away by then.
#[derive(Debug)]
pub struct LazyScreen {
    screen: Screen,
    waiting: Vec<u8>,
}

impl LazyScreen {
    /// An empty screen, as [`Screen::new`] makes it.
    pub fn new(size: Size) -> Option<Self> {
        Some(Self {
            screen: Screen::new(size)?,
            waiting: Vec::new(),
        })
    }

    /// Takes what the command wrote, in any pieces.
    pub fn feed(&mut self, bytes: &[u8]) {
        if self.waiting.len() + bytes.len() > WAITING {
            self.draw();
        }
        if bytes.len() > WAITING {
            self.screen.feed(bytes);
        } else {
            self.waiting.extend_from_slice(bytes);
        }
    }

    /// The terminal has another size.
    pub fn resize(&mut self, size: Size) {
        self.draw();
        self.screen.resize(size);
    }

    /// The screen as it is now.
    pub fn now(&mut self) -> &Screen {
        self.draw();
        &self.screen
    }

    /// Draws what waits and keeps no memory for more of it.
    pub fn rest(&mut self) {
        self.draw();
        self.waiting = Vec::new();
    }

    fn draw(&mut self) {
        self.screen.feed(&self.waiting);
        self.waiting.clear();
    }
}

/// What waits, in bytes: much more than a screen, and drawn in a millisecond or two.
const WAITING: usize = 64 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_shows_what_a_screen_that_draws_at_once_shows() {
        let size = Size { rows: 5, cols: 20 };
        let mut at_once = Screen::new(size).unwrap();
        let mut later = LazyScreen::new(size).unwrap();
        for n in 0..20_000 {
            let line = format!("{n} \x1b[3{}mx\x1b[m é\r\n", n % 8);
            at_once.feed(line.as_bytes());
            later.feed(line.as_bytes());
            assert!(later.waiting.len() <= WAITING);
        }
        let large = Size { rows: 9, cols: 30 };
        at_once.resize(large);
        later.resize(large);
        later.feed(b"after");
        at_once.feed(b"after");
        assert_eq!(later.now().snapshot(), at_once.snapshot());
        assert_eq!(later.now().rows()[4], "after");
        later.feed(b"x");
        later.rest();
        assert_eq!(later.waiting.capacity(), 0);
    }
}
