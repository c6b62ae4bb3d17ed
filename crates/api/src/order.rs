//! Stable member order of the documents, independent of the map types of the libraries.

use serde_json::{Map, Value};

/// Sorts the members of every object by name. Extensions come from a hash map, and any crate of the
/// build can decide that `serde_json` keeps insertion order. Sorting makes the document identical
/// in every build.
pub(crate) fn sorted(value: Value) -> Value {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.into_iter().collect();
            members.sort_by(|(left, _), (right, _)| left.cmp(right));
            members
                .into_iter()
                .map(|(name, member)| (name, sorted(member)))
                .collect::<Map<_, _>>()
                .into()
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn members_are_sorted_at_every_depth_and_lists_are_not() {
        let value = sorted(json!({"x-b": 1, "a": [{"d": 1, "c": {"z": 0, "y": 0}}, 3, 2]}));
        assert_eq!(
            value.to_string(),
            r#"{"a":[{"c":{"y":0,"z":0},"d":1},3,2],"x-b":1}"#
        );
    }
}
