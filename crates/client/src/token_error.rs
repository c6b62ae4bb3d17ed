//! The error of a token provider.

use std::{error::Error, fmt, sync::Arc};

/// A provider has no token.
#[derive(Clone)]
pub struct TokenError {
    source: Arc<dyn Error + Send + Sync>,
    is_transient: bool,
}

impl TokenError {
    /// A token may be available later.
    pub fn transient(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(source.into(), true)
    }

    /// No token will be available without user action: the sign-in has expired, or a secret is
    /// missing.
    pub fn lasting(source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::new(source.into(), false)
    }

    /// True if a token may be available later.
    pub fn is_transient(&self) -> bool {
        self.is_transient
    }

    fn new(source: Box<dyn Error + Send + Sync>, is_transient: bool) -> Self {
        Self {
            source: source.into(),
            is_transient,
        }
    }
}

impl fmt::Debug for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenError")
            .field("source", &self.source)
            .field("is_transient", &self.is_transient)
            .finish()
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no token is available")
    }
}

impl Error for TokenError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&*self.source)
    }
}
