//! Inspection of the traffic of a tunnel, for the owner of the service.
//!
//! An [`Inspector`] provides a tap for an agent ([`Inspector::tap`]) that copies the bytes of
//! forwarded streams. A decoder without IO and without a clock converts the bytes to exchanges,
//! with the messages of WebSocket, server-sent events and gRPC. A store with limits keeps them.
//! Clients [subscribe](Inspector::subscribe), in the same process, or in a browser through
//! [`serve()`].
//!
//! The inspector never changes traffic, and traffic never depends on it. A decoder that cannot
//! continue reports this and stops, and a subscriber that is too slow is notified to read the list
//! again.

mod curl;
mod decode;
mod exchange;
mod har;
mod inspector;
pub mod limits;
mod mask;
mod protobuf;
mod replay;
pub mod serve;
mod store;
mod update;
mod view;

pub use exchange::hint::Hint;
pub use exchange::{Kind, Summary};
pub use inspector::{Inspector, RecordingMode, Subscription};
pub use serve::{InspectorServer, Settings, serve};
pub use update::{InspectorInfo, Update};
