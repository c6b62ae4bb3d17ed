//! Heads of responses.

use std::mem::MaybeUninit;
use std::time::Duration;

use httparse::Status;

use crate::fields::{Fields, MAX_FIELDS, Slots};
use crate::framing_fields::{BARE_LINE_FEED, FramingFields, MessageKind};
use crate::head::{Limits, Progress, Version};
use crate::kind::FieldKind;
use crate::protocol::Protocols;
use crate::value::FieldValue;

/// The head of a response that has only one interpretation.
#[derive(Debug, Clone, Copy)]
pub struct ResponseHead<'b> {
    /// 100 to 999. Below 200 another head follows, except after 101.
    pub status: u16,
    /// The reason phrase; empty if there is none or if it is not ASCII.
    pub reason: FieldValue<'b>,
    /// The server's version.
    pub version: Version,
    /// All fields, including those of this connection.
    pub fields: Fields<'b>,
    /// Framing of the body.
    pub body: ResponseBody,
    /// `Content-Length` as sent: for a response to `HEAD` and a 304 it is not the length of the
    /// body.
    pub content_length: Option<u64>,
    /// True if the connection can be reused after the body has been read (RFC 9112 §9.3).
    pub keep_alive: bool,
    /// The value of `Upgrade` if `Connection` names it: the protocol that a 101 changes to (RFC
    /// 9110 §15.2.2), or that a 426 requires (§15.5.22).
    pub upgrade: Option<Protocols<'b>>,
}

impl ResponseHead<'_> {
    /// Time after which the server closes the connection if it is idle, as announced with
    /// `Keep-Alive: timeout=` (RFC 2068 §19.7.1).
    pub fn keep_alive_timeout(&self) -> Option<Duration> {
        let value = self.fields.get("keep-alive")?;
        let value = str::from_utf8(value.as_bytes()).ok()?;
        let timeout = value.split(',').find_map(|parameter| {
            let (name, seconds) = parameter.split_once('=')?;
            let is_timeout = name.trim().eq_ignore_ascii_case("timeout");
            is_timeout.then_some(seconds.trim())
        })?;
        timeout.parse().ok().map(Duration::from_secs)
    }
}

/// Framing of a response body (RFC 9112 §6.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ResponseBody {
    /// There is no body: `HEAD`, 1xx, 204 and 304.
    Empty,
    /// `Content-Length`, which may be 0.
    Length(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
    /// Neither: it ends with the connection, so a truncated body cannot be detected.
    UntilClose,
}

/// A response that is not passed on, because its reader could interpret it differently. The visitor
/// gets a 502 and the connection to the upstream is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("bad response: {reason}")]
pub struct MalformedResponseError {
    /// Description of the error. It never contains bytes of the response.
    pub reason: &'static str,
}

/// Parses the head of a response from the start of `buf`. `is_head_request`: the request was
/// a `HEAD`.
///
/// Limits: `head_bytes` and `headers`. No empty line is ignored before a response.
pub fn parse_response<'b>(
    buf: &'b [u8],
    limits: &Limits,
    is_head_request: bool,
    slots: &'b mut Slots,
) -> Result<Progress<ResponseHead<'b>>, MalformedResponseError> {
    let bad = |reason| MalformedResponseError { reason };
    let window = limits.window(buf);
    if window.starts_with(TLS_ALERT) {
        return Err(bad(ANSWERS_TLS));
    }
    if window.first().is_some_and(|byte| *byte != b'H') {
        return Err(bad("it does not begin with a version"));
    }
    let mut room = [const { MaybeUninit::uninit() }; MAX_FIELDS];
    let room = room.get_mut(..limits.field_limit()).unwrap_or_default();
    let mut tokens = httparse::Response::new(&mut []);
    let status = httparse::ParserConfig::default().parse_response_with_uninit_headers(
        &mut tokens,
        window,
        room,
    );
    let head_len = match status {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) if buf.len() >= limits.head_limit() => {
            return Err(bad("the head is too large"));
        }
        Ok(Status::Partial) => return Ok(Progress::Partial),
        Err(error) => return Err(bad(reason_of(error))),
    };
    let message = window.get(..head_len).unwrap_or_default();
    let head = interpret_head(message, &tokens, is_head_request, slots).map_err(bad)?;
    Ok(Progress::Complete { head, head_len })
}

/// Interprets a complete head.
fn interpret_head<'b>(
    message: &'b [u8],
    tokens: &httparse::Response<'_, 'b>,
    is_head_request: bool,
    slots: &'b mut Slots,
) -> Result<ResponseHead<'b>, &'static str> {
    if !message.ends_with(b"\r\n\r\n") {
        return Err(BARE_LINE_FEED);
    }
    let facts = FramingFields::gather(message, tokens.headers, slots, MessageKind::Response)?;
    let status = tokens
        .code
        .filter(|code| *code >= 100)
        .ok_or("the status is below 100")?;
    let version = Version::from_minor(tokens.version.unwrap_or_default());
    let is_http11 = version == Version::Http11;
    if facts.chunked && !is_http11 {
        return Err("Transfer-Encoding with HTTP/1.0");
    }
    let framed = facts.chunked || facts.content_length.is_some_and(|length| length > 0);
    let mut keep_alive = !facts.close && !facts.tolerated && (is_http11 || facts.keep_alive);
    if status == 204 {
        // RFC 9110, 8.6. Clients of HTTP/2 refuse such a response.
        slots.mark_hop_by_hop(FieldKind::ContentLength);
    }
    let body = match status {
        // Another head follows on this connection; bytes between the two would be parsed as it.
        100..200 if framed => return Err("an interim response announces a body"),
        100..200 => ResponseBody::Empty,
        204 => {
            // Some servers send the body that they announce here, some do not. Reading none and
            // closing the connection is correct in both cases.
            keep_alive &= !framed;
            ResponseBody::Empty
        }
        304 => ResponseBody::Empty,
        _ if is_head_request => ResponseBody::Empty,
        _ if facts.chunked => ResponseBody::Chunked,
        _ => facts
            .content_length
            .map_or(ResponseBody::UntilClose, ResponseBody::Length),
    };
    keep_alive &= body != ResponseBody::UntilClose;
    Ok(ResponseHead {
        status,
        reason: FieldValue::parsed(tokens.reason.unwrap_or_default().as_bytes()),
        version,
        fields: slots.view(message),
        body,
        content_length: facts.content_length,
        keep_alive,
        upgrade: facts
            .upgrade
            .filter(|_| matches!(status, 101 | 426) && facts.upgrade_named && is_http11),
    })
}

/// The start of a TLS record with an alert (RFC 8446, 5.1): the response of a TLS server to a
/// request without TLS.
const TLS_ALERT: &[u8] = &[21, 3];

/// The reason of a [`MalformedResponseError`] if the server uses TLS.
pub const ANSWERS_TLS: &str = "it uses TLS";

fn reason_of(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::TooManyHeaders => "it has too many fields",
        httparse::Error::HeaderName => "a field name is malformed",
        httparse::Error::HeaderValue => "a field value has a control byte",
        httparse::Error::NewLine => "a line ends wrongly",
        httparse::Error::Version => "the version is not HTTP/1.1 or HTTP/1.0",
        _ => "the status line is malformed",
    }
}

#[cfg(test)]
mod tests;
