//! Settings that are probably mistakes.

/// A setting that an operator should check. The process starts nevertheless.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Warning {
    /// The dotted key.
    pub key: &'static str,
    /// The message, as a sentence.
    pub message: String,
}

impl Warning {
    /// Creates a warning about a key.
    pub fn new(key: &'static str, message: impl Into<String>) -> Self {
        Self {
            key,
            message: message.into(),
        }
    }
}
