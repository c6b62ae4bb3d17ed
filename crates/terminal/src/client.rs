//! Client of terminals: finds a server by name or address, and runs commands on it.
//!
//! [`Endpoint`] contains the address of a server and the way to it. [`inventory`] finds a server
//! among the tunnels of an engine. [`Connection`] carries messages to a server. [`Session`] is a
//! requested command, over one or several successive connections. [`Participant`] joins another
//! client's session at an engine.
//!
//! A session is a task. Its events wait in a bounded queue: if the queue is full, the task stops
//! reading, and the command has to stop writing. Input waits in another bounded queue, whose sender
//! waits if it is full.
//!
//! ```no_run
//! use terminal::client::{Endpoint, Event, Request, Session};
//! use tty::message::Config;
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let endpoint = Endpoint::url("ws://127.0.0.1:8080", None, client::Trust::Platform)?;
//! let config = Config { cmd_args: vec!["uname".to_owned()], ..Config::default() };
//! let (mut session, _input) = Session::start(endpoint, Request::new(config));
//! while let Some(event) = session.event().await {
//!     if let Event::Ended(ended) = event {
//!         println!("it ended with {}", ended?.code);
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod connection;
mod endpoint;
mod input;
pub mod inventory;
mod participant;
mod seal;
mod session;
#[cfg(test)]
mod tests;

pub use connection::{Connection, ConnectionError};
pub use endpoint::{Endpoint, Url, UrlError};
pub use input::Input;
pub use participant::{Attachment, Participant, ParticipantEvent};
pub use seal::Seal;
pub use session::{CommandEnd, Event, Request, Session, SessionError};
