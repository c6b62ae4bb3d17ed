//! The heads that go on: to the service, and back to the visitor.

use std::fmt::Write as _;
use std::net::IpAddr;

use http1::{BodyLength, Field, FieldKind, ResponseBody, ResponseHead, Target, Version};
use types::query_credential;

use super::answer::reason;
use super::copy::Framing;
use super::loops;
use crate::access::Proof;
use crate::browser;

/// A request on its way to the service.
#[derive(Debug)]
pub(crate) struct Onward<'a> {
    pub(crate) method: &'a str,
    /// With the edge's credential cut out, and the path exactly as it was judged (ED-7).
    pub(crate) target: Target<'a>,
    /// Host and port as the visitor wrote them.
    pub(crate) authority: &'a str,
    pub(crate) source: IpAddr,
    /// The engine's host.
    pub(crate) engine: &'a str,
    pub(crate) body: BodyLength,
    /// The protocol that the connection is to change to.
    pub(crate) upgrade: Option<&'a str>,
    pub(crate) proof: Option<&'a Proof>,
    /// `Authorization` was the edge's credential.
    pub(crate) strip_authorization: bool,
    /// Names of the reserved query parameter, to cut it out of a `Referer` too.
    pub(crate) reserved: &'static [&'static str],
}

impl Onward<'_> {
    /// Writes the head as HTTP/1.1. Fields of the visitor's connection do not travel; forwarding
    /// fields are rebuilt, so that nothing in them is the visitor's word.
    pub(crate) fn write<'f>(&self, out: &mut Vec<u8>, fields: impl Iterator<Item = Field<'f>>) {
        http1::write_request_line(out, self.method, self.target);
        http1::write_field(out, b"host", self.authority.as_bytes());
        let mut cookies = Vec::new();
        for field in fields {
            match field.kind {
                _ if field.hop_by_hop => {}
                FieldKind::Host => {}
                FieldKind::Authorization if self.strip_authorization => {}
                FieldKind::Cookie => join_cookies(&mut cookies, field.value),
                FieldKind::Referer => self.write_referer(out, &field),
                kind if kind.is_set_by_edge() => {}
                _ => http1::write_field(out, field.name, field.value),
            }
        }
        if !cookies.is_empty() {
            http1::write_field(out, b"Cookie", &cookies);
        }
        if self.body == BodyLength::Chunked {
            http1::write_field(out, b"transfer-encoding", b"chunked");
        }
        if let Some(upgrade) = self.upgrade {
            write_upgrade(out, upgrade);
        }
        self.write_forwarding(out);
        out.extend_from_slice(http1::HEAD_END);
    }

    fn write_referer(&self, out: &mut Vec<u8>, field: &Field<'_>) {
        let stripped = std::str::from_utf8(field.value)
            .ok()
            .and_then(|referer| query_credential::strip_referer(referer, self.reserved));
        let value = stripped
            .as_ref()
            .map_or(field.value, |referer| referer.as_bytes());
        http1::write_field(out, field.name, value);
    }

    fn write_forwarding(&self, out: &mut Vec<u8>) {
        let source = self.source.to_string();
        http1::write_field(out, b"x-forwarded-for", source.as_bytes());
        http1::write_field(out, b"x-forwarded-proto", b"https");
        http1::write_field(out, b"x-forwarded-host", self.authority.as_bytes());
        let mut forwarded = String::with_capacity(48 + self.authority.len());
        // RFC 7239, 6: an IPv6 address is bracketed and quoted. Writing to a string cannot fail.
        match self.source {
            IpAddr::V4(v4) => write!(forwarded, "for={v4}").ok(),
            IpAddr::V6(v6) => write!(forwarded, "for=\"[{v6}]\"").ok(),
        };
        write!(forwarded, ";host=\"{}\";proto=https", self.authority).ok();
        http1::write_field(out, b"forwarded", forwarded.as_bytes());
        http1::write_field(out, loops::FIELD, self.engine.as_bytes());
        if let Some(proof) = self.proof {
            let facts = [
                ("svc-user-id", proof.user_id()),
                ("svc-credential-id", proof.credential_id()),
                ("svc-auth-method", Some(proof.method())),
            ];
            for (name, value) in facts {
                // A claim with bytes that a field cannot carry is left out, never changed.
                if let Some(value) = value.filter(|value| is_field_text(value)) {
                    http1::write_field(out, name.as_bytes(), value.as_bytes());
                }
            }
        }
    }
}

