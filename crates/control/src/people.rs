//! User accounts, authentication and browser sessions.

pub mod accounts;
mod attempts;
pub mod challenge;
pub mod confirm;
pub mod cookie;
pub mod email;
pub mod email_change;
pub mod notices;
pub mod openid;
pub mod passkeys;
pub mod password;
pub mod reset;
pub mod reset_throttle;
mod routes;
pub mod second_factor;
pub mod secret_link;
pub mod session;
pub(crate) mod session_list;
pub mod sign_in;
pub mod throttle;
mod user;

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use types::id::UserId;

use self::openid::Provider;
use self::password::{HashError, Passwords};
pub use self::routes::routes;
use crate::config::Config;
use crate::mail::{Mailer, MailerError, Message};

/// State of the account handlers of one process; a part of [`crate::app::App`].
#[derive(Debug)]
pub struct People {
    /// Hashes passwords.
    pub passwords: Passwords,
    /// Sends mail.
    pub mailer: Mailer,
    /// Counts sign-ins by client address.
    pub ip_throttle: throttle::Throttle<IpAddr>,
    /// Counts reset links.
    pub reset_requests: reset_throttle::ResetThrottle,
    /// Counts changes of address by the recipient of the mail.
    pub email_change_throttle: throttle::Throttle<email::Email>,
    /// The OpenID provider for sign-ins, if one is configured.
    pub openid: Option<Provider>,
    /// Counts invitations by recipient.
    pub invitee_throttle: throttle::Throttle<email::Email>,
    /// Counts invitations by sender.
    pub inviter_throttle: throttle::Throttle<UserId>,
    /// Mails in flight. [`People::finish`] waits for them.
    background: TaskTracker,
}

/// Errors while opening [`People`].
#[derive(Debug, thiserror::Error)]
pub enum PeopleError {
    /// Password hashing does not work.
    #[error(transparent)]
    Passwords(#[from] HashError),
    /// Mail cannot be set up.
    #[error("mail: {0}")]
    Mail(#[from] MailerError),
    /// The OpenID provider cannot be set up.
    #[error("openid: {0}")]
    OpenId(String),
}

impl People {
    /// Opens the shared state with empty counters.
    ///
    /// # Errors
    /// Password hashing does not work, or a file that the configuration names cannot be used.
    pub fn open(config: &Config) -> Result<Self, PeopleError> {
        // Hashing uses half of the cores, so that a flood of sign-ins leaves the rest to other
        // work.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            passwords: Passwords::new(cores.div_ceil(2), config.password_cost)?,
            mailer: Mailer::open(config)?,
            email_change_throttle: throttle::Throttle::new(throttle::Limits::MAIL),
            openid: config
                .openid
                .as_ref()
                .map(|openid| Provider::open(openid, config.url("/login/openid/callback")))
                .transpose()
                .map_err(PeopleError::OpenId)?,
            ip_throttle: throttle::Throttle::new(throttle::Limits::ADDRESS),
            reset_requests: reset_throttle::ResetThrottle::default(),
            invitee_throttle: throttle::Throttle::new(throttle::Limits::MAIL),
            inviter_throttle: throttle::Throttle::new(throttle::Limits::INVITER),
            background: TaskTracker::new(),
        })
    }

    /// Runs a task after the response is sent, such as sending a mail.
    pub(crate) fn spawn_after_response(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(work);
    }

    /// Sends a mail after the response is sent. If that fails, the mail is lost, and `failure` is
    /// logged.
    pub(crate) fn mail_after_response(
        &self,
        message: Message,
        now: Timestamp,
        failure: &'static str,
    ) {
        let mailer = self.mailer.clone();
        self.spawn_after_response(async move {
            if let Err(error) = mailer.send(message, now).await {
                tracing::error!(error = &error as &dyn std::error::Error, "{failure}");
            }
        });
    }

    /// As [`Self::mail_after_response`] for a notice of the maintenance task, named `notice` in the
    /// log. After a temporary failure, `release` lets a later pass send it again.
    pub(crate) fn send_notice<R>(
        &self,
        message: Message,
        now: Timestamp,
        notice: &'static str,
        release: R,
    ) where
        R: Future<Output = Result<(), store::Error>> + Send + 'static,
    {
        let mailer = self.mailer.clone();
        self.spawn_after_response(async move {
            let Err(error) = mailer.send(message, now).await else {
                return;
            };
            tracing::error!(
                error = &error as &dyn std::error::Error,
                "a notice of {notice} could not be sent"
            );
            if !error.is_permanent()
                && let Err(error) = release.await
            {
                tracing::error!(
                    error = &error as &dyn std::error::Error,
                    "a notice of {notice} is lost"
                );
            }
        });
    }

    /// Number of notices that a pass may send: at most `batch`, less those that still wait for a
    /// slow mail server, so that they do not fill its queue.
    pub(crate) fn notice_limit(&self, batch: u32) -> u32 {
        let running = u32::try_from(self.background.len()).unwrap_or(u32::MAX);
        batch.saturating_sub(running)
    }

    /// Waits until each mail in flight is sent or has failed its last attempt. Call it at the end
    /// of the process, when no request can start another mail.
    pub async fn finish(&self) {
        self.mailer.retry_now();
        self.background.close();
        if timeout(LAST_TRIES, self.background.wait()).await.is_err() {
            tracing::error!("some mails were not sent before shutdown and are lost");
        }
    }
}

/// Limit for the wait at the end of the process. It covers a running attempt and the last one.
const LAST_TRIES: Duration = Duration::from_secs(45);
