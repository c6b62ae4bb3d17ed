//! The records that exist while an authority may ask for them.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use hickory_proto::rr::Name;
use parking_lot::Mutex;

use crate::name::{NameError, parse_name};

/// TXT records of pending challenges, shared by orders and the responder. Clones have the same
/// records.
#[derive(Clone, Default)]
pub struct DnsRecords {
    texts: Arc<Mutex<HashMap<Name, Vec<String>>>>,
}

/// Reason why a record is not published.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The name is none of DNS.
    #[error(transparent)]
    Name(#[from] NameError),
    /// Too many records are pending.
    #[error("too many records are pending")]
    Full,
    /// The text does not fit into one string.
    #[error("the text of a record has more than {MAX_TEXT_BYTES} bytes")]
    Text,
}

impl DnsRecords {
    /// Adds a record, and keeps others of the same name. One that exists stays.
    ///
    /// # Errors
    /// The table is full, or the name or the text is unusable.
    pub fn add(&self, name: &str, text: &str) -> Result<(), RecordError> {
        if text.len() > MAX_TEXT_BYTES {
            return Err(RecordError::Text);
        }
        let name = parse_name(name)?;
        let mut texts = self.texts.lock();
        if !texts.contains_key(&name) && texts.len() >= MAX_NAMES {
            return Err(RecordError::Full);
        }
        let texts = texts.entry(name).or_default();
        if texts.iter().any(|known| known == text) {
            return Ok(());
        }
        if texts.len() >= MAX_TEXTS {
            return Err(RecordError::Full);
        }
        texts.push(text.to_owned());
        Ok(())
    }

    /// Removes a record, if it exists, and keeps others of the same name.
    pub fn remove(&self, name: &str, text: &str) {
        let Ok(name) = parse_name(name) else {
            return;
        };
        let mut texts = self.texts.lock();
        if let Some(known) = texts.get_mut(&name) {
            known.retain(|known| known != text);
            if known.is_empty() {
                texts.remove(&name);
            }
        }
    }

    /// The texts of a name.
    pub(crate) fn texts(&self, name: &Name) -> Vec<String> {
        self.texts.lock().get(name).cloned().unwrap_or_default()
    }

    /// Returns true if a name has records, or a name below it.
    pub(crate) fn has_at_or_below(&self, name: &Name) -> bool {
        self.texts.lock().keys().any(|known| name.zone_of(known))
    }
}

impl fmt::Debug for DnsRecords {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.texts.lock().len();
        f.debug_struct("DnsRecords").field("names", &names).finish()
    }
}

/// One order needs a record for each of its names. Its certificate has some names, and a hundred at
/// public authorities.
const MAX_NAMES: usize = 128;

/// A name and its wildcard need two. Orders that were interrupted may leave others.
const MAX_TEXTS: usize = 16;

/// One string of a TXT record (RFC 1035 section 3.3). The answer to a challenge has 43 bytes.
const MAX_TEXT_BYTES: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_one_name_are_independent() {
        let records = DnsRecords::default();
        let name = parse_name("_acme-challenge.h.example").unwrap();
        for text in ["one", "two", "two"] {
            records.add("_acme-challenge.H.example", text).unwrap();
        }
        assert_eq!(records.texts(&name), ["one", "two"]);
        records.remove("_acme-challenge.h.example", "one");
        assert_eq!(records.texts(&name), ["two"]);
        records.remove("_acme-challenge.h.example", "two");
        assert!(!records.has_at_or_below(&name));
    }

    #[test]
    fn the_table_is_bounded() {
        let records = DnsRecords::default();
        for index in 0..MAX_TEXTS {
            records.add("h.example", &index.to_string()).unwrap();
        }
        let full = records.add("h.example", "another");
        assert!(matches!(full, Err(RecordError::Full)), "{full:?}");
        for index in 1..MAX_NAMES {
            records.add(&format!("n{index}.example"), "text").unwrap();
        }
        let full = records.add("another.example", "text");
        assert!(matches!(full, Err(RecordError::Full)), "{full:?}");
        let long = records.add("h.example", &"x".repeat(MAX_TEXT_BYTES + 1));
        assert!(matches!(long, Err(RecordError::Text)), "{long:?}");
    }
}
