//! The rows of a screen as text with attributes.

use avt::{Cell, Line};

use super::filter::printable;
use super::put;
use super::style::{Style, Styles};

/// The rows of a screen, from its top.
pub(super) struct RowWriter<'o> {
    out: &'o mut String,
    styles: &'o Styles,
    style: Style,
    /// The terminal may scroll at the end of each row. The new row then has the current background.
    is_scrolling: bool,
}

impl<'o> RowWriter<'o> {
    /// Starts with the attributes of a reset terminal.
    pub(super) fn new(out: &'o mut String, styles: &'o Styles) -> Self {
        Self {
            out,
            styles,
            style: Style::default(),
            is_scrolling: false,
        }
    }

    /// The same for rows that scroll. Blanks between texts are characters: a window that is
    /// narrower than the row was wraps them, while a movement of the cursor stops at its edge.
    pub(super) fn scrolling(out: &'o mut String, styles: &'o Styles) -> Self {
        Self {
            is_scrolling: true,
            ..Self::new(out, styles)
        }
    }

    /// Writes the cells of a row. Cells that no program has written stay empty. `is_wrapped`: the
    /// next row continues this one. `continues`: the row is a continuation of the previous one, so
    /// the terminal has to wrap to it.
    pub(super) fn write(&mut self, mut cells: &[Cell], is_wrapped: bool, continues: bool) {
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
                let is_print = is_first || is_wrapped;
                self.blanks(len, style, is_print, len == cells.len());
            } else if cell.width() > 0 {
                self.set(style);
                self.out.push(printable(cell.char()));
            }
            if is_first && self.is_scrolling && self.style.background.is_some() {
                self.set(Style::default());
                self.out.push_str("\x1b[K");
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
        } else if is_print || self.is_scrolling || (is_default && len < MIN_SKIPPED) {
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

    /// Ends a line.
    pub(super) fn end_line(&mut self) {
        if self.is_scrolling {
            self.set(Style::default());
        }
        self.out.push_str("\r\n");
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

/// The cells of a wrapped row without a blank in its last column, if there is one: a terminal
/// leaves this column empty if the next character is wide, and a blank would become a part of the
/// text when the width changes.
pub(super) fn without_last_blank(line: &Line) -> Option<&[Cell]> {
    let (last, cells) = line.cells().split_last()?;
    let is_blank = last.char() == ' ' && last.width() == 1 && last.pen().is_default();
    (line.is_wrapped() && is_blank).then_some(cells)
}

/// True if the first character of a row is wide.
pub(super) fn starts_wide(line: &Line) -> bool {
    line.cells().first().is_some_and(|cell| cell.width() == 2)
}

/// Number of blanks from which a movement is shorter.
const MIN_SKIPPED: usize = 5;
