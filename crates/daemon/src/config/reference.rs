//! Documentation of a configuration file, generated from its JSON Schema, so that each key is
//! documented only at its field.

use std::fmt::Write as _;
use std::path::Path;

use serde_json::Value;

use crate::documents;

/// The documents of a configuration file, in one folder. A test of its crate checks each of them.
#[derive(Clone, Copy, Debug)]
pub struct Documents {
    /// The folder.
    pub folder: &'static str,
    /// The page with the reference.
    pub page: &'static str,
    /// The comment lines before and after the reference.
    pub markers: [&'static str; 2],
    /// The file of the JSON Schema.
    pub schema: &'static str,
}

impl Documents {
    /// Checks that the page has every key of `schema`.
    ///
    /// # Errors
    /// Those of [`documents::check_part`].
    pub fn check_page(&self, schema: &Value) -> Result<(), String> {
        let page = Path::new(self.folder).join(self.page);
        documents::check_part(&page, self.markers, &markdown(schema))
    }

    /// Checks that the file of the schema is `schema`.
    ///
    /// # Errors
    /// Those of [`documents::check_file`].
    pub fn check_schema(&self, schema: &Value) -> Result<(), String> {
        let file = Path::new(self.folder).join(self.schema);
        documents::check_file(&file, &format!("{schema:#}\n"))
    }
}

/// One heading for each section, one row for each key, in Markdown.
pub fn markdown(schema: &Value) -> String {
    let mut out = String::new();
    if has_plain_keys(schema) {
        out.push_str(HEAD);
    }
    each_key(schema, &mut |key, schema| {
        let text = schema["description"].as_str().unwrap_or_default();
        let text = text.replace('\n', " ");
        if is_section(schema) {
            // Writing to a string cannot fail.
            write!(out, "### `{key}`\n\n{text}\n\n").ok();
            if has_plain_keys(schema) {
                out.push_str(HEAD);
            }
            return;
        }
        let default = match &schema["default"] {
            Value::Null => "–".to_owned(),
            default => format!("`{}`", format_value(default)),
        };
        let example = match schema["examples"].get(0).unwrap_or(&schema["default"]) {
            Value::Null => "–".to_owned(),
            example => format!("`{}`", format_value(example)),
        };
        let kind = kind(schema);
        writeln!(out, "| `{key}` | {kind} | {default} | {text} | {example} |").ok();
    });
    // A blank line ends each table.
    out.replace("|\n###", "|\n\n###") + "\n"
}

/// Undocumented keys: without a description, or with neither a default nor an example.
pub fn undescribed(schema: &Value) -> Vec<String> {
    let mut keys = Vec::new();
    each_key(schema, &mut |key, schema| {
        let described = schema.get("default").is_some()
            || schema.get("examples").is_some()
            || is_section(schema);
        if !described || !schema["description"].is_string() {
            keys.push(key.to_owned());
        }
    });
    keys
}

fn each_key(schema: &Value, visit: &mut impl FnMut(&str, &Value)) {
    below(schema, "", visit);
}

fn below(schema: &Value, at: &str, visit: &mut impl FnMut(&str, &Value)) {
    // Plain keys come first, so that they are below the heading of their section.
    let (keys, sections): (Vec<_>, Vec<_>) =
        properties(schema).partition(|(_, schema)| !is_section(schema));
    for (name, schema) in keys.into_iter().chain(sections) {
        let list = if is_list_of_sections(schema) {
            "[]"
        } else if is_map_of_sections(schema) {
            ".<name>"
        } else {
            ""
        };
        let key = match at {
            "" => format!("{name}{list}"),
            at => format!("{at}.{name}{list}"),
        };
        visit(&key, schema);
        below(schema, &key, visit);
    }
}

/// The keys of a section, of an optional section, or of the sections in a list or a map.
fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let choices = schema["anyOf"].as_array().into_iter().flatten();
    std::iter::once(schema)
        .chain(choices)
        .chain([&schema["items"], &schema["additionalProperties"]])
        .filter_map(|schema| schema["properties"].as_object())
        .flatten()
}

/// The head of each table.
const HEAD: &str = "| key | kind | default | meaning | example |\n|---|---|---|---|---|\n";

fn has_plain_keys(schema: &Value) -> bool {
    properties(schema).any(|(_, schema)| !is_section(schema))
}

fn is_section(schema: &Value) -> bool {
    properties(schema).next().is_some()
}

fn is_list_of_sections(schema: &Value) -> bool {
    schema["items"].get("properties").is_some()
}

fn is_map_of_sections(schema: &Value) -> bool {
    schema["additionalProperties"].get("properties").is_some()
}

fn kind(schema: &Value) -> &'static str {
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds.first().and_then(Value::as_str),
        kind => kind.as_str(),
    };
    match kind {
        Some("boolean") => "boolean",
        Some("integer" | "number") => "number",
        Some("array") => "list",
        Some("object") => "map",
        _ => "text",
    }
}

fn format_value(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
