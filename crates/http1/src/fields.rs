//! The fields of a head or of a trailer section: an index into the caller's buffer, without a copy.

use std::fmt;

use crate::kind::FieldKind;
use crate::value::{FieldName, FieldValue};

/// The largest number of fields in a head, even if [`Limits`](crate::Limits) allow more.
///
/// It is larger than the number that a visitor may send (`Limits::default`): the edge adds its own
/// fields, and the result can be parsed again. It is small enough for separate [`Slots`] in each
/// connection.
pub const MAX_FIELDS: usize = 160;

/// Space for the index of one head. Create one per connection or per core and use it for every
/// message; each parse overwrites its content.
pub struct Slots {
    slots: [Slot; MAX_FIELDS],
    len: usize,
}

impl Slots {
    /// Creates an empty index.
    pub const fn new() -> Self {
        Self {
            slots: [Slot::EMPTY; MAX_FIELDS],
            len: 0,
        }
    }

    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// Adds a field; false if there is no space.
    pub(crate) fn push(&mut self, slot: Slot) -> bool {
        let Some(free) = self.slots.get_mut(self.len) else {
            return false;
        };
        *free = slot;
        self.len += 1;
        true
    }

    pub(crate) fn filled_mut(&mut self) -> &mut [Slot] {
        self.slots.get_mut(..self.len).unwrap_or_default()
    }

    /// Marks all fields of this kind as hop-by-hop, so that they are not forwarded.
    pub(crate) fn mark_hop_by_hop(&mut self, kind: FieldKind) {
        for slot in self.filled_mut() {
            slot.hop_by_hop |= slot.kind == kind;
        }
    }

    pub(crate) fn view<'b>(&'b self, buf: &'b [u8]) -> Fields<'b> {
        Fields {
            buf,
            slots: self.slots.get(..self.len).unwrap_or_default(),
        }
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots")
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

/// Position of a field in the buffer. Offsets and lengths fit in 16 bits, see `Limits::head_bytes`.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    pub(crate) name_at: u16,
    pub(crate) name_len: u16,
    pub(crate) value_at: u16,
    pub(crate) value_len: u16,
    pub(crate) kind: FieldKind,
    pub(crate) hop_by_hop: bool,
}

impl Slot {
    const EMPTY: Self = Self {
        name_at: 0,
        name_len: 0,
        value_at: 0,
        value_len: 0,
        kind: FieldKind::Other,
        hop_by_hop: false,
    };

    pub(crate) fn name<'b>(&self, buf: &'b [u8]) -> &'b [u8] {
        slice(buf, self.name_at, self.name_len)
    }

    pub(crate) fn value<'b>(&self, buf: &'b [u8]) -> &'b [u8] {
        slice(buf, self.value_at, self.value_len)
    }
}

/// One field of a head or of a trailer section.
///
/// `Debug` prints only the name: values may be credentials.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Field<'b> {
    /// The name as sent.
    pub name: FieldName<'b>,
    /// The value as sent without the whitespace around it.
    pub value: FieldValue<'b>,
    /// The meaning of the name.
    pub kind: FieldKind,
    /// True if it must not be forwarded: because of its kind, or because `Connection` names it (RFC
    /// 9110 §7.6.1). `Connection` has no effect on `Host` and `Content-Length`. A length is only
    /// marked if it repeats another one of the same response, or belongs to a 204.
    pub hop_by_hop: bool,
}

impl Field<'_> {
    /// Returns true if the field has this name, ignoring case.
    pub fn is(&self, name: &str) -> bool {
        self.name.is(name)
    }
}

impl fmt::Debug for Field<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: …", self.name)
    }
}

/// The fields of a head in the order in which they were sent.
#[derive(Clone, Copy)]
pub struct Fields<'b> {
    buf: &'b [u8],
    slots: &'b [Slot],
}

impl<'b> Fields<'b> {
    /// Number of fields.
    pub fn len(&self) -> usize {
        self.slots.len()
    }

    /// Returns true if there are none.
    pub fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// All fields, also those that are not forwarded.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Field<'b>> + use<'b> {
        let buf = self.buf;
        self.slots.iter().map(move |slot| Field {
            name: FieldName::parsed(slot.name(buf)),
            value: FieldValue::parsed(slot.value(buf)),
            kind: slot.kind,
            hop_by_hop: slot.hop_by_hop,
        })
    }

    /// The fields that are not hop-by-hop; `Content-Length` is one of them.
    pub fn end_to_end(&self) -> impl Iterator<Item = Field<'b>> + use<'b> {
        self.iter().filter(|field| !field.hop_by_hop)
    }

    /// The fields of one kind.
    pub fn of_kind(&self, kind: FieldKind) -> impl Iterator<Item = Field<'b>> + use<'b> {
        self.iter().filter(move |field| field.kind == kind)
    }

    /// The value of the first field with this name, ignoring case.
    pub fn get(&self, name: &str) -> Option<FieldValue<'b>> {
        self.iter()
            .find(|field| field.is(name))
            .map(|field| field.value)
    }
}

impl fmt::Debug for Fields<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

fn slice(buf: &[u8], at: u16, len: u16) -> &[u8] {
    let at = usize::from(at);
    buf.get(at..at + usize::from(len)).unwrap_or_default()
}
