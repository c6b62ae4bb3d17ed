//! The task that keeps one certificate current.

mod certificate;
mod order_metrics;
mod set;
#[cfg(test)]
mod wrong_clock;

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use instant_acme::CertificateIdentifier;
use rustls::crypto::CryptoProvider;
use rustls_pki_types::{CertificateDer, Der};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use x509_parser::extensions::ParsedExtension;
use x509_parser::parse_x509_certificate;

use crate::chain::{ChainError, IssuedCertificate};
use crate::challenges::Challenges;
use crate::error::OrderError;
use crate::http_client::AuthorityClient;
use crate::order::{CERTIFICATE_FILE, CertificateFile, OrderAttempt, existing_account, stored};
use crate::schedule::{
    MAX_INTERVAL, RenewalWindow, earliest_renewal, has_come, renewal_time, retry_delay,
};
use crate::settings::{Settings, WallClock};
use crate::store::StateFolder;

use self::certificate::Failure;
use self::order_metrics::{count_order, export_expiry, export_failure};
use self::set::DomainExpiry;

pub use self::certificate::Certificate;
pub use self::order_metrics::{EXPIRY_METRIC, FAILURE_METRIC, ORDERS_METRIC};
pub use self::set::{CertificateSet, domain_state_dir};

/// Keeps one certificate current. Its thread can be stopped and joined.
pub struct Manager {
    settings: Settings,
    folder: StateFolder,
    client: AuthorityClient,
    certificate: Certificate,
    challenges: Arc<Challenges>,
    provider: Arc<CryptoProvider>,
    now: WallClock,
    /// The folder of the account, if several certificates share it; `None`: `folder`.
    account_folder: Option<StateFolder>,
    /// The custom domain of the certificate; `None`: it is that of the process.
    domain: Option<DomainExpiry>,
    renewal: Renewal,
}

/// When the current certificate is renewed.
#[derive(Clone, Copy, Debug)]
struct Renewal {
    /// The certificate is for other names, from another authority, or had expired when it was read.
    is_outdated: bool,
    /// Random bits of the current certificate's renewal time.
    random: u64,
    window: Option<RenewalWindow>,
    /// Time of the next question for the window.
    next_question: i64,
    /// Time of the last successful order of this process.
    ordered_at: Option<i64>,
}

impl Renewal {
    /// Without a certificate.
    const DUE: Self = Self {
        is_outdated: true,
        random: 0,
        window: None,
        next_question: 0,
        ordered_at: None,
    };
}

impl fmt::Debug for Manager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Manager")
            .field("names", &self.settings.names)
            .finish_non_exhaustive()
    }
}

/// The end of a step.
enum StepEnd {
    /// Nothing is to be done before this delay is over.
    Idle(Duration),
    /// Another process orders. Its certificate is read when it has finished.
    Locked,
}

impl Manager {
    /// Opens the state directory and reads the stored certificate. It sends nothing.
    ///
    /// # Errors
    /// The directory or a file of the settings cannot be used.
    pub fn open(
        settings: Settings,
        provider: Arc<CryptoProvider>,
        now: WallClock,
    ) -> Result<Self, OrderError> {
        let folder = StateFolder::open(&settings.state_dir)
            .map_err(OrderError::state(&settings.state_dir))?;
        let client = AuthorityClient::new(
            &settings.directory,
            settings.ca_file.as_deref(),
            Arc::clone(&now),
        )?;
        let mut manager = Self {
            settings,
            folder,
            client,
            certificate: Certificate::default(),
            challenges: Arc::default(),
            provider,
            now,
            account_folder: None,
            domain: None,
            renewal: Renewal::DUE,
        };
        manager.export_expiry(0);
        manager.export_failure(None);
        if let Some((issued, is_outdated)) = manager.stored()? {
            info!(names = ?issued.names(), "a stored certificate is in use");
            manager.install(issued, is_outdated);
        }
        Ok(manager)
    }

    /// The certificate that this keeps current.
    pub fn certificate(&self) -> Certificate {
        self.certificate.clone()
    }

    /// The names that it orders.
    pub(crate) fn names(&self) -> &[String] {
        &self.settings.names
    }

    /// Answers to challenges, for the listeners.
    pub fn challenges(&self) -> Arc<Challenges> {
        Arc::clone(&self.challenges)
    }

