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
mod errors;
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
use serde_path_to_error::Segment;

pub use self::errors::ConfigErrors;
pub use self::node::MAX_FILE_BYTES;
use self::node::Node;
pub use self::secret::SecretString;
use self::shape::Shape;
pub use self::state_dir::StateDir;
pub use self::warning::Warning;

/// Reads `file`, then the environment, into a `T`, and then calls `check`, the conversion into
/// checked values.
///
/// `env` is the whole environment of the process; other variables are ignored.
///
/// # Errors
/// The file cannot be read or is not YAML, or all errors as of [`read_all`].
pub fn load<T: DeserializeOwned + JsonSchema, U>(
    file: Option<&Path>,
    env: impl IntoIterator<Item = (String, String)>,
    check: impl FnOnce(T) -> Result<U, ConfigErrors>,
) -> Result<U, ConfigErrors> {
    let schema = schema::<T>();
    let shape = Shape::new(&schema);
    let mut root = match file {
        Some(path) => node::read_file(path)?,
        None => Node::empty(),
    };
    let refused = environment::overlay(&mut root, shape, env);
    check_all(root, shape, refused, check)
}

/// Reads a configuration from the bytes of a file, without the environment. It is for files that
/// are read again while in use.
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
    check: impl FnOnce(T) -> Result<U, ConfigErrors>,
) -> Result<U, ConfigErrors> {
    let schema = schema::<T>();
    let root = node::read(name, bytes)?;
    check_all(root, Shape::new(&schema), ConfigErrors::default(), check)
}

/// Checks the structure and then the values. `refused` are the errors so far.
fn check_all<T: DeserializeOwned, U>(
    mut root: Node,
    shape: Shape<'_>,
    mut refused: ConfigErrors,
    check: impl FnOnce(T) -> Result<U, ConfigErrors>,
) -> Result<U, ConfigErrors> {
    shape::prune(&mut root, shape, &mut refused);
    if matches!(root.value, node::Value::Null) {
        // The whole file has the wrong type, so no key can be checked.
        return Err(refused);
    }
    let errors = match deserialize(&mut root, &mut refused).map(check) {
        Some(Ok(checked)) if refused.is_empty() => return Ok(checked),
        Some(Err(errors)) => errors,
        Some(Ok(_)) | None => ConfigErrors::default(),
    };
    // Keys that were removed because of an error, or that are misspelt, do not count as missing,
    // and neither do their sections.
    let is_reported = |key: &str| {
        let suggestion = shape::suggestion(key);
        let mut reported = refused.iter();
        reported.any(|error| {
            let below = error.key.strip_prefix(key);
            below.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
                || error.message.ends_with(&suggestion)
        })
    };
    let mut new: Vec<_> = errors
        .without_consequences()
        .into_iter()
        .filter(|error| error.key.is_empty() || !is_reported(&error.key))
        .filter(|error| !error.depends_on.iter().any(|key| is_reported(key)))
        .collect();
    for error in &mut new {
        let origin = error.origin.take();
        error.origin = origin.or_else(|| root.nearest_origin(&error.key));
    }
    for error in new {
        refused.push(error);
    }
    refused.sort();
    Err(refused)
}

/// Converts the values into a `T`. `serde` finds one error at a time, such as a number out of its
/// range. Each refused value is removed, so that the next one is found. `None` if the rest cannot
/// be converted either.
fn deserialize<T: DeserializeOwned>(root: &mut Node, refused: &mut ConfigErrors) -> Option<T> {
    for _ in 0..MAX_VALUE_ERRORS {
        let error = match serde_path_to_error::deserialize(root.to_json()) {
            Ok(value) => return Some(value),
            Err(error) => error,
        };
        let (key, message) = (dotted(error.path()), error.inner().to_string());
        refused.push(ConfigError {
            origin: root.nearest_origin(&key),
            ..ConfigError::new(key.clone(), message)
        });
        if key.is_empty() || !root.clear(&key) {
            break;
        }
    }
    None
}

/// The path of a value in the form of a key: `engines.0.domain`. The `Display` of a path has
/// another form for items of lists, `engines[0].domain`, which no position belongs to.
fn dotted(path: &serde_path_to_error::Path) -> String {
    let segments: Vec<_> = path
        .iter()
        .map(|segment| match segment {
            Segment::Seq { index } => index.to_string(),
            Segment::Map { key } | Segment::Enum { variant: key } => key.clone(),
            Segment::Unknown => "?".to_owned(),
        })
        .collect();
    segments.join(".")
}

/// Each of these errors costs a conversion of the whole configuration. More of them do not help an
/// operator.
const MAX_VALUE_ERRORS: usize = 50;

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
    /// Other keys whose values are a reason for this error. If one of them has an error of its own,
    /// this error is not reported, because it may be a consequence.
    pub depends_on: Vec<String>,
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
    /// Creates an error for a key; [`load`] adds the position.
    pub fn new(key: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            key: key.into(),
            message: message.into(),
            origin: None,
            depends_on: Vec::new(),
        }
    }

    /// The same error, of which the value of another key is a reason.
    #[must_use]
    pub fn depending_on(mut self, key: impl Into<String>) -> Self {
        self.depends_on.push(key.into());
        self
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(origin) = &self.origin {
            write!(f, "{origin}: ")?;
        }
        if !self.key.is_empty() {
            write!(f, "{}: ", SingleLine(&self.key))?;
        }
        SingleLine(&self.message).fmt(f)
    }
}

impl std::error::Error for ConfigError {}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, line, column } => write!(f, "{}:{line}:{column}", SingleLine(path)),
            Self::Environment(name) => SingleLine(name).fmt(f),
        }
    }
}

/// A text for one line of a terminal, because keys and names can contain any characters.
struct SingleLine<'a>(&'a str);

impl fmt::Display for SingleLine<'_> {
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
