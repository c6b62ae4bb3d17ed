//! QR codes on a terminal.

use qrcode::{Color, EcLevel, QrCode};

/// The code of a text inside its quiet zone, two modules in each character.
pub(crate) struct Qr {
    side: usize,
    dark: Vec<bool>,
}

impl Qr {
    /// `None`: the text is longer than what a code holds.
    pub(crate) fn of(text: &str) -> Option<Self> {
        // The lowest level: a screen is not scratched, and a smaller code fits more terminals.
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

    /// Characters of a line.
    pub(crate) fn width(&self) -> usize {
        self.side
    }

    /// Lines of half blocks whose foreground is dark and whose background is light.
    pub(crate) fn lines(&self) -> Vec<String> {
        self.drawn(|dark| dark)
    }

    /// The same for a terminal that prints no colours: light on its own dark background, and
    /// turned over on a light one, which cameras read as well.
    pub(crate) fn inverse(&self) -> Vec<String> {
        self.drawn(|dark| !dark)
    }

    /// To be printed as it is: in colours of its own, or without any.
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
            // Below the last row there is paper.
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

/// Of the 256 colours, those that no theme changes.
pub(crate) const BLACK: u8 = 16;
pub(crate) const WHITE: u8 = 231;

/// Two light modules on every side: half of what ISO/IEC 18004 section 6.3.8 asks for on paper,
/// and what phones need on a screen.
const QUIET: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_code_is_as_wide_as_high_inside_a_light_frame() {
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
    fn a_text_that_no_code_holds_has_none() {
        assert!(Qr::of(&"x".repeat(4000)).is_none());
    }
}