/// Adds a field's cookies to those before it: HTTP/2 may send each in a field of its own, and
/// HTTP/1.1 has one field (RFC 9113, 8.2.3). Cookies of the edge itself are not the service's to see.
fn join_cookies(joined: &mut Vec<u8>, value: &[u8]) {
    for pair in browser::pairs(value).filter(|pair| !browser::is_edge_pair(pair)) {
        if !joined.is_empty() {
            joined.extend_from_slice(b"; ");
        }
        joined.extend_from_slice(pair);
    }
}

fn is_field_text(value: &str) -> bool {
    !value.is_empty()
        && value
            .bytes()
            .all(|byte| (0x21..0x7f).contains(&byte) || byte == b' ')
}

/// Whether a service's field goes on to the visitor: all but cookies that would be the edge's own.
pub(crate) fn passes_back(field: &Field<'_>) -> bool {
    field.kind != FieldKind::SetCookie || !browser::sets_edge_cookie(field.value)
}

/// Puts a further field at the end of a head that is whole.
pub(crate) fn add_field(head: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    head.truncate(head.len().saturating_sub(http1::HEAD_END.len()));
    http1::write_field(head, name, value);
    head.extend_from_slice(http1::HEAD_END);
}

/// The visitor's connection, as far as it decides about a response.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Downward {
    pub(crate) version: Version,
    /// Whether the connection is used again.
    pub(crate) keep_alive: bool,
}

/// Writes a service's response head for an HTTP/1.1 visitor; says how the body is framed and
/// whether the connection lives on.
pub(crate) fn write_response(
    out: &mut Vec<u8>,
    head: &ResponseHead<'_>,
    down: Downward,
) -> (Framing, bool) {
    let modern = down.version == Version::Http11;
    let (framing, bounded) = match head.body {
        ResponseBody::Empty | ResponseBody::Length(_) => (Framing::Same, true),
        ResponseBody::Chunked if modern => (Framing::Same, true),
        ResponseBody::UntilClose if modern => (Framing::Chunks, true),
        ResponseBody::Chunked | ResponseBody::UntilClose => (Framing::Bare, false),
    };
    let keep_alive = down.keep_alive && bounded;
    let phrase = if head.reason.is_empty() {
        reason(head.status)
    } else {
        head.reason
    };
    http1::write_status_line(out, head.status, phrase);
    for field in head.fields.end_to_end().filter(passes_back) {
        http1::write_field(out, field.name, field.value);
    }
    if modern && matches!(head.body, ResponseBody::Chunked | ResponseBody::UntilClose) {
        http1::write_field(out, b"transfer-encoding", b"chunked");
    }
    // What a 426 asks for: without it the answer says nothing (RFC 9110, 15.5.22).
    if let Some(upgrade) = head.upgrade.filter(|_| modern) {
        write_upgrade(out, upgrade);
    }
    if !keep_alive {
        http1::write_field(out, b"connection", b"close");
    } else if down.version == Version::Http10 {
        http1::write_field(out, b"connection", b"keep-alive");
    }
    out.extend_from_slice(http1::HEAD_END);
    (framing, keep_alive)
}

/// Writes an interim response (RFC 9110, 15.2) or the one that changes protocols.
pub(crate) fn write_interim(out: &mut Vec<u8>, head: &ResponseHead<'_>) {
    let phrase = if head.reason.is_empty() {
        reason(head.status)
    } else {
        head.reason
    };
    http1::write_status_line(out, head.status, phrase);
    for field in head.fields.end_to_end().filter(passes_back) {
        http1::write_field(out, field.name, field.value);
    }
    if let Some(upgrade) = head.upgrade {
        write_upgrade(out, upgrade);
    }
    out.extend_from_slice(http1::HEAD_END);
}

fn write_upgrade(out: &mut Vec<u8>, protocol: &str) {
    http1::write_field(out, b"connection", b"Upgrade");
    http1::write_field(out, b"upgrade", protocol.as_bytes());
}

#[cfg(test)]
mod tests;
