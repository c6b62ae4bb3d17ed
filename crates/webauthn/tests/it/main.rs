//! Both ceremonies with our own test authenticator, and with the output of a malicious one.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    reason = "a test ends where it fails"
)]

#[path = "../authenticator/mod.rs"]
mod authenticator;
mod ceremonies;
#[path = "../fuzz_targets/mod.rs"]
mod fuzz_targets;
#[path = "../../../../fuzz/replay.rs"]
mod replay;

#[test]
fn kept_inputs_are_read_or_refused() {
    replay::replay("webauthn", fuzz_targets::webauthn);
}
