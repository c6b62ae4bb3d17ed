//! Replacement of a running engine by a new process, without a refused or failed request.
//!
//! The old process starts the new one and gives it copies of its listening sockets. Two processes
//! then share them, but only one accepts connections:
//!
//! 1. The new process reads its configuration and reports that it is ready ([`incoming`]). Until
//!    then, any failure ends it, and nothing has changed for the old one.
//! 2. The old process asks its agents to open a control channel to the new one ([`outgoing`]). It
//!    accepts all connections meanwhile and passes those of the agents on: their `ClientHello`s name
//!    the process ([`Handover::selected_peer`]). Visitors are served here, so no name is without its
//!    agent.
//! 3. When the agents have moved, the old process stops accepting, releases what only one process
//!    can own (the metrics listener), and requests the new one to serve. It drains as for a stop. Late
//!    connections for its streams reach the new process, which passes them back. If that one is
//!    replaced meanwhile, it does not end before the old one, and passes connections to it.

mod connection;
mod incoming;
mod message;
mod outgoing;
mod peer;

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustls::server::ClientHello;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use wire::handshake::selected_process;

pub use self::incoming::Origin;
pub(crate) use self::incoming::take_over;
pub use self::outgoing::{HandoverError, Replacement};
pub(crate) use self::peer::Peer;
use self::peer::PeerRole;
use crate::random::random_bytes;

/// Time limit for telling the new process to serve. Without that message it stops.
const HANDED_OVER_LIMIT: Duration = Duration::from_secs(10);

/// The part of this process in a replacement.
pub(crate) struct Handover {
    /// Id of this process, which agents name.
    process: Arc<str>,
    /// Cancelled when this process accepts connections.
    begin: CancellationToken,
    serving_since: OnceLock<Instant>,
    /// The process that this one replaces, until it has drained.
    old_peer: ArcSwapOption<Peer>,
    /// Cancelled when that process has ended, or if there is none.
    predecessor_ended: CancellationToken,
    /// The process that replaces this one.
    new_peer: ArcSwapOption<Peer>,
    /// The process to which agents move.
    successor: watch::Sender<Option<Arc<str>>>,
    /// Control channels whose agent can move and has not yet.
    unmoved: TaskTracker,
    /// The ports of tunnels have been passed to the new process, so that no new one may be bound.
    is_preparing: AtomicBool,
    /// Cancelled when the new process takes over.
    replaced: CancellationToken,
    /// Cancelled when this process owns nothing any more that the new one needs.
    released: CancellationToken,
    /// Cancelled when the new process has been told to serve, or cannot be.
    handed_over: CancellationToken,
    /// Cancelled when the connection to the other process ends with this process.
    closed: CancellationToken,
    /// Copies of the listening sockets, for the new process and for the supervisor.
    listeners: Mutex<Vec<(&'static str, OwnedFd)>>,
}

impl Handover {
    /// `has_predecessor`: this process replaces another one.
    pub(crate) fn new(has_predecessor: bool) -> Self {
        let predecessor_ended = CancellationToken::new();
        if !has_predecessor {
            predecessor_ended.cancel();
        }
        Self {
            process: hex::encode(random_bytes::<8>()).into(),
            begin: CancellationToken::new(),
            serving_since: OnceLock::new(),
            old_peer: ArcSwapOption::empty(),
            predecessor_ended,
            new_peer: ArcSwapOption::empty(),
            successor: watch::Sender::new(None),
            unmoved: TaskTracker::new(),
            is_preparing: AtomicBool::new(false),
            replaced: CancellationToken::new(),
            released: CancellationToken::new(),
            handed_over: CancellationToken::new(),
            closed: CancellationToken::new(),
            listeners: Mutex::default(),
        }
    }

    /// Id of this process, which agents name.
    pub(crate) fn process(&self) -> &str {
        &self.process
    }

    /// Cancelled when this process accepts connections: at the start, or when it takes over.
    pub(crate) fn begin(&self) -> &CancellationToken {
        &self.begin
    }

    /// Starts to accept connections.
    pub(crate) fn start_serving(&self) {
        self.serving_since.get_or_init(Instant::now);
        self.begin.cancel();
    }

    /// True from the time at which this process accepts connections until another one takes over.
    /// Exactly one process reports what is online: two would replace each other's numbers.
    pub(crate) fn is_serving(&self) -> bool {
        self.begin.is_cancelled() && !self.replaced.is_cancelled()
    }

    /// The time since which this process accepts connections.
    pub(crate) fn serving_since(&self) -> Option<Instant> {
        self.serving_since.get().copied()
    }

    /// Keeps copies of listening sockets until the process stops accepting.
    pub(crate) fn keep(
        &self,
        name: &'static str,
        listeners: &[std::net::TcpListener],
    ) -> std::io::Result<()> {
        for listener in listeners {
            let copy = listener.as_fd().try_clone_to_owned()?;
            self.listeners.lock().push((name, copy));
        }
        Ok(())
    }

