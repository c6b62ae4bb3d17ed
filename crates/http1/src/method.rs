//! Request methods.

use std::fmt;

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
    /// Any other token, never `CONNECT`.
    Other(&'b str),
}

impl<'b> Method<'b> {
    /// Reads a token that the tokenizer has already checked.
    pub fn of(token: &'b str) -> Self {
        match token {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            "PATCH" => Self::Patch,
            "TRACE" => Self::Trace,
            other => Self::Other(other),
        }
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
            Self::Other(token) => token,
        }
    }

    /// Whether the client asks for nothing but reading (RFC 9110 §9.2.1).
    pub fn is_safe(&self) -> bool {
        matches!(self, Self::Get | Self::Head | Self::Options | Self::Trace)
    }

    /// Whether the request may be sent again after a failure that leaves open whether it was
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
