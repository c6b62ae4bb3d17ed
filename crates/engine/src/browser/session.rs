//! The browser session (ED-2): who signed in, where, and when.

use api::link::{EDGE_SESSION, EDGE_SESSION_SECONDS};
use serde::{Deserialize, Serialize};

use super::cookies;
use super::seals::{Purpose, Seals};
use crate::directory::{Directory, Project};

/// Seconds that a session lasts.
pub const SESSION_SECONDS: i64 = EDGE_SESSION_SECONDS;

/// A person who signed in at a tunnel's host. The cookie holds it, bound to the host and the
/// project; whether it still counts is asked of the directory with each request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Id of the user.
    #[serde(rename = "u")]
    pub user_id: String,
    /// Unix seconds.
    #[serde(rename = "i")]
    pub issued_at: i64,
    /// Its id, which is that of the code that began it: it ends by this when its person signs out.
    #[serde(rename = "j")]
    pub id: String,
    /// Id of the person's session at the platform, with which it ends.
    #[serde(rename = "s", default, skip_serializing_if = "Option::is_none")]
    pub platform_session: Option<String>,
    /// Name of the person, to show it.
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Address of the person, to show it.
    #[serde(rename = "e", default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

/// Why a cookie is no session now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoSession {
    /// None, or not made by this cluster for this host and project.
    #[error("no session of this host")]
    Foreign,
    #[error("the session is over")]
    Expired,
    /// Sessions of the person that began before a certain time were ended.
    #[error("the session was ended")]
    Ended,
    #[error("the session's person is not known here")]
    Unknown,
}

impl Session {
    /// Reads a cookie. Whether the session holds is [`Self::holds`]'s to say.
    ///
    /// # Errors
    /// [`NoSession::Foreign`].
    pub fn read(
        cookie: &str,
        seals: &Seals,
        host: &str,
        project: &Project,
    ) -> Result<Self, NoSession> {
        let bound: [&[u8]; 2] = [host.as_bytes(), project.id.as_bytes()];
        let payload = seals.check(Purpose::Session, &bound, cookie);
        let session = payload.and_then(|payload| serde_json::from_slice(&payload).ok());
        session.ok_or(NoSession::Foreign)
    }

    /// Whether the session counts at `now` (Unix seconds): its time is not over, and it stands.
    ///
    /// # Errors
    /// Why not.
    pub fn holds(&self, directory: &Directory, now: i64) -> Result<(), NoSession> {
        let age = now.saturating_sub(self.issued_at);
        if !(-CLOCK_LEEWAY_SECONDS..SESSION_SECONDS).contains(&age) {
            return Err(NoSession::Expired);
        }
        self.stands(directory)
    }

    /// Whether the person is still known, and has not ended the session. What began within its time
    /// lasts as long as this.
    ///
    /// # Errors
    /// Why not.
    pub fn stands(&self, directory: &Directory) -> Result<(), NoSession> {
        let person = directory.person(&self.user_id).ok_or(NoSession::Unknown)?;
        // Seconds are coarse: what began in the very second counts as before.
        if self.issued_at <= person.sessions_after {
            return Err(NoSession::Ended);
        }
        let ended_with = self.platform_session.as_deref();
        if directory.is_ended(&self.ended_as())
            || ended_with.is_some_and(|session| directory.is_ended(session))
        {
            return Err(NoSession::Ended);
        }
        Ok(())
    }

    /// Its id among what has ended.
    pub(crate) fn ended_as(&self) -> String {
        format!("{EDGE_SESSION}{}", self.id)
    }

    /// Whether it ends with what has this id.
    pub(crate) fn ends_with(&self, ended: &str) -> bool {
        self.platform_session.as_deref() == Some(ended)
            || ended.strip_prefix(EDGE_SESSION) == Some(self.id.as_str())
    }

    /// The value of the `Set-Cookie` that gives a browser this session.
    pub(crate) fn set_cookie(&self, seals: &Seals, host: &str, project: &Project) -> String {
        let bound: [&[u8]; 2] = [host.as_bytes(), project.id.as_bytes()];
        // Strings and numbers always serialise.
        let payload = serde_json::to_vec(self).unwrap_or_default();
        let value = seals.sign(Purpose::Session, &bound, &payload);
        cookies::set(cookies::SESSION, &value, SESSION_SECONDS)
    }

    /// The value of the `Set-Cookie` that takes it away.
    pub(crate) fn clear_cookie() -> String {
        cookies::set(cookies::SESSION, "", 0)
    }
}

/// What the clocks of two engines of a cluster may differ by, and the second by which a session is
/// made younger that begins in the second in which all others were ended.
const CLOCK_LEEWAY_SECONDS: i64 = 5;
