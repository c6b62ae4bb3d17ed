//! Trailers between HTTP/1.1 and HTTP/2, and within HTTP/2: one rule says which of them pass
//! ([`may_be_trailer`]). Within HTTP/1.1 [`http1::parse_trailers`] keeps it.

use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use http_body::Frame;
use http1::{HEAD_END, may_be_trailer, write_field};

/// A frame on its way: trailers without the fields that may not pass.
pub(super) fn filter(mut frame: Frame<Bytes>) -> Frame<Bytes> {
    if let Some(trailers) = frame.trailers_mut() {
        let passes = |name: &HeaderName| may_be_trailer(name.as_str().as_bytes());
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

/// Writes the last chunk and the trailers that may pass.
pub(super) fn write(out: &mut Vec<u8>, trailers: &HeaderMap) {
    out.extend_from_slice(b"0\r\n");
    for (name, value) in trailers {
        if may_be_trailer(name.as_str().as_bytes()) {
            write_field(out, name.into(), value.into());
        }
    }
    out.extend_from_slice(HEAD_END);
}