    /// Runs on a thread of its own from `begin` until `stop`, so that a slow disk only delays this.
    ///
    /// # Errors
    /// The system refuses a thread or descriptors.
    pub fn start(
        mut self,
        begin: CancellationToken,
        stop: CancellationToken,
    ) -> io::Result<JoinHandle<()>> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let thread = std::thread::Builder::new().name("svc-acme".to_owned());
        thread.spawn(move || {
            runtime.block_on(async {
                let ordering = async {
                    begin.cancelled().await;
                    self.keep_current().await;
                };
                tokio::select! {
                    () = stop.cancelled() => {}
                    () = ordering => {}
                }
            });
            // The look-up of a name cannot be stopped, and the process must not wait for it.
            runtime.shutdown_background();
        })
    }

    async fn keep_current(&mut self) {
        let mut failures = 0_u32;
        loop {
            match self.step(failures).await {
                Ok(StepEnd::Idle(delay)) => {
                    failures = 0;
                    // The clock may jump, and a suspended machine sleeps longer.
                    tokio::time::sleep(delay.min(LONGEST_SLEEP)).await;
                }
                Ok(StepEnd::Locked) => tokio::time::sleep(LOCK_POLL).await,
                Err(error) => {
                    failures = failures.saturating_add(1);
                    let requested = self.client.take_retry_after();
                    let first = self.settings.first_retry;
                    let delay = retry_delay(first, failures, requested, random());
                    self.report(&error, delay);
                    wait_out(delay, &self.now).await;
                }
            }
        }
    }

    /// Orders a certificate if it is time.
    async fn step(&mut self, failures: u32) -> Result<StepEnd, OrderError> {
        if let Some(wait) = self.wait().await {
            return Ok(StepEnd::Idle(wait));
        }
        self.order(failures).await
    }

    /// Orders a certificate, unless another process has stored one meanwhile.
    async fn order(&mut self, failures: u32) -> Result<StepEnd, OrderError> {
        let locked = self.folder.try_lock();
        let Some(lock) = locked.map_err(OrderError::state(self.folder.path()))? else {
            return Ok(StepEnd::Locked);
        };
        if self.adopt()? {
            return Ok(StepEnd::Idle(Duration::ZERO));
        }
        let current = self.certificate.current();
        let leaf = current
            .as_ref()
            .and_then(|issued| issued.certified().cert.first());
        let attempt = OrderAttempt {
            settings: &self.settings,
            folder: &self.folder,
            lock: &lock,
            challenges: &self.challenges,
            provider: &self.provider,
            client: &self.client,
            now: &self.now,
            failures,
        };
        // Every second attempt does without the reference: some authorities may not support it.
        let has_reference = !self.renewal.is_outdated && failures.is_multiple_of(2);
        let replaces = leaf.filter(|_| has_reference).and_then(identifier);
        let account_folder = self.account_folder.as_ref();
        let ordered = match account_folder {
            None => attempt.run(replaces).await.map(Some),
            Some(folder) => attempt.run_with_account_of(folder, replaces).await,
        };
        let issued = match ordered {
            Ok(Some(issued)) => issued,
            Ok(None) => return Ok(StepEnd::Locked),
            Err(error) => {
                if error.is_unknown_account() {
                    attempt.forget_account(account_folder)?;
                }
                return Err(error);
            }
        };
        // The file is only for the operator.
        self.folder.remove(&lock, PROBLEM_FILE).ok();
        count_order(true);
        info!(names = ?issued.names(), "a certificate of the authority is in use");
        self.install(issued, false);
        self.renewal.ordered_at = Some((self.now)());
        Ok(StepEnd::Idle(Duration::ZERO))
    }

    /// Time until the renewal; `None` if it is due.
    async fn wait(&mut self) -> Option<Duration> {
        let current = self
            .certificate
            .current()
            .filter(|_| !self.renewal.is_outdated)?;
        let now = (self.now)();
        if has_come(self.renewal.next_question, LONGEST_QUESTION, now) {
            let delay = self.ask_window(&current).await;
            self.renewal.next_question = now.saturating_add(delay);
        }
        let validity = current.validity();
        let renewal = self.renewal;
        let earliest = renewal.ordered_at.map(|at| earliest_renewal(at, validity));
        let earliest = earliest.filter(|at| !has_come(*at, MAX_INTERVAL, now));
        let due = renewal_time(validity, renewal.window, renewal.random);
        let due = due.max(earliest.unwrap_or(i64::MIN));
        let until = due.min(renewal.next_question).saturating_sub(now);
        let until = u64::try_from(until).ok().map(Duration::from_secs);
        until.filter(|_| due > now)
    }

    /// Asks the authority when to renew (RFC 9773), and returns the delay until the next question
    /// in seconds. An authority without an answer is not a failure: the lifetime decides.
    async fn ask_window(&mut self, current: &IssuedCertificate) -> i64 {
        let leaf = current.certified().cert.first();
        let Some(identifier) = leaf.and_then(identifier) else {
            return USUAL_QUESTION;
        };
        let folder = self.account_folder.as_ref().unwrap_or(&self.folder);
        let account = existing_account(&self.settings, folder, &self.client).await;
        let Ok(Some(account)) = account else {
            return USUAL_QUESTION;
        };
        // A process that has a certificate already orders nothing at its start.
        if let Some(provider) = &self.settings.dns {
            provider.set_account(account.id());
        }
        match account.renewal_info(&identifier).await {
            Ok((info, delay)) => {
                self.renewal.window = Some(RenewalWindow {
                    start: info.suggested_window.start.unix_timestamp(),
                    end: info.suggested_window.end.unix_timestamp(),
                });
                let delay = i64::try_from(delay.as_secs()).unwrap_or(i64::MAX);
                delay.clamp(SHORTEST_QUESTION, LONGEST_QUESTION)
            }
            Err(error) => {
                debug!(%error, "the authority suggests no time of renewal");
                USUAL_QUESTION
            }
        }
    }

    /// Uses a certificate that another process with this directory has stored.
    fn adopt(&mut self) -> Result<bool, OrderError> {
        let Some((issued, false)) = self.stored()? else {
            return Ok(false);
        };
        let current = self.certificate.current();
        let is_same = current.is_some_and(|current| {
            current.certified().cert.first() == issued.certified().cert.first()
        });
        let is_due = renewal_time(issued.validity(), None, 0) <= (self.now)();
        if is_same && self.renewal.is_outdated {
            // It had expired only by a clock that was ahead. It may be renewed now nevertheless.
            info!("the clock is corrected, and the stored certificate has not expired");
            self.install(issued, false);
            return Ok(!is_due);
        }
        if is_same || is_due {
            return Ok(false);
        }
        info!("the certificate of another process is in use");
        self.install(issued, false);
        Ok(true)
    }

    /// The stored certificate, and true if it is for other names, from another authority, or has
    /// expired, so that another one is ordered. `None` if there is none, or it has expired and is not
    /// that of the settings.
    fn stored(&self) -> Result<Option<(IssuedCertificate, bool)>, OrderError> {
        let Some(file) = stored::<CertificateFile>(&self.folder, CERTIFICATE_FILE)? else {
            return Ok(None);
        };
        let now = (self.now)();
        let parsed = IssuedCertificate::parse(&file.chain, &file.key, &file.names, &self.provider);
        match parsed {
            Ok(issued) => {
                let is_current =
                    file.directory == self.settings.directory && file.names == self.settings.names;
                // If this clock is behind or ahead, clients whose clock is right accept the
                // certificate. If it has really expired, their error states the reason, which a
                // handshake without a certificate does not.
                let has_expired = issued.check_time(now) == Err(ChainError::Expired);
                if !has_expired {
                    return Ok(Some((issued, !is_current)));
                }
                let names = &file.names;
                if !is_current {
                    warn!(?names, "the stored certificate has expired");
                    return Ok(None);
                }
                warn!(?names, "{EXPIRED_IN_USE}");
                Ok(Some((issued.expired(), true)))
            }
            Err(error) => {
                warn!(%error, "the stored certificate is not used");
                Ok(None)
            }
        }
    }

    fn install(&mut self, issued: IssuedCertificate, is_outdated: bool) {
        self.export_expiry(issued.validity().not_after);
        self.certificate.issued.store(Some(Arc::new(issued)));
        *self.certificate.failure.lock() = None;
        self.export_failure(None);
        self.renewal = Renewal {
            is_outdated,
            random: random(),
            window: None,
            next_question: 0,
            ..self.renewal
        };
    }

    fn export_expiry(&self, not_after: i64) {
        if let Some(domain) = &self.domain {
            domain.export(not_after);
        } else if let Some(name) = self.settings.names.first() {
            export_expiry(name, not_after);
        }
    }

    fn export_failure(&self, last: Option<(&'static str, i64)>) {
        if let (None, Some(name)) = (&self.domain, self.settings.names.first()) {
            export_failure(name, last);
        }
    }

    fn report(&self, error: &OrderError, delay: Duration) {
        count_order(false);
        let seconds = delay.as_secs();
        let names = &self.settings.names;
        warn!(%error, ?names, retry.seconds = seconds, "there is no new certificate");
        let text = error.to_string();
        // `--check` reads it. A full disk may prevent that.
        if let Ok(Some(lock)) = self.folder.try_lock() {
            self.folder.write(&lock, PROBLEM_FILE, text.as_bytes()).ok();
        }
        let now = (self.now)();
        self.export_failure(Some((error.reason(), now)));
        let delay = i64::try_from(seconds).unwrap_or(i64::MAX);
        *self.certificate.failure.lock() = Some(Failure {
            text: error.public_text(),
            next_attempt: now.saturating_add(delay),
        });
    }
}

