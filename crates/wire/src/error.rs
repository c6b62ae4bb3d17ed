//! Errors on the wire: the code and the sentence that one end sends to the other.

use crate::message::StringValue;

/// An error in its wire format. The sentence is for the user at the peer and contains no secret.
#[derive(Clone, PartialEq, Eq, prost::Message, thiserror::Error)]
#[error("{}", self.describe())]
pub struct Error {
    /// An [`ErrorCode`], or a number of a later version.
    #[prost(enumeration = "ErrorCode", tag = "1")]
    pub code: i32,
    /// Description of the error.
    #[prost(message, optional, tag = "2")]
    pub message: Option<StringValue>,
    /// Extension `exchange/1`, agent: bytes of the stream that may have reached the service. None of
    /// the later ones has.
    #[prost(uint64, optional, tag = "100")]
    pub delivered: Option<u64>,
}

impl Error {
    /// An error with a sentence.
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: code as i32,
            message: Some(message.into().into()),
            delivered: None,
        }
    }

    /// Missing or invalid authentication, or a missing permission.
    pub fn unauthorized(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Unauthorized, message)
    }

    /// An invalid message, or one that is not allowed in this state.
    pub fn invalid_request(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidRequest, message)
    }

    /// No such tunnel, or the caller may not use it.
    pub fn tunnel_not_found(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::TunnelNotFound, message)
    }

    /// No such stream, or it was refused.
    pub fn invalid_stream(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidStream, message)
    }

    /// An option that this build does not have (EN-11). The sentence names the option and contains
    /// the word "available", which clients search for.
    pub fn feature_not_available(option: &str) -> Self {
        Self::new(
            ErrorCode::FeatureNotAvailable,
            format!("`{option}` is not available on this engine"),
        )
    }

    /// The engine is stopping, or temporarily cannot do this.
    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::ServiceUnavailable, message)
    }

    /// A limit is reached.
    pub fn capacity_exhausted(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::CapacityExhausted, message)
    }

    /// A defect of the sender of this error.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// A stream broke: its other connection failed, possibly after receiving data.
    pub fn stream_broke(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::Internal, message)
    }

    /// The engine does not accept what the service sent; the sentence is for the service's owner.
    pub fn invalid_response(message: impl Into<String>) -> Self {
        Self::new(ErrorCode::InvalidStream, message)
    }

    /// The same error with the number of bytes that may have reached the service.
    #[must_use]
    pub fn with_delivered(self, delivered: Option<u64>) -> Self {
        Self { delivered, ..self }
    }

    /// Returns true if it is a refusal, which means that no data of the stream reached its
    /// destination. Only then may the data be sent elsewhere.
    pub fn is_refusal(&self) -> bool {
        !matches!(self.kind(), ErrorCode::Internal | ErrorCode::Unspecified)
    }

    /// The code; an unknown number of a later version is [`ErrorCode::Unspecified`].
    pub fn kind(&self) -> ErrorCode {
        ErrorCode::try_from(self.code).unwrap_or(ErrorCode::Unspecified)
    }

    /// The sentence, empty if none was sent.
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

/// The codes of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum ErrorCode {
    /// Not set, or a number that this version does not have.
    Unspecified = 0,
    /// Missing or invalid authentication, or a missing permission.
    Unauthorized = 1000,
    /// An invalid message, or one that is not allowed in this state.
    InvalidRequest = 2000,
    /// A hello without a protocol version.
    ProtocolVersionMissing = 2010,
    /// A protocol version that cannot be parsed.
    ProtocolVersionInvalid = 2020,
    /// A protocol version with another major number.
    ProtocolVersionIncompatible = 2030,
    /// No such tunnel.
    TunnelNotFound = 3000,
    /// No such stream, or the agent refused it.
    InvalidStream = 4000,
    /// An option outside this build.
    FeatureNotAvailable = 5000,
    /// The engine is stopping, or temporarily cannot do this.
    ServiceUnavailable = 6000,
    /// A limit is reached.
    CapacityExhausted = 7000,
    /// A defect.
    Internal = 9000,
}
