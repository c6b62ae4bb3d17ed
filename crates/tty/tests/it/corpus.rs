//! The kept inputs of the fuzz targets.

use crate::replay::replay;
use crate::targets;

#[test]
fn webtty_message() {
    replay("webtty_message", targets::webtty_message);
}
