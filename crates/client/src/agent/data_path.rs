//! Availability of data connections to the engine.
//!
//! A control channel alone does not make a tunnel reachable: a firewall, a balancer or a limit may
//! allow it and refuse every data connection. The tunnels are then offline even if heartbeats
//! succeed. The remedy is a new channel, which resolves the name again.

use std::{
    io,
    sync::atomic::{AtomicU32, Ordering},
};

use tokio::sync::Notify;

use crate::{ConnectError, connect::Connector, proxy::ProxyFault};

/// Results of the data connections of one control channel.
#[derive(Debug, Default)]
pub(crate) struct DataPath {
    failures: AtomicU32,
    broken: Notify,
    /// Selects the process of the engine that holds the control channel.
    connector: Option<Connector>,
}

impl DataPath {
    /// A path whose connections select a process of the engine, or none.
    pub(crate) fn new(connector: Option<Connector>) -> Self {
        Self {
            connector,
            ..Self::default()
        }
    }

    /// Opens the connections of this channel; without one, the agent's own connector does.
    pub(crate) fn connector(&self) -> Option<&Connector> {
        self.connector.as_ref()
    }

    /// A connection was opened and completed its hello.
    pub(crate) fn record_success(&self) {
        self.failures.store(0, Ordering::Relaxed);
    }

    /// A connection could not be opened.
    pub(crate) fn record_failure(&self, error: &ConnectError) {
        if is_local_shortage(error) {
            return;
        }
        if self.failures.fetch_add(1, Ordering::Relaxed) + 1 >= MAX_CONSECUTIVE_FAILURES {
            self.broken.notify_one();
        }
    }

    /// Returns after too many consecutive failures. Cancel safe.
    pub(crate) async fn broken(&self) {
        self.broken.notified().await;
    }
}

/// A resource shortage of this process is not a fault of the path, and a new channel would not
/// help.
fn is_local_shortage(error: &ConnectError) -> bool {
    let (ConnectError::Network { source, .. }
    | ConnectError::Proxy {
        source: ProxyFault::Unresolved(source) | ProxyFault::Unreachable(source),
        ..
    }) = error
    else {
        return false;
    };
    source.kind() == io::ErrorKind::AddrNotAvailable
        || matches!(source.raw_os_error(), Some(ENFILE | EMFILE))
}

/// Too many open files in the system and in this process: the same numbers on every Unix.
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;

/// Single failures happen on every network. This many without a success between them indicate a
/// fault.
const MAX_CONSECUTIVE_FAILURES: u32 = 5;

#[cfg(test)]
mod tests {
    use std::{pin::pin, sync::Arc, task::Context};

    use super::*;
    use crate::error::Step;

    fn fail(path: &DataPath, times: u32, number: i32) {
        let source = io::Error::from_raw_os_error(number);
        let error = ConnectError::network(Step::Dial, source);
        (0..times).for_each(|_| path.record_failure(&error));
    }

    fn is_broken(path: &DataPath) -> bool {
        let mut cx = Context::from_waker(std::task::Waker::noop());
        pin!(path.broken()).poll(&mut cx).is_ready()
    }

    #[test]
    fn failures_in_a_row_break_it_and_a_success_between_them_does_not() {
        let path = DataPath::default();
        for _ in 0..3 {
            fail(&path, MAX_CONSECUTIVE_FAILURES - 1, ECONNREFUSED);
            path.record_success();
        }
        assert!(!is_broken(&path));
        fail(&path, MAX_CONSECUTIVE_FAILURES, ECONNREFUSED);
        assert!(is_broken(&path));
    }

    #[test]
    fn a_process_without_descriptors_keeps_its_channel() {
        let path = DataPath::default();
        fail(&path, 2 * MAX_CONSECUTIVE_FAILURES, EMFILE);
        assert!(!is_broken(&path));
    }

    #[test]
    fn a_process_without_descriptors_for_its_proxy_keeps_its_channel() {
        let through_proxy = |number| {
            let source = Arc::new(io::Error::from_raw_os_error(number));
            ConnectError::proxy("http://p:1".to_owned(), ProxyFault::Unreachable(source))
        };
        for (number, breaks) in [(EMFILE, false), (ECONNREFUSED, true)] {
            let path = DataPath::default();
            for _ in 0..MAX_CONSECUTIVE_FAILURES {
                path.record_failure(&through_proxy(number));
            }
            assert_eq!(is_broken(&path), breaks, "{number}");
        }
    }

    /// `ECONNREFUSED` of Linux.
    const ECONNREFUSED: i32 = 111;
}
