//! The parts of a configuration that the section for orders depends on.

use std::path::Path;

/// The key of a section, and the parts of the configuration that it depends on.
#[derive(Clone, Copy, Debug)]
pub struct SectionContext<'a> {
    /// The dotted key of the section.
    pub key: &'static str,
    /// The name of the certificate.
    pub host: &'a str,
    /// The dotted key of this name.
    pub host_key: &'static str,
    /// Wildcards that the certificate includes if there is `dns-01`.
    pub wildcards: &'a [String],
    /// Names that have certificates of their own with the same settings, for which the process
    /// answers over DNS as well.
    pub other_names: &'a [String],
    /// The dotted key of the plain listener, which answers `http-01`.
    pub plain_key: &'static str,
    /// True if there is a plain listener.
    pub has_plain_listener: bool,
    /// True if the process can answer for the names of challenges over DNS.
    pub can_respond: bool,
    /// The default directory of the state of the process.
    pub state_dir: Option<&'a Path>,
}

impl SectionContext<'_> {
    /// The dotted key of a value of the section.
    pub(crate) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.key)
    }
}
