//! Heads of requests.

use std::mem::MaybeUninit;

use httparse::Status;

use crate::authority::Authority;
use crate::fields::{Fields, MAX_FIELDS, Slots};
use crate::framing_fields::{BARE_LINE_FEED, FramingFields, MessageKind};
use crate::head::{Limits, MAX_METHOD_BYTES, Progress, Version};
use crate::method::{Method, MethodError};
use crate::protocol::Protocols;
use crate::target::RequestTarget;

/// The head of a request that has only one interpretation.
#[derive(Debug, Clone, Copy)]
pub struct RequestHead<'b> {
    /// The method; `CONNECT` is refused earlier.
    pub method: Method<'b>,
    /// Path and query; the absolute form is already reduced to them.
    pub target: RequestTarget<'b>,
    /// The value of the `Host` field.
    pub authority: Authority<'b>,
    /// The client's version.
    pub version: Version,
    /// All fields, including those of this connection.
    pub fields: Fields<'b>,
    /// Framing of the body.
    pub body: BodyLength,
    /// True if the client expects to reuse the connection (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// The value of `Upgrade` if `Connection` names it and the version is 1.1 (RFC 9110 §7.8). If
    /// there is a body, it precedes the start of the other protocol.
    pub upgrade: Option<Protocols<'b>>,
    /// True if the client waits for `100 Continue` before it sends the body (RFC 9110 §10.1.1).
    pub expect_continue: bool,
}

/// Framing of a request body (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyLength {
    /// Neither framing field: there is no body.
    Empty,
    /// `Content-Length`, which may be 0.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// The refusal of a request. The connection is closed after the response, because the start of the
/// next request is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{status} {code}: {reason}")]
pub struct Refusal {
    /// 400, 414, 431, 501 or 505.
    pub status: u16,
    /// The stable code for the problem document.
    pub code: &'static str,
    /// Description of the error. It never contains bytes of the request.
    pub reason: &'static str,
}

impl Refusal {
    pub(crate) const fn invalid(reason: &'static str) -> Self {
        Self {
            status: 400,
            code: "invalid_request",
            reason,
        }
    }

    const fn target_too_long() -> Self {
        Self {
            status: 414,
            code: "uri_too_long",
            reason: "the request target is too long",
        }
    }

    const fn head_too_large() -> Self {
        Self {
            status: 431,
            code: "request_header_fields_too_large",
            reason: "the request head is too large",
        }
    }

    const fn not_implemented(reason: &'static str) -> Self {
        Self {
            status: 501,
            code: "not_implemented",
            reason,
        }
    }

    const fn version() -> Self {
        Self {
            status: 505,
            code: "http_version_not_supported",
            reason: "the version is not HTTP/1.1 or HTTP/1.0",
        }
    }
}

/// Parses the head of a request from the start of `buf`.
///
/// One empty line before the request line is ignored (RFC 9112 §2.2). A head or a target that is
/// too large is refused as soon as that is certain, not when it is complete.
pub fn parse_request<'b>(
    buf: &'b [u8],
    limits: &Limits,
    slots: &'b mut Slots,
) -> Result<Progress<RequestHead<'b>>, Refusal> {
    let window = limits.window(buf);
    let skipped = match window {
        [b'\r', b'\n', b'\r' | b'\n', ..] => {
            return Err(Refusal::invalid(
                "more than one empty line before the request",
            ));
        }
        [b'\r', b'\n', ..] => 2,
        [b'\r'] => return Ok(Progress::Partial),
        [b'\r' | b'\n', ..] => {
            return Err(Refusal::invalid(
                "the request begins with a bare line ending",
            ));
        }
        _ => 0,
    };
    let message = window.get(skipped..).unwrap_or_default();

    let mut room = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let room = room.get_mut(..limits.field_limit()).unwrap_or_default();
    let mut tokens = httparse::Request::new(&mut []);
    let status = tokens.parse_with_uninit_headers(message, room);
    if status != Err(httparse::Error::Token) {
        check_lengths(message, &tokens, limits)?;
    }
    let message_len = match status {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) if buf.len() >= limits.head_limit() => {
            return Err(Refusal::head_too_large());
        }
        Ok(Status::Partial) => return Ok(Progress::Partial),
        Err(httparse::Error::Version) => return refuse_version(message),
        Err(error) => return Err(refusal_of(error)),
    };
    let message = message.get(..message_len).unwrap_or_default();
    let head = interpret_head(message, &tokens, slots)?;
    Ok(Progress::Complete {
        head,
        head_len: skipped + message_len,
    })
}

