//! Errors that travel: the code and the sentence that one end sends to the other.

use crate::message::StringValue;

/// An error as the wire has it. The sentence is for the person at the other end and holds no
/// secret.
#[derive(Clone, PartialEq, Eq, prost::Message, thiserror::Error)]
#[error("{}", self.describe())]
pub struct Error {
    /// An [`ErrorCode`], or a number of a later version.
    #[prost(enumeration = "ErrorCode", tag = "1")]
    pub code: i32,
    /// What went wrong.
    #[prost(message, optional, tag = "2")]
    pub message: Option<StringValue>,
}

impl Error {
    /// An error with a sentence.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: code as i32,
            message: Some(message.into().into()),
        }
    }

    /// No or bad proof of identity, or one that does not permit this.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unauthorized, message)
    }

    /// A message that makes no sense, or not here.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    /// No such tunnel, or not for this caller.
    pub fn tunnel_not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::TunnelNotFound, message)
    }

    /// No such stream, or it was refused.
    pub fn invalid_stream(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidStream, message)
    }

    /// An option that this build does not have (EN-11). The sentence names the option and has the
    /// word "available", which clients look for.
    pub fn feature_not_available(option: &str) -> Self {
        Self::new(
            ErrorCode::FeatureNotAvailable,
            format!("`{option}` is not available on this engine"),
        )
    }

    /// The engine stops, or cannot do this now.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ServiceUnavailable, message)
    }

    /// A limit is reached.
    pub fn capacity_exhausted(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::CapacityExhausted, message)
    }

    /// A defect of the sender.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// A stream ended in its middle: what it was joined to broke, after it may have got something.
    pub fn stream_broke(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// Whether it is a refusal: nothing of the stream got to what it was for. Only then may what
    /// was sent go elsewhere.
    pub fn is_refusal(&self) -> bool {
        !matches!(self.kind(), ErrorCode::Internal | ErrorCode::Unspecified)
    }

    /// The code; a number of a later version is [`ErrorCode::Unspecified`].
    pub fn kind(&self) -> ErrorCode {
        ErrorCode::try_from(self.code).unwrap_or(ErrorCode::Unspecified)
    }

    /// The sentence, empty where none was sent.
    pub fn text(&self) -> &str {
        self.message
            .as_ref()
            .map_or("", |message| message.value.as_str())
    }

    fn describe(&self) -> String {
        match self.text() {
            "" => format!("error {} of the agent protocol", self.code),
            text => format!("{text} ({})", self.code),
        }
    }
}

/// What went wrong, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ErrorCode {
    /// Not said, or a number that this version does not know.
    Unspecified = 0,
    /// No or bad proof of identity, or a permission is missing.
    Unauthorized = 1000,
    /// A message that makes no sense, or not here.
    InvalidRequest = 2000,
    /// A hello without a protocol version.
    ProtocolVersionMissing = 2010,
    /// A protocol version that cannot be read.
    ProtocolVersionInvalid = 2020,
    /// A protocol version of another major number.
    ProtocolVersionIncompatible = 2030,
    /// No such tunnel.
    TunnelNotFound = 3000,
    /// No such stream, or the agent refused it.
    InvalidStream = 4000,
    /// An option outside this build.
    FeatureNotAvailable = 5000,
    /// The engine stops, or cannot do this now.
    ServiceUnavailable = 6000,
    /// A limit is reached.
    CapacityExhausted = 7000,
    /// A defect.
    Internal = 9000,
}
