//! Attributes that a device reports about itself. They are shown to the user who approves, and
//! never trusted.

use serde::{Deserialize, Serialize};
use types::json::{self, Limits};

use super::error::{Code, OauthError};

/// One attribute, for example `os` with the value `linux`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceField {
    pub(super) key: String,
    pub(super) value: String,
    /// Label of a known key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) label: Option<String>,
}

impl SourceField {
    /// The label of the key, for users.
    pub(super) fn label(&self) -> &str {
        self.label.as_deref().unwrap_or(&self.key)
    }
}

/// Parses the JSON list of a form. All sizes are limited, because the input is untrusted and is
/// shown on an approval page.
pub(super) fn parse(text: &str) -> Result<Vec<SourceField>, OauthError> {
    let refused = |why: &str| Code::InvalidRequest.with_description(format!("source {why}"));
    let value = json::parse(text.as_bytes(), LIMITS).map_err(|_| refused("is not JSON"))?;
    let attributes: Vec<SourceField> = serde_json::from_value(value)
        .map_err(|_| refused("is not a list of objects with key, value and label"))?;
    if attributes.len() > MAX_ATTRIBUTES {
        return Err(refused("has too many members"));
    }
    let is_plain =
        |text: &str| text.chars().count() <= MAX_CHARACTERS && !has_unsafe_characters(text);
    let all_plain = |attribute: &SourceField| {
        let texts = [&attribute.key, &attribute.value]
            .into_iter()
            .chain(&attribute.label);
        !attribute.key.is_empty() && texts.into_iter().all(|text| is_plain(text))
    };
    if !attributes.iter().all(all_plain) {
        return Err(refused(
            "has a text that is too long or contains characters that cannot be displayed",
        ));
    }
    Ok(attributes)
}

/// True for control characters and for characters that change the direction of text. A device could
/// use them to change neighbouring lines of an approval page.
fn has_unsafe_characters(text: &str) -> bool {
    let turns = |character| matches!(character, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}');
    text.chars()
        .any(|character| character.is_control() || turns(character))
}

const LIMITS: Limits = Limits {
    bytes: 4096,
    depth: 3,
};
/// Agent, channel, version, system, architecture, host, and as many unknown attributes.
const MAX_ATTRIBUTES: usize = 12;
/// As long as a host name.
const MAX_CHARACTERS: usize = 253;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_attributes_are_parsed_within_limits() {
        let text = r#"[{"key":"os","value":"linux","label":"System"},{"key":"host","value":""}]"#;
        let read_back = parse(text).unwrap();
        assert_eq!(
            (read_back[0].label(), read_back[1].label()),
            ("System", "host")
        );
        assert!(parse("[]").unwrap().is_empty());
        let many = format!("[{}]", vec![r#"{"key":"a","value":"b"}"#; 13].join(","));
        let long = format!(r#"[{{"key":"a","value":"{}"}}]"#, "b".repeat(254));
        let huge = format!("[{}]", " ".repeat(5000));
        for bad in [
            "",
            "{}",
            "[1]",
            r#"[{"key":"a"}]"#,
            r#"[{"key":"","value":"b"}]"#,
            r#"[{"key":"a","value":1}]"#,
            r#"[{"key":"a","value":"b","more":1}]"#,
            r#"[{"key":"a","key":"a","value":"b"}]"#,
            r#"[{"key":"a","value":"\u0000"}]"#,
            r#"[{"key":"a","value":"b\nc"}]"#,
            r#"[{"key":"a","value":"\u202eb"}]"#,
            &many,
            &long,
            &huge,
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
