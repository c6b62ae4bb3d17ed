//! Documents that are generated from the code, in part or as a whole. Tests check that they are
//! current, and write them instead if `BLESS` is in the environment.

use std::fmt::Display;
use std::fs;
use std::path::Path;

/// Checks the part of `file` between the lines `begin` and `end`, or writes it.
///
/// # Errors
/// A sentence: there is no such part, it is not current, or the file cannot be read or written.
pub fn check_part(file: &Path, [begin, end]: [&str; 2], content: &str) -> Result<(), String> {
    let text = fs::read_to_string(file).map_err(|error| sentence(file, error))?;
    let around = text.split_once(begin).and_then(|(before, rest)| {
        let (_, after) = rest.split_once(end)?;
        Some((before, after))
    });
    let (before, after) = around.ok_or_else(|| sentence(file, format!("has no part {begin}")))?;
    check(
        file,
        &text,
        &format!("{before}{begin}\n{content}{end}{after}"),
    )
}

/// Checks the content of `file`, or writes it.
///
/// # Errors
/// A sentence: the file is not current, or cannot be written.
pub fn check_file(file: &Path, content: &str) -> Result<(), String> {
    // A missing file is also written.
    let text = fs::read_to_string(file).unwrap_or_default();
    check(file, &text, content)
}

fn check(file: &Path, text: &str, expected: &str) -> Result<(), String> {
    if std::env::var_os("BLESS").is_some() {
        return fs::write(file, expected).map_err(|error| sentence(file, error));
    }
    if text != expected {
        return Err(sentence(file, "is not current: BLESS=1 writes it"));
    }
    Ok(())
}

fn sentence(file: &Path, problem: impl Display) -> String {
    format!("{} {problem}", file.display())
}
