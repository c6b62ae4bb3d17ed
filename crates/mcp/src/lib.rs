//! The API as tools for AI clients: the Model Context Protocol over an HTTP API.
//!
//! A tool is an operation of the control plane's document. Its input consists of the operation's
//! parameters and body, its output schema is the operation's response, and its scopes are the
//! permission that the operation checks. A call becomes a request to that operation, so there is no
//! second implementation of any function, and no second permission check. A [`Backend`] sends the
//! request: to the platform's own router in the same process ([`hosted`]), or over the network. The
//! live state of a project is requested in the same way from its engine, as an operation of the
//! Engine API. [`stdio`] adds tools of the local machine.
//!
//! This is the only crate that depends on the MCP SDK, which has frequent new versions. It does not
//! depend on the control plane or its database. Start reading with [`tools`](mod@tools), the table.

#[cfg(feature = "hosted")]
mod hosted;
mod result;
mod server;
mod tools;

#[cfg(feature = "hosted")]
pub use self::hosted::{
    CallerAuthenticator, CallerFuture, Engines, HeldPermissions, HostedEndpoint, PATH,
    SIGN_IN_PATH, hosted,
};
pub use self::server::local::{Local, LocalAnswer, LocalTool, StdioError, stdio};
pub use self::server::{Backend, ResponseFuture, Server};
pub use self::tools::live::ProjectName;
pub use self::tools::terminals::{Agent, TerminalAction, TerminalRequest};
pub use self::tools::{Effect, TOOLS, Tool, documents};
