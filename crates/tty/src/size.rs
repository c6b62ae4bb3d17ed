//! Sizes of terminals.

use crate::message::TerminalSize;

/// Rows and columns of a terminal; neither is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
pub struct Size {
    /// Rows of characters.
    #[serde(rename = "row")]
    pub rows: u16,
    /// Columns of characters.
    #[serde(rename = "col")]
    pub cols: u16,
}

impl Size {
    /// Size of the historical terminals. It is the default if a peer states none.
    pub const DEFAULT: Self = Self { rows: 24, cols: 80 };

    /// Checks the sides. A hidden page sends 0, which is not a size.
    pub fn new(rows: u32, cols: u32) -> Option<Self> {
        let side = |side| u16::try_from(side).ok().filter(|side| *side > 0);
        Some(Self {
            rows: side(rows)?,
            cols: side(cols)?,
        })
    }
}

impl From<Size> for TerminalSize {
    fn from(size: Size) -> Self {
        Self {
            row: size.rows.into(),
            col: size.cols.into(),
            ..Self::default()
        }
    }
}

impl TerminalSize {
    /// The size in characters; `None` if a side is 0 or too large.
    pub fn size(&self) -> Option<Size> {
        Size::new(self.row, self.col)
    }
}
