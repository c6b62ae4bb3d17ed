//! Trace context of requests (W3C Trace Context, `traceparent`).

use std::fmt;
use std::num::NonZeroU128;

use serde::{Serialize, Serializer};

/// The id of a trace. It is 32 lower-case hexadecimal digits as text, and never zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct TraceId(NonZeroU128);

impl TraceId {
    /// The trace of a request with these values of `traceparent`. A repeated field is ambiguous, so
    /// it names no trace.
    pub fn of_request<'v>(values: impl IntoIterator<Item = &'v [u8]>) -> Option<Self> {
        let mut values = values.into_iter();
        let only = values.next()?;
        match values.next() {
            Some(_) => None,
            None => Self::from_traceparent(only),
        }
    }

    /// The trace of a valid value of `traceparent`:
    /// `version "-" trace-id "-" parent-id "-" flags`.
    ///
    /// Later versions may add members after these four (section 3.2.2 of the recommendation). The
    /// version ff is invalid.
    pub fn from_traceparent(value: &[u8]) -> Option<Self> {
        let (known, later) = value.split_at_checked(VERSION_0_BYTES)?;
        let mut members = known.split(|byte| *byte == b'-');
        let version = hexadecimal(members.next()?, 2)?;
        let trace = hexadecimal(members.next()?, 32)?;
        let parent = hexadecimal(members.next()?, 16)?;
        hexadecimal(members.next()?, 2)?;
        let is_complete = later.is_empty() || (version > 0 && later.starts_with(b"-"));
        let is_valid = version != 0xff && parent != 0 && is_complete;
        NonZeroU128::new(trace).filter(|_| is_valid).map(Self)
    }
}

/// The number in lower-case hexadecimal digits, if there are exactly this many.
fn hexadecimal(member: &[u8], digits: usize) -> Option<u128> {
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    let text = std::str::from_utf8(member).ok()?;
    let is_member = member.len() == digits && member.iter().all(is_digit);
    u128::from_str_radix(text, 16).ok().filter(|_| is_member)
}

/// Length of a value of version 00.
const VERSION_0_BYTES: usize = 55;

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TraceId({self})")
    }
}

impl Serialize for TraceId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    fn id_of(value: &str) -> Option<String> {
        TraceId::from_traceparent(value.as_bytes()).map(|id| id.to_string())
    }

    #[test]
    fn valid_values_name_their_trace() {
        for value in [
            format!("00-{ID}-00f067aa0ba902b7-01"),
            format!("00-{ID}-00f067aa0ba902b7-ff"),
            format!("cc-{ID}-00f067aa0ba902b7-01"),
            format!("cc-{ID}-00f067aa0ba902b7-01-more"),
        ] {
            assert_eq!(id_of(&value).as_deref(), Some(ID), "{value}");
        }
    }

    #[test]
    fn other_values_name_none() {
        for value in [
            String::new(),
            ID.to_owned(),
            format!("ff-{ID}-00f067aa0ba902b7-01"),
            format!("00-{}-00f067aa0ba902b7-01", "0".repeat(32)),
            format!("00-{ID}-0000000000000000-01"),
            format!("00-{}-00f067aa0ba902b7-01", ID.to_uppercase()),
            format!("00-{ID}-00F067AA0BA902B7-01"),
            format!("0-{ID}0-00f067aa0ba902b7-01"),
            format!("00-{ID}-00f067aa0ba902b7-01-more"),
            format!("00-{ID}-00f067aa0ba902b7-01 "),
            format!("cc-{ID}-00f067aa0ba902b7-01.more"),
            format!("00-{ID}-00f067aa0ba902b7-0"),
            format!("00-+{}-00f067aa0ba902b7-01", &ID[1..]),
            format!("00_{ID}_00f067aa0ba902b7_01"),
        ] {
            assert_eq!(id_of(&value), None, "{value}");
        }
    }

    #[test]
    fn a_repeated_field_names_no_trace() {
        let value = format!("00-{ID}-00f067aa0ba902b7-01");
        let of = |count| TraceId::of_request(std::iter::repeat_n(value.as_bytes(), count));
        assert_eq!(of(0), None);
        assert_eq!(of(1).map(|id| id.to_string()).as_deref(), Some(ID));
        assert_eq!(of(2), None);
    }

    proptest! {
        /// The id is a part of the value, and the value of version 00 can be written from it.
        #[test]
        fn an_id_is_the_second_member(value in "(00|ff|[0-9a-fg]{2})-[0-9a-f]{31,33}-[0-9a-fA-F]{16}-[0-9a-f]{2}(-[a-z]{0,4})?") {
            if let Some(id) = id_of(&value) {
                prop_assert_eq!(value.split('-').nth(1), Some(id.as_str()));
                prop_assert!(!value.starts_with("ff"));
                let parent = value.split('-').nth(2).unwrap();
                let rewritten = format!("00-{id}-{parent}-01");
                prop_assert_eq!(id_of(&rewritten), Some(id));
            } else {
                let id = value.split('-').nth(1).unwrap();
                let is_plain = value.starts_with("00-") && value.len() == VERSION_0_BYTES;
                let is_lower = !value.bytes().any(|byte| byte.is_ascii_uppercase());
                let is_zero = |member: &str| member.bytes().all(|byte| byte == b'0');
                let parent = value.split('-').nth(2).unwrap();
                prop_assert!(!is_plain || !is_lower || is_zero(id) || is_zero(parent) || id.len() != 32);
            }
        }

        #[test]
        fn any_bytes_are_parsed_without_a_panic(value in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(id) = TraceId::from_traceparent(&value) {
                let text = id.to_string();
                prop_assert_eq!(text.len(), 32);
                prop_assert!(value.windows(32).any(|part| part == text.as_bytes()));
            }
        }
    }
}
