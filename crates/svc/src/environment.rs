//! The environment of this process, for configurations.

/// All variables; those that are no text are nobody's configuration.
pub(crate) fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
}
