//! Builds the request head for the service and the response head for the visitor.

use std::net::IpAddr;

use http1::{
    Authority, BodyLength, Field, FieldKind, FieldName, FieldValue, FieldValueBuf, Method,
    Protocol, RequestTarget, ResponseBody, ResponseHead, Version, field_name, field_value,
    write_field,
};
use types::query_credential;
use types::tunnel::{IdentityField, ProxyHeader};

use crate::access::Proof;
use crate::browser;
use crate::edge::access_record::AccessRecord;
use crate::edge::headers::identity::{self, VisitorIdentity};
use crate::edge::headers::loop_detection;
use crate::edge::http1::copy::Framing;
use crate::edge::response::local_response::reason;

/// The head of a request to a service.
#[derive(Debug)]
pub(crate) struct UpstreamRequestHead<'a> {
    pub(crate) method: Method<'a>,
    /// Without the edge's credential, and with the path exactly as it was authorised (ED-7).
    pub(crate) target: RequestTarget<'a>,
    /// Host and port as the visitor wrote them.
    pub(crate) authority: Authority<'a>,
    pub(crate) source: IpAddr,
    /// The engine's host.
    pub(crate) engine: FieldValue<'a>,
    pub(crate) body: BodyLength,
    /// The protocol of an upgrade.
    pub(crate) upgrade: Option<Protocol<'a>>,
    pub(crate) proof: Option<&'a Proof>,
    /// True if `Authorization` contained the edge's credential.
    pub(crate) strip_authorization: bool,
    /// Headers of kind [`FieldKind::OfProxies`] that the tunnel accepts.
    pub(crate) pass_headers: &'a [ProxyHeader],
    /// Names of the reserved query parameter, which is also removed from `Referer`.
    pub(crate) reserved: &'static [&'static str],
    /// Headers for the visitor's identity. The visitor's own fields with these names are removed.
    pub(crate) identity: &'a [IdentityField],
    /// The identity of a signed-in visitor.
    pub(crate) visitor: Option<VisitorIdentity>,
}

impl UpstreamRequestHead<'_> {
    /// Writes the head as HTTP/1.1. Hop-by-hop fields of the visitor are not forwarded. Forwarding
    /// fields are rebuilt, so that they contain nothing that the visitor chose.
    pub(crate) fn write<'f>(&self, out: &mut Vec<u8>, fields: impl Iterator<Item = Field<'f>>) {
        http1::write_request_line(out, self.method, self.target);
        write_field(out, field_name!("host"), self.authority.into());
        let mut cookies = FieldValueBuf::new();
        for field in fields {
            match field.kind {
                _ if field.hop_by_hop => {}
                FieldKind::Host => {}
                FieldKind::Authorization if self.strip_authorization => {}
                FieldKind::Cookie => join_cookies(&mut cookies, field.value),
                FieldKind::Referer => self.write_referer(out, &field),
                FieldKind::ProxyInfo if !self.accepts_proxy_header(&field) => {}
                kind if kind.is_set_by_edge() => {}
                _ if identity::is_reserved(self.identity, field.name.as_bytes()) => {}
                _ => write_field(out, field.name, field.value),
            }
        }
        if !cookies.is_empty() {
            write_field(out, field_name!("Cookie"), cookies.as_value());
        }
        if self.body == BodyLength::Chunked {
            write_field(out, TRANSFER_ENCODING, CHUNKED);
        }
        if let Some(upgrade) = self.upgrade {
            write_upgrade(out, upgrade.into());
        }
        self.write_forwarding(out);
        out.extend_from_slice(http1::HEAD_END);
    }

    /// True if the tunnel accepts this proxy header. A name with underscores never matches.
    fn accepts_proxy_header(&self, field: &Field<'_>) -> bool {
        let mut accepted = self.pass_headers.iter();
        accepted.any(|header| field.is(header.as_str()))
    }

    fn write_referer(&self, out: &mut Vec<u8>, field: &Field<'_>) {
        let Some(stripped) = query_credential::strip_referer(&field.value, self.reserved) else {
            return write_field(out, field.name, field.value);
        };
        if let Some(value) = FieldValue::parse(&stripped) {
            write_field(out, field.name, value);
        }
    }

    fn write_forwarding(&self, out: &mut Vec<u8>) {
        let mut value = FieldValueBuf::new();
        value.push_ip(self.source);
        write_field(out, field_name!("x-forwarded-for"), value.as_value());
        write_field(out, field_name!("x-forwarded-proto"), HTTPS);
        write_field(out, field_name!("x-forwarded-host"), self.authority.into());
        // RFC 7239, 6: an IPv6 address is enclosed in brackets and quotes.
        let (before, after) = match self.source {
            IpAddr::V4(_) => (field_value!("for="), field_value!(";host=\"")),
            IpAddr::V6(_) => (field_value!("for=\"["), field_value!("]\";host=\"")),
        };
        value.clear();
        value.push(before).push_ip(self.source).push(after);
        value.push(self.authority.into());
        value.push(field_value!("\";proto=https"));
        write_field(out, field_name!("forwarded"), value.as_value());
        write_field(out, loop_detection::CDN_LOOP, self.engine);
        if let Some(proof) = self.proof {
            let claims = [
                (field_name!("svc-user-id"), proof.user_id()),
                (field_name!("svc-credential-id"), proof.credential_id()),
                (field_name!("svc-auth-method"), Some(proof.method())),
            ];
            for (name, value) in claims {
                // A claim with bytes that a field cannot carry is omitted, not changed.
                if let Some(value) = value.and_then(printable) {
                    write_field(out, name, value);
                }
            }
        }
        if let Some(visitor) = &self.visitor {
            visitor.write(out, self.identity);
        }
    }
}

