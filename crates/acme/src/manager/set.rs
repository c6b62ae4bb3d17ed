//! Certificates of many custom domains: one for each, ordered and renewed by one thread.

use std::collections::{BTreeSet, HashMap};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use daemon::tls::export_domain_expiry;
use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::{Certificate, Manager, Renewal, Step, USUAL_QUESTION, random};
use crate::budget::OrderBudget;
use crate::challenges::Challenges;
use crate::client::AuthorityClient;
use crate::error::OrderError;
use crate::schedule::{renewal_time, retry_delay};
use crate::settings::{ChallengeKind, Settings, WallClock};
use crate::store::StateFolder;

/// The certificates of custom domains. Names may be added and removed at any time. Clones share
/// them.
///
/// Each name has its own state, delay after failures and certificate, so a name that fails delays no
/// other. All names share the account, and one budget of orders.
#[derive(Clone)]
pub struct CertificateSet(Arc<SetState>);

struct SetState {
    /// Settings of every name, without its names.
    settings: Settings,
    account_folder: StateFolder,
    /// One for each step at a time, because it keeps the delay that the authority requested.
    clients: [AuthorityClient; STEPS_AT_ONCE],
    challenges: Arc<Challenges>,
    provider: Arc<CryptoProvider>,
    now: WallClock,
    schedule: Mutex<Schedule>,
    /// A step is due earlier than before.
    changed: Notify,
}

struct Schedule {
    entries: HashMap<Arc<str>, Entry>,
    /// The names without a running step, by the time of their next one.
    due: BTreeSet<(Instant, Arc<str>)>,
    orders: OrderBudget,
    renewals: OrderBudget,
    /// Number of the next entry.
    next_number: u64,
}

/// A name and its certificate.
struct Entry {
    /// Distinguishes it from an earlier entry with the same name.
    number: u64,
    certificate: Certificate,
    /// Name of the record of `dns-01`, if that is delegated.
    alias: Option<Arc<str>>,
    progress: Progress,
    /// Time of the next step; `None` while one runs.
    next: Option<Instant>,
}

/// The state of a name between two steps.
#[derive(Clone, Copy, Debug)]
struct Progress {
    renewal: Renewal,
    failures: u32,
    /// The reservation for the order of the next step.
    permit: Option<Permit>,
}

/// A reserved time in one of the two budgets.
#[derive(Clone, Copy, Debug)]
struct Permit {
    at: Instant,
    is_renewal: bool,
}

/// A name whose step runs.
struct RunningStep {
    name: Arc<str>,
    number: u64,
    certificate: Certificate,
    alias: Option<Arc<str>>,
    progress: Progress,
}

impl CertificateSet {
    /// Prepares a set without names. `settings` are those of the process's own certificate; their
    /// names are not used. It sends nothing.
    ///
    /// # Errors
    /// The state directory or a file of the settings cannot be used.
    pub fn open(
        settings: Settings,
        challenges: Arc<Challenges>,
        provider: Arc<CryptoProvider>,
        now: WallClock,
    ) -> Result<Self, OrderError> {
        let account_folder = StateFolder::open(&settings.state_dir)
            .map_err(OrderError::state(&settings.state_dir))?;
        let client = || {
            let ca_file = settings.ca_file.as_deref();
            AuthorityClient::new(&settings.directory, ca_file, Arc::clone(&now))
        };
        Ok(Self(Arc::new(SetState {
            clients: [client()?, client()?],
            account_folder,
            settings,
            challenges,
            provider,
            now,
            schedule: Mutex::new(Schedule {
                entries: HashMap::new(),
                due: BTreeSet::new(),
                orders: OrderBudget::new(ORDERS_PER_HOUR),
                renewals: OrderBudget::new(RENEWALS_PER_HOUR),
                next_number: 0,
            }),
            changed: Notify::new(),
        })))
    }

