//! People: who they are, how they prove it, how long that lasts.

pub mod accounts;
pub mod cookie;
pub mod email;
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

use crate::app::App;
use crate::mail::Mailer;
use crate::route::Serve as _;

/// What handlers about people share: one for a process, a part of [`App`].
#[derive(Debug)]
pub struct People {
    /// Hashes passwords.
    pub passwords: password::Passwords,
    /// Sends mail.
    pub mailer: Mailer,
    /// Counts sign-ins.
    pub attempts: sign_in::Attempts,
    /// Counts reset links.
    pub resets: reset::Requests,
    /// Counts invitations by whom they are for.
    pub invitations: throttle::Throttle<email::Email>,
    /// Mails on their way. Who stops the platform closes it and waits.
    pub background: TaskTracker,
}

impl People {
    /// With nothing counted yet.
    pub fn new(passwords: password::Passwords, mailer: Mailer) -> Self {
        Self {
            passwords,
            mailer,
            attempts: sign_in::Attempts::default(),
            resets: reset::Requests::default(),
            invitations: throttle::Throttle::new(throttle::Limits::MAIL),
            background: TaskTracker::new(),
        }
    }
}

/// The routes of this module.
pub fn routes() -> Router<Arc<App>> {
    Router::new().serve(GET_USER, user::get)
}
