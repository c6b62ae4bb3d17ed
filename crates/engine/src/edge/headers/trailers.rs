//! Filter for trailers between HTTP/1.1 and HTTP/2, and within HTTP/2. [`may_be_trailer`] decides
//! which trailers pass. Within HTTP/1.1, [`http1::parse_trailers`] applies the same rule.

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::Frame;
use http1::{HEAD_END, may_be_trailer, write_field};

use super::identity::ReservedNames;

/// Removes the trailers that may not pass from a frame. A visitor may not send those in `reserved`.
pub(in crate::edge) fn filter(mut frame: Frame<Bytes>, reserved: &ReservedNames) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        let passes = |name: &HeaderName| {
            let name = name.as_str().as_bytes();
            may_be_trailer(name) && !reserved.contains(name)
        };
        let dropped: Vec<_> = trailers
            .keys()
            .filter(|name| !passes(name))
            .cloned()
            .collect();
        for name in dropped {
            trailers.remove(name);
        }
    }
    frame
}

/// Writes the last chunk and the trailers that may pass. A visitor may not send those in `reserved`.
pub(in crate::edge) fn write_last_chunk(
    out: &mut Vec<u8>,
    trailers: &HeaderMap,
    reserved: &ReservedNames,
) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers {
        let bytes = name.as_str().as_bytes();
        if may_be_trailer(bytes) && !reserved.contains(bytes) {
            write_field(out, name.into(), value.into());
        }
    }
    out.extend_from_slice(HEAD_END);
}
