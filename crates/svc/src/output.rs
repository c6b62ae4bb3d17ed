//! Data on stdout.

use std::io::{self, IsTerminal, Write};

use serde::Serialize;

use crate::failure::{Code, Failure};

/// Writes one line and hands it to the reader at once.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(closed)
}

/// Writes one JSON value as one line.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::of("the output cannot be written as JSON", error))?;
    line(&text)
}

/// Tells the person at the terminal something that is no data.
#[expect(clippy::print_stderr, reason = "messages go to stderr")]
pub(crate) fn message(text: &str) {
    eprintln!("{text}");
}

/// Rows under a heading, each column as wide as its widest cell; on a pipe, the rows alone with
/// tabs between their cells.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return rows.iter().try_for_each(|row| {
            line(
                &row.iter()
                    .map(|cell| plain(cell))
                    .collect::<Vec<_>>()
                    .join("\t"),
            )
        });
    }
    if rows.is_empty() {
        message("there are none");
        return Ok(());
    }
    aligned(heading, rows)
        .iter()
        .try_for_each(|text| line(text))
}

/// The fields of one thing, a line each; on a pipe with a tab between name and value.
pub(crate) fn record(fields: &[(&str, String)]) -> Result<(), Failure> {
    let is_terminal = io::stdout().is_terminal();
    let width = fields.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    fields.iter().try_for_each(|(name, value)| {
        let value = plain(value);
        if is_terminal {
            line(format!("{name:width$}  {value}").trim_end())
        } else {
            line(&format!("{name}\t{value}"))
        }
    })
}

fn aligned(heading: &[&str], rows: &[Vec<String>]) -> Vec<String> {
    let width = |column: usize| {
        let cells = rows
            .iter()
            .filter_map(|row| row.get(column))
            .map(|cell| cell.chars().count());
        cells
            .chain(heading.get(column).map(|text| text.len()))
            .max()
            .unwrap_or(0)
    };
    let widths: Vec<usize> = (0..heading.len()).map(width).collect();
    let write = |cells: &mut dyn Iterator<Item = &str>| {
        let mut text = String::new();
        for (cell, width) in cells.zip(&widths) {
            let cell = plain(cell);
            let gap = width.saturating_sub(cell.chars().count()) + 2;
            text.push_str(&cell);
            text.extend(std::iter::repeat_n(' ', gap));
        }
        text.trim_end().to_owned()
    };
    let heading = write(&mut heading.iter().copied());
    std::iter::once(heading)
        .chain(
            rows.iter()
                .map(|row| write(&mut row.iter().map(String::as_str))),
        )
        .collect()
}

/// What others named cannot move the cursor or break a line.
pub(crate) fn plain(cell: &str) -> String {
    let shown = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    cell.chars().map(shown).collect()
}

/// A reader that has seen enough (`| head`) is no failure.
fn closed(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::new(Code::OutputClosed, "the reader of the output is gone")
    } else {
        Failure::of("the output cannot be written", error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_nobody_moves_the_cursor() {
        let rows = [
            vec!["staging".to_owned(), "pro".to_owned()],
            vec!["a\u{1b}[2J".to_owned(), "basic".to_owned()],
        ];
        let lines = aligned(&["NAME", "PLAN"], &rows);
        assert_eq!(
            lines,
            ["NAME     PLAN", "staging  pro", "a\u{fffd}[2J    basic"]
        );
    }
}
