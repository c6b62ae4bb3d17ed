//! Sizes of terminals.

/// Rows and columns of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    /// Rows of characters.
    pub rows: u16,
    /// Columns of characters.
    pub cols: u16,
}
