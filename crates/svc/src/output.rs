//! Output of data on stdout, and of messages on stderr.

mod format;
mod plain;
mod screen;
mod table;
mod time;

pub(crate) use self::{
    format::Format,
    plain::plain,
    screen::{Screen, width},
    table::format_table,
};

use std::io::{self, IsTerminal, Write};

use jiff::{Timestamp, tz::TimeZone};
use serde::Serialize;

use crate::failure::{Code, Failure};

/// Writes one line and flushes it.
pub(crate) fn line(text: &str) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .map_err(write_failure)
}

/// Writes one JSON value as one line.
pub(crate) fn json(value: &impl Serialize) -> Result<(), Failure> {
    let text = serde_json::to_string(value)
        .map_err(|error| Failure::from_error("the output cannot be written as JSON", error))?;
    line(&text)
}

/// Prints a message for the user to stderr.
#[expect(clippy::print_stderr, reason = "messages go to stderr")]
pub(crate) fn message(text: &str) {
    eprintln!("{text}");
}

/// Prints a table with a heading, fitted to the terminal's width, with short local times. When
/// piped, prints only the rows, untruncated and unchanged, with tabs between the cells.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> Result<(), Failure> {
    if !io::stdout().is_terminal() {
        return rows.iter().try_for_each(|row| line(&join_with_tabs(row)));
    }
    if rows.is_empty() {
        message("none found");
        return Ok(());
    }
    let (now, zone) = (Timestamp::now(), TimeZone::system());
    let short = |row: &Vec<String>| {
        row.iter()
            .map(|cell| time::moment(cell, now, &zone))
            .collect()
    };
    let rows: Vec<Vec<String>> = rows.iter().map(short).collect();
    table::format_table(heading, &rows, width())
        .iter()
        .try_for_each(|text| line(text))
}

/// Joins cells with tabs.
pub(crate) fn join_with_tabs(cells: &[String]) -> String {
    let cells: Vec<_> = cells.iter().map(|cell| plain(cell)).collect();
    cells.join("\t")
}

/// Prints the fields of one object, one per line. When piped, name and value are separated by a
/// tab.
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

/// True if stdout is a terminal.
pub(crate) fn is_terminal() -> bool {
    io::stdout().is_terminal()
}

/// Converts a write error. A reader that closed the pipe early (`| head`) is not an error.
pub(crate) fn write_failure(error: io::Error) -> Failure {
    if error.kind() == io::ErrorKind::BrokenPipe {
        Failure::new(Code::OutputClosed, "the reader closed the output")
    } else {
        Failure::from_error("the output cannot be written", error)
    }
}
