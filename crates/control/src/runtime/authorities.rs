//! Certificate authorities in files, for HTTP clients.

use std::path::Path;

use daemon::files::read_bounded;
use reqwest::Certificate;

/// The authorities in a PEM file, in addition to those of the system.
///
/// # Errors
/// The file cannot be read or has no certificate. The text is a sentence for the operator.
pub(crate) fn read(file: &Path) -> Result<Vec<Certificate>, String> {
    let failed = |message: String| format!("{}: {message}", file.display());
    let pem = read_bounded(file, MAX_FILE_BYTES).map_err(|error| failed(error.to_string()))?;
    Certificate::from_pem_bundle(&pem)
        .ok()
        .filter(|authorities| !authorities.is_empty())
        .ok_or_else(|| failed("no certificates in PEM".to_owned()))
}

/// Larger files are not certificates.
const MAX_FILE_BYTES: u64 = 1024 * 1024;
