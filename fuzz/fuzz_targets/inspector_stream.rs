#![no_main]

#[path = "../../crates/inspector/tests/fuzz_targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::inspector_stream(data));
