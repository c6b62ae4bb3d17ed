//! The entry of a tunnel, which an engine with its agent writes for the other engines.

use std::fmt;
use std::sync::Arc;

use crate::hold::Generation;

/// The settings of a tunnel with a name at one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The revision of the store at which it was written.
    pub revision: Generation,
    /// The settings.
    pub value: EntryValue,
}

/// The settings in an entry, whose format is that of the engines. `Debug` does not print them, because
/// they may contain hashes of passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct EntryValue(Arc<[u8]>);

impl EntryValue {
    /// Wraps the bytes of the store.
    pub fn new(bytes: impl Into<Arc<[u8]>>) -> Self {
        Self(bytes.into())
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for EntryValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EntryValue({} bytes)", self.0.len())
    }
}
