//! The kept inputs of the fuzz targets.

#[cfg(test)]
#[path = "../fuzz_targets/mod.rs"]
mod fuzz_targets;
#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn kept_inputs_have_a_bounded_response() {
    replay::replay("dns_query", fuzz_targets::query);
}
