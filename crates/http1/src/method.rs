//! Request methods.

use std::fmt;

use crate::head::MAX_METHOD_BYTES;
use crate::token::is_token;

/// Method of a request. Methods are case-sensitive (RFC 9110 §9.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method<'b> {
    /// `GET`
    Get,
    /// `HEAD`
    Head,
    /// `POST`
    Post,
    /// `PUT`
    Put,
    /// `DELETE`
    Delete,
    /// `OPTIONS`
    Options,
    /// `PATCH`
    Patch,
    /// `TRACE`
    Trace,
    /// Any other one.
    Other(OtherMethod<'b>),
}

/// A method that `Method` does not list. Always a valid token, never `CONNECT`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OtherMethod<'b>(&'b str);

/// Reasons why a method is not served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MethodError {
    /// It is not a token.
    Malformed,
    /// `CONNECT`, or longer than [`MAX_METHOD_BYTES`].
    NotImplemented,
}

impl<'b> Method<'b> {
    /// Parses a method.
    pub fn parse(token: &'b str) -> Result<Self, MethodError> {
        Ok(match token {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            "PATCH" => Self::Patch,
            "TRACE" => Self::Trace,
            "CONNECT" => return Err(MethodError::NotImplemented),
            other if other.len() > MAX_METHOD_BYTES => return Err(MethodError::NotImplemented),
            other if is_token(other.as_bytes()) => Self::Other(OtherMethod(other)),
            _ => return Err(MethodError::Malformed),
        })
    }

    /// The token as sent.
    pub fn as_str(&self) -> &'b str {
        match self {
            Self::Get => "GET",
            Self::Head => "HEAD",
            Self::Post => "POST",
            Self::Put => "PUT",
            Self::Delete => "DELETE",
            Self::Options => "OPTIONS",
            Self::Patch => "PATCH",
            Self::Trace => "TRACE",
            Self::Other(OtherMethod(token)) => token,
        }
    }

    /// Returns true if the client only requests to read (RFC 9110 §9.2.1).
    pub fn is_safe(&self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }

    /// Returns true if the request may be repeated even if the first attempt may have been
    /// processed (RFC 9110 §9.2.2).
    pub fn is_idempotent(&self) -> bool {
        self.is_safe() || matches!(self, Self::Put | Self::Delete)
    }
}

impl fmt::Display for Method<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
