//! The certificates of a process, from files and from an authority.

use std::io;
use std::sync::Arc;
use std::thread;

use daemon::clock::Clock;
use daemon::metrics::Readiness;
use daemon::tls::ReloadingCert;
use dns::{BindError, Responder};
use rustls::server::ResolvesServerCert;
use tokio::task;
use tokio_util::sync::{CancellationToken, DropGuard};
use tracing::{error, warn};

use crate::certificate_states::{CertificateStates, OrderedNames};
use crate::challenges::Challenges;
use crate::dns_challenge::DnsProvider;
use crate::error::OrderError;
use crate::manager::{Certificate, Manager};
use crate::resolver::resolver;
use crate::settings::{Settings, WallClock};

/// The sources of certificates, before the process serves.
#[derive(Debug)]
pub struct Certificates {
    files: Option<Arc<ReloadingCert>>,
    manager: Option<Manager>,
}

/// The thread that orders certificates while the process serves.
#[derive(Debug)]
pub struct Orders {
    certificate: Certificate,
    has_files: bool,
    thread: thread::JoinHandle<()>,
}

/// The task that answers for the names of challenges. Dropping it also stops it, without waiting.
#[derive(Debug)]
pub struct RunningResponder {
    task: task::JoinHandle<()>,
    stop: DropGuard,
}

impl Certificates {
    /// Reads the state of earlier orders. `files` are a certificate from files.
    ///
    /// # Errors
    /// The state, or a file of the settings, cannot be used.
    pub fn open(
        files: Option<ReloadingCert>,
        settings: Option<&Settings>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, OrderError> {
        let clock = Arc::clone(clock);
        let now: WallClock = Arc::new(move || clock.now().as_second());
        let manager = settings.cloned();
        let manager = manager
            .map(|settings| Manager::open(settings, daemon::tls::provider(), now))
            .transpose()?;
        Ok(Self {
            files: files.map(Arc::new),
            manager,
        })
    }

    /// The certificate of each handshake.
    pub fn resolver(&self) -> Arc<dyn ResolvesServerCert> {
        let ordered = self.manager.as_ref().map(Manager::certificate);
        resolver(self.files.clone(), ordered)
    }

    /// The states of the certificates, for reports.
    pub fn states(&self) -> CertificateStates {
        let ordered = self.manager.as_ref().map(|manager| OrderedNames {
            names: manager.names().into(),
            certificate: manager.certificate(),
        });
        CertificateStates {
            files: self.files.clone(),
            ordered,
        }
    }

    /// Answers to the authority, for the listeners.
    pub fn challenges(&self) -> Option<Arc<Challenges>> {
        self.manager.as_ref().map(Manager::challenges)
    }

    /// Binds the addresses at which the process answers for the names of challenges.
    ///
    /// # Errors
    /// An address cannot be bound.
    pub fn bind_responder(settings: Option<&Settings>) -> Result<Option<Responder>, BindError> {
        let dns = settings.and_then(|settings| settings.dns.as_ref());
        let Some(DnsProvider::Responder(settings)) = dns else {
            return Ok(None);
        };
        Responder::bind(&settings.listen, settings.zones.clone()).map(Some)
    }

    /// Starts to order and renew, until `stop`. The listeners answer the authority, so they are
    /// served before.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start_orders(self, stop: CancellationToken) -> io::Result<Option<Orders>> {
        let begin = CancellationToken::new();
        begin.cancel();
        self.start_orders_after(begin, stop)
    }

    /// The same from the cancellation of `begin` on. Until then another process answers the
    /// authority.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn start_orders_after(
        self,
        begin: CancellationToken,
        stop: CancellationToken,
    ) -> io::Result<Option<Orders>> {
        let Some(manager) = self.manager else {
            return Ok(None);
        };
        let certificate = manager.certificate();
        let thread = manager.start(begin, stop)?;
        Ok(Some(Orders {
            certificate,
            has_files: self.files.is_some(),
            thread,
        }))
    }
}

impl Orders {
    /// Reports why the process has no certificate, or only one that had expired at its start, or why
    /// the last order failed although it has one.
    pub fn refresh(&self, readiness: &Readiness) {
        let failure = self.certificate.problem();
        let current = self.certificate.current();
        let is_usable = current.is_some_and(|issued| !issued.was_expired());
        let is_missing = !self.has_files && !is_usable;
        let (problem, warning) = if is_missing {
            let first = || "the first order has not finished".to_owned();
            (Some(failure.unwrap_or_else(first)), None)
        } else {
            (None, failure)
        };
        readiness.set_certificate_problem(problem);
        readiness.set_certificate_warning(warning);
    }

    /// Waits for the end of the thread. Its stop was requested before.
    pub fn finish(self) {
        self.thread.join().ok();
    }
}

impl RunningResponder {
    /// Starts to respond, in a task of the current runtime.
    pub fn start(responder: Responder) -> Self {
        let stop = CancellationToken::new();
        let serving = responder.serve(stop.clone());
        let task = tokio::spawn(async move {
            if let Err(error) = serving.await {
                warn!(%error, "queries for the names of challenges are not answered");
            }
        });
        Self {
            task,
            stop: stop.drop_guard(),
        }
    }

    /// Stops, and waits until the sockets are closed.
    pub async fn stop(self) {
        drop(self.stop);
        if let Err(error) = self.task.await {
            error!(%error, "the responder ended in a panic");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;
    use crate::manager::tests::{IN_2030, IN_2032, settings, store_certificate};

    #[test]
    fn a_process_whose_only_certificate_has_expired_is_not_ready() {
        let directory = tempfile::tempdir().unwrap();
        store_certificate(directory.path());
        for (now, is_ready) in [(IN_2030, true), (IN_2032, false)] {
            let settings = settings(directory.path());
            let clock: WallClock = Arc::new(move || now);
            let manager = Manager::open(settings, daemon::tls::provider(), clock).unwrap();
            let mut orders = Orders {
                certificate: manager.certificate(),
                has_files: false,
                thread: thread::spawn(|| {}),
            };
            let readiness = Readiness::default();
            readiness.set_ready(true);
            orders.refresh(&readiness);
            assert_eq!(readiness.is_ready(), is_ready, "{now}");
            orders.has_files = true;
            orders.refresh(&readiness);
            assert!(readiness.is_ready(), "there is a certificate from files");
            orders.finish();
        }
    }

    #[tokio::test]
    async fn a_stop_of_the_responder_waits_for_its_end() {
        let stop = CancellationToken::new();
        let is_stopped = stop.clone().cancelled_owned();
        let has_ended = Arc::new(AtomicBool::new(false));
        let end = Arc::clone(&has_ended);
        let running = RunningResponder {
            task: tokio::spawn(async move {
                is_stopped.await;
                task::yield_now().await;
                end.store(true, Ordering::Release);
            }),
            stop: stop.drop_guard(),
        };
        running.stop().await;
        assert!(has_ended.load(Ordering::Acquire));
    }
}