/// Reason of the last failed order in a state directory; `None` after a success.
pub fn last_problem(state_dir: &Path) -> Option<String> {
    let bytes = StateFolder::existing(state_dir).read(PROBLEM_FILE).ok()??;
    Some(crate::error::printable(&String::from_utf8_lossy(&bytes)))
}

const PROBLEM_FILE: &str = "problem.txt";

const EXPIRED_IN_USE: &str = "the stored certificate has expired, or the clock of this machine is \
                              ahead; it stays in use until another one is ordered";

/// The identifier of a certificate in questions and orders (RFC 9773 section 4.1).
fn identifier(certificate: &CertificateDer<'_>) -> Option<CertificateIdentifier<'static>> {
    let (_, parsed) = parse_x509_certificate(certificate).ok()?;
    let authority =
        parsed
            .iter_extensions()
            .find_map(|extension| match extension.parsed_extension() {
                ParsedExtension::AuthorityKeyIdentifier(found) => found.key_identifier.as_ref(),
                _ => None,
            })?;
    let serial = Der::from_slice(parsed.tbs_certificate.raw_serial());
    Some(CertificateIdentifier::new(Der::from_slice(authority.0), serial).into_owned())
}

/// Waits until a delay is over by one of two clocks: a sleep does not count the time in which the
/// machine is suspended, and the time of day may be set back.
async fn wait_out(delay: Duration, now: &WallClock) {
    let started = now();
    let mut rest = delay;
    while !rest.is_zero() {
        let part = rest.min(LONGEST_SLEEP);
        tokio::time::sleep(part).await;
        let passed = u64::try_from(now().saturating_sub(started)).unwrap_or_default();
        let by_clock = delay.saturating_sub(Duration::from_secs(passed));
        rest = rest.saturating_sub(part).min(by_clock);
    }
}

fn random() -> u64 {
    let mut bytes = [0; 8];
    // Without randomness the times are only less spread.
    aws_lc_rs::rand::fill(&mut bytes).ok();
    u64::from_ne_bytes(bytes)
}

/// Delay between attempts to get the lock that another process has. An order takes seconds.
const LOCK_POLL: Duration = Duration::from_secs(1);

/// Longest sleep, after which the clock is read again.
const LONGEST_SLEEP: Duration = Duration::from_hours(1);

/// Bounds of the delay between two questions for the time of renewal (RFC 9773 section 4.3.2), in
/// seconds.
const SHORTEST_QUESTION: i64 = 60;
const LONGEST_QUESTION: i64 = 24 * 3600;

/// The delay if the authority requests none.
const USUAL_QUESTION: i64 = 6 * 3600;

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::atomic::{AtomicI64, Ordering};

    use rcgen::{CertificateParams, KeyPair, date_time_ymd};
    use serde_json::json;

    use super::*;
    use crate::settings::{ChallengeKind, KeyType};

    const DIRECTORY: &str = "http://127.0.0.1:1/directory";
    const NAME: &str = "h.example";

    pub(crate) fn settings(state_dir: &Path) -> Settings {
        Settings {
            directory: DIRECTORY.to_owned(),
            contact: Vec::new(),
            external_account: None,
            key_type: KeyType::P256,
            profile: None,
            ca_file: None,
            challenges: vec![ChallengeKind::TlsAlpn01],
            dns: None,
            challenge_alias: None,
            names: vec![NAME.to_owned()],
            state_dir: state_dir.to_owned(),
            first_retry: Duration::from_secs(30),
        }
    }

    /// Stores a certificate that is valid in 2030.
    pub(crate) fn store_certificate(state_dir: &Path) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(vec![NAME.to_owned()]).unwrap();
        params.not_before = date_time_ymd(2030, 1, 1);
        params.not_after = date_time_ymd(2031, 1, 1);
        let file = json!({
            "directory": DIRECTORY,
            "names": [NAME],
            "chain": params.self_signed(&key).unwrap().pem(),
            "key": key.serialize_pem(),
        });
        let folder = StateFolder::open(state_dir).unwrap();
        let lock = folder.try_lock().unwrap().unwrap();
        let bytes = file.to_string();
        folder
            .write(&lock, CERTIFICATE_FILE, bytes.as_bytes())
            .unwrap();
    }

    #[test]
    fn a_stored_certificate_is_used_also_by_a_clock_that_is_wrong() {
        let directory = tempfile::tempdir().unwrap();
        store_certificate(directory.path());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        for (now, was_expired) in [(0_i64, false), (IN_2030, false), (IN_2032, true)] {
            let settings = settings(directory.path());
            let clock: WallClock = Arc::new(move || now);
            let manager = Manager::open(settings, Arc::clone(&provider), clock).unwrap();
            let current = manager.certificate().current().unwrap();
            assert_eq!(current.was_expired(), was_expired, "{now}");
            assert_eq!(manager.renewal.is_outdated, was_expired, "{now}");
        }
        for (now, is_used) in [(IN_2030, true), (IN_2032, false)] {
            let settings = Settings {
                names: vec!["other.example".to_owned()],
                ..settings(directory.path())
            };
            let clock: WallClock = Arc::new(move || now);
            let manager = Manager::open(settings, Arc::clone(&provider), clock).unwrap();
            let is_current = manager.certificate().current().is_some();
            assert_eq!(is_current, is_used, "of other names in {now}");
        }
    }

    /// 2030-06-01, and 2032-01-01.
    pub(crate) const IN_2030: i64 = 1_906_502_400;
    pub(crate) const IN_2032: i64 = 1_956_528_000;

    #[test]
    fn a_failure_has_its_reason_and_the_time_of_the_next_attempt() {
        let directory = tempfile::tempdir().unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let clock: WallClock = Arc::new(|| 1_000);
        let manager = Manager::open(settings(directory.path()), provider, clock).unwrap();
        let certificate = manager.certificate();
        assert_eq!(
            (certificate.problem(), certificate.next_attempt()),
            (None, None)
        );
        manager.report(&OrderError::Slow, Duration::from_mins(5));
        assert_eq!(certificate.problem(), Some(OrderError::Slow.to_string()));
        assert_eq!(certificate.next_attempt(), Some(1_300));
    }

    #[tokio::test(start_paused = true)]
    async fn a_requested_delay_of_a_day_is_waited_for_in_full() {
        let day = Duration::from_hours(24);
        let stopped: WallClock = Arc::new(|| 0_i64);
        let start = tokio::time::Instant::now();
        wait_out(day, &stopped).await;
        let waited = start.elapsed();
        assert!((day..day + LOCK_POLL).contains(&waited), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_delay_includes_the_time_in_which_the_machine_was_suspended() {
        let time = AtomicI64::new(0);
        // Twelve hours pass between two readings, of which this process runs for one.
        let clock: WallClock = Arc::new(move || time.fetch_add(12 * 3600, Ordering::Relaxed));
        let start = tokio::time::Instant::now();
        wait_out(Duration::from_hours(24), &clock).await;
        let waited = start.elapsed();
        assert!(waited < Duration::from_hours(3), "{waited:?}");
    }
}
