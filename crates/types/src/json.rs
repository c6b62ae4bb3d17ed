//! A strict JSON parser that refuses input which common parsers accept.
//!
//! The text is RFC 8259. In addition, duplicate members are an error: section 4 leaves their
//! meaning open, and an attacker can exploit two parsers that choose differently. Depth and size
//! are limited, and the error names the invalid member. Numbers keep the form in which they were
//! written: only an integer literal becomes an integer in [`Value`], `60.0` and `1e3` do not.

use std::cell::RefCell;
use std::fmt;

use serde::de::{DeserializeOwned, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_path_to_error::Segment;

/// Limits of a document.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Size of the text in bytes.
    pub bytes: usize,
    /// Maximum nesting of arrays and objects; the outermost counts as one.
    pub depth: usize,
}

/// An error in a document, with its position.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct JsonError {
    /// Dotted path of the invalid member; empty for the whole document.
    pub field: String,
    /// Description of the error. It repeats nothing of the document.
    pub message: String,
    /// Line of the error, from one.
    pub line: usize,
    /// Column of the error in bytes, from one; zero if the position is unknown.
    pub column: usize,
}

/// Parses a document. Refuses duplicate members, invalid UTF-8, broken escapes, excessive depth and
/// size, and trailing text.
pub fn parse(text: &[u8], limits: Limits) -> Result<Value, JsonError> {
    if text.len() > limits.bytes {
        let message = format!("more than {} bytes", limits.bytes);
        return Err(JsonError {
            field: String::new(),
            message,
            line: 1,
            column: 0,
        });
    }
    let place = RefCell::new(Position::default());
    let mut reader = serde_json::Deserializer::from_slice(text);
    let strict = StrictSeed {
        place: &place,
        depth_left: limits.depth,
    };
    let read = strict
        .deserialize(&mut reader)
        .and_then(|value| reader.end().map(|()| value));
    read.map_err(|error| {
        let place = place.take();
        JsonError {
            field: place.path.join("."),
            message: place.refusal.unwrap_or("not well-formed JSON").to_owned(),
            line: error.line(),
            column: error.column(),
        }
    })
}

/// Converts a value into a type. The error names the invalid or missing member.
///
/// # Errors
/// The value has another shape; line and column are unknown.
pub fn typed<T: DeserializeOwned>(value: Value) -> Result<T, JsonError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let message = error.inner().to_string();
        let mut path: Vec<String> = error.path().iter().filter_map(segment).collect();
        path.extend(missing(&message).map(str::to_owned));
        JsonError {
            field: path.join("."),
            message,
            line: 1,
            column: 0,
        }
    })
}

/// Returns one segment of a dotted path: `trustedIps.0`.
fn segment(segment: &Segment) -> Option<String> {
    match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { .. } | Segment::Unknown => None,
    }
}

/// Returns the member that serde reports as missing. Its error contains the name only in the text.
fn missing(message: &str) -> Option<&str> {
    let (name, _) = message.strip_prefix("missing field `")?.split_once('`')?;
    Some(name)
}

/// Position of the parser. A member is removed from the path once it has been parsed, so after an
/// error the path names the invalid member.
#[derive(Default)]
struct Position {
    path: Vec<String>,
    refusal: Option<&'static str>,
}

#[derive(Clone, Copy)]
struct StrictSeed<'a> {
    place: &'a RefCell<Position>,
    depth_left: usize,
}

impl StrictSeed<'_> {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        match self.depth_left.checked_sub(1) {
            Some(depth_left) => Ok(Self { depth_left, ..self }),
            None => Err(self.refuse("nested too deeply")),
        }
    }

    fn refuse<E: serde::de::Error>(self, why: &'static str) -> E {
        self.place.borrow_mut().refusal = Some(why);
        E::custom(why)
    }

    fn enter(self, member: String) {
        self.place.borrow_mut().path.push(member);
    }

    fn leave(self) {
        self.place.borrow_mut().path.pop();
    }
}

