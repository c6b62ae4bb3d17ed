//! Where people have sessions, and whose tunnel began them.
//!
//! A browser sends the cookie of a session to whatever is at its host. A tunnel of HTTP never shows
//! it to the service, but a `tls` tunnel hands on bytes as they come. So for as long as there may be
//! sessions at a name, only the publisher at whose tunnel people signed in may publish one there.

use std::collections::HashMap;

use credentials::Identity;
use parking_lot::Mutex;

use super::session::SESSION_SECONDS;

/// The names of one project at which people signed in, for as long as a session lasts.
#[derive(Debug, Default)]
pub struct SignedIn(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    by_host: HashMap<Box<str>, Sessions>,
    /// Until then (Unix seconds) there were more names than are kept: each may have been among
    /// them.
    anywhere_until: i64,
}

#[derive(Debug)]
struct Sessions {
    /// `None`: at tunnels of several.
    publisher: Option<Identity>,
    /// Unix seconds.
    until: i64,
}

/// Names of one project: some 200 bytes each.
const MOST: usize = 1024;

impl SignedIn {
    /// Somebody signed in at a host, where a tunnel of this publisher was, at `now` (Unix seconds).
    pub(crate) fn note(&self, host: &str, publisher: &Identity, now: i64) {
        let until = now.saturating_add(SESSION_SECONDS);
        let mut names = self.0.lock();
        if let Some(sessions) = names.by_host.get_mut(host) {
            let is_theirs = sessions.until <= now || sessions.publisher.as_ref() == Some(publisher);
            sessions.publisher = is_theirs.then(|| publisher.clone());
            sessions.until = until;
            return;
        }
        if names.by_host.len() >= MOST {
            names.by_host.retain(|_, sessions| sessions.until > now);
        }
        if names.by_host.len() >= MOST {
            names.anywhere_until = until;
            return;
        }
        let publisher = Some(publisher.clone());
        names
            .by_host
            .insert(host.into(), Sessions { publisher, until });
    }

    /// Whether there may be sessions at a host that began at somebody else's tunnel.
    pub(crate) fn is_of_others(&self, host: &str, publisher: &Identity, now: i64) -> bool {
        let names = self.0.lock();
        match names.by_host.get(host).filter(|it| it.until > now) {
            Some(sessions) => sessions.publisher.as_ref() != Some(publisher),
            None => names.anywhere_until > now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn user(id: &str) -> Identity {
        Identity::User(id.to_owned())
    }

    #[test]
    fn a_name_is_its_publishers_while_sessions_last() {
        let signed_in = SignedIn::default();
        assert!(!signed_in.is_of_others("a", &user("ann"), 0));
        signed_in.note("a", &user("ann"), 0);
        assert!(!signed_in.is_of_others("a", &user("ann"), 1));
        assert!(signed_in.is_of_others("a", &user("eve"), SESSION_SECONDS - 1));
        assert!(!signed_in.is_of_others("b", &user("eve"), 1));
        assert!(!signed_in.is_of_others("a", &user("eve"), SESSION_SECONDS));
        // Of both: neither gets to see the other's.
        signed_in.note("b", &user("ann"), 0);
        signed_in.note("b", &user("eve"), 1);
        for publisher in ["ann", "eve"] {
            assert!(
                signed_in.is_of_others("b", &user(publisher), 2),
                "{publisher}"
            );
        }
    }

    #[test]
    fn more_names_than_are_kept_are_all_somebody_elses() {
        let signed_in = SignedIn::default();
        for name in 0..=MOST {
            signed_in.note(&name.to_string(), &user("ann"), 0);
        }
        assert!(signed_in.is_of_others("new", &user("ann"), 1));
        assert!(!signed_in.is_of_others("0", &user("ann"), 1));
        assert!(!signed_in.is_of_others("new", &user("ann"), SESSION_SECONDS));
    }
}