    /// Adds a name (or `*.name`) in lower-case A-labels, and returns its certificate: the stored
    /// one at first, if there is one. Only one order for it is pending at a time. A name that was
    /// added before keeps its certificate.
    pub fn add(&self, name: &str) -> Certificate {
        self.add_with(name, None)
    }

    /// As [`Self::add`]. The name is validated by `dns-01` only, and its record is at `alias`, to which
    /// the usual one is delegated.
    pub fn add_delegated(&self, name: &str, alias: &str) -> Certificate {
        self.add_with(name, Some(alias.into()))
    }

    fn add_with(&self, name: &str, alias: Option<Arc<str>>) -> Certificate {
        if let Some(entry) = self.0.schedule.lock().entries.get_mut(name) {
            // The domain may be another project's by now, with another alias.
            entry.alias = alias;
            return entry.certificate.clone();
        }
        let name: Arc<str> = name.into();
        let (certificate, renewal) = self.0.stored(&name);
        let first = self.0.first_delay(&certificate, &renewal);
        let mut schedule = self.0.schedule.lock();
        let next = Instant::now() + first;
        let certificate = schedule.insert(Arc::clone(&name), certificate, renewal, next);
        if let Some(entry) = schedule.entries.get_mut(&name) {
            entry.alias = alias;
        }
        drop(schedule);
        self.0.changed.notify_one();
        certificate
    }

    /// Removes a name. Its certificate is not renewed, and its state stays on disk. A pending order
    /// is not continued.
    pub fn remove(&self, name: &str) {
        let removed = self.0.schedule.lock().remove(name);
        if removed {
            export_domain_expiry(name, None);
        }
    }

    /// Orders and renews on a thread of its own until `stop`.
    ///
    /// # Errors
    /// The system refuses a thread or descriptors.
    pub fn start(&self, stop: CancellationToken) -> io::Result<JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new().name("svc-domains".to_owned());
        let set = Arc::clone(&self.0);
        thread.spawn(move || {
            runtime.block_on(async {
                let [first, second] = &set.clients;
                let steps = async { tokio::join!(set.run_steps(first), set.run_steps(second)) };
                tokio::select! {
                    () = stop.cancelled() => {}
                    _ = steps => {}
                }
            });
            // The look-up of a name cannot be stopped, and the process must not wait for it.
            runtime.shutdown_background();
        })
    }
}

impl SetState {
    /// Runs the steps that are due, one after the other, for ever.
    async fn run_steps(&self, client: &AuthorityClient) {
        loop {
            let now = Instant::now();
            let taken = self.schedule.lock().take(now);
            match taken {
                Ok(mut step) => {
                    // Another one may be due, and the other loop asleep.
                    self.changed.notify_one();
                    let delay = self.run(&mut step, client).await;
                    self.schedule.lock().finish(step, Instant::now() + delay);
                }
                Err(next) => {
                    let latest = now + LONGEST_SLEEP;
                    let next = next.map_or(latest, |next| next.min(latest));
                    tokio::select! {
                        () = tokio::time::sleep_until(next) => {}
                        () = self.changed.notified() => {}
                    }
                }
            }
        }
    }

    /// Orders a certificate if it is time, and returns the delay until the next step.
    async fn run(&self, step: &mut RunningStep, client: &AuthorityClient) -> Duration {
        // One of an earlier name.
        client.take_retry_after();
        let folder = domain_state_dir(&self.settings.state_dir, &step.name);
        let opened = StateFolder::open(&folder).map_err(OrderError::state(&folder));
        let mut manager = self.manager(step, client);
        let done = match opened {
            Ok(_) => self.advance(&mut manager, &mut step.progress).await,
            Err(error) => Err(error),
        };
        step.progress.renewal = manager.renewal;
        match done {
            Ok(delay) => delay.max(SHORTEST_DELAY),
            Err(error) => {
                step.progress.permit = None;
                step.progress.failures = step.progress.failures.saturating_add(1);
                let requested = client.take_retry_after();
                let failures = step.progress.failures;
                let delay = retry_delay(FIRST_RETRY, failures, requested, random());
                manager.report(&error, delay);
                delay
            }
        }
    }

