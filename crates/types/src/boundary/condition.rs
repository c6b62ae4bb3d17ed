//! Conditions on single fields, and a conjunction of them.

use std::collections::{BTreeMap, BTreeSet};

use super::field::{Field, FieldValue, Subject};
use crate::pattern::Pattern;

/// Conditions on several fields, all of which must be met.
#[derive(Clone, Debug)]
pub(super) struct Fields(pub(super) Vec<(Field, Condition)>);

impl Fields {
    pub(super) fn are_met(&self, subject: Subject<'_>) -> bool {
        self.0
            .iter()
            .all(|(field, condition)| condition.holds(&field.read(subject)))
    }

    pub(super) fn first_that_fails(&self, subject: Subject<'_>) -> Option<Field> {
        let failing = self
            .0
            .iter()
            .find(|(field, condition)| !condition.holds(&field.read(subject)));
        failing.map(|(field, _)| *field)
    }
}

/// Condition on one field. The grammar gives a field only conditions of its kind.
#[derive(Clone, Debug)]
pub(super) enum Condition {
    /// Condition on texts and words.
    Text(TextCondition),
    /// One of these values.
    Flag(BTreeSet<bool>),
    /// One of these values.
    Number(BTreeSet<u16>),
    /// Exactly these entries, in any order.
    List(Vec<String>),
    /// These keys, each with a matching value.
    Map(BTreeMap<String, TextCondition>),
}

impl Condition {
    fn holds(&self, value: &FieldValue<'_>) -> bool {
        match (self, value) {
            (Self::Text(condition), FieldValue::Text(Some(text))) => condition.holds(text),
            (Self::Flag(allowed), FieldValue::Flag(flag)) => allowed.contains(flag),
            (Self::Number(allowed), FieldValue::Number(Some(number))) => allowed.contains(number),
            (Self::List(wanted), FieldValue::List(entries)) => {
                let wanted: BTreeSet<&str> = wanted.iter().map(String::as_str).collect();
                let entries: BTreeSet<&str> = entries.iter().map(AsRef::as_ref).collect();
                wanted == entries
            }
            (Self::Map(wanted), FieldValue::Map(labels)) => {
                wanted.iter().all(|(key, condition)| {
                    labels.get(key).is_some_and(|value| condition.holds(value))
                })
            }
            // An absent value, or a value of another kind, meets no condition.
            _ => false,
        }
    }
}

/// Condition on a text.
#[derive(Clone, Debug)]
pub(super) enum TextCondition {
    /// One of these texts; the exact form is a list of one.
    OneOf(Vec<String>),
    /// A match of this pattern.
    Matches(Pattern),
}

impl TextCondition {
    pub(super) fn holds(&self, text: &str) -> bool {
        match self {
            Self::OneOf(texts) => texts.iter().any(|allowed| allowed == text),
            Self::Matches(pattern) => pattern.matches(text),
        }
    }

    /// Returns the only matching text, if there is exactly one.
    pub(super) fn only(&self) -> Option<&str> {
        match self {
            Self::OneOf(texts) => match texts.as_slice() {
                [only] => Some(only),
                _ => None,
            },
            Self::Matches(_) => None,
        }
    }
}
