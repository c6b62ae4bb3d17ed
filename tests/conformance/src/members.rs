//! Optional members that responses have or leave out.

use std::collections::BTreeSet;

/// The optional members of the component schemas in one or more responses.
#[derive(Debug, Default)]
pub struct OptionalMembers {
    /// Schema and member of those that a response has.
    pub present: BTreeSet<(String, String)>,
    /// Schema and member of those that a response does not have.
    pub absent: BTreeSet<(String, String)>,
}

impl OptionalMembers {
    /// The members that every observed object has: the document should require them.
    pub fn never_absent(&self) -> Vec<&(String, String)> {
        self.present.difference(&self.absent).collect()
    }

    /// Adds those of another response.
    pub fn extend(&mut self, other: Self) {
        self.present.extend(other.present);
        self.absent.extend(other.absent);
    }
}
