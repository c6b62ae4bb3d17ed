//! Counters of permits. A permit is counted until it is dropped.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A number of permits in use.
#[derive(Debug, Default)]
pub struct Counter(AtomicUsize);

impl Counter {
    /// Number of permits in use. It includes for a moment those that are being refused.
    pub fn count(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

impl AsRef<Self> for Counter {
    fn as_ref(&self) -> &Self {
        self
    }
}

/// One permit, counted by its owner until it is dropped. It contains a reference to the owner.
#[derive(Debug)]
pub struct Permit<T: AsRef<Counter> = Counter>(Arc<T>);

impl<T: AsRef<Counter>> Permit<T> {
    /// Takes a permit, whose number has no limit.
    pub fn take(owner: &Arc<T>) -> Self {
        let permit = Self(Arc::clone(owner));
        permit.counter().fetch_add(1, Ordering::Relaxed);
        permit
    }

    /// Takes a permit, unless there are `most` already.
    pub fn try_take(owner: &Arc<T>, most: usize) -> Option<Self> {
        let permit = Self(Arc::clone(owner));
        // Counted first, so that concurrent calls do not exceed the limit. A permit over the limit
        // is dropped, which decrements the counter.
        let before = permit.counter().fetch_add(1, Ordering::Relaxed);
        (before < most).then_some(permit)
    }

    /// True if the permit was taken from this owner.
    pub fn is_of(permit: &Self, owner: &Arc<T>) -> bool {
        Arc::ptr_eq(&permit.0, owner)
    }

    fn counter(&self) -> &AtomicUsize {
        &T::as_ref(&self.0).0
    }
}

impl<T: AsRef<Counter>> Deref for Permit<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsRef<Counter>> Drop for Permit<T> {
    fn drop(&mut self) {
        self.counter().fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permit_counts_until_it_is_dropped() {
        let counter = Arc::<Counter>::default();
        let take = || Permit::try_take(&counter, 2);
        let (first, second) = (take().unwrap(), take().unwrap());
        assert!(Permit::is_of(&first, &counter));
        assert!(!Permit::is_of(&first, &Arc::default()));
        assert!(take().is_none());
        assert_eq!(counter.count(), 2, "a refusal does not count");
        drop(first);
        let third = take().unwrap();
        let unlimited = Permit::take(&counter);
        assert_eq!(counter.count(), 3);
        drop((second, third, unlimited));
        assert_eq!(counter.count(), 0);
    }
}
