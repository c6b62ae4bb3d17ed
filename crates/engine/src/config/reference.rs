//! Keeps `docs/configuration.md` and `docs/engine.schema.json` true: both are made from the file's
//! type. `BLESS=1 cargo test -p engine config` writes them anew.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

const BEGIN: &str = "<!-- keys: made from crates/engine/src/config/file.rs -->\n";
const END: &str = "<!-- end of keys -->\n";

#[test]
fn the_reference_has_every_key() {
    let path = docs("configuration.md");
    let text = fs::read_to_string(&path).unwrap();
    let (before, rest) = text.split_once(BEGIN).unwrap();
    let (_, after) = rest.split_once(END).unwrap();
    let keys = keys();
    is_current(
        &path,
        &text,
        &format!("{before}{BEGIN}\n{keys}{END}{after}"),
    );
}

#[test]
fn the_committed_schema_is_current() {
    let path = docs("engine.schema.json");
    let text = fs::read_to_string(&path).unwrap_or_default();
    let schema = serde_json::to_string_pretty(&super::schema()).unwrap();
    is_current(&path, &text, &format!("{schema}\n"));
}

#[test]
fn every_key_is_described() {
    each_key(&super::schema(), "", &mut |key, schema| {
        assert!(
            schema["description"].is_string(),
            "{key} has no description"
        );
        let described = schema.get("default").is_some()
            || schema.get("examples").is_some()
            || is_section(schema);
        assert!(described, "{key} has neither a default nor an example");
    });
}

fn docs(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs")
        .join(name)
}

fn is_current(path: &Path, text: &str, expected: &str) {
    if std::env::var_os("BLESS").is_some() {
        fs::write(path, expected).unwrap();
    } else {
        assert!(
            text == expected,
            "{} is not current: BLESS=1 writes it",
            path.display()
        );
    }
}

/// One heading for each section, one row for each key.
fn keys() -> String {
    let mut out = String::new();
    each_key(&super::schema(), "", &mut |key, schema| {
        let text = schema["description"].as_str().unwrap().replace('\n', " ");
        if is_section(schema) {
            write!(out, "### `{key}`\n\n{text}\n\n").unwrap();
            if properties(schema).any(|(_, schema)| !is_section(schema)) {
                out.push_str(
                    "| key | kind | default | meaning | example |\n|---|---|---|---|---|\n",
                );
            }
            return;
        }
        let default = match &schema["default"] {
            Value::Null => "–".to_owned(),
            default => format!("`{}`", shown(default)),
        };
        let example = schema["examples"].get(0).unwrap_or(&schema["default"]);
        writeln!(
            out,
            "| `{key}` | {} | {default} | {text} | `{}` |",
            kind(schema),
            shown(example),
        )
        .unwrap();
    });
    // A blank line ends each table.
    out.replace("|\n###", "|\n\n###") + "\n"
}

fn each_key(schema: &Value, at: &str, visit: &mut impl FnMut(&str, &Value)) {
    for (name, schema) in properties(schema) {
        let key = if at.is_empty() {
            name.clone()
        } else {
            format!("{at}.{name}")
        };
        visit(&key, schema);
        each_key(schema, &key, visit);
    }
}

/// The keys of a section, or of the section that an optional one is.
fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    let choices = schema["anyOf"].as_array().into_iter().flatten();
    std::iter::once(schema)
        .chain(choices)
        .filter_map(|schema| schema["properties"].as_object())
        .flatten()
}

fn is_section(schema: &Value) -> bool {
    properties(schema).next().is_some()
}

fn kind(schema: &Value) -> &'static str {
    let kind = match &schema["type"] {
        Value::Array(kinds) => kinds[0].as_str(),
        kind => kind.as_str(),
    };
    match kind {
        Some("boolean") => "boolean",
        Some("integer") => "number",
        Some("array") => "list",
        _ => "text",
    }
}

fn shown(value: &Value) -> String {
    value
        .as_str()
        .map_or_else(|| value.to_string(), str::to_owned)
}
