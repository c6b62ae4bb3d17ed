//! Sessions that clients can resume.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::random;
use super::session::Reconnect;

/// Length of the part of a token that identifies its session. It is not secret: the session
/// compares the rest.
pub(crate) const KEY_LEN: usize = 8;

type Sender = mpsc::Sender<Box<Reconnect>>;

/// Sessions by the first bytes of their tokens.
#[derive(Default)]
pub(crate) struct Registry(Arc<Mutex<HashMap<[u8; KEY_LEN], Sender>>>);

/// Entry of a session. Dropping it removes the session.
pub(crate) struct RegistryEntry {
    key: [u8; KEY_LEN],
    all: Weak<Mutex<HashMap<[u8; KEY_LEN], Sender>>>,
}

impl Registry {
    /// Adds a session, and returns the receiver of its reconnecting clients.
    pub(crate) fn register(&self) -> Option<(RegistryEntry, mpsc::Receiver<Box<Reconnect>>)> {
        let key = random()?;
        // One client reconnects at a time; a second entry is another attempt of the same client.
        let (sender, returns) = mpsc::channel(2);
        self.0.lock().insert(key, sender);
        let registered = RegistryEntry {
            key,
            all: Arc::downgrade(&self.0),
        };
        Some((registered, returns))
    }

    /// The session of a token.
    pub(crate) fn find(&self, token: &[u8]) -> Option<Sender> {
        let key = token.first_chunk::<KEY_LEN>()?;
        self.0.lock().get(key).cloned()
    }
}

impl RegistryEntry {
    pub(crate) fn key(&self) -> [u8; KEY_LEN] {
        self.key
    }
}

impl Drop for RegistryEntry {
    fn drop(&mut self) {
        if let Some(all) = self.all.upgrade() {
            all.lock().remove(&self.key);
        }
    }
}
