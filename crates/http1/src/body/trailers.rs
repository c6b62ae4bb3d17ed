//! Trailer sections (RFC 9110 §6.5).

use httparse::{EMPTY_HEADER, Status};

use crate::body::BodyError;
use crate::fields::{Fields, Slots};
use crate::framing_fields::{BARE_LINE_FEED, locate};
use crate::kind::FieldKind;

/// The largest trailer section, including its final empty line. Trailers are checksums and states;
/// 8 KiB is the usual limit of servers for a complete head.
pub const TRAILER_BYTES: usize = 8 * 1024;

/// Parses a trailer section with its final empty line, as returned in [`BodyState::Trailers`].
///
/// Fields that must not be sent as trailers are left out: those that frame or route the message,
/// authenticate, control the recipient or describe the content (RFC 9110 §6.5.1), those that belong
/// to one connection, and those that only the edge may send.
///
/// [`BodyState::Trailers`]: crate::BodyState::Trailers
pub fn parse_trailers<'b>(
    section: &'b [u8],
    slots: &'b mut Slots,
) -> Result<Fields<'b>, BodyError> {
    let mut header_buffer = [EMPTY_HEADER; TRAILER_FIELDS];
    let headers = match httparse::parse_headers(section, &mut header_buffer) {
        Ok(Status::Complete((len, headers))) if len == section.len() => headers,
        _ => return Err(BodyError::Malformed("the trailer section is malformed")),
    };
    if !section.ends_with(b"\r\n\r\n") {
        return Err(BodyError::Malformed(BARE_LINE_FEED));
    }
    slots.clear();
    for (index, header) in headers.iter().enumerate() {
        // The first line follows the last chunk, whose line ending is not part of the section.
        let slot = locate(section, header, index == 0).map_err(BodyError::Malformed)?;
        if may_be_trailer(header.name.as_bytes()) && !slots.push(slot) {
            return Err(BodyError::Malformed(
                "the trailer section has too many fields",
            ));
        }
    }
    Ok(slots.view(section))
}

/// Returns true if a field may be passed on as a trailer, see [`parse_trailers`]. The rule is the
/// same for all versions of HTTP and both directions.
pub fn may_be_trailer(name: &[u8]) -> bool {
    FieldKind::of(name) == FieldKind::Other
        && !FORBIDDEN
            .iter()
            .any(|forbidden| name.eq_ignore_ascii_case(forbidden.as_bytes()))
}

/// Names that have no [`FieldKind`] of their own.
const FORBIDDEN: [&str; 25] = [
    "age",
    "cache-control",
    "content-encoding",
    "content-range",
    "content-type",
    "date",
    "expires",
    "if-match",
    "if-modified-since",
    "if-none-match",
    "if-range",
    "if-unmodified-since",
    "location",
    "max-forwards",
    "origin",
    "pragma",
    "proxy-authentication-info",
    "range",
    "retry-after",
    "sec-websocket-extensions",
    "sec-websocket-protocol",
    "strict-transport-security",
    "vary",
    "warning",
    "www-authenticate",
];

/// More than any protocol with trailers sends.
const TRAILER_FIELDS: usize = 32;