    async fn advance(
        &self,
        manager: &mut Manager,
        progress: &mut Progress,
    ) -> Result<Duration, OrderError> {
        if progress.permit.is_none() {
            if let Some(wait) = manager.wait().await {
                progress.failures = 0;
                return Ok(wait);
            }
            let now = Instant::now();
            let has_window = manager.renewal.window.is_some();
            let permit = self.schedule.lock().reserve(has_window, now);
            progress.permit = Some(permit);
            if permit.at > now {
                return Ok(permit.at - now);
            }
        }
        match manager.order(progress.failures).await? {
            Step::Idle(wait) => {
                progress.permit = None;
                progress.failures = 0;
                Ok(wait)
            }
            Step::Locked => Ok(LOCK_POLL),
        }
    }

    fn manager(&self, step: &RunningStep, client: &AuthorityClient) -> Manager {
        let name = &step.name;
        let mut settings = Settings {
            names: vec![name.to_string()],
            challenge_alias: step.alias.as_deref().map(str::to_owned),
            ..self.settings.clone()
        };
        if step.alias.is_some() {
            settings.challenges = vec![ChallengeKind::Dns01];
        }
        Manager {
            settings,
            folder: StateFolder::existing(&domain_state_dir(&self.settings.state_dir, name)),
            client: client.clone(),
            certificate: step.certificate.clone(),
            challenges: Arc::clone(&self.challenges),
            provider: Arc::clone(&self.provider),
            now: Arc::clone(&self.now),
            account_folder: Some(self.account_folder.clone()),
            domain: Some(Arc::clone(name)),
            renewal: step.progress.renewal,
        }
    }

    /// The stored certificate of a name. A state that cannot be read counts as none: the first step
    /// reports it.
    fn stored(&self, name: &Arc<str>) -> (Certificate, Renewal) {
        let step = RunningStep {
            name: Arc::clone(name),
            number: 0,
            certificate: Certificate::default(),
            alias: None,
            progress: Progress::new(Renewal::DUE),
        };
        let [client, _] = &self.clients;
        let mut manager = self.manager(&step, client);
        manager.export_expiry(0);
        match manager.stored() {
            Ok(Some((issued, is_outdated))) => manager.install(issued, is_outdated),
            Ok(None) => {}
            Err(error) => warn!(%error, name = &**name, "the stored certificate is not used"),
        }
        (manager.certificate, manager.renewal)
    }

    /// The delay of the first step of a name. Those that need no certificate are spread, so that a
    /// start does not ask the authority about all of them at once.
    fn first_delay(&self, certificate: &Certificate, renewal: &Renewal) -> Duration {
        let current = certificate.current().filter(|_| !renewal.is_outdated);
        let due = current.map(|issued| renewal_time(issued.validity(), None, renewal.random));
        let left = due.map_or(0, |due| due.saturating_sub((self.now)()));
        let left = u64::try_from(left).unwrap_or_default();
        Duration::from_secs(left.min(renewal.random % USUAL_QUESTION.unsigned_abs()))
    }
}

impl Progress {
    fn new(renewal: Renewal) -> Self {
        Self {
            renewal,
            failures: 0,
            permit: None,
        }
    }
}

impl Schedule {
    /// Adds a name whose first step is at `next`. The certificate of an existing entry stays.
    fn insert(
        &mut self,
        name: Arc<str>,
        certificate: Certificate,
        renewal: Renewal,
        next: Instant,
    ) -> Certificate {
        if let Some(entry) = self.entries.get(&name) {
            return entry.certificate.clone();
        }
        let entry = Entry {
            number: self.next_number,
            certificate: certificate.clone(),
            alias: None,
            progress: Progress::new(renewal),
            next: Some(next),
        };
        self.next_number += 1;
        self.due.insert((next, Arc::clone(&name)));
        self.entries.insert(name, entry);
        certificate
    }

