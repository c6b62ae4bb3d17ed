//! The side of the person: from a name or an address to a command that runs somewhere else.
//!
//! [`Endpoint`] says where a server is and how it is reached, [`inventory`] finds it among the
//! tunnels of an engine, and [`Connection`] carries messages to it. [`Session`] is a command that
//! was asked for, over one connection after the other; [`Participant`] is somebody who joined the
//! session of somebody else at an engine.
//!
//! A session is a task of its own. What it has to tell waits in a bounded queue: who does not take it
//! makes it stop reading, and with that the command stop writing. What is typed waits in another one,
//! and there, too, who has no room waits.
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
pub use endpoint::{BadUrl, Endpoint, Url};
pub use input::Input;
pub use participant::{Attachment, Participant, ParticipantEvent};
pub use seal::Seal;
pub use session::{CommandEnd, Event, Request, Session, SessionError};
