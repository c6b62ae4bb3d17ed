//! Sets of tests: those of each change, and the slow ones.

/// Tests that run together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TestSet {
    /// The tests of each change.
    Change,
    /// The tests that only `cargo xtask deep` runs. Each change compiles them as well.
    Deep,
}

impl TestSet {
    /// The set of a test target, by the target's name.
    pub(crate) fn of_target(name: &str) -> Self {
        if name == DEEP {
            Self::Deep
        } else {
            Self::Change
        }
    }
}

/// The name of the test targets with slow tests: `tests/deep/main.rs` of a package.
const DEEP: &str = "deep";
