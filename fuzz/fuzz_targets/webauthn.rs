#![no_main]

#[path = "../../crates/webauthn/tests/fuzz_targets/mod.rs"]
mod targets;

libfuzzer_sys::fuzz_target!(|data: &[u8]| targets::webauthn(data));