/// Appends the cookies of one field. HTTP/2 may send each cookie in a separate field, but HTTP/1.1
/// allows one field (RFC 9113, 8.2.3). The edge's own cookies are not forwarded.
fn join_cookies(joined: &mut FieldValueBuf, value: FieldValue<'_>) {
    let pairs = browser::pairs(&value).filter(|pair| !browser::is_edge_pair(pair));
    for pair in pairs.filter_map(|pair| value.part(pair)) {
        if !joined.is_empty() {
            joined.push(field_value!("; "));
        }
        joined.push(pair);
    }
}

/// The text as a field value, if it consists of visible ASCII and spaces.
fn printable(text: &str) -> Option<FieldValue<'_>> {
    let printable = !text.is_empty() && text.bytes().all(|byte| (b' '..0x7f).contains(&byte));
    FieldValue::parse(text.as_bytes()).filter(|_| printable)
}

/// True if a field of the service is forwarded to the visitor. Cookies with names reserved for the
/// edge are not.
pub(crate) fn passes_to_visitor(field: &Field<'_>) -> bool {
    field.kind != FieldKind::SetCookie || !browser::sets_edge_cookie(&field.value)
}

/// Appends a field to a complete head.
pub(crate) fn add_field(head: &mut Vec<u8>, name: FieldName<'_>, value: FieldValue<'_>) {
    head.truncate(head.len().saturating_sub(http1::HEAD_END.len()));
    write_field(head, name, value);
    head.extend_from_slice(http1::HEAD_END);
}

/// Appends `Server-Timing` with the time of the edge and of the service to a complete head.
pub(crate) fn add_timing(head: &mut Vec<u8>, record: &AccessRecord) {
    let timing = record.server_timing();
    if let Some(timing) = FieldValue::parse(timing.as_bytes()) {
        add_field(head, field_name!("server-timing"), timing);
    }
}

/// Properties of the visitor's connection that determine the response format.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ResponseFormat {
    pub(crate) version: Version,
    /// The connection stays open after the response.
    pub(crate) keep_alive: bool,
}

/// Writes a service's response head for an HTTP/1.1 visitor. Returns the framing of the body, and
/// true if the connection stays open.
pub(crate) fn write_response(
    out: &mut Vec<u8>,
    head: &ResponseHead<'_>,
    response_format: ResponseFormat,
) -> (Framing, bool) {
    let is_http11 = response_format.version == Version::Http11;
    let (framing, bounded) = match head.body {
        ResponseBody::Empty | ResponseBody::Length(_) => (Framing::Same, true),
        ResponseBody::Chunked if is_http11 => (Framing::Same, true),
        ResponseBody::UntilClose if is_http11 => (Framing::Chunks, true),
        ResponseBody::Chunked | ResponseBody::UntilClose => (Framing::Bare, false),
    };
    let keep_alive = response_format.keep_alive && bounded;
    http1::write_status_line(out, head.status, phrase_of(head));
    for field in head.fields.end_to_end().filter(passes_to_visitor) {
        write_field(out, field.name, field.value);
    }
    if is_http11 && matches!(head.body, ResponseBody::Chunked | ResponseBody::UntilClose) {
        write_field(out, TRANSFER_ENCODING, CHUNKED);
    }
    // A 426 must name the protocol that it requires (RFC 9110, 15.5.22).
    if let Some(upgrade) = head.upgrade.filter(|_| is_http11) {
        write_upgrade(out, upgrade.into());
    }
    if !keep_alive {
        write_field(out, CONNECTION, field_value!("close"));
    } else if response_format.version == Version::Http10 {
        write_field(out, CONNECTION, field_value!("keep-alive"));
    }
    out.extend_from_slice(http1::HEAD_END);
    (framing, keep_alive)
}

/// Writes an interim response (RFC 9110, 15.2) or a 101 response.
pub(crate) fn write_interim(out: &mut Vec<u8>, head: &ResponseHead<'_>) {
    http1::write_status_line(out, head.status, phrase_of(head));
    for field in head.fields.end_to_end().filter(passes_to_visitor) {
        write_field(out, field.name, field.value);
    }
    if let Some(upgrade) = head.upgrade {
        write_upgrade(out, upgrade.into());
    }
    out.extend_from_slice(http1::HEAD_END);
}

fn phrase_of<'b>(head: &ResponseHead<'b>) -> FieldValue<'b> {
    if head.reason.is_empty() {
        reason(head.status)
    } else {
        head.reason
    }
}

fn write_upgrade(out: &mut Vec<u8>, protocol: FieldValue<'_>) {
    write_field(out, CONNECTION, field_value!("Upgrade"));
    write_field(out, field_name!("upgrade"), protocol);
}

/// Names and values that are used in several heads.
pub(in crate::edge) const CONNECTION: FieldName<'static> = FieldName::from_static("connection");
pub(in crate::edge) const TRANSFER_ENCODING: FieldName<'static> =
    FieldName::from_static("transfer-encoding");
pub(in crate::edge) const CHUNKED: FieldValue<'static> = FieldValue::from_static("chunked");
const HTTPS: FieldValue<'static> = FieldValue::from_static("https");

#[cfg(test)]
mod tests;
