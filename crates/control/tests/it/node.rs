//! Node scripts that use other implementations of the same standards.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::Value;

/// Runs a module of a few lines. It reads `input` and writes its result, both as JSON. The packages
/// of the tests are available.
pub(crate) fn run(script: &str, input: &Value) -> Value {
    let variable = |name: &str| {
        std::env::var_os(name).unwrap_or_else(|| panic!("{name} is not set: run cargo xtask test"))
    };
    let mut node = Command::new(variable("SVC_TEST_NODE"))
        .args(["--input-type=module", "--eval", script])
        .current_dir(variable("SVC_TEST_NODE_PACKAGES"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut to = node.stdin.take().unwrap();
    to.write_all(input.to_string().as_bytes()).unwrap();
    drop(to);
    let output = node.wait_with_output().unwrap();
    assert!(output.status.success(), "{script}");
    serde_json::from_slice(&output.stdout).unwrap()
}
