//! The record of a name at one engine.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The identity that owns a name: agents with one identity take over each other's names.
///
/// The text consists of the project, the kind of the identity and its id. Owners are only compared.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Owner(Arc<str>);

impl Owner {
    /// Creates an owner from the text that identifies it.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for Owner {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// One run of an engine's process. A restarted engine has another id, so it never confuses the
/// holds of an earlier process with its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EngineId(pub u128);

impl fmt::Display for EngineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// The text is no id of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidEngineId;

impl FromStr for EngineId {
    type Err = InvalidEngineId;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_valid = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        let id = u128::from_str_radix(text, 16).map_err(|_| InvalidEngineId)?;
        is_valid.then_some(Self(id)).ok_or(InvalidEngineId)
    }
}

/// Fences the previous holders of a name: the store's revision at which a hold was written. It
/// only increases, so the hold with the greatest generation is the newest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Generation(pub u64);

/// A name at one engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NameHold {
    /// The engine.
    pub engine: EngineId,
    /// The identity of its agents with this name.
    pub owner: Owner,
    /// The revision of the store at which it was written.
    pub generation: Generation,
    /// False if the last agent with the name has left: the name is only held against others.
    pub is_online: bool,
    /// True if tunnels of other agents of the owner may have the name at the same time.
    pub is_shared: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_engines_have_one_text() {
        for id in [EngineId(0), EngineId(0xAB), EngineId(u128::MAX)] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for text in ["", "1", "+0000000000000000000000000000001", &"g".repeat(32)] {
            assert!(text.parse::<EngineId>().is_err(), "{text}");
        }
    }
}
