//! The vocabulary of the project: terms that `words.toml` replaces.
//!
//! Phrases are searched in comments, documents and pages; names in the identifiers of Rust code.
//! Literals in code are not searched: errors and wire formats are fixed by tests and by the
//! specification.

use std::collections::BTreeMap;
use std::str::FromStr as _;

use anyhow::{Context as _, Result, bail};
use proc_macro2::{TokenStream, TokenTree};
use toml_edit::DocumentMut;

use super::prose;
use super::sources::has_extension;

/// File of the vocabulary.
const FILE: &str = "words.toml";

pub(super) fn check(files: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let words = files
        .get(FILE)
        .with_context(|| format!("there is no {FILE}"))?;
    let words = Vocabulary::parse(words)?;
    let mut complaints = Vec::new();
    for (path, text) in files {
        if GENERATED.contains(&path.as_str()) {
            continue;
        }
        complaints.extend(words.check_text(path, text));
        if has_extension(path, &["rs"]) {
            complaints.extend(words.check_names(path, text)?);
        }
    }
    Ok(complaints)
}

/// Documents with texts from elsewhere: the rules of the specification, and past releases.
const GENERATED: &[&str] = &["docs/rules.md", "CHANGELOG.md"];

/// Terms that are not used, with the terms that replace them.
struct Vocabulary {
    phrases: Vec<Term>,
    names: Vec<Term>,
}

struct Term {
    /// In lower case, its words separated by spaces.
    avoid: String,
    instead: String,
}

impl Vocabulary {
    fn parse(text: &str) -> Result<Self> {
        let document = DocumentMut::from_str(text).context(FILE)?;
        let table = |name: &str| {
            let table = document.get(name).and_then(|item| item.as_table());
            let table = table.with_context(|| format!("{FILE} has no table `{name}`"))?;
            let terms = table.iter().map(|(avoid, instead)| {
                let Some(instead) = instead.as_str() else {
                    bail!("{FILE}: the replacement of `{avoid}` is not a string");
                };
                Ok(Term {
                    avoid: avoid.to_owned(),
                    instead: instead.to_owned(),
                })
            });
            terms.collect::<Result<Vec<_>>>()
        };
        Ok(Self {
            phrases: table("phrases")?,
            names: table("names")?,
        })
    }

    fn check_text(&self, path: &str, text: &str) -> Vec<String> {
        let terms = present(&self.phrases, text);
        if terms.is_empty() {
            return Vec::new();
        }
        let mut complaints = Vec::new();
        for (number, line) in prose::lines(path, text) {
            let Some(prose) = line else { continue };
            let words = split(prose, |letter| letter.is_alphanumeric() || letter == '\'');
            for term in terms.iter().filter(|term| contains(&words, &term.avoid)) {
                complaints.push(term.complaint(path, number));
            }
        }
        complaints
    }

    fn check_names(&self, path: &str, text: &str) -> Result<Vec<String>> {
        let terms = present(&self.names, text);
        if terms.is_empty() {
            return Ok(Vec::new());
        }
        let tokens = TokenStream::from_str(text)
            .map_err(|error| anyhow::anyhow!("cannot parse {path}: {error}"))?;
        let mut identifiers = Vec::new();
        collect(tokens, &mut identifiers);
        let mut complaints = Vec::new();
        for (line, identifier) in identifiers {
            let words = words_of(&identifier);
            for term in terms.iter().filter(|term| contains(&words, &term.avoid)) {
                complaints.push(term.complaint(path, line));
            }
        }
        complaints.dedup();
        Ok(complaints)
    }
}

impl Term {
    fn complaint(&self, path: &str, line: usize) -> String {
        format!("{path}:{line}: `{}`: use {}", self.avoid, self.instead)
    }
}

/// The terms whose words a file has at all. Most files have none, and are not split into words.
fn present<'t>(terms: &'t [Term], text: &str) -> Vec<&'t Term> {
    let text = text.to_lowercase();
    let has_all = |term: &&Term| term.avoid.split(' ').all(|word| text.contains(word));
    terms.iter().filter(has_all).collect()
}

/// The words of a text in lower case, between single spaces.
fn split(text: &str, is_part: impl Fn(char) -> bool) -> String {
    let mut words = String::from(" ");
    for letter in text.chars() {
        if is_part(letter) {
            words.extend(letter.to_lowercase());
        } else if !words.ends_with(' ') {
            words.push(' ');
        }
    }
    if !words.ends_with(' ') {
        words.push(' ');
    }
    words
}

/// The words of an identifier in snake or camel case.
fn words_of(identifier: &str) -> String {
    let mut spaced = String::new();
    for letter in identifier.chars() {
        if letter.is_uppercase() {
            spaced.push(' ');
        }
        spaced.push(letter);
    }
    // A constant is upper case throughout.
    let is_constant = !identifier.chars().any(char::is_lowercase);
    let text = if is_constant { identifier } else { &spaced };
    split(text, char::is_alphanumeric)
}

fn contains(words: &str, term: &str) -> bool {
    words.match_indices(term).any(|(at, _)| {
        words.get(..at).is_some_and(|before| before.ends_with(' '))
            && words
                .get(at + term.len()..)
                .is_some_and(|after| after.starts_with(' '))
    })
}

/// Identifiers with their lines.
fn collect(tokens: TokenStream, identifiers: &mut Vec<(usize, String)>) {
    for token in tokens {
        match token {
            TokenTree::Ident(ident) => {
                identifiers.push((ident.span().start().line, ident.to_string()));
            }
            TokenTree::Group(group) => collect(group.stream(), identifiers),
            TokenTree::Punct(_) | TokenTree::Literal(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: &str = "[phrases]\n\"under way\" = \"in progress\"\n\n\
                         [names]\n\"turn elsewhere\" = \"fail over\"\n";

    fn complaints(path: &str, text: &str) -> Vec<String> {
        let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
        check(&BTreeMap::from([file(FILE, WORDS), file(path, text)])).unwrap()
    }

    #[test]
    fn a_phrase_is_found_in_comments_and_documents() {
        let complaint = |path: &str| vec![format!("{path}:1: `under way`: use in progress")];
        assert_eq!(
            complaints("a.rs", "/// Visits under way."),
            complaint("a.rs")
        );
        assert_eq!(complaints("a.md", "Under  way"), complaint("a.md"));
        assert!(complaints("a.rs", "const A: &str = \"under way\";").is_empty());
        assert!(complaints("a.md", "thunder way").is_empty());
    }

    #[test]
    fn a_name_is_found_in_identifiers_of_any_case() {
        for code in [
            "fn turn_elsewhere() {}",
            "struct TurnElsewhere;",
            "const TURN_ELSEWHERE: u8 = 1;",
        ] {
            assert_eq!(
                complaints("a.rs", code),
                ["a.rs:1: `turn elsewhere`: use fail over"]
            );
        }
        assert!(complaints("a.rs", "fn turn() {}").is_empty());
    }

    #[test]
    fn a_replacement_that_is_no_string_is_an_error() {
        assert!(Vocabulary::parse("[phrases]\na = 1\n[names]\n").is_err());
        assert!(Vocabulary::parse("[phrases]\n").is_err());
    }
}
