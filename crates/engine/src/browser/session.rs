//! Browser sessions (ED-2) of signed-in users.

use api::link::EDGE_SESSION;
use serde::{Deserialize, Serialize};
use types::tunnel::IdentityClaim;

use super::cookies;
use super::seals::{Purpose, Seals};
use super::signed_in::SESSION_SECONDS;
use crate::access::TunnelPolicy;
use crate::directory::{Directory, Project};

/// A user who signed in at a tunnel's host. The cookie contains the session, bound to the host and
/// the project. The directory decides with each request if the session is still valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Id of the user.
    #[serde(rename = "u")]
    pub user_id: String,
    /// Unix seconds.
    #[serde(rename = "i")]
    pub issued_at: i64,
    /// Id of the session, taken from the sign-in code. A sign-out ends the session by this id.
    #[serde(rename = "j")]
    pub id: String,
    /// Id of the user's session at the platform. The session ends together with it.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub platform_session: Option<String>,
    /// Display name of the user.
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Verified email address of the user.
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
    /// Facts that the user has agreed to share with the service.
    #[serde(rename = "g", default, skip_serializing_if = "Vec::is_empty")]
    pub shared: Vec<IdentityClaim>,
}

/// Reason why a cookie is not a valid session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SessionError {
    /// The cookie is malformed, or was not made by this cluster for this host and project.
    #[error("no session of this host")]
    Foreign,
    #[error("the session has expired")]
    Expired,
    /// All sessions of the user that started before a certain time were ended.
    #[error("the session was ended")]
    Ended,
    #[error("the session's user is not known here")]
    Unknown,
}

impl Session {
    /// Reads a cookie. [`Self::check`] checks if the session is still valid.
    ///
    /// # Errors
    /// [`SessionError::Foreign`] if the cookie is not valid for this host and project.
    pub fn from_cookie(
        cookie: &str,
        seals: &Seals,
        host: &str,
        project: &Project,
    ) -> Result<Self, SessionError> {
        let bound: [&[u8]; 2] = [host.as_bytes(), project.id.as_bytes()];
        let payload = seals.verify(Purpose::Session, &bound, cookie);
        let session = payload.and_then(|payload| serde_json::from_slice(&payload).ok());
        session.ok_or(SessionError::Foreign)
    }

    /// Checks that the session is valid at `now` (Unix seconds): it has not expired and was not
    /// ended.
    ///
    /// # Errors
    /// The reason why the session is not valid.
    pub fn check(&self, directory: &Directory, now: i64) -> Result<(), SessionError> {
        let age = now.saturating_sub(self.issued_at);
        if !(-CLOCK_LEEWAY_SECONDS..SESSION_SECONDS).contains(&age) {
            return Err(SessionError::Expired);
        }
        self.check_not_ended(directory)
    }

    /// Returns true if the user has agreed to share every fact that the tunnel requests. Otherwise
    /// the user has to sign in again, because the tunnel has changed.
    pub fn covers(&self, policy: &TunnelPolicy) -> bool {
        let mut requested = policy.shared_claims();
        requested.all(|claim| self.shared.contains(&claim))
    }

    /// Checks that the user still exists and that the session was not ended. A visit that started
    /// within the session's lifetime continues until this check fails.
    ///
    /// # Errors
    /// The reason why the session is not valid.
    pub fn check_not_ended(&self, directory: &Directory) -> Result<(), SessionError> {
        let person = directory
            .person(&self.user_id)
            .ok_or(SessionError::Unknown)?;
        // Times have a resolution of seconds. A session that started in the same second counts as
        // ended.
        if self.issued_at <= person.sessions_after {
            return Err(SessionError::Ended);
        }
        let ended_with = self.platform_session.as_deref();
        if directory.is_ended(&self.ended_id())
            || ended_with.is_some_and(|session| directory.is_ended(session))
        {
            return Err(SessionError::Ended);
        }
        Ok(())
    }

    /// Id of this session in the set of ended sessions.
    pub(crate) fn ended_id(&self) -> String {
        format!("{EDGE_SESSION}{}", self.id)
    }

    /// True if the session ends together with the ended session of this id.
    pub(crate) fn ends_with(&self, ended: &str) -> bool {
        self.platform_session.as_deref() == Some(ended)
            || ended.strip_prefix(EDGE_SESSION) == Some(self.id.as_str())
    }

    /// The value of the `Set-Cookie` that stores this session in a browser.
    pub(crate) fn set_cookie(&self, seals: &Seals, host: &str, project: &Project) -> String {
        let bound: [&[u8]; 2] = [host.as_bytes(), project.id.as_bytes()];
        // Strings and numbers always serialise.
        let payload = serde_json::to_vec(self).unwrap_or_default();
        let value = seals.sign(Purpose::Session, &bound, &payload);
        cookies::set(cookies::SESSION, &value, SESSION_SECONDS)
    }

    /// The value of the `Set-Cookie` that deletes the session.
    pub(crate) fn clear_cookie() -> String {
        cookies::set(cookies::SESSION, "", 0)
    }
}

/// Tolerated clock difference of two engines of a cluster, in seconds. It also allows a session
/// whose start is set to the next second because all earlier sessions were ended in the current
/// one.
const CLOCK_LEEWAY_SECONDS: i64 = 5;
