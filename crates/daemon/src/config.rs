//! Configuration: a YAML file (JSON is YAML as well) and the environment, read into one type.
//!
//! The type is the only source. Its JSON Schema, which [`schema`] also provides for editors,
//! defines the keys and their types. An unknown key is refused by name, with the nearest known one,
//! and every error states the position of the value.
//!
//! - The environment overrides the file. Only variables with a double underscore count:
//!   `SVC_METRICS__PROMETHEUS__PATH` is `metrics.prometheus.path`. A text is used unchanged, other
//!   types are parsed as YAML (`true`, `30`, `[10.0.0.0/8]`).
//! - A key without a value (`http:`) counts as absent.
//! - Only `true` and `false` are booleans; a text that looks like a number needs quotes.

mod environment;
mod node;
pub mod reference;
mod secret;
mod shape;
mod state_dir;
pub mod values;
mod warning;

use std::fmt;
use std::path::Path;

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::de::DeserializeOwned;

pub use self::node::MAX_FILE_BYTES;
use self::node::Node;
pub use self::secret::SecretString;
use self::shape::Shape;
pub use self::state_dir::StateDir;
pub use self::warning::Warning;

/// Reads `file`, then the environment, into a `T`.
///
/// `env` is the whole environment of the process; other variables are ignored.
///
/// # Errors
/// The first error: a file that cannot be read, invalid YAML, an unknown key, a value of the wrong
/// type or out of its range.
pub fn load<T: DeserializeOwned + JsonSchema>(
    file: Option<&Path>,
    env: impl IntoIterator<Item = (String, String)>,
) -> Result<T, ConfigError> {
    load_checked(file, env, Ok)
}

/// [`load`], and then `check`, the conversion into checked values. An error of `check` with a key
/// gets the position of that key.
///
/// # Errors
/// As [`load`], and the errors of `check`.
pub fn load_checked<T: DeserializeOwned + JsonSchema, U>(
    file: Option<&Path>,
    env: impl IntoIterator<Item = (String, String)>,
    check: impl FnOnce(T) -> Result<U, ConfigError>,
) -> Result<U, ConfigError> {
    let schema = schema::<T>();
    let shape = Shape::new(&schema);
    let mut root = match file {
        Some(path) => node::read_file(path)?,
        None => Node::empty(),
    };
    environment::overlay(&mut root, shape, env)?;
    shape::check(&mut root, shape)?;
    serde_path_to_error::deserialize(root.to_json())
        .map_err(|error| ConfigError::new(error.path().to_string(), error.inner().to_string()))
        .and_then(check)
        .map_err(|mut error| {
            error.origin = error
                .origin
                .or_else(|| root.find(&error.key)?.origin.clone());
            error
        })
}

/// Reads a configuration from the bytes of a file, without the environment, and returns all of its
/// errors. It is for files that are checked before use, and read again while in use.
///
/// `name` is the name of the file in errors. An error of `check` gets the position of its key, or
/// of the section that lacks it.
///
/// # Errors
/// All unknown keys, wrong types and refusals of `check`, in the order of the file; or the position
/// of invalid YAML.
pub fn read_all<T: DeserializeOwned + JsonSchema, U>(
    name: &str,
    bytes: &[u8],
    check: impl FnOnce(T) -> Result<U, Vec<ConfigError>>,
) -> Result<U, Vec<ConfigError>> {
    let schema = schema::<T>();
    let mut root = node::read(name, bytes).map_err(|error| vec![error])?;
    let mut refused = shape::prune(&mut root, Shape::new(&schema));
    if matches!(root.value, node::Value::Null) {
        // The whole file has the wrong type, so no key can be checked.
        return Err(refused);
    }
    let checked = serde_path_to_error::deserialize(root.to_json())
        .map_err(|error| {
            vec![ConfigError::new(
                error.path().to_string(),
                error.inner().to_string(),
            )]
        })
        .and_then(check);
    match checked {
        Ok(checked) if refused.is_empty() => return Ok(checked),
        Ok(_) => {}
        Err(errors) => {
            // Keys that were removed because of an error, or that are misspelt, do not count as
            // missing.
            let is_reported = |key: &str| {
                let suggestion = shape::suggestion(key);
                let mut reported = refused.iter();
                reported.any(|error| error.key == key || error.message.ends_with(&suggestion))
            };
            let new: Vec<_> = errors
                .into_iter()
                .filter(|error| error.key.is_empty() || !is_reported(&error.key))
                .collect();
            refused.extend(new.into_iter().map(|mut error| {
                error.origin = error.origin.or_else(|| root.nearest_origin(&error.key));
                error
            }));
        }
    }
    refused.sort_by_key(|error| match &error.origin {
        Some(Origin::File { line, column, .. }) => (*line, *column),
        _ => (0, 0),
    });
    Err(refused)
}

/// The JSON Schema (2020-12) of a configuration, without references.
pub fn schema<T: JsonSchema>() -> serde_json::Value {
    SchemaSettings::draft2020_12()
        .with(|settings| settings.inline_subschemas = true)
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}

/// Error in a configuration: the key, its position, and a description.
///
/// `Display` is one line; it never repeats a value that could be a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The dotted key (`tls.listen_addr`, `auth.jwt.public_keys.0`); empty for the whole file.
    pub key: String,
    /// Description, as a sentence without its full stop.
    pub message: String,
    /// Position of the value; `None` for a default or a missing key.
    pub origin: Option<Origin>,
}

/// Position of a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// In the file; line and column count from 1.
    File {
        /// The path as it was given.
        path: String,
        /// The line.
        line: u64,
        /// The column, in characters.
        column: u64,
    },
    /// In an environment variable of this name.
    Environment(String),
}

impl ConfigError {
    /// Creates an error for a key; [`load_checked`] adds the position.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            message: message.into(),
            origin: None,
        }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", Line(&self.key))?;
        }
        Line(&self.message).fmt(f)
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => write!(f, "{}:{line}:{column}", Line(path)),
            Self::Environment(name) => Line(name).fmt(f),
        }
    }
}

/// A text for one line of a terminal, because keys and names can contain any characters.
struct Line<'a>(&'a str);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| {
            if character.is_control() {
                write!(f, "{}", character.escape_default())
            } else {
                write!(f, "{character}")
            }
        })
    }
}

#[cfg(test)]
mod tests;
