//! Buffers that are only allocated while they contain data.
//!
//! An idle connection owns no buffer: a task takes one when its socket is readable and returns it
//! when it is empty. Each worker thread keeps a short list of spare buffers, so taking is a pop and
//! returning is a push.

use std::cell::RefCell;
use std::ops::{Deref, DerefMut};

/// A byte buffer of one of the three sizes that the data path uses, returned to its thread's
/// spare list when dropped.
///
/// It contains the bytes of its last user: read only what you wrote.
#[derive(Debug)]
pub struct Scratch(Box<[u8]>);

impl Scratch {
    /// The initial size: one TLS record.
    pub const SMALL: usize = 16 * 1024;
    /// The size of a stream that filled small buffers.
    pub const MEDIUM: usize = 64 * 1024;
    /// The size of a bulk stream. Larger ones gain nothing (measured).
    pub const LARGE: usize = 256 * 1024;

    /// Takes a buffer of at least `len` bytes, at most [`Scratch::LARGE`].
    pub fn take(len: usize) -> Self {
        let class = Class::of(len);
        let spare = SPARE.with_borrow_mut(|spare| {
            spare.taken += 1;
            spare.list(class).pop()
        });
        Self(spare.unwrap_or_else(|| vec![0; class.len()].into_boxed_slice()))
    }

    /// Number of buffers that this thread has taken so far.
    pub(crate) fn taken() -> u64 {
        SPARE.with_borrow(|spare| spare.taken)
    }

    /// Frees the spare buffers of this thread.
    pub(crate) fn free_spare() {
        SPARE.with_borrow_mut(|spare| {
            let taken = spare.taken;
            *spare = SpareBuffers {
                taken,
                ..SpareBuffers::default()
            };
        });
    }

    /// The next larger size, for a stream that filled this one.
    pub fn grown(len: usize) -> usize {
        match Class::of(len) {
            Class::Small => Self::MEDIUM,
            Class::Medium | Class::Large => Self::LARGE,
        }
    }
}

impl Deref for Scratch {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Scratch {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let bytes = std::mem::take(&mut self.0);
        // At thread exit the list may be gone already; then the buffer is simply freed.
        let put_back = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            let class = Class::of(bytes.len());
            let list = spare.list(class);
            if list.len() < class.spare() {
                list.push(bytes);
            }
        });
        put_back.ok();
    }
}

#[derive(Clone, Copy)]
enum Class {
    Small,
    Medium,
    Large,
}

impl Class {
    fn of(len: usize) -> Self {
        if len <= Scratch::SMALL {
            Self::Small
        } else if len <= Scratch::MEDIUM {
            Self::Medium
        } else {
            Self::Large
        }
    }

    fn len(self) -> usize {
        match self {
            Self::Small => Scratch::SMALL,
            Self::Medium => Scratch::MEDIUM,
            Self::Large => Scratch::LARGE,
        }
    }

    /// Number of spare buffers of a thread: about 1 MiB in all. A worker runs one task at a time,
    /// and most tasks return their buffer before the next one runs.
    fn spare(self) -> usize {
        match self {
            Self::Small => 16,
            Self::Medium => 4,
            Self::Large => 2,
        }
    }
}

#[derive(Default)]
struct SpareBuffers {
    taken: u64,
    small: Vec<Box<[u8]>>,
    medium: Vec<Box<[u8]>>,
    large: Vec<Box<[u8]>>,
}

impl SpareBuffers {
    fn list(&mut self, class: Class) -> &mut Vec<Box<[u8]>> {
        match class {
            Class::Small => &mut self.small,
            Class::Medium => &mut self.medium,
            Class::Large => &mut self.large,
        }
    }
}

thread_local! {
    static SPARE: RefCell<SpareBuffers> = RefCell::new(SpareBuffers::default());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_returned_buffer_is_reused() {
        let first = Scratch::take(1);
        let address = first.as_ptr();
        assert_eq!(first.len(), Scratch::SMALL);
        drop(first);
        assert_eq!(Scratch::take(Scratch::SMALL).as_ptr(), address);
    }

    #[test]
    fn spare_buffers_can_be_freed_and_takes_are_counted() {
        let before = Scratch::taken();
        drop((Scratch::take(1), Scratch::take(Scratch::LARGE)));
        Scratch::free_spare();
        SPARE.with_borrow(|spare| {
            assert!(spare.small.is_empty() && spare.medium.is_empty() && spare.large.is_empty());
        });
        assert_eq!(Scratch::taken() - before, 2);
    }

    #[test]
    fn sizes_grow_up_to_the_largest() {
        assert_eq!(Scratch::grown(Scratch::SMALL), Scratch::MEDIUM);
        assert_eq!(Scratch::grown(Scratch::MEDIUM), Scratch::LARGE);
        assert_eq!(Scratch::grown(Scratch::LARGE), Scratch::LARGE);
    }
}
