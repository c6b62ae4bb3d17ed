//! Resuming of sessions: finding the session of a client, and replacing its connection.

use std::time::Instant;

use tty::message::{Kind, OpenSession};
use tty::session::TOKEN_LEN;

use super::Session;
use crate::server::carrier::Carrier;
use crate::server::random;
use crate::server::registry::KEY_LEN;
use crate::server::sealing::EncryptionState;

/// A client that resumes a session over another connection.
pub(crate) struct Reconnect {
    pub(crate) carrier: Carrier,
    pub(crate) sealing: EncryptionState,
    pub(crate) account: Option<String>,
    pub(crate) open: OpenSession,
}

impl Session {
    /// Makes the session resumable, and returns its first token.
    pub(super) fn register(&mut self) -> Option<[u8; TOKEN_LEN]> {
        let (registered, returns) = self.shared.registry.register()?;
        let token = fresh_token(registered.key());
        self.registered = Some(registered);
        self.reconnects = Some(returns);
        token
    }

    /// Passes the connection to the session that the client resumes. Otherwise returns the message,
    /// for the state machine to answer.
    pub(super) fn hand_over_resume(&mut self, kind: Kind) -> Option<Kind> {
        let Kind::Open(open) = &kind else {
            return Some(kind);
        };
        if self.process.is_some() {
            return Some(kind);
        }
        let session = open
            .session
            .as_ref()
            .filter(|session| session.resume.is_some());
        let resume = session.and_then(|session| session.resume.as_ref());
        let Some((session, found)) =
            session.zip(resume.and_then(|resume| self.shared.registry.find(&resume.token)))
        else {
            return Some(kind);
        };
        let Some(carrier) = self.carrier.take() else {
            return Some(kind);
        };
        let back = Box::new(Reconnect {
            carrier,
            sealing: std::mem::replace(&mut self.sealing, EncryptionState::Off),
            account: self.account.clone(),
            open: session.clone(),
        });
        match found.try_send(back) {
            Ok(()) => None,
            Err(refused) => {
                // The session has just ended, or already has several resuming clients.
                let back = refused.into_inner();
                self.carrier = Some(back.carrier);
                self.sealing = back.sealing;
                Some(kind)
            }
        }
    }

    pub(super) fn resume(&mut self, mut reconnect: Reconnect, now: Instant) {
        let resume = reconnect.open.resume.clone().unwrap_or_default();
        // A token alone is not sufficient, because an intermediary can see it. A sealed session
        // belongs to its client alone. A token is also stored in the browser, where another account
        // may sign in.
        let same = self.registered.is_some()
            && self.account == reconnect.account
            && self.is_owner(&reconnect.sealing);
        let token = self
            .registered
            .as_ref()
            .and_then(|registered| fresh_token(registered.key()));
        let Some(token) = token.filter(|_| same && self.machine.accepts(&resume)) else {
            if reconnect
                .carrier
                .send(&Kind::error("the session to resume does not exist"))
                .is_ok()
            {
                self.shared.finish(reconnect.carrier);
            }
            return;
        };
        let before = self.carrier.replace(reconnect.carrier);
        self.sealing = reconnect.sealing;
        self.acknowledged_input = None;
        self.closing = None;
        self.machine.on_resume(&reconnect.open, token, now);
        if let Some(before) = before {
            // The first command of the state machine closes the old connection.
            self.machine.command();
            self.shared.finish(before);
        }
        if self.secret {
            self.machine.on_secret_input(true);
        }
    }

    fn is_owner(&self, other: &EncryptionState) -> bool {
        match (self.shared.seal.is_some(), self.owner, other.client()) {
            (false, _, _) => true,
            (true, Some(owner), Some(other)) => owner == other,
            _ => false,
        }
    }
}

/// A new token: its first bytes identify the session, and the rest is secret.
fn fresh_token(key: [u8; KEY_LEN]) -> Option<[u8; TOKEN_LEN]> {
    let mut token: [u8; TOKEN_LEN] = random()?;
    let (front, _) = token.split_first_chunk_mut::<KEY_LEN>()?;
    *front = key;
    Some(token)
}
