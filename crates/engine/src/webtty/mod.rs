//! Managed terminals: sessions on registered servers, their participants and their recordings
//! (EN-8, WT-2).
//!
//! A client that connects to a tunnel of the protocol `webtty`, at its published host or by a dial,
//! opens a session. [`RunningSession`] is that session: the state machine of `tty` behind a lock,
//! with notifications for the tasks that wait for it. One task ([`relay`]) handles the server's
//! side and the timers. Each participant has a task of its own ([`participant`]), which sends the
//! queued messages and passes on the received ones. The opener of the session is the first
//! participant; others join by the Engine API. [`Sessions`] stores all sessions, and for a while
//! those that ended.
//!
//! Back-pressure has two sources. If the participant in control does not read, the server is
//! paused. If the server does not read, the participant that types is paused. Viewers never pause
//! anything: the queue of a viewer is bounded, and a full queue is replaced with one screen
//! snapshot. A recording without capacity pauses both sides.

mod context;
mod participant;
mod policy;
pub mod recordings;
mod registry;
mod relay;
mod resource;
mod running;
mod start;
mod upstream;
mod wire;

pub(crate) use self::context::SessionContext;
pub(crate) use self::participant::{open_attachment, participate, refuse};
pub(crate) use self::policy::Policy;
pub use self::registry::Sessions;
pub(crate) use self::registry::{SessionEntry, SessionPermit};
pub(crate) use self::resource::{program, without_arguments};
pub(crate) use self::running::RunningSession;
pub(crate) use self::start::{Opener, StartError, display_name, start_session};
pub(crate) use self::upstream::{Server, ServerError};
pub(crate) use self::wire::{Peer, config as websocket_config};

use types::tunnel::{Protocol, Tunnel};

/// True if a tunnel leads to a managed terminal server.
pub(crate) fn is_terminal_tunnel(tunnel: &Tunnel) -> bool {
    tunnel.properties.protocol == Some(Protocol::Webtty)
}
