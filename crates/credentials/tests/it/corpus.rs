//! The kept inputs of the fuzz targets.

use crate::replay::replay;
use crate::targets;

#[test]
fn token() {
    replay("token", targets::token);
}

#[test]
fn webhook() {
    replay("webhook", targets::webhook);
}
