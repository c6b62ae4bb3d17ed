#![no_main]

#[expect(dead_code, reason = "the targets of one crate share a file")]
#[path = "../../crates/types/tests/fuzz_targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::proxy_protocol(data));
