//! Layout of tables.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::plain;

/// The lines of a table, heading first. Each column is as wide as its widest cell. If the table is
/// wider than `max_width`, the widest columns shrink, and truncated cells end with an ellipsis.
pub(crate) fn fitted(
    heading: &[&str],
    rows: &[Vec<String>],
    max_width: Option<usize>,
) -> Vec<String> {
    let heading = heading.iter().map(|text| (*text).to_owned());
    let lines: Vec<Vec<String>> = std::iter::once(heading.collect())
        .chain(
            rows.iter()
                .map(|row| row.iter().map(|cell| plain(cell)).collect()),
        )
        .collect();
    let widths = widths(&lines, max_width.unwrap_or(usize::MAX));
    lines.iter().map(|cells| joined(cells, &widths)).collect()
}

fn widths(lines: &[Vec<String>], max_width: usize) -> Vec<usize> {
    let columns = lines.first().map_or(0, Vec::len);
    let widest = |column| {
        let cells = lines
            .iter()
            .filter_map(|cells: &Vec<String>| cells.get(column));
        cells.map(|cell: &String| cell.width()).max().unwrap_or(0)
    };
    let mut widths: Vec<usize> = (0..columns).map(widest).collect();
    let gaps = GAP * columns.saturating_sub(1);
    while widths.iter().sum::<usize>() + gaps > max_width {
        // Of equally wide columns the first one shrinks. Names stay recognisable by their start,
        // which other values may not.
        match widths.iter_mut().rev().max_by_key(|width| **width) {
            Some(width) if *width > MIN_WIDTH => *width -= 1,
            _ => break,
        }
    }
    widths
}

fn joined(cells: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (cell, width) in cells.iter().zip(widths) {
        let cell = truncate(cell, *width);
        let gap = width.saturating_sub(cell.width()) + GAP;
        line.push_str(&cell);
        line.extend(std::iter::repeat_n(' ', gap));
    }
    line.truncate(line.trim_end().len());
    line
}

/// Truncates a cell to the width.
fn truncate(cell: &str, max_width: usize) -> String {
    if cell.width() <= max_width {
        return cell.to_owned();
    }
    let mut room = max_width.saturating_sub(1);
    let fits = |c: &char| {
        let width = c.width().unwrap_or(0);
        let fits = width <= room;
        room = room.saturating_sub(width);
        fits
    };
    let mut begin: String = cell.chars().take_while(fits).collect();
    begin.push('…');
    begin
}

/// Spaces between columns.
const GAP: usize = 2;
/// Minimum width of a column. A narrower one would be unreadable.
const MIN_WIDTH: usize = 6;

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(rows: &[&[&str]]) -> Vec<Vec<String>> {
        let row = |row: &&[&str]| row.iter().map(|cell| (*cell).to_owned()).collect();
        rows.iter().map(row).collect()
    }

    #[test]
    fn columns_fit_their_widest_cell_and_cells_are_sanitised() {
        let rows = rows(&[&["staging", "pro"], &["a\u{1b}[2J", "basic"]]);
        assert_eq!(
            fitted(&["NAME", "PLAN"], &rows, None),
            ["NAME     PLAN", "staging  pro", "a\u{fffd}[2J    basic"]
        );
    }

    #[test]
    fn the_widest_column_shrinks_to_the_terminal() {
        let rows = rows(&[&["web", "https://web.t.engine.example:8443", "online"]]);
        let lines = fitted(&["NAME", "ADDRESS", "STATUS"], &rows, Some(30));
        assert_eq!(
            lines,
            [
                "NAME  ADDRESS           STATUS",
                "web   https://web.t.e…  online"
            ]
        );
        assert!(lines.iter().all(|line| line.width() <= 30));
        // The minimum width.
        assert_eq!(fitted(&["NAME"], &rows, Some(1)), ["NAME", "web"]);
    }

    #[test]
    fn wide_characters_count_two_columns() {
        let rows = rows(&[&["日本語日本語", "x"], &["ab", "y"]]);
        let lines = fitted(&["N", "M"], &rows, Some(11));
        assert_eq!(lines, ["N         M", "日本語…   x", "ab        y"]);
    }
}
