//! The environment, which overrides the file.

use super::node::{Entry, Node, Value};
use super::shape::Shape;
use super::{ConfigError, ConfigErrors, Origin, node};

/// Prefix of all variables.
const PREFIX: &str = "SVC_";
/// Separator between two levels. A variable without it is not part of the configuration: those
/// belong to the command line (`SVC_TOKEN`).
const SEPARATOR: &str = "__";

/// Sets each variable's key in `root`. Returns the errors of variables, which set nothing.
pub(super) fn overlay(
    root: &mut Node,
    shape: Shape<'_>,
    env: impl IntoIterator<Item = (String, String)>,
) -> ConfigErrors {
    let mut errors = ConfigErrors::default();
    let mut variables = env
        .into_iter()
        .filter_map(|(name, value)| {
            let path = name
                .strip_prefix(PREFIX)
                .filter(|path| path.contains(SEPARATOR))?;
            Some((path.to_ascii_lowercase(), name, value))
        })
        .collect::<Vec<_>>();
    // The order of an environment is arbitrary; sorting makes the errors deterministic.
    variables.sort();
    for (path, name, value) in variables {
        let origin = Origin::Environment(name);
        let parts = path.split(SEPARATOR).collect::<Vec<_>>();
        let with_key = |error| ConfigError {
            key: parts.join("."),
            origin: Some(origin.clone()),
            ..error
        };
        let target = parts
            .iter()
            .try_fold(shape, |shape, part| shape.property(part));
        let node = match target {
            // A secret may start with `#`, contain `: ` or be all digits, so a text is never
            // parsed.
            Some(shape) if !shape.is_text() => parse(&value),
            _ => Ok(Node {
                value: Value::Text(value),
                origin: None,
            }),
        };
        let is_set = node.and_then(|node| set(root, &parts, node.written_in(&origin), &origin));
        errors.keep(is_set.map_err(with_key));
    }
    errors
}

fn parse(value: &str) -> Result<Node, ConfigError> {
    if value.trim().is_empty() {
        return Ok(Node {
            value: Value::Null,
            origin: None,
        });
    }
    node::parse(value, &|_| None)
}

/// Sets `node` at the path `parts`, and creates missing sections.
fn set(root: &mut Node, parts: &[&str], node: Node, origin: &Origin) -> Result<(), ConfigError> {
    let Some((part, rest)) = parts.split_first() else {
        if let Some(Origin::Environment(other)) = &root.origin {
            return Err(ConfigError::new("", format!("{other} sets the same key")));
        }
        *root = node;
        return Ok(());
    };
    if matches!(root.value, Value::Null) {
        *root = Node::empty();
    }
    let Value::Section(entries) = &mut root.value else {
        return Err(ConfigError::new(
            "",
            "a part of this key has a value and is not a section",
        ));
    };
    let position = entries
        .iter()
        .position(|entry| entry.key == *part)
        .unwrap_or_else(|| {
            entries.push(Entry {
                key: (*part).to_owned(),
                origin: Some(origin.clone()),
                node: Node {
                    value: Value::Null,
                    origin: None,
                },
            });
            entries.len() - 1
        });
    match entries.get_mut(position) {
        Some(entry) => set(&mut entry.node, rest, node, origin),
        None => Ok(()),
    }
}
