//! Check of the certificate in a configuration.

use super::{CertFiles, ReloadingCert, TlsError, provider};
use crate::config::{ConfigError, Warning};

/// A certificate that expires within this time causes a warning. A working renewal replaces a
/// 90-day certificate a month before it expires, and a 6-day one two days before.
const EXPIRY_NOTICE_SECONDS: i64 = 24 * 60 * 60;

/// Reads a certificate with its key, whose files are in these two keys of the configuration, and
/// adds a warning if it expires soon after `now`, in seconds since 1970.
///
/// # Errors
/// A file cannot be used; the error has its key.
pub fn inspect(
    files: &CertFiles,
    [cert_key, key_key]: [&'static str; 2],
    now: i64,
    warnings: &mut Vec<Warning>,
) -> Result<ReloadingCert, ConfigError> {
    let pair = ReloadingCert::load(files.clone(), provider()).map_err(|error| {
        let key = match &error {
            TlsError::Read { path, .. } | TlsError::Content { path, .. } if *path == files.cert => {
                cert_key
            }
            _ => key_key,
        };
        ConfigError::new(key, error.to_string())
    })?;
    let left = pair.not_after() - now;
    if left <= 0 {
        warnings.push(Warning::new(cert_key, "the certificate has expired"));
    } else if left < EXPIRY_NOTICE_SECONDS {
        let message = format!("the certificate expires in {} minutes", left / 60);
        warnings.push(Warning::new(cert_key, message));
    }
    Ok(pair)
}
