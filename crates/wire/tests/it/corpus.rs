//! The stored inputs of the fuzz targets.

use crate::replay::replay;
use crate::targets;

#[test]
fn frame() {
    replay("frame", targets::frame);
}

#[test]
fn pool() {
    replay("pool", targets::pool);
}

#[test]
fn lane() {
    replay("lane", targets::lane);
}

#[test]
fn peer_frame() {
    replay("peer_frame", targets::peer_frame);
}

#[test]
fn forward_header() {
    replay("forward_header", targets::forward_header);
}
