//! Data on stdout.

use std::io::{self, Write};

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

/// Rows under a heading, each column as wide as its widest cell.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
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
            text.push_str(cell);
            let gap = width.saturating_sub(cell.chars().count()) + 2;
            text.extend(std::iter::repeat_n(' ', gap));
        }
        line(text.trim_end())
    };
    write(&mut heading.iter().copied())?;
    rows.iter()
        .try_for_each(|row| write(&mut row.iter().map(String::as_str)))
}

/// A reader that has seen enough (`| head`) is no failure.
fn closed(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::new(Code::OutputClosed, "the reader of the output is gone")
    } else {
        Failure::of("the output cannot be written", error)
    }
}
