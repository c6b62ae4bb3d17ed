//! The kept inputs of the fuzz targets.

use crate::fuzz_targets;
use crate::replay::replay;

#[test]
fn turn_frames() {
    replay("turn_frames", fuzz_targets::frames);
}

#[test]
fn turn_packets() {
    replay("turn_packets", fuzz_targets::packets);
}

#[test]
fn turn_username() {
    replay("turn_username", fuzz_targets::username);
}
