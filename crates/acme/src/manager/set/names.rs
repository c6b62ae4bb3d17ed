//! The names of a set with the times of their steps. Times are arguments.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use daemon::tls::export_domain_expiry;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{
    MOST_FAILED_NAMES, ORDERS_PER_HOUR, ORDERS_PER_OWNER, RENEWALS_PER_HOUR, SHORTEST_DELAY,
};
use crate::budget::{OrderTurns, Owner};
use crate::manager::{Certificate, Renewal};

pub(super) struct Schedule {
    pub(super) entries: HashMap<Arc<str>, Entry>,
    /// The names whose next step has a time.
    pub(super) due: BTreeSet<(Instant, Arc<str>)>,
    orders: OrderTurns,
    renewals: OrderTurns,
    /// Names that were removed after failures, so that another addition does not end their delay.
    failed: HashMap<Arc<str>, FailedName>,
    /// Number of the next entry.
    next_number: u64,
}

/// A name and its certificate.
pub(super) struct Entry {
    /// Distinguishes it from an earlier entry with the same name.
    number: u64,
    certificate: Certificate,
    expiry: DomainExpiry,
    pub(super) request: NameRequest,
    /// The request has changed during a step.
    is_changed: bool,
    progress: Progress,
    pub(super) state: EntryState,
}

/// The state of a name between two steps and during one.
#[derive(Clone, Copy, Debug)]
pub(super) enum EntryState {
    /// It has a step at this time.
    Due(Instant),
    /// It waits for the turn of its owner, in one of the two budgets.
    Waiting { is_renewal: bool, ticket: u64 },
    /// A step runs.
    Running,
}

/// The order of a name that its project wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct NameRequest {
    pub(super) owner: Owner,
    /// Name of the record of `dns-01`, if that is delegated.
    pub(super) alias: Option<Arc<str>>,
}

/// The result of the steps of a name.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) renewal: Renewal,
    pub(super) failures: u32,
    /// The order of the next step has its place in the budget.
    pub(super) has_permit: bool,
}

/// A delay after failures that outlasts the name.
#[derive(Clone, Copy, Debug)]
struct FailedName {
    until: Instant,
    failures: u32,
}

/// A name whose step runs.
pub(super) struct RunningStep {
    pub(super) name: Arc<str>,
    pub(super) number: u64,
    pub(super) certificate: Certificate,
    pub(super) expiry: DomainExpiry,
    pub(super) alias: Option<Arc<str>>,
    pub(super) progress: Progress,
}

/// The next step of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    After(Duration),
    /// An order, in the budget of renewals or of new certificates.
    Order {
        is_renewal: bool,
    },
}

/// The exported expiry of a domain until that is removed. Clones share it.
#[derive(Clone)]
pub(in crate::manager) struct DomainExpiry {
    name: Arc<str>,
    /// A step may still run when the name is removed or uploaded certificates replace its own.
    is_removed: Arc<Mutex<bool>>,
}

impl DomainExpiry {
    pub(in crate::manager) fn new(name: Arc<str>) -> Self {
        Self {
            name,
            is_removed: Arc::default(),
        }
    }

    /// Exports the expiry, in seconds since 1970. False if the name was removed.
    pub(in crate::manager) fn export(&self, not_after: i64) -> bool {
        // Under the lock, so that none follows the removal.
        let is_removed = self.is_removed.lock();
        if !*is_removed {
            export_domain_expiry(&self.name, Some(not_after));
        }
        !*is_removed
    }

    fn remove(&self) {
        let mut is_removed = self.is_removed.lock();
        *is_removed = true;
        export_domain_expiry(&self.name, None);
    }
}

impl Progress {
    pub(super) fn new(renewal: Renewal) -> Self {
        Self {
            renewal,
            failures: 0,
            has_permit: false,
        }
    }
}

impl Schedule {
    pub(super) fn new() -> Self {
        Self {
            entries: HashMap::new(),
            due: BTreeSet::new(),
            orders: OrderTurns::new(ORDERS_PER_HOUR, ORDERS_PER_OWNER),
            renewals: OrderTurns::new(RENEWALS_PER_HOUR, RENEWALS_PER_HOUR),
            failed: HashMap::new(),
            next_number: 0,
        }
    }

    /// Changes the request of a name, and returns its certificate; `None` if it is not there. The
    /// next step is then due immediately: its failures were those of another request.
    pub(super) fn change(
        &mut self,
        name: &str,
        request: &NameRequest,
        now: Instant,
    ) -> Option<Certificate> {
        let entry = self.entries.get_mut(name)?;
        let certificate = entry.certificate.clone();
        if entry.request == *request {
            return Some(certificate);
        }
        let former = std::mem::replace(&mut entry.request, request.clone());
        let state = entry.state;
        if matches!(state, EntryState::Running) {
            entry.is_changed = true;
            return Some(certificate);
        }
        // An order in its turn may have a permit already. The next one needs another.
        entry.progress.has_permit = false;
        let next = match state {
            EntryState::Due(at) => at.min(now),
            EntryState::Waiting { .. } | EntryState::Running => now,
        };
        entry.state = EntryState::Due(next);
        let (name, _) = self.entries.get_key_value(name)?;
        let name = Arc::clone(name);
        self.unschedule(&name, &former.owner, state);
        self.due.insert((next, name));
        Some(certificate)
    }

