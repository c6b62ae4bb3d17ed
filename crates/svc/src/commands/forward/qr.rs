//! QR codes on a terminal.

use qrcode::{Color, EcLevel, QrCode};

/// The QR code of a text with its quiet zone. Each character shows two modules.
pub(crate) struct Qr {
    side: usize,
    dark: Vec<bool>,
}

impl Qr {
    /// Returns `None` if the text is too long for a QR code.
    pub(crate) fn of(text: &str) -> Option<Self> {
        // The lowest error correction: screens are not damaged, and a smaller code fits more
        // terminals.
        let code = QrCode::with_error_correction_level(text, EcLevel::L).ok()?;
        let width = code.width();
        let side = width + 2 * QUIET;
        let mut dark = vec![false; side * side];
        for (index, color) in code.to_colors().iter().enumerate() {
            let (row, column) = (index / width + QUIET, index % width + QUIET);
            if let Some(module) = dark.get_mut(row * side + column) {
                *module = *color == Color::Dark;
            }
        }
        Some(Self { side, dark })
    }

    /// Width in characters.
    pub(crate) fn width(&self) -> usize {
        self.side
    }

    /// Lines of half blocks with dark foreground on light background.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.drawn(|dark| dark)
    }

    /// Lines for a terminal without colours: light modules on its dark background. On a light
    /// background the code is inverted, which cameras also read.
    pub(crate) fn inverse(&self) -> Vec<String> {
        self.drawn(|dark| !dark)
    }

    /// The printable text, with its own colours or without any.
    pub(crate) fn text(&self, colours: bool) -> String {
        let lines = if colours {
            let painted = |line| format!("\x1b[38;5;{BLACK};48;5;{WHITE}m{line}\x1b[0m");
            self.lines().into_iter().map(painted).collect()
        } else {
            self.inverse()
        };
        lines.join("\n")
    }

    fn drawn(&self, is_ink: impl Fn(bool) -> bool) -> Vec<String> {
        let ink = |row: usize, column: usize| {
            let module = self.dark.get(row * self.side + column);
            // Below the last row the background is light.
            module.is_some_and(|dark| is_ink(*dark))
        };
        (0..self.side)
            .step_by(2)
            .map(|row| {
                let half = |column| match (ink(row, column), ink(row + 1, column)) {
                    (true, true) => '█',
                    (true, false) => '▀',
                    (false, true) => '▄',
                    (false, false) => ' ',
                };
                (0..self.side).map(half).collect()
            })
            .collect()
    }
}

/// The entries of the 256-colour palette that no theme changes.
pub(crate) const BLACK: u8 = 16;
pub(crate) const WHITE: u8 = 231;

/// Two light modules on every side. ISO/IEC 18004 section 6.3.8 requires twice as many on paper,
/// but phones need only this on a screen.
const QUIET: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_square_with_a_light_border() {
        let qr = Qr::of("https://web.t.engine.localhost:8443").unwrap();
        let lines = qr.lines();
        assert_eq!(lines.len(), qr.width().div_ceil(2));
        assert!(lines.iter().all(|line| line.chars().count() == qr.width()));
        assert!(lines[0].trim().is_empty());
        assert!(
            lines
                .iter()
                .all(|line| line.starts_with("  ") && line.ends_with("  "))
        );
        // The corner of the finder pattern.
        assert!(lines[1].starts_with("  █▀▀▀▀▀█"), "{}", lines[1]);
        assert!(
            qr.inverse()[1].starts_with("██ ▄▄▄▄▄ "),
            "{}",
            qr.inverse()[1]
        );
    }

    #[test]
    fn a_text_that_is_too_long_has_no_code() {
        assert!(Qr::of(&"x".repeat(4000)).is_none());
    }
}
