#![no_main]

#[path = "../../crates/transport/tests/fuzz_targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::proxy_protocol(data));
