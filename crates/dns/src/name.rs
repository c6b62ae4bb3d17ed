//! Names of DNS in texts.

use hickory_proto::rr::Name;

/// A text that is no name of DNS.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a DNS name")]
pub struct NameError(pub String);

/// Parses an absolute name. The dot at its end may be left out.
///
/// # Errors
/// It has labels that are empty or too long, is too long itself, or is the root.
pub(crate) fn parse_name(text: &str) -> Result<Name, NameError> {
    let invalid = || NameError(text.to_owned());
    // Escapes of files with zones are not used by names of hosts.
    if text.is_empty() || text.contains('\\') || text.contains("..") || text.starts_with('.') {
        return Err(invalid());
    }
    let mut name = Name::from_ascii(text).map_err(|_| invalid())?;
    if name.is_root() {
        return Err(invalid());
    }
    name.set_fqdn(true);
    Ok(name)
}
