//! Managed terminals: sessions on registered servers, who takes part in them, and what is kept of
//! them (EN-8, WT-2).
//!
//! Whoever comes to a tunnel of the protocol `webtty`, at its published host or by a dial, opens a
//! session. [`RunningSession`] is that session: the state machine of `tty` behind a lock, with what wakes
//! those who wait. One task ([`relay`]) has the server's side and the time. Each participant has a
//! task of its own ([`participant`]), which takes what waits for it and says what it hears; whoever
//! opened the session is the first of them, others come by the Engine API. [`Sessions`] knows all
//! of them, and for a while those that ended.
//!
//! Back-pressure has two sources: who has control and does not read holds the server, and a server
//! that does not read holds who types. Nobody else holds anybody: what waits for a viewer is bounded,
//! and a screen takes its place. A recording that has no room holds both ends.

mod context;
mod participant;
mod policy;
pub mod recordings;
mod registry;
mod relay;
mod running;
mod shown;
mod start;
mod upstream;
mod wire;

pub(crate) use self::context::SessionContext;
pub(crate) use self::participant::{open_attachment, participate, refuse};
pub(crate) use self::policy::Policy;
pub use self::registry::Sessions;
pub(crate) use self::registry::{SessionEntry, SessionPermit};
pub(crate) use self::running::RunningSession;
pub(crate) use self::shown::{program, without_arguments};
pub(crate) use self::start::{Opener, StartError, begin, shown_name};
pub(crate) use self::upstream::{Server, ServerError};
pub(crate) use self::wire::{Peer, config as websocket_config};

use types::tunnel::{Protocol, Tunnel};

/// Whether a tunnel leads to a managed terminal server.
pub(crate) fn is_at(tunnel: &Tunnel) -> bool {
    tunnel.properties.protocol == Some(Protocol::Webtty)
}
