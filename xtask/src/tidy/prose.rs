//! The prose of a file: comments of code and of configurations, and the lines of documents.

use super::sources::has_extension;

/// Start of a comment, by the extensions of the files that use it.
const COMMENTS: &[(&[&str], &str)] = &[
    (&["rs", "mjs", "js", "ts", "go", "proto"], "//"),
    (&["toml", "yaml", "yml", "sh", "py", "service"], "#"),
];

/// The lines of prose, each with its number. A line of code is `None`, so that a reader of the
/// lines can recognise the start of a comment.
///
/// Comments behind code on the same line are not found.
pub(super) fn lines<'t>(path: &str, text: &'t str) -> Vec<(usize, Option<&'t str>)> {
    let numbered = (1..).zip(text.lines());
    if has_extension(path, &["md", "html"]) {
        return numbered
            .map(|(number, line)| (number, Some(line)))
            .collect();
    }
    // SQL migrations are excluded: their text is fixed by a checksum once they are released.
    let marks = COMMENTS
        .iter()
        .find(|(extensions, _)| has_extension(path, extensions));
    let Some((_, mark)) = marks else {
        return Vec::new();
    };
    let comment = |line: &'t str| {
        let line = line.trim_start();
        line.starts_with(mark)
            .then(|| line.trim_start_matches(['/', '!', '#']))
    };
    numbered
        .map(|(number, line)| (number, comment(line)))
        .collect()
}
