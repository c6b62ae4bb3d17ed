//! Names and values of fields that are valid by type.
//!
//! The lines of a head are only written from these types ([`write_field`](crate::write_field)), in
//! every build. Their values come from the parsers of this crate, from the types of the `http`
//! crate, which have the same grammar, from literals that the compiler checks
//! ([`field_name!`](crate::field_name), [`field_value!`](crate::field_value)), or from a check of
//! every byte ([`FieldValue::parse`]).

use std::fmt;
use std::net::IpAddr;
use std::ops::Deref;

use crate::authority::Authority;
use crate::protocol::{Protocol, Protocols};
use crate::token::is_token;

/// The name of a field: a token (RFC 9110 §5.1).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct FieldName<'b>(&'b [u8]);

/// The value of a field, or a reason phrase: visible ASCII, spaces, tabs, and bytes from 0x80
/// (RFC 9110 §5.5).
/// `Debug` prints nothing of it: values may be credentials.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct FieldValue<'b>(&'b [u8]);

/// A value that is assembled from parts.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct FieldValueBuf(Vec<u8>);

impl<'b> FieldName<'b> {
    /// Parses a name.
    pub fn parse(bytes: &'b [u8]) -> Option<Self> {
        is_token(bytes).then_some(Self(bytes))
    }

    /// A name in the program's source, see [`field_name!`](crate::field_name).
    ///
    /// # Panics
    /// If it is not a token. In a constant, that is a compile error.
    pub const fn from_static(name: &'static str) -> Self
    where
        'static: 'b,
    {
        assert!(is_token(name.as_bytes()), "a field name is a token");
        Self(name.as_bytes())
    }

    /// Bytes that the tokenizer has checked, or that are in a head that it has checked.
    pub(crate) fn parsed(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// The bytes as sent.
    pub fn as_bytes(self) -> &'b [u8] {
        self.0
    }

    /// Returns true if it is this name, ignoring case.
    pub fn is(self, name: &str) -> bool {
        self.0.eq_ignore_ascii_case(name.as_bytes())
    }
}

impl<'b> FieldValue<'b> {
    /// Parses a value. Whitespace around it stays.
    pub fn parse(bytes: &'b [u8]) -> Option<Self> {
        is_value(bytes).then_some(Self(bytes))
    }

    /// A value in the program's source, see [`field_value!`](crate::field_value).
    ///
    /// # Panics
    /// If it has a control character. In a constant, that is a compile error.
    pub const fn from_static(value: &'static str) -> Self
    where
        'static: 'b,
    {
        assert!(is_value(value.as_bytes()), "a field value is text");
        Self(value.as_bytes())
    }

    /// Bytes that the tokenizer has checked, or that are in a head that it has checked.
    pub(crate) fn parsed(bytes: &'b [u8]) -> Self {
        Self(bytes)
    }

    /// A part of this value, which is a valid value as well. `None` for bytes outside it.
    pub fn part(self, part: &[u8]) -> Option<Self> {
        let start = part.as_ptr().addr().checked_sub(self.0.as_ptr().addr())?;
        let end = start.checked_add(part.len())?;
        self.0.get(start..end).map(Self)
    }

    /// The bytes as sent.
    pub fn as_bytes(self) -> &'b [u8] {
        self.0
    }
}

impl FieldValueBuf {
    /// An empty value.
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Parses a value.
    pub fn parse(bytes: Vec<u8>) -> Option<Self> {
        is_value(&bytes).then_some(Self(bytes))
    }

    /// Appends a value.
    pub fn push(&mut self, value: FieldValue<'_>) -> &mut Self {
        self.0.extend_from_slice(value.0);
        self
    }

    /// Appends an address, an IPv6 one without brackets.
    pub fn push_ip(&mut self, address: IpAddr) -> &mut Self {
        use std::io::Write as _;
        // Writing to memory cannot fail.
        write!(self.0, "{address}").ok();
        self
    }

    /// Appends a number in decimal digits.
    pub fn push_number(&mut self, number: u64) -> &mut Self {
        use std::io::Write as _;
        // Writing to memory cannot fail.
        write!(self.0, "{number}").ok();
        self
    }

