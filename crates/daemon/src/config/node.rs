//! The untyped values of a configuration, each with its position.

use std::fmt;
use std::path::Path;

use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Number;
use serde_saphyr::{Location, Spanned};

use super::{ConfigError, Origin};

/// One value and its position; `None` for values that are not in the input, like implicit sections.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) value: Value,
    pub(super) origin: Option<Origin>,
}

/// The kinds of YAML that a configuration uses.
#[derive(Clone, Debug)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Node>),
    Section(Vec<Entry>),
}

/// A key of a section, with its own position.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) origin: Option<Origin>,
    pub(super) node: Node,
}

impl Node {
    /// An empty configuration.
    pub(super) fn empty() -> Self {
        Self {
            value: Value::Section(Vec::new()),
            origin: None,
        }
    }

    /// The value at a dotted key, including list positions. The keys of a map may contain dots.
    pub(super) fn find(&self, key: &str) -> Option<&Self> {
        match &self.value {
            Value::Section(entries) => entries
                .iter()
                .find_map(|entry| entry.node.after(key.strip_prefix(entry.key.as_str())?)),
            Value::List(items) => {
                let end = key.find('.').unwrap_or(key.len());
                let (index, rest) = key.split_at(end);
                items.get(index.parse::<usize>().ok()?)?.after(rest)
            }
            _ => None,
        }
    }

    /// The value at `rest`, which starts with a dot; this value if `rest` is empty.
    fn after(&self, rest: &str) -> Option<&Self> {
        match rest.strip_prefix('.') {
            Some(key) => self.find(key),
            None => rest.is_empty().then_some(self),
        }
    }

    /// Removes the value at a dotted key. Of a list, all items are removed, because the position of
    /// an item is a part of its key. Returns false if there is no value.
    pub(super) fn clear(&mut self, key: &str) -> bool {
        if let Value::Section(entries) = &mut self.value
            && !key.is_empty()
        {
            return entries.iter_mut().any(|entry| {
                let rest = key.strip_prefix(entry.key.as_str());
                let below = rest.and_then(|rest| match rest.strip_prefix('.') {
                    Some(below) => Some(below),
                    None => rest.is_empty().then_some(""),
                });
                below.is_some_and(|below| entry.node.clear(below))
            });
        }
        let is_present = !matches!(self.value, Value::Null);
        self.value = Value::Null;
        is_present
    }

    /// Position of the value at a dotted key, or of the section that should contain it.
    pub(super) fn nearest_origin(&self, key: &str) -> Option<Origin> {
        match (self.find(key), key.rsplit_once('.')) {
            (Some(node), _) => node.origin.clone(),
            (None, Some((section, _))) => self.nearest_origin(section),
            (None, None) => self.origin.clone(),
        }
    }

    /// The value without positions; keys without a value are left out.
    pub(super) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(value) => value.clone().into(),
            Value::Text(value) => value.as_str().into(),
            Value::List(items) => items.iter().map(Self::to_json).collect(),
            Value::Section(entries) => entries
                .iter()
                .filter(|entry| !matches!(entry.node.value, Value::Null))
                .map(|entry| (entry.key.clone(), entry.node.to_json()))
                .collect(),
        }
    }

    /// The same value with all positions set to `origin`.
    pub(super) fn written_in(self, origin: &Origin) -> Self {
        let value = match self.value {
            Value::List(items) => Value::List(
                items
                    .into_iter()
                    .map(|item| item.written_in(origin))
                    .collect(),
            ),
            Value::Section(entries) => Value::Section(
                entries
                    .into_iter()
                    .map(|entry| Entry {
                        node: entry.node.written_in(origin),
                        origin: Some(origin.clone()),
                        ..entry
                    })
                    .collect(),
            ),
            value => value,
        };
        Self {
            value,
            origin: Some(origin.clone()),
        }
    }
}

/// A larger file is not a configuration, which has a few KiB.
pub const MAX_FILE_BYTES: u64 = 1024 * 1024;

/// Reads a YAML file. An empty one is an empty section.
pub(super) fn read_file(path: &Path) -> Result<Node, ConfigError> {
    let name = path.display().to_string();
    let bytes = crate::files::read_bounded(path, MAX_FILE_BYTES)
        .map_err(|error| unreadable(&name, &error.to_string()))?;
    read(&name, &bytes)
}