    /// Removes a name; false if it is not there.
    fn remove(&mut self, name: &str) -> bool {
        let Some((name, entry)) = self.entries.remove_entry(name) else {
            return false;
        };
        // A running step gives its own reservation back at its end.
        if let Some(next) = entry.next {
            self.due.remove(&(next, name));
            self.give_back(entry.progress);
        }
        true
    }

    /// Takes the step that is due first. Without one, the error is the time of the next one.
    fn take(&mut self, now: Instant) -> Result<RunningStep, Option<Instant>> {
        let Some((next, name)) = self.due.pop_first() else {
            return Err(None);
        };
        if next > now {
            self.due.insert((next, name));
            return Err(Some(next));
        }
        // Every name in `due` has an entry.
        let Some(entry) = self.entries.get_mut(&name) else {
            return Err(Some(now));
        };
        entry.next = None;
        Ok(RunningStep {
            number: entry.number,
            certificate: entry.certificate.clone(),
            alias: entry.alias.clone(),
            progress: entry.progress,
            name,
        })
    }

    /// Ends a step. The next one of the name is at `next`, unless the name was removed meanwhile.
    fn finish(&mut self, step: RunningStep, next: Instant) {
        let entry = self.entries.get_mut(&step.name);
        let Some(entry) = entry.filter(|entry| entry.number == step.number) else {
            self.give_back(step.progress);
            return;
        };
        entry.progress = step.progress;
        entry.next = Some(next);
        self.due.insert((next, step.name));
    }

    /// The time at which an order may be placed. One in a window of the authority has its own
    /// budget.
    fn reserve(&mut self, has_window: bool, now: Instant) -> Permit {
        Permit {
            at: self.budget(has_window).reserve(now),
            is_renewal: has_window,
        }
    }

    /// Gives back the reservation of a name that was removed.
    fn give_back(&mut self, progress: Progress) {
        if let Some(permit) = progress.permit {
            self.budget(permit.is_renewal).give_back(permit.at);
        }
    }

    fn budget(&mut self, is_renewal: bool) -> &mut OrderBudget {
        if is_renewal {
            &mut self.renewals
        } else {
            &mut self.orders
        }
    }
}

impl fmt::Debug for CertificateSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CertificateSet")
            .field("names", &self.0.schedule.lock().entries.len())
            .finish_non_exhaustive()
    }
}

/// The directory of the state of a domain, below the state directory of the process. `name` is in
/// lower-case A-labels, in which `_` has no place.
pub fn domain_state_dir(state_dir: &Path, name: &str) -> PathBuf {
    let folder = match name.strip_prefix("*.") {
        Some(base) => format!("_.{base}"),
        None => name.to_owned(),
    };
    state_dir.join("domains").join(folder)
}

/// Orders at the same time. One takes some seconds, so two are faster than any budget.
const STEPS_AT_ONCE: usize = 2;

/// New certificates in an hour. Let's Encrypt allows 300 orders of an account in three hours; the
/// rest is for the certificate of the process and for other programs with this account.
const ORDERS_PER_HOUR: usize = 80;

/// Renewals in an hour at the time that the authority suggested. Let's Encrypt does not count them.
/// Ten thousand certificates of six days, each renewed every four days, need a hundred.
const RENEWALS_PER_HOUR: usize = 400;

/// Longest delay after the first failure of a name. Let's Encrypt allows five failed validations of
/// a name in an hour.
const FIRST_RETRY: Duration = Duration::from_mins(5);

/// Shortest delay between two steps of one name, whatever the clock and the authority say.
const SHORTEST_DELAY: Duration = Duration::from_secs(1);

/// Delay between attempts to get a lock that another order or process has. An order takes seconds.
const LOCK_POLL: Duration = Duration::from_secs(2);

/// Longest sleep without a step that is due.
const LONGEST_SLEEP: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests;