/// Interprets a complete head.
fn interpret_head<'b>(
    message: &'b [u8],
    tokens: &httparse::Request<'_, 'b>,
    slots: &'b mut Slots,
) -> Result<RequestHead<'b>, Refusal> {
    if !message.ends_with(b"\r\n\r\n") {
        return Err(Refusal::invalid(BARE_LINE_FEED));
    }
    let facts = FramingFields::gather(message, tokens.headers, slots, MessageKind::Request)
        .map_err(Refusal::invalid)?;
    let method = Method::parse(tokens.method.unwrap_or_default()).map_err(|bad| match bad {
        MethodError::Malformed => Refusal::invalid("the method is malformed"),
        MethodError::NotImplemented => Refusal::not_implemented("the method is not served here"),
    })?;
    if facts.host_repeated {
        return Err(Refusal::invalid("more than one Host"));
    }
    let host = facts.host.ok_or(Refusal::invalid("no Host"))?;
    let authority = Authority::parse(host).ok_or(Refusal::invalid("Host is malformed"))?;
    let raw_target = tokens.path.unwrap_or_default().as_bytes();
    let target = RequestTarget::parse_http1(method, raw_target, host).map_err(Refusal::invalid)?;
    let version = Version::from_minor(tokens.version.unwrap_or_default());
    let is_http11 = version == Version::Http11;
    if facts.chunked && !is_http11 {
        return Err(Refusal::invalid("Transfer-Encoding with HTTP/1.0"));
    }
    let body = match facts.content_length {
        _ if facts.chunked => BodyLength::Chunked,
        Some(length) => BodyLength::Length(length),
        None => BodyLength::Empty,
    };
    Ok(RequestHead {
        method,
        target,
        authority,
        version,
        fields: slots.view(message),
        body,
        keep_alive: !facts.close && (is_http11 || facts.keep_alive),
        upgrade: facts.upgrade.filter(|_| facts.upgrade_named && is_http11),
        expect_continue: facts.expect_continue && is_http11,
    })
}

/// Refuses a method or target that is too long, even in an incomplete request line.
fn check_lengths(
    message: &[u8],
    tokens: &httparse::Request<'_, '_>,
    limits: &Limits,
) -> Result<(), Refusal> {
    let first_space = || message.iter().position(|byte| *byte == b' ');
    let method_len = tokens
        .method
        .map(str::len)
        .or_else(first_space)
        .unwrap_or(message.len());
    if method_len > MAX_METHOD_BYTES {
        // RFC 9112 §3: longer than any method that is implemented.
        return Err(Refusal::not_implemented("the method is not known"));
    }
    let target_len = match tokens.path {
        Some(path) => path.len(),
        None => message.len().saturating_sub(method_len + 1),
    };
    if target_len > limits.target_bytes {
        return Err(Refusal::target_too_long());
    }
    Ok(())
}

/// The tokenizer did not find a supported version: another version gets 505, and a missing one 400.
/// The tokenizer stops at the first wrong byte, which may be too early to distinguish the two.
fn refuse_version<H>(message: &[u8]) -> Result<Progress<H>, Refusal> {
    let line_end = message
        .iter()
        .position(|byte| matches!(byte, b'\r' | b'\n'));
    let line = message
        .get(..line_end.unwrap_or(message.len()))
        .unwrap_or_default();
    let version = line
        .splitn(3, |byte| *byte == b' ')
        .nth(2)
        .unwrap_or_default();
    let shaped = version.len() <= VERSION_SHAPE.len()
        && version
            .iter()
            .zip(VERSION_SHAPE)
            .all(|(byte, shape)| match shape {
                b'0' => byte.is_ascii_digit(),
                _ => byte == shape,
            });
    match (shaped, version.len() == VERSION_SHAPE.len(), line_end) {
        (true, true, _) => Err(Refusal::version()),
        (true, false, None) => Ok(Progress::Partial),
        _ => Err(Refusal::invalid("the request line has no version")),
    }
}

/// RFC 9112 §2.3; `0` stands for any digit.
const VERSION_SHAPE: &[u8] = b"HTTP/0.0";

fn refusal_of(error: httparse::Error) -> Refusal {
    match error {
        httparse::Error::TooManyHeaders => Refusal::head_too_large(),
        httparse::Error::HeaderName => Refusal::invalid("a field name is malformed"),
        httparse::Error::HeaderValue => Refusal::invalid("a field value has a control byte"),
        httparse::Error::NewLine => Refusal::invalid("a line ends wrongly"),
        _ => Refusal::invalid("the request line is malformed"),
    }
}

#[cfg(test)]
mod tests;
