//! Check of the outermost fields of a message, before memory is allocated for their content.

use super::check::MessageError;
use super::limits;

/// Checks the size, and that the message has exactly one of the known kinds. Protobuf would use the
/// last of several kinds, or merge two of one kind. Only an attacker that wants two readers to
/// disagree sends such a message.
pub(super) fn scan(bytes: &[u8]) -> Result<(), MessageError> {
    if bytes.len() > limits::MAX_MESSAGE {
        return Err(MessageError::TooLarge("message"));
    }
    let mut kind = None;
    let mut rest = bytes;
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        if matches!(key >> 3, 1..=KINDS) {
            if kind.is_some() || key & 7 != LENGTH_DELIMITED {
                return Err(MessageError::Malformed);
            }
            kind = Some(key >> 3);
        }
        skip(key, &mut rest)?;
    }
    match kind {
        Some(DATA) => Ok(()),
        Some(_) if bytes.len() > limits::MAX_CONTROL => Err(MessageError::TooLarge("message")),
        Some(_) => Ok(()),
        None => Err(MessageError::Unknown),
    }
}

fn skip(key: u64, rest: &mut &[u8]) -> Result<(), MessageError> {
    let len = match key & 7 {
        0 => return varint(rest).map(drop),
        1 => 8,
        LENGTH_DELIMITED => usize::try_from(varint(rest)?).map_err(|_| MessageError::Malformed)?,
        5 => 4,
        // Groups, which are obsolete, and types that were never assigned.
        _ => return Err(MessageError::Malformed),
    };
    *rest = rest.get(len..).ok_or(MessageError::Malformed)?;
    Ok(())
}

fn varint(rest: &mut &[u8]) -> Result<u64, MessageError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().ok_or(MessageError::Malformed)?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(MessageError::Malformed)
}

/// The highest number of a kind; the numbers start at 1.
const KINDS: u64 = 11;
const DATA: u64 = 5;
const LENGTH_DELIMITED: u64 = 2;
