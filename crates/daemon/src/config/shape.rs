//! The valid structure of a configuration, from the type's JSON Schema.

use serde_json::Value as Json;

use super::node::{Node, Value};
use super::{ConfigError, ConfigErrors};

/// The schema of one key. Only the features that our types use are supported: types, properties,
/// items, and alternatives for optional values. `serde` checks everything else (ranges, names of
/// variants).
#[derive(Clone, Copy)]
pub(super) struct Shape<'a>(&'a Json);

impl<'a> Shape<'a> {
    /// The shape of a whole schema.
    pub(super) fn new(schema: &'a Json) -> Self {
        Self(schema)
    }

    /// The shape of a key of this section, or of any key of this map.
    pub(super) fn property(self, key: &str) -> Option<Self> {
        self.alternatives()
            .find_map(|shape| Some(Self(shape.0.get("properties")?.get(key)?)))
            .or_else(|| self.values())
    }

    /// The shape of the values of a map, whose keys are arbitrary.
    fn values(self) -> Option<Self> {
        self.alternatives()
            .filter_map(|shape| shape.0.get("additionalProperties"))
            .find(|values| values.is_object())
            .map(Self)
    }

    /// True if only a text (or nothing) is valid here.
    pub(super) fn is_text(self) -> bool {
        let mut types = self.types().filter(|name| *name != "null").peekable();
        types.peek().is_some() && types.all(|name| name == "string")
    }

    fn properties(self) -> impl Iterator<Item = (&'a String, Self)> {
        self.alternatives()
            .filter_map(|shape| shape.0.get("properties")?.as_object())
            .flatten()
            .map(|(key, schema)| (key, Self(schema)))
    }

    fn items(self) -> Option<Self> {
        self.alternatives()
            .find_map(|shape| shape.0.get("items").map(Self))
    }

    /// True if keys beyond the properties are refused.
    fn is_closed(self) -> bool {
        self.alternatives()
            .any(|shape| shape.0.get("additionalProperties") == Some(&Json::Bool(false)))
    }

    /// This shape, or its alternatives.
    fn alternatives(self) -> impl Iterator<Item = Self> {
        let choices = ["anyOf", "oneOf"]
            .into_iter()
            .find_map(|word| self.0.get(word)?.as_array())
            .map_or(&[][..], Vec::as_slice);
        std::iter::once(self).chain(choices.iter().map(Self))
    }

    /// The valid JSON types; none if the schema does not restrict them.
    fn types(self) -> impl Iterator<Item = &'a str> {
        self.alternatives()
            .filter_map(|shape| shape.0.get("type"))
            .flat_map(|kind| match kind {
                Json::Array(types) => types.iter().filter_map(Json::as_str).collect::<Vec<_>>(),
                kind => kind.as_str().into_iter().collect(),
            })
    }
}

/// Refuses unknown keys and values of the wrong type, and adds all errors in the order of the file.
/// Refused list items and unknown keys are removed, and other refused values become null, so that
/// `serde` can check the other values. A message does not show the value, which may be a misplaced
/// secret; the message of `serde` would.
pub(super) fn prune(root: &mut Node, shape: Shape<'_>, errors: &mut ConfigErrors) {
    prune_at(root, shape, "", shape, errors);
}

fn prune_at(
    node: &mut Node,
    shape: Shape<'_>,
    at: &str,
    root: Shape<'_>,
    errors: &mut ConfigErrors,
) {
    let types = shape.types().collect::<Vec<_>>();
    let is_null = matches!(node.value, Value::Null);
    if !is_null && !types.is_empty() && !types.iter().any(|name| node.value.is_type(name)) {
        errors.push(ConfigError {
            origin: node.origin.clone(),
            ..ConfigError::new(at, mismatch(&types, &node.value))
        });
        node.value = Value::Null;
    }
    match &mut node.value {
        Value::List(items) => {
            let Some(shape) = shape.items() else {
                return;
            };
            let mut index = 0;
            items.retain_mut(|item| {
                let at = format!("{at}.{index}");
                index += 1;
                let before = errors.iter().count();
                if matches!(item.value, Value::Null) {
                    errors.push(ConfigError {
                        origin: item.origin.clone(),
                        ..ConfigError::new(at, "an item of a list needs a value")
                    });
                } else {
                    prune_at(item, shape, &at, root, errors);
                }
                before == errors.iter().count()
            });
        }
        Value::Section(entries) => entries.retain_mut(|entry| {
            let key = if at.is_empty() {
                entry.key.clone()
            } else {
                format!("{at}.{}", entry.key)
            };
            match shape.property(&entry.key) {
                Some(shape) => prune_at(&mut entry.node, shape, &key, root, errors),
                None if shape.is_closed() => {
                    let full_key = whole_key(key.clone(), &entry.node);
                    let message = unknown_key_message(&[&full_key, &key], root);
                    errors.push(ConfigError {
                        origin: entry.origin.clone(),
                        ..ConfigError::new(full_key, message)
                    });
                    return false;
                }
                None => {}
            }
            true
        }),
        _ => {}
    }
}