    /// Copies of the listening sockets, with the names of their listeners.
    pub(crate) fn listeners(&self) -> std::io::Result<Vec<(&'static str, OwnedFd)>> {
        let kept = self.listeners.lock();
        let copies = kept
            .iter()
            .map(|(name, socket)| socket.try_clone().map(|copy| (*name, copy)));
        copies.collect()
    }

    /// Closes the copies, because connections would wait in them.
    pub(crate) fn close_listeners(&self) {
        self.listeners.lock().clear();
    }

    /// Another process that shares the listeners, if the client selects it, or one behind it.
    pub(crate) fn selected_peer(&self, hello: &ClientHello<'_>) -> Option<Arc<Peer>> {
        let selected: Vec<&str> = hello.alpn()?.filter_map(selected_process).collect();
        self.peer_among(&selected)
    }

    fn peer_among(&self, selected: &[&str]) -> Option<Arc<Peer>> {
        // Two processes that are both selected would pass the connection back and forth.
        if selected.contains(&self.process()) {
            return None;
        }
        let peers = [&self.new_peer, &self.old_peer];
        peers.into_iter().find_map(|peer| {
            let peer = peer.load_full()?;
            let processes = peer.processes();
            let is_selected = processes.iter().any(|id| selected.contains(&id.as_str()));
            is_selected.then_some(peer)
        })
    }

    fn peer(&self, role: PeerRole) -> &ArcSwapOption<Peer> {
        match role {
            PeerRole::Old => &self.old_peer,
            PeerRole::New => &self.new_peer,
        }
    }

    /// Ids of the processes before this one that still have streams.
    pub(crate) fn earlier(&self) -> Vec<String> {
        let old = self.old_peer.load_full();
        old.map_or_else(Vec::new, |old| old.processes().to_vec())
    }

    /// Cancelled when the process that this one replaces has ended, or if there is none.
    pub(crate) fn predecessor_ended(&self) -> &CancellationToken {
        &self.predecessor_ended
    }

    /// The process to which agents move, and its changes.
    pub(crate) fn successor(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.successor.subscribe()
    }

    /// Counts a control channel whose agent can move, until the value is dropped.
    pub(crate) fn count_unmoved(&self) -> TaskTrackerToken {
        self.unmoved.token()
    }

    /// True while no port of a tunnel can be bound.
    pub(crate) fn is_preparing(&self) -> bool {
        self.is_preparing.load(Ordering::Acquire)
    }

    /// Cancelled when the new process takes over: agents that have not moved are disconnected.
    pub(crate) fn replaced(&self) -> &CancellationToken {
        &self.replaced
    }

    /// Reports that this process owns nothing any more that the new one needs.
    pub(crate) fn release(&self) {
        self.released.cancel();
    }

    /// Ends the connection to the other process, when that one serves.
    pub(crate) async fn close(&self) {
        if self.replaced.is_cancelled() {
            let handed_over = self.handed_over.cancelled();
            tokio::time::timeout(HANDED_OVER_LIMIT, handed_over)
                .await
                .ok();
        }
        self.closed.cancel();
        self.old_peer.store(None);
        self.new_peer.store(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_serves_until_another_one_takes_over() {
        let handover = Handover::new(false);
        assert!(!handover.is_serving());
        handover.start_serving();
        assert!(handover.is_serving());
        handover.replaced.cancel();
        assert!(!handover.is_serving());
    }

    #[tokio::test]
    async fn a_connection_that_selects_both_processes_is_not_passed_back_and_forth() {
        let (old, new) = (Handover::new(false), Handover::new(true));
        let (of_old, _to_new) = Peer::new(vec![new.process().to_owned()]);
        let (of_new, _to_old) = Peer::new(vec![old.process().to_owned()]);
        old.new_peer.store(Some(of_old));
        new.old_peer.store(Some(of_new));
        let process_of = |peer: Option<Arc<Peer>>| peer?.processes().first().cloned();

        let only_new = process_of(old.peer_among(&[new.process()]));
        assert_eq!(only_new.as_deref(), Some(new.process()));
        let only_old = process_of(new.peer_among(&[old.process()]));
        assert_eq!(only_old.as_deref(), Some(old.process()));
        let both = [old.process(), new.process()];
        assert_eq!(process_of(old.peer_among(&both)), None);
        assert_eq!(process_of(new.peer_among(&both)), None);
        assert_eq!(process_of(new.peer_among(&["0123456789abcdef"])), None);
    }

    #[test]
    fn a_connection_for_an_earlier_process_is_passed_through_the_one_between() {
        let newest = Handover::new(true);
        let (between, _to_between) = Peer::new(vec!["b".to_owned(), "a".to_owned()]);
        newest.old_peer.store(Some(between));
        let earlier = newest.peer_among(&["a"]).unwrap();
        assert_eq!(earlier.processes(), ["b", "a"]);
        // The next process can reach both.
        assert_eq!(newest.earlier(), ["b", "a"]);
    }
}
