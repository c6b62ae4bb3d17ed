//! The kept inputs of the fuzz targets.

use crate::replay::replay;
use crate::targets;

#[test]
fn config() {
    replay("config", targets::config);
}

#[test]
fn directory() {
    replay("directory", targets::directory);
}