/// Parses the bytes of a YAML file with this name.
pub(super) fn read(name: &str, bytes: &[u8]) -> Result<Node, ConfigError> {
    let text = str::from_utf8(bytes).map_err(|_| unreadable(name, "it is not UTF-8"))?;
    let origin_of = |at: &Location| {
        (*at != Location::UNKNOWN).then(|| Origin::File {
            path: name.to_owned(),
            line: at.line(),
            column: at.column(),
        })
    };
    let mut root = parse(text, &origin_of)?;
    if matches!(root.value, Value::Null) {
        root = Node::empty();
    }
    Ok(root)
}

fn unreadable(name: &str, problem: &str) -> ConfigError {
    ConfigError::new("", format!("{name} cannot be read: {problem}"))
}

/// Parses one YAML value; `place` converts a location in `text` to an origin.
pub(super) fn parse(
    text: &str,
    origin_of: &dyn Fn(&Location) -> Option<Origin>,
) -> Result<Node, ConfigError> {
    let options = serde_saphyr::options! {
        // `no` is also a country code, so it is not a boolean.
        strict_booleans: true,
        // The lines around an error may contain secrets.
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options::<Spanned<RawNode>>(text, options)
        .map(|raw| raw_node(raw, origin_of))
        .map_err(|error| ConfigError {
            origin: error.location().and_then(|at| origin_of(&at)),
            ..ConfigError::new("", format!("this is not valid YAML: {}", message(&error)))
        })
}

/// The parser's message without the position, which is in the origin. Messages that name the
/// parser's own settings are replaced.
fn message(error: &serde_saphyr::Error) -> String {
    let error = error.without_snippet();
    match error {
        serde_saphyr::Error::DuplicateMappingKey { key: Some(key), .. } => {
            return format!("the key {key} is written twice in one section");
        }
        serde_saphyr::Error::DuplicateMappingKey { key: None, .. } => {
            return "a key is written twice in one section".to_owned();
        }
        serde_saphyr::Error::MultipleDocuments { .. } => {
            return "the file has more than one document; remove `---`".to_owned();
        }
        _ => {}
    }
    let text = error.to_string();
    match text.split_once(" at line ") {
        Some((message, _)) => message.to_owned(),
        None => text,
    }
}

fn raw_node(raw: Spanned<RawNode>, origin_of: &dyn Fn(&Location) -> Option<Origin>) -> Node {
    let value = match raw.value {
        RawNode::Scalar(value) => value,
        RawNode::List(items) => Value::List(
            items
                .into_iter()
                .map(|item| raw_node(item, origin_of))
                .collect(),
        ),
        RawNode::Section(entries) => Value::Section(
            entries
                .into_iter()
                .map(|(key, value)| Entry {
                    origin: origin_of(&key.referenced),
                    key: key.value,
                    node: raw_node(value, origin_of),
                })
                .collect(),
        ),
    };
    Node {
        value,
        origin: origin_of(&raw.referenced),
    }
}

/// YAML of any kind with the parser's locations.
enum RawNode {
    Scalar(Value),
    List(Vec<Spanned<RawNode>>),
    Section(Vec<(Spanned<String>, Spanned<RawNode>)>),
}

impl<'de> Deserialize<'de> for RawNode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = RawNode;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<RawNode, E> {
        Ok(RawNode::Scalar(Value::Null))
    }

    fn visit_none<E>(self) -> Result<RawNode, E> {
        Ok(RawNode::Scalar(Value::Null))
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<RawNode, D::Error> {
        RawNode::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<RawNode, E> {
        Ok(RawNode::Scalar(Value::Bool(value)))
    }

    fn visit_i64<E>(self, value: i64) -> Result<RawNode, E> {
        Ok(RawNode::Scalar(Value::Number(value.into())))
    }

    fn visit_u64<E>(self, value: u64) -> Result<RawNode, E> {
        Ok(RawNode::Scalar(Value::Number(value.into())))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<RawNode, E> {
        Number::from_f64(value)
            .map(|value| RawNode::Scalar(Value::Number(value)))
            .ok_or_else(|| E::custom("a number must be finite"))
    }

    fn visit_str<E>(self, value: &str) -> Result<RawNode, E> {
        Ok(RawNode::Scalar(Value::Text(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<RawNode, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = seq.next_element()? {
            items.push(item);
        }
        Ok(RawNode::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawNode, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(RawNode::Section(entries))
    }
}
