//! Regular expressions of boundaries.

use std::fmt;

use regex::{Regex, RegexBuilder};
use regex_syntax::ast::{self, Ast, GroupKind, parse};

/// A regular expression with linear run time and limited size that is matched against a whole text.
///
/// It must match the whole text, unless it starts with `^`: then it is matched as written, from the
/// start (ED-7).
#[derive(Clone)]
pub struct Pattern(Regex);

impl Pattern {
    /// Compiles a pattern. Look-around, back-references and flags are not supported.
    pub fn parse(pattern: &str) -> Result<Self, BadPattern> {
        if pattern.is_empty() {
            return Err(BadPattern::Empty);
        }
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(BadPattern::TooLarge);
        }
        if has_flags(pattern) {
            return Err(BadPattern::Flags);
        }
        // The pattern is first compiled alone: `a)|(?:b` is invalid, but would be valid inside the
        // added brackets.
        compile(pattern)?;
        // `\A` is also added to a pattern with an anchor of its own, which may apply to one branch
        // only (`^/a|/b`).
        let anchored = if pattern.starts_with('^') {
            format!(r"\A(?:{pattern})")
        } else {
            format!(r"\A(?:{pattern})\z")
        };
        compile(&anchored).map(Self)
    }

    /// True if the text matches.
    pub fn matches(&self, text: &str) -> bool {
        self.0.is_match(text)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// Reason why a pattern is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadPattern {
    /// The pattern is empty.
    #[error("a pattern may not be empty")]
    Empty,
    /// Too long, or too large when compiled.
    #[error("the pattern is too large")]
    TooLarge,
    /// The pattern has flags (`(?i)`), which change its meaning.
    #[error("a pattern may not have flags such as (?i)")]
    Flags,
    /// The pattern is not valid in this dialect.
    #[error("not a supported pattern")]
    Unsupported,
}

/// True if the pattern contains flags. An unparsable pattern counts as having none, because it is
/// refused anyway.
fn has_flags(pattern: &str) -> bool {
    let mut parser = parse::ParserBuilder::new();
    let parsed = parser.nest_limit(MAX_NESTING).build().parse(pattern);
    parsed.is_ok_and(|ast| ast::visit(&ast, FindFlags).is_err())
}

/// Visitor that stops at the first flag.
struct FindFlags;

impl ast::Visitor for FindFlags {
    type Output = ();
    type Err = ();

    fn finish(self) -> Result<(), ()> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), ()> {
        match ast {
            Ast::Flags(_) => Err(()),
            Ast::Group(group) => match &group.kind {
                GroupKind::NonCapturing(flags) if !flags.items.is_empty() => Err(()),
                _ => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

fn compile(pattern: &str) -> Result<Regex, BadPattern> {
    RegexBuilder::new(pattern)
        .size_limit(MAX_COMPILED_BYTES)
        .dfa_size_limit(MAX_COMPILED_BYTES)
        .nest_limit(MAX_NESTING)
        .build()
        .map_err(|error| match error {
            regex::Error::CompiledTooBig(_) => BadPattern::TooLarge,
            _ => BadPattern::Unsupported,
        })
}

/// A limit of this size is enough for a boundary.
const MAX_PATTERN_BYTES: usize = 1024;
/// Enough for several Unicode classes; a cached token has up to
/// [`MAX_PATTERNS`](crate::boundary::MAX_PATTERNS) of these.
const MAX_COMPILED_BYTES: usize = 256 * 1024;
const MAX_NESTING: u32 = 32;

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, text: &str) -> bool {
        Pattern::parse(pattern).unwrap().matches(text)
    }

    /// ED-7: the whole path, or from the start if the pattern has the anchor.
    #[test]
    fn ed_7_a_pattern_is_anchored() {
        for (pattern, text, expected) in [
            ("/api", "/api", true),
            ("/api", "/api/x", false),
            ("/api", "/x/api", false),
            ("/api/.*", "/api/x/y", true),
            ("^/api", "/api/x", true),
            ("^/api", "/x/api", false),
            ("^/api$", "/api/x", false),
            ("/a|/b", "/b", true),
            ("/a|/b", "/a/x", false),
            ("/a|/b", "/x/b", false),
            // A branch without the anchor also matches only from the start.
            ("^/a|/b", "/b/x", true),
            ("^/a|/b", "/x/b", false),
            ("/(?:a|b)", "/b", true),
            ("/(?P<x>a)", "/a", true),
            (r"/\(\?i\)", "/(?i)", true),
            ("/[(?i)]", "/?", true),
            (r"/[\w.-]+/\d{1,20}", "/ab-c/7", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} on {text}");
        }
    }

    /// ED-7: an unusable pattern is an error here, and a refusal in a boundary.
    #[test]
    fn ed_7_unusable_patterns_are_refused() {
        assert_eq!(Pattern::parse("").unwrap_err(), BadPattern::Empty);
        for large in [
            "a".repeat(1025),
            "(a{1000}){1000}".to_owned(),
            r"\w{500}".to_owned(),
        ] {
            assert_eq!(Pattern::parse(&large).unwrap_err(), BadPattern::TooLarge);
        }
        for flags in [
            "(?i)/API",
            "(?m)^/a$",
            "/(?i:a)",
            "/a(?-u)",
            "(?x)a #",
            "a|(b(?s).)",
            "(?i)",
        ] {
            assert_eq!(
                Pattern::parse(flags).unwrap_err(),
                BadPattern::Flags,
                "{flags}"
            );
        }
        let deep = format!("{}{}", "(".repeat(200), ")".repeat(200));
        for bad in [
            "(?=a)",
            "(?<!a)b",
            r"(a)\1",
            "a)|(?:b",
            "[",
            "*",
            "(?y)a",
            deep.as_str(),
        ] {
            assert_eq!(
                Pattern::parse(bad).unwrap_err(),
                BadPattern::Unsupported,
                "{bad}"
            );
        }
    }
}
