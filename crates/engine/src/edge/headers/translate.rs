//! Conversion of heads between HTTP/1.1 and HTTP/2.
//!
//! A forwarded request head is written as HTTP/1.1 for all services ([`crate::edge::routing`]). For a
//! service with HTTP/2 it is parsed again here, so that only one module decides which fields are
//! forwarded.

use http::header::SET_COOKIE;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version,
};
use http1::{
    FieldKind, Limits, Progress, ResponseHead, Slots, field_name, field_value, parse_request,
    write_field,
};

use crate::browser::sets_edge_cookie;
use crate::edge::headers::forwarding::{
    CHUNKED, CONNECTION, ResponseFormat, TRANSFER_ENCODING, passes_to_visitor,
};
use crate::edge::http1::copy::Framing;
use crate::edge::response::local_response::reason;

/// Converts a head that [`crate::edge::routing`] wrote into an HTTP/2 request. `None` if HTTP/2 cannot
/// express it.
pub(crate) fn request<B>(head: &[u8], tls: bool, trailers: bool, body: B) -> Option<Request<B>> {
    let mut slots = Slots::new();
    // The edge has added fields, so the limits for visitors do not apply.
    let limits = Limits {
        head_bytes: usize::MAX,
        target_bytes: usize::MAX,
        headers: usize::MAX,
    };
    let Ok(Progress::Complete { head, .. }) = parse_request(head, &limits, &mut slots) else {
        return None;
    };
    let path = match head.target.query() {
        Some(query) => format!("{}?{query}", head.target.path()),
        None => head.target.path().to_owned(),
    };
    let authority = head.fields.of_kind(FieldKind::Host).next()?.value;
    let uri = Uri::builder()
        .scheme(if tls { "https" } else { "http" })
        .authority(authority.as_bytes())
        .path_and_query(path)
        .build()
        .ok()?;
    let mut request = Request::new(body);
    *request.method_mut() = Method::from_bytes(head.method.as_str().as_bytes()).ok()?;
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_2;
    for field in head.fields.end_to_end() {
        if field.kind == FieldKind::Host || field.kind == FieldKind::Expect {
            continue;
        }
        let name = HeaderName::from_bytes(&field.name).ok()?;
        let value = HeaderValue::from_bytes(&field.value).ok()?;
        request.headers_mut().append(name, value);
    }
    if trailers {
        request
            .headers_mut()
            .insert(http::header::TE, HeaderValue::from_static("trailers"));
    }
    Some(request)
}

/// Converts a service's HTTP/1.1 head into an HTTP/2 response.
pub(crate) fn response(head: &ResponseHead<'_>) -> Option<Response<()>> {
    let mut response = Response::new(());
    *response.status_mut() = StatusCode::from_u16(head.status).ok()?;
    for field in head.fields.end_to_end().filter(passes_to_visitor) {
        let name = HeaderName::from_bytes(&field.name).ok()?;
        let value = HeaderValue::from_bytes(&field.value).ok()?;
        response.headers_mut().append(name, value);
    }
    Some(response)
}

/// Removes fields that HTTP/2 forbids (RFC 9113, 8.2.2), and cookies with names reserved for the
/// edge.
pub(crate) fn strip_response_fields(headers: &mut HeaderMap) {
    let is_edge_cookie = |value: &HeaderValue| sets_edge_cookie(value.as_bytes());
    if headers.get_all(SET_COOKIE).iter().any(is_edge_cookie) {
        let kept: Vec<_> = headers.get_all(SET_COOKIE).iter().cloned().collect();
        headers.remove(SET_COOKIE);
        for value in kept.into_iter().filter(|value| !is_edge_cookie(value)) {
            headers.append(SET_COOKIE, value);
        }
    }
    remove_connection_fields(headers);
}

/// Removes the fields of a response that HTTP/2 forbids (RFC 9113, 8.2.2).
pub(crate) fn remove_connection_fields(headers: &mut HeaderMap) {
    for name in [
        "connection",
        "keep-alive",
        "proxy-connection",
        "te",
        "transfer-encoding",
        "upgrade",
    ] {
        headers.remove(name);
    }
}

/// Writes an interim response of an HTTP/2 service (RFC 9110, 15.2) for an HTTP/1.1 visitor.
pub(crate) fn write_interim(out: &mut Vec<u8>, response: &Response<()>) {
    let status = response.status().as_u16();
    http1::write_status_line(out, status, reason(status));
    write_fields(out, response.headers());
    out.extend_from_slice(http1::HEAD_END);
}

/// Writes the fields that reach a visitor, without the length of a body.
fn write_fields(out: &mut Vec<u8>, headers: &HeaderMap) {
    for (name, value) in headers {
        let kind = FieldKind::of(name.as_str().as_bytes());
        let is_edge_cookie = kind == FieldKind::SetCookie && sets_edge_cookie(value.as_bytes());
        if !kind.is_hop_by_hop() && kind != FieldKind::ContentLength && !is_edge_cookie {
            write_field(out, name.into(), value.into());
        }
    }
}

/// Writes the head of an HTTP/2 service's response for an HTTP/1.1 visitor. Returns the framing of
/// the body (`None` without a body), and true if the connection stays open.
pub(crate) fn write_response<B>(
    out: &mut Vec<u8>,
    response: &Response<B>,
    is_head: bool,
    response_format: ResponseFormat,
) -> (Option<Framing>, bool) {
    let status = response.status().as_u16();
    let sized = response
        .headers()
        .contains_key(http::header::CONTENT_LENGTH);
    let empty = is_head || matches!(status, 204 | 304);
    let framing = if empty {
        None
    } else if sized {
        Some(Framing::Same)
    } else if response_format.version == http1::Version::Http11 {
        Some(Framing::Chunks)
    } else {
        Some(Framing::Bare)
    };
    let keep_alive = response_format.keep_alive && framing != Some(Framing::Bare);
    http1::write_status_line(out, status, reason(status));
    write_fields(out, response.headers());
    // `h2` has compared the first length with the body. A second one could be interpreted as
    // another end of the body.
    if let Some(length) = response.headers().get(http::header::CONTENT_LENGTH) {
        write_field(out, field_name!("content-length"), length.into());
    }
    if framing == Some(Framing::Chunks) {
        write_field(out, TRANSFER_ENCODING, CHUNKED);
    }
    if !keep_alive {
        write_field(out, CONNECTION, field_value!("close"));
    } else if response_format.version == http1::Version::Http10 {
        write_field(out, CONNECTION, field_value!("keep-alive"));
    }
    out.extend_from_slice(http1::HEAD_END);
    (framing, keep_alive)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ED-2: the rule applies to any HTTP versions of the two peers.
    #[test]
    fn ed_2_services_cannot_set_cookies_of_the_edge() {
        let mut response = Response::new(());
        let cookies = [
            "a=1",
            "__Host-svc_auth=x; Path=/",
            "=__host-svc_sign_in=x",
            "b=2",
        ];
        for cookie in cookies {
            let value = HeaderValue::from_static(cookie);
            response.headers_mut().append(SET_COOKIE, value);
        }
        let mut out = Vec::new();
        let down = ResponseFormat {
            version: http1::Version::Http11,
            keep_alive: true,
        };
        write_response(&mut out, &response, false, down);
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("a=1") && text.contains("b=2"), "{text}");
        assert!(!text.to_ascii_lowercase().contains("__host"), "{text}");
        strip_response_fields(response.headers_mut());
        let left: Vec<_> = response.headers().get_all(SET_COOKIE).iter().collect();
        assert_eq!(left, ["a=1", "b=2"]);
    }
}
