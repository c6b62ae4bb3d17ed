//! The API as tools for AI clients: the Model Context Protocol over an HTTP API.
//!
//! A tool is an operation of the control plane's document: its input is made of the operation's
//! parameters and body, its output schema is the operation's answer, the scopes that it declares
//! are the permission that the operation checks. A call becomes a request to that operation, so
//! there is no second way to any function and no second place where a permission is asked for.
//! What carries the request out is a [`Backend`]: the platform's own router in the same process
//! ([`hosted`]), or the network. What is live in a project is asked of its engine in the same way,
//! which is an operation of the Engine API. [`stdio`] adds tools of the machine that it runs on.
//!
//! This is the only crate that sees the MCP SDK, whose versions follow each other quickly. It knows
//! neither the control plane nor its database. Start with [`tools`](mod@tools), the table.

mod call;
mod discovery;
#[cfg(feature = "hosted")]
mod hosted;
mod lines;
mod live;
mod local;
mod result;
mod schema;
mod server;
mod terminals;
mod tools;

#[cfg(feature = "hosted")]
pub use self::hosted::{
    CallerFuture, Engines, HeldPermissions, HostedEndpoint, Identify, PATH, hosted,
};
pub use self::live::ProjectName;
pub use self::local::{Local, LocalAnswer, LocalTool, StdioError, stdio};
pub use self::server::{Backend, ResponseFuture, Server};
pub use self::terminals::{Agent, TerminalAct, TerminalAsk};
pub use self::tools::{Effect, TOOLS, Tool, documents};
