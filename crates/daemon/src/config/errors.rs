//! All mistakes of a configuration, collected while it is checked.

use std::fmt;

use super::{ConfigError, Origin};

/// Errors in a configuration. `Display` is one line.
///
/// A check adds the errors of each value and continues with the next one, so that an operator gets
/// all of them at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// Adds an error.
    pub fn push(&mut self, error: ConfigError) {
        self.0.push(error);
    }

    /// The value of a result. Its error is added, and the value is then `None`.
    pub fn keep<T>(&mut self, result: Result<T, impl Into<Self>>) -> Option<T> {
        let mut add = |errors: Self| self.0.extend(errors);
        result.map_err(|errors| add(errors.into())).ok()
    }

    /// The value of a result. Its error is added, and the value is then a placeholder, which is
    /// never used because [`Self::finish`] fails.
    pub fn keep_or_default<T: Default>(&mut self, result: Result<T, impl Into<Self>>) -> T {
        self.keep(result).unwrap_or_default()
    }

    /// The checked value, if there was no error. A value that is absent for an error is `None`.
    ///
    /// # Errors
    /// All errors that were added.
    pub fn finish<T>(self, value: Option<T>) -> Result<T, Self> {
        match value {
            Some(value) if self.0.is_empty() => Ok(value),
            _ => Err(self),
        }
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The errors in their order.
    pub fn iter(&self) -> impl Iterator<Item = &ConfigError> {
        self.0.iter()
    }

    /// Leaves out errors that may be consequences of others in the list. An error that depends on
    /// other keys itself is no reason to leave out another one, so at least one remains.
    pub(super) fn without_consequences(mut self) -> Self {
        let independent = self.iter().filter(|error| error.depends_on.is_empty());
        let wrong: Vec<String> = independent.map(|error| error.key.clone()).collect();
        let is_wrong = |key: &String| {
            wrong.iter().any(|wrong| {
                let below = wrong.strip_prefix(key.as_str());
                below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
            })
        };
        self.0
            .retain(|error| !error.depends_on.iter().any(is_wrong));
        self
    }

    /// Sorts by position. Errors outside of the file are first.
    pub(super) fn sort(&mut self) {
        self.0.sort_by_key(|error| match &error.origin {
            Some(Origin::File { line, column, .. }) => (*line, *column),
            _ => (0, 0),
        });
    }
}

impl IntoIterator for ConfigErrors {
    type Item = ConfigError;
    type IntoIter = std::vec::IntoIter<ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl From<Vec<ConfigError>> for ConfigErrors {
    fn from(errors: Vec<ConfigError>) -> Self {
        Self(errors)
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, error) in self.0.iter().enumerate() {
            if index > 0 {
                f.write_str("; ")?;
            }
            error.fmt(f)?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
