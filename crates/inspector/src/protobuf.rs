//! Protocol buffers without their schema: field numbers, and guesses about the values.

use serde::Serialize;

/// A field of a message.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct Field {
    number: u64,
    #[serde(flatten)]
    value: Value,
}

/// Guess about a value: bytes alone do not show if they are text, bytes or a message.
#[derive(Debug, PartialEq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Value {
    Varint(String),
    /// Eight bytes, little-endian, in hex; with the number that they may represent.
    Fixed64(String),
    Fixed32(String),
    Text(String),
    /// In hex, truncated.
    Bytes(String),
    Message(Vec<Field>),
}

/// The fields of a message, if the bytes can be one.
pub(crate) fn fields(bytes: &[u8]) -> Option<Vec<Field>> {
    let mut remaining = MAX_FIELDS;
    message(bytes, 0, &mut remaining)
}

fn message(mut bytes: &[u8], depth: usize, room: &mut usize) -> Option<Vec<Field>> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        *room = room.checked_sub(1)?;
        let tag = varint(&mut bytes)?;
        let number = tag >> 3;
        if number == 0 || number > MAX_NUMBER {
            return None;
        }
        let value = match tag & 7 {
            0 => Value::Varint(varint(&mut bytes)?.to_string()),
            1 => {
                let fixed = *bytes.first_chunk::<8>()?;
                bytes = bytes.get(8..)?;
                Value::Fixed64(hex_and_number(
                    &fixed,
                    &f64::from_le_bytes(fixed).to_string(),
                ))
            }
            2 => {
                let length = usize::try_from(varint(&mut bytes)?).ok()?;
                let (value, rest) = bytes.split_at_checked(length)?;
                bytes = rest;
                delimited(value, depth, room)
            }
            5 => {
                let fixed = *bytes.first_chunk::<4>()?;
                bytes = bytes.get(4..)?;
                Value::Fixed32(hex_and_number(
                    &fixed,
                    &f32::from_le_bytes(fixed).to_string(),
                ))
            }
            _ => return None,
        };
        fields.push(Field { number, value });
    }
    Some(fields)
}

/// Printable text is text; otherwise bytes that parse are a message.
fn delimited(value: &[u8], depth: usize, room: &mut usize) -> Value {
    let written = |text: &&str| {
        let mut characters = text.chars();
        characters.all(|one| !one.is_control() || matches!(one, '\n' | '\r' | '\t'))
    };
    if let Some(text) = std::str::from_utf8(value).ok().filter(written) {
        return Value::Text(text.to_owned());
    }
    if depth < MAX_DEPTH {
        let mut left = *room;
        if let Some(fields) = message(value, depth + 1, &mut left) {
            *room = left;
            return Value::Message(fields);
        }
    }
    // Failed attempts count as well, or nested attempts would be unlimited.
    *room = room.saturating_sub(1 + value.len() / 16);
    Value::Bytes(hex::encode(value.get(..PREVIEW_BYTES).unwrap_or(value)))
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for at in 0..10 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7F).checked_shl(7 * at)?;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

fn hex_and_number(fixed: &[u8], number: &str) -> String {
    let big_end_first: Vec<_> = fixed.iter().rev().copied().collect();
    format!("0x{} ({number})", hex::encode(&big_end_first))
}

/// Nesting depth: that of large real schemas, and a limit for attempts.
const MAX_DEPTH: usize = 12;
/// Total number of fields: more than a page can usefully show.
const MAX_FIELDS: usize = 4000;
/// The largest valid field number.
const MAX_NUMBER: u64 = (1 << 29) - 1;
/// Displayed bytes of a value that is neither text nor a message.
const PREVIEW_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_types_are_guessed_from_their_bytes() {
        let bytes = [
            0x08, 0x96, 0x01, // 1: 150
            0x12, 0x02, b'h', b'i', // 2: "hi"
            0x1a, 0x02, 0x08, 0x01, // 3: { 1: 1 }
            0x25, 0, 0, 0x80, 0x3f, // 4: 1.0
            0x2a, 0x01, 0xff, // 5: ff
        ];
        let shown = serde_json::to_string(&fields(&bytes).unwrap()).unwrap();
        assert_eq!(
            shown,
            r#"[{"number":1,"varint":"150"},{"number":2,"text":"hi"},{"number":3,"message":[{"number":1,"varint":"1"}]},{"number":4,"fixed32":"0x3f800000 (1)"},{"number":5,"bytes":"ff"}]"#
        );
    }

    #[test]
    fn invalid_messages_are_rejected() {
        for bytes in [&b"hello"[..], b"\x08", b"\x12\x05ab", b"\x00\x01"] {
            assert_eq!(fields(bytes), None, "{bytes:?}");
        }
    }

    #[test]
    fn nesting_is_limited() {
        let mut bytes = vec![0x08, 0x01];
        for depth in 1..=13 {
            bytes = [&[0x0a, u8::try_from(bytes.len()).unwrap()][..], &bytes].concat();
            let shown = serde_json::to_string(&fields(&bytes).unwrap()).unwrap();
            assert_eq!(shown.matches("message").count(), depth.min(12), "{shown}");
        }
    }

    #[test]
    fn the_number_of_fields_is_limited() {
        assert_eq!(fields(&[0x08, 0x01].repeat(4000)).unwrap().len(), 4000);
        assert_eq!(fields(&[0x08, 0x01].repeat(4001)), None);
    }
}
