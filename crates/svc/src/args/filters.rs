//! Parses `--filter key=value` into filters of the Engine API.

use client::api::Filters;
use serde_json::{Map, Value};

use crate::args::suggest;

/// Parses one `key=value`. `labels.k=v` filters by a label, and `labels.k` by the existence of its
/// key.
pub(crate) fn parse(text: &str) -> Result<(String, Option<String>), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), Some(value.to_owned()))),
        None if text
            .strip_prefix("labels.")
            .is_some_and(|key| !key.is_empty()) =>
        {
            Ok((text.to_owned(), None))
        }
        _ => Err(format!("`{text}` is not key=value")),
    }
}

/// Combines the pairs. The engine validates the keys and reports invalid ones.
pub(crate) fn collect(pairs: &[(String, Option<String>)]) -> Filters {
    let mut filters = Filters::new();
    let mut labels = Map::new();
    for (key, value) in pairs {
        let value = value.clone().map_or(Value::Null, Value::String);
        match key.strip_prefix("labels.") {
            Some(label) => drop(labels.insert(label.to_owned(), value)),
            // These two keys are not text.
            None if matches!(key.as_str(), "publish" | "svc_auth") => {
                let flag = value.as_str().and_then(|text| text.parse().ok());
                drop(filters.insert(key.clone(), flag.map_or(value, Value::Bool)));
            }
            None => drop(filters.insert(key.clone(), value)),
        }
    }
    if !labels.is_empty() {
        filters.insert("labels".to_owned(), Value::Object(labels));
    }
    filters
}

/// A hint for a filter that the engine refused: the nearest key, or all of them.
pub(crate) fn hint(field: Option<&str>) -> Option<String> {
    let (_, key) = field?.rsplit_once('.')?;
    match suggest::nearest(key, KEYS.iter().copied()) {
        Some(known) if known == key => None,
        Some(known) => Some(format!("did you mean `{known}`?")),
        None => Some(format!("valid keys: {}", KEYS.join(", "))),
    }
}

/// Filter keys of clients and tunnels, in addition to `labels`.
const KEYS: [&str; 17] = [
    "agent",
    "arch",
    "channel",
    "client_id",
    "hostname",
    "http_version",
    "id",
    "name",
    "os",
    "protocol",
    "protocol_version",
    "publish",
    "status",
    "svc_auth",
    "type",
    "user_id",
    "version",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_converted_to_api_filters() {
        let pairs: Vec<_> = ["name=web", "publish=true", "labels.site=bern", "labels.old"]
            .iter()
            .map(|text| parse(text).unwrap())
            .collect();
        assert_eq!(
            Value::Object(collect(&pairs)).to_string(),
            r#"{"labels":{"old":null,"site":"bern"},"name":"web","publish":true}"#
        );
    }

    #[test]
    fn invalid_pairs_are_refused() {
        for text in ["", "name", "=x", "labels."] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
