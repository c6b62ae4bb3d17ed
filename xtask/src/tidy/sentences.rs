//! Sentences of comments and documents that start with a question word.
//!
//! "What a visitor sends is counted" hides its subject; "The engine counts a visitor's bytes" has
//! one.

use std::collections::BTreeMap;

use super::prose;

pub(super) fn check(files: &BTreeMap<String, String>) -> Vec<String> {
    let mut complaints = Vec::new();
    for (path, text) in files {
        if !EXCLUDED.contains(&path.as_str()) {
            complaints.extend(check_file(path, text));
        }
    }
    complaints
}

fn check_file(path: &str, text: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    // The words of the previous line end a sentence, or there is no such line.
    let mut is_start = true;
    for (number, line) in prose::lines(path, text) {
        let Some(line) = line.map(str::trim).filter(|line| !line.is_empty()) else {
            is_start = true;
            continue;
        };
        let line = line.trim_start_matches(['-', '*', ' ']);
        let starts = line
            .match_indices(". ")
            .filter_map(|(at, end)| line.get(at + end.len()..));
        let first = is_start.then_some(line);
        for sentence in first.into_iter().chain(starts) {
            let word = sentence.split(' ').next().unwrap_or_default();
            if QUESTION_WORDS.contains(&word) {
                complaints.push(format!("{path}:{number}: a sentence starts with `{word}`"));
            }
        }
        is_start = line.ends_with(['.', ':', '|']) || line.starts_with('#');
    }
    complaints
}

const QUESTION_WORDS: &[&str] = &["What", "Who", "Where", "Whose", "Whether"];

/// Documents with texts from elsewhere: the rules of the specification, and past releases.
const EXCLUDED: &[&str] = &["docs/rules.md", "CHANGELOG.md"];

#[cfg(test)]
mod tests {
    use super::*;

    fn complaints(path: &str, text: &str) -> usize {
        check_file(path, text).len()
    }

    #[test]
    fn a_sentence_of_a_comment_starts_with_its_subject() {
        assert_eq!(
            complaints("a.rs", "/// What a visitor sends.\nfn a() {}"),
            1
        );
        assert_eq!(
            complaints("a.rs", "// The list. Where it is\n// What is in it."),
            1
        );
        assert_eq!(complaints("a.rs", "// It shows.\n// What is in it."), 1);
        assert_eq!(complaints("a.toml", "# What is shipped."), 1);
        assert_eq!(complaints("a.md", "- Who may do it."), 1);
    }

    #[test]
    fn other_sentences_and_code_are_not_searched() {
        assert_eq!(
            complaints("a.rs", "/// Bytes of a visitor, and\n/// What they cost."),
            0
        );
        assert_eq!(complaints("a.rs", "enum Question { What, Who }"), 0);
        assert_eq!(complaints("docs/a.md", "It states what is sent."), 0);
    }
}