    /// Clears the value and keeps the allocation.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// The value.
    pub fn as_value(&self) -> FieldValue<'_> {
        FieldValue(&self.0)
    }

    /// Returns true if it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'b> From<&'b http::HeaderName> for FieldName<'b> {
    fn from(name: &'b http::HeaderName) -> Self {
        Self(name.as_str().as_bytes())
    }
}

impl<'b> From<&'b http::HeaderValue> for FieldValue<'b> {
    fn from(value: &'b http::HeaderValue) -> Self {
        Self(value.as_bytes())
    }
}

impl<'b> From<&'b FieldValueBuf> for FieldValue<'b> {
    fn from(value: &'b FieldValueBuf) -> Self {
        value.as_value()
    }
}

impl<'b> From<Authority<'b>> for FieldValue<'b> {
    fn from(authority: Authority<'b>) -> Self {
        Self(authority.as_str().as_bytes())
    }
}

impl<'b> From<Protocol<'b>> for FieldValue<'b> {
    fn from(protocol: Protocol<'b>) -> Self {
        Self(protocol.as_str().as_bytes())
    }
}

impl<'b> From<Protocols<'b>> for FieldValue<'b> {
    fn from(protocols: Protocols<'b>) -> Self {
        Self(protocols.as_str().as_bytes())
    }
}

impl From<FieldValue<'_>> for FieldValueBuf {
    fn from(value: FieldValue<'_>) -> Self {
        Self(value.0.to_vec())
    }
}

impl Deref for FieldName<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl Deref for FieldValue<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0
    }
}

impl fmt::Debug for FieldName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

impl fmt::Debug for FieldValue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

impl fmt::Debug for FieldValueBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

/// A [`FieldName`] literal, checked by the compiler.
#[macro_export]
macro_rules! field_name {
    ($name:literal) => {
        const { $crate::FieldName::from_static($name) }
    };
}

/// A [`FieldValue`] literal, checked by the compiler.
#[macro_export]
macro_rules! field_value {
    ($value:literal) => {
        const { $crate::FieldValue::from_static($value) }
    };
}

const fn is_value(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    while let [first, after @ ..] = rest {
        if !matches!(*first, b'\t' | b' '..=b'~' | 0x80..) {
            return false;
        }
        rest = after;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Values of the `http` crate are not checked again, so it must not accept more bytes.
    #[test]
    fn every_byte_is_classified_like_the_http_crate() {
        for byte in 0..=u8::MAX {
            let bytes = [b'a', byte, b'b'];
            let value = http::HeaderValue::from_bytes(&bytes);
            assert_eq!(FieldValue::parse(&bytes).is_some(), value.is_ok(), "{byte}");
            let name = http::HeaderName::from_bytes(&bytes);
            assert!(
                name.is_err() || FieldName::parse(&bytes).is_some(),
                "{byte}"
            );
            let method = http::Method::from_bytes(&bytes);
            assert!(method.is_err() || is_token(&bytes), "{byte}");
        }
        for bytes in [&b"a\r\nb"[..], b"\n", b"\0", b"a\x7f", b"\r"] {
            assert_eq!(FieldValue::parse(bytes), None);
            assert_eq!(FieldValueBuf::parse(bytes.to_vec()), None);
        }
        assert_eq!(FieldName::parse(b""), None);
        assert!(FieldValue::parse(b"").is_some());
    }

    #[test]
    fn a_part_of_a_value_is_a_value_and_other_bytes_are_not() {
        let whole = FieldValue::parse(b"a=1; b=2").unwrap();
        let part = whole.part(&whole[5..]).unwrap();
        assert_eq!(part.as_bytes(), b"b=2");
        assert_eq!(part.part(whole.as_bytes()), None);
        assert_eq!(whole.part(b"another"), None);
    }

    #[test]
    fn values_are_concatenated() {
        let mut value = FieldValueBuf::new();
        let v6 = "2001:db8::1".parse().unwrap();
        value.push(field_value!("for=")).push_ip(v6);
        value.push(field_value!(" ")).push_number(12);
        assert_eq!(value.as_value().as_bytes(), b"for=2001:db8::1 12");
    }
}
