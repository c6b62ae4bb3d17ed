//! Hosts with browser sessions, and the publishers at whose tunnels the sessions started.
//!
//! A browser sends the session cookie to any service at its host. An HTTP tunnel never forwards it
//! to the service, but a `tls` tunnel forwards all bytes unchanged. So while there may be sessions
//! at a host name, only the publisher at whose tunnel users signed in may publish a `tls` tunnel
//! there.

use std::collections::HashMap;

use api::link::EDGE_SESSION_SECONDS;
use credentials::Identity;
use parking_lot::Mutex;

/// Lifetime of a session in seconds.
pub const SESSION_SECONDS: i64 = EDGE_SESSION_SECONDS;

/// The host names of one project at which users signed in, for the lifetime of a session.
#[derive(Debug, Default)]
pub struct SignInHosts(Mutex<Names>);

#[derive(Debug, Default)]
struct Names {
    by_host: HashMap<Box<str>, Sessions>,
    /// Until this time (Unix seconds), any unknown host name may have sessions: some were not
    /// stored because the limit was reached.
    anywhere_until: i64,
}

#[derive(Debug)]
struct Sessions {
    /// `None` if users signed in at tunnels of several publishers.
    publisher: Option<Identity>,
    /// Unix seconds.
    until: i64,
}

/// Limit of host names of one project. Each takes about 200 bytes.
const MAX_HOSTS: usize = 1024;

impl SignInHosts {
    /// Records that a user signed in at a host at `now` (Unix seconds), at a tunnel of this
    /// publisher.
    pub(crate) fn record(&self, host: &str, publisher: &Identity, now: i64) {
        let until = now.saturating_add(SESSION_SECONDS);
        let mut names = self.0.lock();
        if let Some(sessions) = names.by_host.get_mut(host) {
            let is_same_publisher =
                sessions.until <= now || sessions.publisher.as_ref() == Some(publisher);
            sessions.publisher = is_same_publisher.then(|| publisher.clone());
            sessions.until = until;
            return;
        }
        if names.by_host.len() >= MAX_HOSTS {
            names.by_host.retain(|_, sessions| sessions.until > now);
        }
        if names.by_host.len() >= MAX_HOSTS {
            names.anywhere_until = until;
            return;
        }
        let publisher = Some(publisher.clone());
        names
            .by_host
            .insert(host.into(), Sessions { publisher, until });
    }

    /// True if there may be sessions at the host that started at another publisher's tunnel.
    pub(crate) fn has_foreign_sessions(&self, host: &str, publisher: &Identity, now: i64) -> bool {
        let names = self.0.lock();
        match names
            .by_host
            .get(host)
            .filter(|sessions| sessions.until > now)
        {
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
    fn a_host_belongs_to_its_publisher_during_sessions() {
        let signed_in = SignInHosts::default();
        assert!(!signed_in.has_foreign_sessions("a", &user("ann"), 0));
        signed_in.record("a", &user("ann"), 0);
        assert!(!signed_in.has_foreign_sessions("a", &user("ann"), 1));
        assert!(signed_in.has_foreign_sessions("a", &user("eve"), SESSION_SECONDS - 1));
        assert!(!signed_in.has_foreign_sessions("b", &user("eve"), 1));
        assert!(!signed_in.has_foreign_sessions("a", &user("eve"), SESSION_SECONDS));
        // With two publishers, neither may receive the sessions of the other.
        signed_in.record("b", &user("ann"), 0);
        signed_in.record("b", &user("eve"), 1);
        for publisher in ["ann", "eve"] {
            assert!(
                signed_in.has_foreign_sessions("b", &user(publisher), 2),
                "{publisher}"
            );
        }
    }

    #[test]
    fn hosts_beyond_the_limit_count_as_foreign() {
        let signed_in = SignInHosts::default();
        for name in 0..=MAX_HOSTS {
            signed_in.record(&name.to_string(), &user("ann"), 0);
        }
        assert!(signed_in.has_foreign_sessions("new", &user("ann"), 1));
        assert!(!signed_in.has_foreign_sessions("0", &user("ann"), 1));
        assert!(!signed_in.has_foreign_sessions("new", &user("ann"), SESSION_SECONDS));
    }
}
