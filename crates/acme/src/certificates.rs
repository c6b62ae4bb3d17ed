//! The certificates of an engine, from files and from an authority.

use std::sync::Arc;
use std::thread::JoinHandle;

use acme::{Certificate, Challenges, Manager, WallClock};
use daemon::metrics::Readiness;
use daemon::tls::ReloadingCert;
use rustls::server::ResolvesServerCert;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::config::EngineConfig;
use crate::listen::resolver;
use crate::start_error::StartError;

/// The sources of certificates, before the engine serves.
pub(crate) struct Certificates {
    files: Option<Arc<ReloadingCert>>,
    manager: Option<Manager>,
}

/// The thread that orders certificates while the engine serves.
pub(crate) struct Orders {
    certificate: Certificate,
    has_files: bool,
    thread: JoinHandle<()>,
}

impl Certificates {
    /// Reads the files and the state of earlier orders.
    ///
    /// # Errors
    /// A file or the state cannot be used.
    pub(crate) fn open(
        config: &EngineConfig,
        is_managed: bool,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, StartError> {
        let mut names = vec![config.host.clone(), format!("*.t.{}", config.host)];
        if is_managed {
            names.push(format!("*.{}", config.host));
        }
        let files = config.certificate.clone();
        let files = files
            .map(|files| ReloadingCert::load_for(files, daemon::tls::provider(), names))
            .transpose()?;
        let clock = Arc::clone(clock);
        let now: WallClock = Arc::new(move || clock.now().as_second());
        let manager = config.acme.clone();
        let manager = manager
            .map(|settings| Manager::open(settings, daemon::tls::provider(), now))
            .transpose()?;
        Ok(Self {
            files: files.map(Arc::new),
            manager,
        })
    }

    /// The certificate of each handshake.
    pub(crate) fn resolver(&self) -> Arc<dyn ResolvesServerCert> {
        let ordered = self.manager.as_ref().map(Manager::certificate);
        resolver(self.files.clone(), ordered)
    }

    /// Answers to the authority, for the listeners.
    pub(crate) fn challenges(&self) -> Option<Arc<Challenges>> {
        self.manager.as_ref().map(Manager::challenges)
    }

    /// Starts to order and renew, until `stop`.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub(crate) fn start_orders(
        self,
        stop: CancellationToken,
    ) -> Result<Option<Orders>, StartError> {
        let Some(manager) = self.manager else {
            return Ok(None);
        };
        let certificate = manager.certificate();
        let thread = manager.start(stop).map_err(StartError::Workers)?;
        Ok(Some(Orders {
            certificate,
            has_files: self.files.is_some(),
            thread,
        }))
    }
}

impl Orders {
    /// Reports why the engine has no certificate at all.
    pub(crate) fn refresh(&self, readiness: &Readiness) {
        let is_missing = !self.has_files && self.certificate.current().is_none();
        let problem = is_missing.then(|| {
            let problem = self.certificate.problem();
            problem.unwrap_or_else(|| "the first order has not finished".to_owned())
        });
        readiness.set_certificate_problem(problem);
    }

    /// Waits for the end of the thread. Its stop was requested before.
    pub(crate) fn finish(self) {
        self.thread.join().ok();
    }
}
