//! The kept inputs of the fuzz targets.

use crate::replay::replay;
use crate::targets;

#[test]
fn link_stream() {
    replay("link_stream", targets::link_stream);
}

#[test]
fn link_state() {
    replay("link_state", targets::link_state);
}
