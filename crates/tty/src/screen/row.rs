//! The rows of a screen as text with attributes.

use avt::{Cell, Line};

use super::filter::shown;
use super::put;
use super::style::{Style, Styles};

/// The rows of a screen, from its top.
pub(super) struct RowWriter<'o> {
    pub(super) out: &'o mut String,
    styles: &'o Styles,
    style: Style,
}

impl<'o> RowWriter<'o> {
    /// Starts with the attributes of a reset terminal.
    pub(super) fn new(out: &'o mut String, styles: &'o Styles) -> Self {
        Self {
            out,
            styles,
            style: Style::default(),
        }
    }

    /// Writes a row. Cells that no program has written stay empty. `continues`: the row is a
    /// continuation of the previous one, so the terminal has to wrap to it.
    pub(super) fn write(&mut self, line: &Line, continues: bool) {
        let mut cells = line.cells();
        let mut is_first = continues;
        while let Some(cell) = cells.first() {
            let style = self.style_of(cell);
            let mut len = 1;
            if cell.char() == ' ' && cell.width() == 1 {
                let same = |other: &&Cell| {
                    other.char() == ' ' && other.width() == 1 && self.style_of(other) == style
                };
                // The wrap happens with the first character.
                if !is_first {
                    len = cells.iter().take_while(same).count();
                }
                let is_print = is_first || line.is_wrapped();
                self.blanks(len, style, is_print, len == cells.len());
            } else if cell.width() > 0 {
                self.set(style);
                self.out.push(shown(cell.char()));
            }
            is_first = false;
            cells = cells.get(len..).unwrap_or_default();
        }
    }

    /// Writes blanks of one style: as characters, or as erased cells.
    fn blanks(&mut self, len: usize, style: Style, is_print: bool, is_end: bool) {
        let is_default = style == Style::default();
        if !is_print && is_end {
            if !is_default {
                self.set(style);
                self.out.push_str("\x1b[K");
            }
        } else if is_print || (is_default && len < MIN_SKIPPED) {
            self.set(style);
            self.out.extend(std::iter::repeat_n(' ', len));
        } else {
            if !is_default {
                self.set(style);
                put(self.out, format_args!("\x1b[{len}X"));
            }
            put(self.out, format_args!("\x1b[{len}C"));
        }
    }

    fn style_of(&self, cell: &Cell) -> Style {
        let style = self.styles.original(cell.pen().into());
        if cell.char() == ' ' {
            style.erased()
        } else {
            style
        }
    }

    /// Sets the style of the following text.
    pub(super) fn set(&mut self, style: Style) {
        if self.style != style {
            style.write(self.out);
            self.style = style;
        }
    }
}

/// Number of cells at the end of a row that are as after a reset.
pub(super) fn blank_end(cells: &[Cell], styles: &Styles) -> usize {
    let is_blank = |cell: &&Cell| {
        let style = styles.original(cell.pen().into());
        cell.char() == ' ' && cell.width() == 1 && style.erased() == Style::default()
    };
    cells.iter().rev().take_while(is_blank).count()
}

/// Number of blanks from which a movement is shorter.
const MIN_SKIPPED: usize = 5;
