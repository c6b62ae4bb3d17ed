//! Node and the packages of `tests/node`.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail, ensure};

/// The Node from the packages of `tests/node`, because the conformance suite of the Model Context
/// Protocol requires Node 22, which is newer than that of most systems.
///
/// # Errors
/// It is not installed: run `cargo xtask test`.
pub fn node() -> Result<PathBuf> {
    let architecture = match env::consts::ARCH {
        "aarch64" => "arm64",
        _ => "x64",
    };
    let node = packages()?.join(format!("node-linux-{architecture}/bin/node"));
    ensure!(
        node.exists(),
        "there is no {}: run `cargo xtask test`",
        node.display()
    );
    Ok(node)
}

/// The `node_modules` of `tests/node`.
///
/// # Errors
/// As [`node`].
pub fn packages() -> Result<PathBuf> {
    match env::var_os("SVC_TEST_NODE_PACKAGES") {
        Some(directory) => Ok(Path::new(&directory).join("node_modules")),
        None => bail!("SVC_TEST_NODE_PACKAGES is not set: run `cargo xtask test`"),
    }
}
