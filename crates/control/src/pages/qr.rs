//! QR codes in pages: vector images whose size the style decides.

use qrcode::{Color, EcLevel, QrCode};

/// A QR code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Qr {
    /// Modules of a side, with the quiet zone.
    pub(super) side: usize,
    /// The dark modules as the path of an SVG whose unit is a module.
    pub(super) path: String,
}

impl Qr {
    /// The code of a text. `None`: the text is longer than what a code holds.
    pub(super) fn of(text: &str) -> Option<Self> {
        let code = QrCode::with_error_correction_level(text, EcLevel::M).ok()?;
        let width = code.width();
        let mut path = String::new();
        for (row, modules) in code.to_colors().chunks(width).enumerate() {
            let mut column = 0;
            for run in modules.chunk_by(|one, next| one == next) {
                if run.first() == Some(&Color::Dark) {
                    let (x, y, length) = (column + QUIET, row + QUIET, run.len());
                    path.push_str(&format!("M{x} {y}h{length}v1h-{length}z"));
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
