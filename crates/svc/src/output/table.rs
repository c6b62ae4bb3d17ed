//! Layout of tables.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::plain;

/// The lines of a table, heading first. Each column is as wide as its widest cell. If the table is
/// wider than `max_width`, the widest columns shrink, and truncated cells end with an ellipsis.
/// Then columns are left out from the right.
///
/// Addresses and ids are copied to other commands, so their columns never shrink.
pub(crate) fn format_table(
    heading: &[&str],
    rows: &[Vec<String>],
    max_width: Option<usize>,
) -> Vec<String> {
    let names = heading.iter().map(|text| (*text).to_owned());
    let lines: Vec<Vec<String>> = std::iter::once(names.collect())
        .chain(
            rows.iter()
                .map(|row| row.iter().map(|cell| plain(cell)).collect()),
        )
        .collect();
    let columns = columns(heading, &lines, max_width.unwrap_or(usize::MAX));
    lines.iter().map(|cells| joined(cells, &columns)).collect()
}

/// A column that is shown.
struct Column {
    index: usize,
    width: usize,
    min_width: usize,
}

fn columns(heading: &[&str], lines: &[Vec<String>], max_width: usize) -> Vec<Column> {
    let widest = |index| {
        let cells = lines
            .iter()
            .filter_map(|cells: &Vec<String>| cells.get(index));
        cells.map(|cell: &String| cell.width()).max().unwrap_or(0)
    };
    let column = |(index, name): (usize, &&str)| {
        let width = widest(index);
        let min_width = if WHOLE.contains(name) {
            width
        } else {
            width.min(MIN_WIDTH)
        };
        Column {
            index,
            width,
            min_width,
        }
    };
    let mut columns: Vec<Column> = heading.iter().enumerate().map(column).collect();
    let gaps = |columns: &[Column]| GAP * columns.len().saturating_sub(1);
    // Columns that do not fit at their minimum are left out. Those that can shrink contain less.
    loop {
        let least: usize = columns.iter().map(|column| column.min_width).sum();
        if least + gaps(&columns) <= max_width || columns.len() == 1 {
            break;
        }
        let is_whole = |column: &Column| {
            let name = heading.get(column.index);
            name.is_some_and(|name| WHOLE.contains(name))
        };
        // The first column is usually the name.
        let last = (1..columns.len())
            .rev()
            .find(|index| columns.get(*index).is_some_and(|column| !is_whole(column)));
        let last = last.unwrap_or(columns.len() - 1);
        // An address is more useful than a name, if only one of them fits.
        let first_is_name = columns.len() == 2 && columns.iter().any(is_whole);
        columns.remove(match columns.iter().position(|column| !is_whole(column)) {
            Some(name) if first_is_name => name,
            _ => last,
        });
    }
    while columns.iter().map(|column| column.width).sum::<usize>() + gaps(&columns) > max_width {
        // Of equally wide columns the first one shrinks. Names stay recognisable by their start,
        // which other values may not.
        let widest = columns.iter_mut().rev();
        let can_shrink = widest.filter(|column| column.width > column.min_width);
        match can_shrink.max_by_key(|column| column.width) {
            Some(column) => column.width -= 1,
            // One column is left.
            None => break,
        }
    }
    columns
}

fn joined(cells: &[String], columns: &[Column]) -> String {
    let mut line = String::new();
    for Column { index, width, .. } in columns {
        let cell = cells.get(*index).map_or("", String::as_str);
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
/// Minimum width of a column that can shrink. A narrower one would be unreadable.
const MIN_WIDTH: usize = 6;
/// Columns whose cells are copied to other commands or to a browser.
const WHOLE: [&str; 6] = ["ADDRESS", "ID", "URL", "ENDPOINT", "DOMAIN", "KEY"];

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
            format_table(&["NAME", "PLAN"], &rows, None),
            ["NAME     PLAN", "staging  pro", "a\u{fffd}[2J    basic"]
        );
    }

    #[test]
    fn the_widest_column_shrinks_to_the_terminal() {
        let rows = rows(&[&["web", "a service of the development team", "online"]]);
        let lines = format_table(&["NAME", "ABOUT", "STATUS"], &rows, Some(30));
        assert_eq!(
            lines,
            [
                "NAME  ABOUT             STATUS",
                "web   a service of th…  online"
            ]
        );
        assert!(lines.iter().all(|line| line.width() <= 30));
        // The minimum width.
        assert_eq!(format_table(&["NAME"], &rows, Some(1)), ["NAME", "web"]);
    }

    /// Columns are left out before an address or an id is truncated.
    #[test]
    fn addresses_and_ids_are_never_truncated() {
        let heading = ["NAME", "PROTOCOL", "ADDRESS", "STATUS", "ID"];
        let (address, id) = ("https://web.t.engine.example:8443", "tun_0af7651916cd43dd");
        let rows = rows(&[&["a-long-name", "http", address, "online", id]]);
        let shown = |width| format_table(&heading, &rows, Some(width));
        for (width, columns) in [
            (120, "NAME PROTOCOL ADDRESS STATUS ID"),
            (84, "NAME PROTOCOL ADDRESS STATUS ID"),
            (70, "NAME ADDRESS ID"),
            (63, "NAME ADDRESS ID"),
            (50, "NAME ADDRESS"),
            (41, "NAME ADDRESS"),
            (40, "ADDRESS"),
            (20, "ADDRESS"),
        ] {
            let lines = shown(width);
            let names: Vec<_> = lines[0].split_whitespace().collect();
            assert_eq!(names.join(" "), columns, "{width}");
            assert!(lines[1].contains(address), "{width}: {lines:?}");
            assert_eq!(lines[1].contains(id), columns.contains("ID"), "{lines:?}");
            let fits = lines.iter().all(|line| line.width() <= width);
            assert!(fits || width < address.len(), "{width}: {lines:?}");
        }
    }

    #[test]
    fn wide_characters_count_two_columns() {
        let rows = rows(&[&["日本語日本語", "x"], &["ab", "y"]]);
        let lines = format_table(&["N", "M"], &rows, Some(11));
        assert_eq!(lines, ["N         M", "日本語…   x", "ab        y"]);
    }
}