    /// Adds a name whose first step is at `next`, or later after failures. The certificate of an
    /// existing entry stays.
    pub(super) fn insert(
        &mut self,
        expiry: DomainExpiry,
        request: NameRequest,
        certificate: Certificate,
        renewal: Renewal,
        next: Instant,
    ) -> Certificate {
        let name = Arc::clone(&expiry.name);
        if let Some(entry) = self.entries.get(&name) {
            return entry.certificate.clone();
        }
        let mut progress = Progress::new(renewal);
        let failed = self.failed.remove(&name);
        let next = failed.map_or(next, |failed| next.max(failed.until));
        progress.failures = failed.map_or(0, |failed| failed.failures);
        let entry = Entry {
            number: self.next_number,
            certificate: certificate.clone(),
            expiry,
            request,
            is_changed: false,
            progress,
            state: EntryState::Due(next),
        };
        self.next_number += 1;
        self.due.insert((next, Arc::clone(&name)));
        self.entries.insert(name, entry);
        certificate
    }

    /// Removes a name, and its expiry from the metrics.
    pub(super) fn remove(&mut self, name: &str, now: Instant) {
        let Some((name, entry)) = self.entries.remove_entry(name) else {
            return;
        };
        entry.expiry.remove();
        self.unschedule(&name, &entry.request.owner, entry.state);
        if let EntryState::Due(next) = entry.state {
            self.remember(name, entry.progress.failures, next, now);
        }
    }

    /// Takes the step that is due first, or the order of the next turn. Without one, the error is
    /// the time of the next one.
    pub(super) fn take(&mut self, now: Instant) -> Result<RunningStep, Option<Instant>> {
        let (name, has_turn) = self.take_name(now)?;
        // Every name that is due or waits has an entry.
        let Some(entry) = self.entries.get_mut(&name) else {
            return Err(Some(now));
        };
        entry.state = EntryState::Running;
        entry.progress.has_permit |= has_turn;
        Ok(RunningStep {
            number: entry.number,
            certificate: entry.certificate.clone(),
            expiry: entry.expiry.clone(),
            alias: entry.request.alias.clone(),
            progress: entry.progress,
            name,
        })
    }

    /// A name, and true if its order has a turn. Steps that are due are first, so that all names
    /// have entered the turns before one of them is selected.
    fn take_name(&mut self, now: Instant) -> Result<(Arc<str>, bool), Option<Instant>> {
        let mut earliest = None;
        if let Some((next, name)) = self.due.pop_first() {
            if next <= now {
                return Ok((name, false));
            }
            self.due.insert((next, name));
            earliest = Some(next);
        }
        for turns in [&mut self.renewals, &mut self.orders] {
            match turns.take(now) {
                Ok(name) => return Ok((name, true)),
                Err(next) => earliest = earliest.into_iter().chain(next).min(),
            }
        }
        Err(earliest)
    }

    /// Ends a step that `next` follows, unless the name was removed meanwhile.
    pub(super) fn finish(&mut self, step: RunningStep, next: NextStep, now: Instant) {
        let entry = self.entries.get_mut(&step.name);
        let Some(entry) = entry.filter(|entry| entry.number == step.number) else {
            if let NextStep::After(delay) = next {
                self.remember(step.name, step.progress.failures, now + delay, now);
            }
            return;
        };
        entry.progress = step.progress;
        let is_changed = std::mem::take(&mut entry.is_changed);
        match next {
            NextStep::After(delay) => {
                let delay = if is_changed {
                    delay.min(SHORTEST_DELAY)
                } else {
                    delay
                };
                let next = now + delay;
                entry.state = EntryState::Due(next);
                self.due.insert((next, step.name));
            }
            NextStep::Order { is_renewal } => {
                let turns = if is_renewal {
                    &mut self.renewals
                } else {
                    &mut self.orders
                };
                let ticket = turns.enter(&entry.request.owner, step.name);
                entry.state = EntryState::Waiting { is_renewal, ticket };
            }
        }
    }

    fn unschedule(&mut self, name: &Arc<str>, owner: &Owner, state: EntryState) {
        match state {
            EntryState::Due(next) => {
                self.due.remove(&(next, Arc::clone(name)));
            }
            EntryState::Waiting { is_renewal, ticket } => {
                let turns = if is_renewal {
                    &mut self.renewals
                } else {
                    &mut self.orders
                };
                turns.leave(owner, ticket);
            }
            EntryState::Running => {}
        }
    }

    /// Keeps the delay of a removed name until `next`, but for an hour at most: authorities count
    /// failures by the hour, and the owner may have corrected the records.
    fn remember(&mut self, name: Arc<str>, failures: u32, next: Instant, now: Instant) {
        if failures == 0 || next <= now || self.entries.contains_key(&name) {
            return;
        }
        if self.failed.len() >= MOST_FAILED_NAMES {
            self.failed.retain(|_, failed| failed.until > now);
        }
        if self.failed.len() < MOST_FAILED_NAMES {
            let until = next.min(now + Duration::from_hours(1));
            self.failed.insert(name, FailedName { until, failures });
        }
    }
}

impl fmt::Debug for DomainExpiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DomainExpiry")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}
