//! The reserved query parameter: found, judged by form, cut out (ED-1a, ED-1b).

/// The query credential and the query without it.
#[derive(Clone, PartialEq, Eq)]
pub struct Extracted {
    /// The token, decoded. Compact JWS by form, not verified.
    pub token: String,
    /// All other bytes of the query, as they came.
    pub rest: String,
}

impl std::fmt::Debug for Extracted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Extracted").finish_non_exhaustive()
    }
}

/// The credential is empty, malformed or there more than once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the query credential is empty, malformed or repeated")]
pub struct Malformed;

/// Our reserved parameter.
pub const NAME: &str = "svc.token";
/// The reserved parameters with `compat.rstream`; counted together.
pub const COMPAT_NAMES: &[&str] = &[NAME, "rstream.token"];
/// The reserved parameters without it.
pub const NAMES: &[&str] = &[NAME];

/// Takes the credential out of a raw query (without `?`).
pub fn extract(query: &str, names: &[&str]) -> Result<Option<Extracted>, Malformed> {
    let _ = (query, names);
    Err(Malformed)
}

/// Whether any reserved parameter is there, in whatever form.
pub fn is_present(query: &str, names: &[&str]) -> bool {
    let _ = (query, names);
    true
}

/// A `Referer` without reserved parameters, or nothing where it has none.
pub fn strip_referer(referer: &str, names: &[&str]) -> Option<String> {
    let _ = (referer, names);
    None
}
