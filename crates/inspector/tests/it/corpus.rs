//! The kept inputs of the fuzz target.

use crate::replay::replay;
use crate::targets;

#[test]
fn inspector_stream() {
    replay("inspector_stream", targets::inspector_stream);
}
