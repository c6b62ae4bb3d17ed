//! The stored inputs of the fuzz targets.

use crate::replay::replay;
use crate::targets;

#[test]
fn proxy_protocol() {
    replay("proxy_protocol", targets::proxy_protocol);
}