impl Value {
    /// True if this is a value of a JSON Schema type.
    fn is_type(&self, name: &str) -> bool {
        match self {
            Self::Null => name == "null",
            Self::Bool(_) => name == "boolean",
            Self::Number(number) => name == "number" || (name == "integer" && !number.is_f64()),
            Self::Text(_) => name == "string",
            Self::List(_) => name == "array",
            Self::Section(_) => name == "object",
        }
    }

    fn name(&self) -> &'static str {
        match self {
            Self::Null => "nothing",
            Self::Bool(_) => "true or false",
            Self::Number(_) => "a number",
            Self::Text(_) => "a text",
            Self::List(_) => "a list",
            Self::Section(_) => "a section",
        }
    }
}

fn mismatch(types: &[&str], found: &Value) -> String {
    let expected = types
        .iter()
        .filter_map(|kind| match *kind {
            "boolean" => Some("true or false"),
            "integer" => Some("a whole number"),
            "number" => Some("a number"),
            "string" => Some("a text"),
            "array" => Some("a list"),
            "object" => Some("a section"),
            _ => None,
        })
        .collect::<Vec<_>>()
        .join(" or ");
    let scalar = matches!(found, Value::Bool(_) | Value::Number(_));
    let hint = if scalar && types.contains(&"string") {
        "; put it in quotes"
    } else {
        ""
    };
    format!("expected {expected}, found {}{hint}", found.name())
}

/// Appends the nested keys to an unknown key, as long as each section has exactly one. An
/// environment variable with `__` in its name creates such sections.
fn whole_key(mut key: String, mut node: &Node) -> String {
    while let Value::Section(entries) = &node.value
        && let [entry] = entries.as_slice()
    {
        key = format!("{key}.{}", entry.key);
        node = &entry.node;
    }
    key
}

/// `written` is the key in one or more forms. The message names the known key that is nearest to
/// any of them; ties are decided by the first form.
fn unknown_key_message(written: &[&str], root: Shape<'_>) -> String {
    let mut known = Vec::new();
    for key in written {
        collect_keys(root, "", key, &mut known);
    }
    let found = known.iter().min_by_key(|candidate| {
        let distances = written.iter().map(|key| distance(key, candidate));
        distances.zip(0_usize..).min()
    });
    match found {
        Some(key) => format!("unknown key{}", suggestion(key)),
        None => "unknown key".to_owned(),
    }
}

/// The end of the message about an unknown key, which suggests this known key.
pub(super) fn suggestion(key: &str) -> String {
    format!("; the nearest known one is {key}")
}

/// Edit distance between the written and a known key. A correct name at another level of the same
/// section counts as one edit, because the level is easily forgotten.
fn distance(written: &str, known: &str) -> usize {
    let ends = |key: &str| {
        let section = key.split('.').next().map(str::to_owned);
        let name = key.rsplit('.').next().map(str::to_owned);
        (section, name)
    };
    if ends(written) == ends(known) {
        return 1;
    }
    strsim::damerau_levenshtein(written, known)
}

/// Every dotted key under `shape`, including sections. A map accepts any key, so its key is the
/// first part of `written`, which is the part of the written key below `at`.
fn collect_keys(shape: Shape<'_>, at: &str, written: &str, keys: &mut Vec<String>) {
    let below = |key: &str| match at {
        "" => key.to_owned(),
        at => format!("{at}.{key}"),
    };
    let (first, rest) = written.split_once('.').unwrap_or((written, ""));
    for (key, shape) in shape.properties() {
        let dotted = below(key);
        keys.push(dotted.clone());
        collect_keys(shape, &dotted, rest, keys);
    }
    if let Some(values) = shape.values().filter(|_| !first.is_empty()) {
        collect_keys(values, &below(first), rest, keys);
    }
}
