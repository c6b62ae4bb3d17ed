//! Certificates of many custom domains: one for each, ordered and renewed by one thread.

mod names;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use rustls::crypto::CryptoProvider;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::warn;

use self::names::{NameRequest, NextStep, Progress, RunningStep, Schedule};
use super::{Certificate, Manager, Renewal, StepEnd, USUAL_QUESTION, random};
use crate::challenges::Challenges;
use crate::error::OrderError;
use crate::http_client::AuthorityClient;
use crate::schedule::{renewal_time, retry_delay};
use crate::settings::{ChallengeKind, Settings, WallClock};
use crate::store::StateFolder;

pub(super) use self::names::DomainExpiry;

/// The certificates of custom domains. Names may be added and removed at any time. Clones share
/// them.
///
/// Each name has its own state, delay after failures and certificate, so a name that fails delays
/// no other. All names share the account, and one budget of orders, in which projects take turns.
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
            schedule: Mutex::new(Schedule::new()),
            changed: Notify::new(),
        })))
    }

    /// Adds a name (or `*.name`) of the operator in lower-case A-labels, and returns its
    /// certificate: the stored one at first, if there is one. Only one order for it is pending at a
    /// time. A name that was added before keeps its certificate.
    pub fn add(&self, name: &str) -> Certificate {
        self.add_request(name, NameRequest::default())
    }

    /// As [`Self::add`], for a project: `owner` is its key. The orders of each owner have a budget
    /// of their own. With an `alias`, to which the usual record is delegated, the name is validated
    /// by `dns-01` only.
    pub fn add_for(&self, owner: &Arc<str>, name: &str, alias: Option<&str>) -> Certificate {
        let request = NameRequest {
            owner: Some(Arc::clone(owner)),
            alias: alias.map(Into::into),
        };
        self.add_request(name, request)
    }

    fn add_request(&self, name: &str, request: NameRequest) -> Certificate {
        // The domain may be another project's by now, with another alias.
        let known = self
            .0
            .schedule
            .lock()
            .change(name, &request, Instant::now());
        let certificate = known.unwrap_or_else(|| {
            let expiry = DomainExpiry::new(name.into());
            let (certificate, renewal) = self.0.stored(name, &expiry);
            let first = self.0.first_delay(&certificate, &renewal);
            let next = Instant::now() + first;
            let mut schedule = self.0.schedule.lock();
            schedule.insert(expiry, request, certificate, renewal, next)
        });
        self.0.changed.notify_one();
        certificate
    }

    /// Removes a name. Its certificate is not renewed, and its state stays on disk. A pending order
    /// is not continued. The delay after failures applies again, for an hour at most, if the name
    /// is added again.
    pub fn remove(&self, name: &str) {
        self.0.schedule.lock().remove(name, Instant::now());
    }

    /// Orders and renews on a thread of its own from `begin` until `stop`.
    ///
    /// # Errors
    /// The system refuses a thread or descriptors.
    pub fn start(
        &self,
        begin: CancellationToken,
        stop: CancellationToken,
    ) -> io::Result<JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new().name("svc-domains".to_owned());
        let set = Arc::clone(&self.0);
        thread.spawn(move || {
            runtime.block_on(async {
                let [first, second] = &set.clients;
                let steps = async {
                    begin.cancelled().await;
                    tokio::join!(set.run_steps(first), set.run_steps(second))
                };
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
                    let next = self.run(&mut step, client).await;
                    self.schedule.lock().finish(step, next, Instant::now());
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

    /// Orders a certificate if it is time, and returns the next step.
    async fn run(&self, step: &mut RunningStep, client: &AuthorityClient) -> NextStep {
        // One of an earlier name.
        client.take_retry_after();
        let folder = domain_state_dir(&self.settings.state_dir, &step.name);
        let opened = StateFolder::open(&folder).map_err(OrderError::state(&folder));
        let mut manager = self.manager(step, client);
        let done = match opened {
            Ok(_) => advance(&mut manager, &mut step.progress).await,
            Err(error) => Err(error),
        };
        step.progress.renewal = manager.renewal;
        match done {
            Ok(NextStep::After(delay)) => NextStep::After(delay.max(SHORTEST_DELAY)),
            Ok(next) => next,
            Err(error) => {
                step.progress.has_permit = false;
                step.progress.failures = step.progress.failures.saturating_add(1);
                let requested = client.take_retry_after();
                let failures = step.progress.failures;
                let delay = retry_delay(FIRST_RETRY, failures, requested, random());
                manager.report(&error, delay);
                NextStep::After(delay)
            }
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
            domain: Some(step.expiry.clone()),
            renewal: step.progress.renewal,
        }
    }

    /// The stored certificate of a name. A state that cannot be read counts as none: the first step
    /// reports it.
    fn stored(&self, name: &str, expiry: &DomainExpiry) -> (Certificate, Renewal) {
        let step = RunningStep {
            name: name.into(),
            number: 0,
            certificate: Certificate::default(),
            expiry: expiry.clone(),
            alias: None,
            progress: Progress::new(Renewal::DUE),
        };
        let [client, _] = &self.clients;
        let mut manager = self.manager(&step, client);
        manager.export_expiry(0);
        match manager.stored() {
            Ok(Some((issued, is_outdated))) => manager.install(issued, is_outdated),
            Ok(None) => {}
            Err(error) => warn!(%error, name, "the stored certificate is not used"),
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

/// Orders a certificate if it is time and the order has its place in the budget.
async fn advance(manager: &mut Manager, progress: &mut Progress) -> Result<NextStep, OrderError> {
    if !progress.has_permit {
        if let Some(wait) = manager.wait().await {
            progress.failures = 0;
            return Ok(NextStep::After(wait));
        }
        // An order in a window of the authority has another budget.
        let is_renewal = manager.renewal.window.is_some();
        return Ok(NextStep::Order { is_renewal });
    }
    match manager.order(progress.failures).await? {
        StepEnd::Idle(wait) => {
            progress.has_permit = false;
            progress.failures = 0;
            Ok(NextStep::After(wait))
        }
        StepEnd::Locked => Ok(NextStep::After(LOCK_POLL)),
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

/// New certificates of one project in an hour, so that four projects can have many at once.
const ORDERS_PER_OWNER: usize = 20;

/// Renewals in an hour at the time that the authority suggested. Let's Encrypt does not count them.
/// Ten thousand certificates of six days, each renewed every four days, need a hundred.
const RENEWALS_PER_HOUR: usize = 400;

/// Longest delay after the first failure of a name. Let's Encrypt allows five failed validations of
/// a name in an hour.
const FIRST_RETRY: Duration = Duration::from_mins(5);

/// Removed names whose delay is kept. An engine has as many domains at most.
const MOST_FAILED_NAMES: usize = 10_000;

/// Shortest delay between two steps of one name, whatever the clock and the authority report.
const SHORTEST_DELAY: Duration = Duration::from_secs(1);

/// Delay between attempts to get a lock that another order or process has. An order takes seconds.
const LOCK_POLL: Duration = Duration::from_secs(2);

/// Longest sleep without a step that is due.
const LONGEST_SLEEP: Duration = Duration::from_hours(1);

#[cfg(test)]
mod tests;
