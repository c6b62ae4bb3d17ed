//! The hostile peers for some seconds. Every change must pass this test.

use std::process::Command;

/// They attack the program that the tests built (`SVC_BIN`). Our crates have no assertions that
/// release builds omit (`clippy.toml` refuses them), so no defect is hidden here. An overflow ends
/// a test program and wraps in a release. `cargo xtask deep` attacks the release program for ten
/// minutes.
#[test]
fn the_program_resists_hostile_peers() {
    let mut attack = Command::new(env!("CARGO_BIN_EXE_attack"));
    let output = attack.args(["--seconds", "15"]).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success(), "{text}");
    assert!(text.contains("passed, 0 failed"), "{text}");
}
