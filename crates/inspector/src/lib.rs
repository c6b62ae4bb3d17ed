//! What passes through a tunnel, for the person whose service it is.
//!
//! An [`Inspector`] gives an agent a tap ([`Inspector::tap`]) that copies what forwarded streams
//! carry. A decoder without IO and without a clock makes exchanges of the bytes, with the messages of
//! WebSocket, server-sent events and gRPC; a store with limits keeps them. Whoever looks
//! [subscribes](Inspector::subscribe), in the same process, or in a browser through [`serve()`].
//!
//! It never alters traffic and is never needed for it: a decoder that loses its place says so
//! and stops, and a reader that does not keep up is told to read the list anew.

mod content;
mod curl;
mod decode;
mod exchange;
mod har;
mod hint;
mod inspector;
pub mod limits;
mod mask;
mod protobuf;
mod replay;
pub mod serve;
mod store;
mod view;

pub use exchange::{Kind, Summary};
pub use hint::Hint;
pub use inspector::{About, Inspector, RecordingMode, Subscription, Update};
pub use serve::{InspectorServer, Settings, serve};
