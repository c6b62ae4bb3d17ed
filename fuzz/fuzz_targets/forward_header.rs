#![no_main]

#[expect(dead_code, reason = "the targets of one crate share a file")]
#[path = "../../crates/wire/tests/fuzz_targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::forward_header(data));
