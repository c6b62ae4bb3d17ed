//! The entry of a tunnel, which an engine with its agent writes for the other engines.

use std::fmt;
use std::sync::Arc;

use crate::hold::Generation;

/// The settings of a tunnel with a name at one engine. Their format is that of the engines.
///
/// `Debug` does not print the value, which may contain hashes of passwords.
#[derive(Clone, PartialEq, Eq)]
pub struct Entry {
    /// The revision of the store at which it was written.
    pub revision: Generation,
    /// The settings.
    pub value: Arc<[u8]>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("revision", &self.revision)
            .field("bytes", &self.value.len())
            .finish_non_exhaustive()
    }
}
