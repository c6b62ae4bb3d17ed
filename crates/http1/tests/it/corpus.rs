//! The stored inputs of the fuzz targets.

use crate::replay::replay;
use crate::targets;

#[test]
fn http1_body() {
    replay("http1_body", targets::http1_body);
}

#[test]
fn http1_request() {
    replay("http1_request", targets::http1_request);
}

#[test]
fn http1_response() {
    replay("http1_response", targets::http1_response);
}