impl<'de> DeserializeSeed<'de> for StrictSeed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictSeed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Number(value.into()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Value, E> {
        Number::from_f64(value)
            .map(Value::Number)
            .ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::String(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::String(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut array = Vec::new();
        loop {
            self.enter(array.len().to_string());
            let element = elements.next_element_seed(inner)?;
            self.leave();
            match element {
                Some(element) => array.push(element),
                None => return Ok(Value::Array(array)),
            }
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut object = Map::new();
        while let Some(name) = members.next_key::<String>()? {
            self.enter(name.clone());
            if object.contains_key(&name) {
                return Err(self.refuse("a member is repeated"));
            }
            let member = members.next_value_seed(inner)?;
            self.leave();
            object.insert(name, member);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const LIMITS: Limits = Limits {
        bytes: 1024,
        depth: 3,
    };

    fn refusal(text: &str) -> (String, String) {
        let error = parse(text.as_bytes(), LIMITS).unwrap_err();
        (error.field, error.message)
    }

    #[test]
    fn a_valid_document_is_parsed() {
        let text = br#" {"a":[1,-2,"x",null,true],"b":{"c":1.5}} "#;
        assert_eq!(
            parse(text, LIMITS).unwrap(),
            json!({"a": [1, -2, "x", null, true], "b": {"c": 1.5}})
        );
    }

    #[test]
    fn the_invalid_or_missing_member_is_named() {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Outer {
            #[expect(dead_code, reason = "read by serde alone")]
            inner: Vec<Inner>,
        }
        #[derive(serde::Deserialize)]
        struct Inner {
            #[expect(dead_code, reason = "read by serde alone")]
            name: String,
        }
        for (value, field) in [
            (json!({}), "inner"),
            (json!({"inner": [{"name": "a"}, {}]}), "inner.1.name"),
            (json!({"inner": [{"name": 1}]}), "inner.0.name"),
            (json!({"inner": [], "other": 1}), "other"),
        ] {
            let error = typed::<Outer>(value).map(drop).unwrap_err();
            assert_eq!(error.field, field, "{error}");
        }
    }

    #[test]
    fn only_an_integer_literal_is_an_integer() {
        for (text, integer) in [
            ("60", true),
            ("0", true),
            ("-1", true),
            ("60.0", false),
            ("1e3", false),
            ("-0", false),
            ("1E2", false),
        ] {
            let value = parse(text.as_bytes(), LIMITS).unwrap();
            assert_eq!(value.is_i64() || value.is_u64(), integer, "{text}");
        }
    }

    #[test]
    fn duplicate_members_are_named() {
        assert_eq!(
            refusal(r#"{"a":{"b":1,"b":1}}"#),
            ("a.b".to_owned(), "a member is repeated".to_owned())
        );
        // The same name, written with an escape.
        assert_eq!(refusal(r#"[{"b":1,"\u0062":2}]"#).0, "0.b");
    }

    #[test]
    fn depth_and_size_are_bounded() {
        assert!(parse(b"[[[1]]]", LIMITS).is_ok());
        assert_eq!(
            refusal("[[[[1]]]]"),
            ("0.0.0".to_owned(), "nested too deeply".to_owned())
        );
        assert_eq!(refusal(&"[".repeat(1024)).1, "nested too deeply");
        assert_eq!(refusal(&" ".repeat(1025)).1, "more than 1024 bytes");
    }

    #[test]
    fn invalid_json_is_refused() {
        for text in [
            "",
            " ",
            "{",
            r#"{"a"}"#,
            "{} {}",
            "{},",
            "nul",
            "01",
            "+1",
            "1.",
            "NaN",
            "'a'",
            "\"\\x\"",
            "\"\\ud800\"",
            "\"\\udc00\\ud800\"",
            "\"a\nb\"",
            "{\"a\":1,}",
            "/**/1",
            "\u{feff}1",
        ] {
            assert!(parse(text.as_bytes(), LIMITS).is_err(), "{text:?}");
        }
        for bytes in [
            &b"\"\xff\""[..],
            b"\"\xc0\x80\"",
            b"\"\xed\xa0\x80\"",
            b"{\"\xff\":1}",
        ] {
            assert!(parse(bytes, LIMITS).is_err(), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn agrees_with_serde_json_on_accepted_input(text in r#"[\[\]{}:, "a1e.0tnul-]{0,24}"#) {
            if let Ok(value) = parse(text.as_bytes(), Limits { bytes: 64, depth: 32 }) {
                prop_assert_eq!(value, serde_json::from_str::<Value>(&text).unwrap());
            }
        }
    }
}
