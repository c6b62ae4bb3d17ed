//! QR codes in pages: vector images with a size that the style sets.

use std::fmt::Write as _;

use qrcode::{Color, EcLevel, QrCode};

/// A QR code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Qr {
    /// Number of modules of a side, with the quiet zone.
    pub(super) side: usize,
    /// The dark modules as the path of an SVG whose unit is a module.
    pub(super) path: String,
}

impl Qr {
    /// The QR code of a text. `None` if the text is too long.
    pub(super) fn of(text: &str) -> Option<Self> {
        let code = QrCode::with_error_correction_level(text, EcLevel::M).ok()?;
        let width = code.width();
        let mut path = String::new();
        for (row, modules) in code.to_colors().chunks(width).enumerate() {
            let mut column = 0;
            for run in modules.chunk_by(|one, next| one == next) {
                if run.first() == Some(&Color::Dark) {
                    let (x, y, length) = (column + QUIET, row + QUIET, run.len());
                    // Writing to a string does not fail.
                    write!(path, "M{x} {y}h{length}v1h-{length}z").ok();
                }
                column += run.len();
            }
        }
        Some(Self {
            side: width + 2 * QUIET,
            path,
        })
    }
}

/// ISO/IEC 18004 section 6.3.8: four light modules on every side.
const QUIET: usize = 4;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_the_code_inside_its_quiet_zone() {
        let text = "otpauth://totp/svc:ada?secret=GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ";
        let qr = Qr::of(text).unwrap();
        let code = QrCode::with_error_correction_level(text, EcLevel::M).unwrap();
        assert_eq!(qr.side, code.width() + 8);
        let mut dark = 0;
        for run in qr.path.split('z').filter(|run| !run.is_empty()) {
            let numbers: Vec<usize> = run
                .split(|character: char| !character.is_ascii_digit())
                .filter_map(|number| number.parse().ok())
                .collect();
            let [x, y, length, 1, back] = numbers[..] else {
                panic!("{run}");
            };
            assert_eq!(length, back);
            for column in x..x + length {
                assert_eq!(code[(column - 4, y - 4)], Color::Dark);
            }
            dark += length;
        }
        let all = code.to_colors();
        assert_eq!(dark, all.iter().filter(|one| **one == Color::Dark).count());
        assert_eq!(Qr::of(&"a".repeat(5000)), None);
    }
}
