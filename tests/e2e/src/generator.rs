//! Generators of clients from the OpenAPI documents.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::python;

/// The OpenAPI documents, and the names of packages for their clients.
pub const API_DOCUMENTS: [(&str, &str); 2] =
    [("control-plane", "control_plane"), ("engine", "engine")];

/// The file of an OpenAPI document.
pub fn api_document(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    root.join("openapi").join(name).with_extension("json")
}

/// A program of the Python packages, or a directory relative to them.
///
/// # Errors
/// As [`python`].
pub fn beside_python(name: &str) -> Result<PathBuf> {
    let python = python()?;
    let directory = python.parent().context("no directory")?;
    Ok(directory.join(name))
}
