//! People: who they are, how they prove it, how long that lasts.

pub mod accounts;
pub mod challenge;
pub mod confirm;
pub mod cookie;
pub mod email;
pub mod passkeys;
pub mod password;
pub mod recovery;
pub mod reset;
mod seal;
pub mod second_factor;
pub mod secret_link;
pub mod session;
pub mod sign_in;
pub mod throttle;
pub mod totp;
mod user;

use std::sync::Arc;

use api::control::people::GET_USER;
use axum::Router;
use tokio_util::task::TaskTracker;

use self::password::{HashError, Passwords};
use crate::app::App;
use crate::config::Config;
use crate::mail::Mailer;
use crate::route::Serve as _;

/// What handlers about people share: one for a process, a part of [`App`].
#[derive(Debug)]
pub struct People {
    /// Hashes passwords.
    pub passwords: Passwords,
    /// Sends mail.
    pub mailer: Mailer,
    /// Counts sign-ins.
    pub attempts: sign_in::Attempts,
    /// Counts reset links.
    pub resets: reset::Requests,
    /// Counts invitations by whom they are for.
    pub invitations: throttle::Throttle<email::Email>,
    /// Mails on their way: [`People::finish`] waits for them.
    background: TaskTracker,
}

impl People {
    /// With nothing counted yet.
    ///
    /// # Errors
    /// The hash of passwords does not work.
    pub fn open(config: &Config) -> Result<Self, HashError> {
        // Half of the cores: a flood of sign-ins leaves the others to everybody else.
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Ok(Self {
            passwords: Passwords::new(cores.div_ceil(2))?,
            mailer: Mailer::folder(&config.mail_folder),
            attempts: sign_in::Attempts::default(),
            resets: reset::Requests::default(),
            invitations: throttle::Throttle::new(throttle::Limits::MAIL),
            background: TaskTracker::new(),
        })
    }

    /// Does something after the answer, such as sending a mail.
    pub(crate) fn after_answer(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.background.spawn(work);
    }

    /// Waits until the mails are out that were on their way. For the end of the process, when no
    /// request can start another one.
    pub async fn finish(&self) {
        self.background.close();
        self.background.wait().await;
    }
}

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new().serve(GET_USER, user::get)
}
