//! The wrapper types of Protocol Buffers (`google/protobuf/wrappers.proto`, `timestamp.proto`): a
//! value in a separate message, so that absent and empty can be distinguished.

use std::fmt;

/// A string that can be absent.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct StringValue {
    /// The string.
    #[prost(string, tag = "1")]
    pub value: String,
}

/// A boolean that can be absent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct BoolValue {
    /// The boolean.
    #[prost(bool, tag = "1")]
    pub value: bool,
}

/// A number that can be absent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct UInt32Value {
    /// The number.
    #[prost(uint32, tag = "1")]
    pub value: u32,
}

/// A point in time, UTC.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct Timestamp {
    /// Whole seconds since 1970-01-01.
    #[prost(int64, tag = "1")]
    pub seconds: i64,
    /// Nanoseconds on top, 0..=999,999,999, also before 1970.
    #[prost(int32, tag = "2")]
    pub nanos: i32,
}

/// A [`StringValue`] on the wire whose content `Debug` does not print: tokens and one-time secrets.
#[derive(Clone, PartialEq, Eq, prost::Message)]
#[prost(skip_debug)]
pub struct Secret {
    /// The secret in clear.
    #[prost(string, tag = "1")]
    pub value: String,
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl From<&str> for StringValue {
    fn from(value: &str) -> Self {
        Self {
            value: value.to_owned(),
        }
    }
}

impl From<String> for StringValue {
    fn from(value: String) -> Self {
        Self { value }
    }
}

impl From<String> for Secret {
    fn from(value: String) -> Self {
        Self { value }
    }
}

impl From<&str> for Secret {
    fn from(value: &str) -> Self {
        Self {
            value: value.to_owned(),
        }
    }
}

impl From<bool> for BoolValue {
    fn from(value: bool) -> Self {
        Self { value }
    }
}

impl From<u32> for UInt32Value {
    fn from(value: u32) -> Self {
        Self { value }
    }
}

/// The text in a wrapper, if the wrapper is present.
pub fn text(wrapper: Option<&StringValue>) -> Option<&str> {
    wrapper.map(|wrapper| wrapper.value.as_str())
}
