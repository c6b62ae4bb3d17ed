//! `svc mcp`: an MCP server on standard input and output for local AI clients, with the platform's
//! tools and tunnels to local ports.

mod network;
mod tunnels;

use std::sync::Arc;

use ::mcp::Server;
use clap::Parser;

use self::{
    network::Network,
    tunnels::{TunnelTools, Tunnels},
};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::platform::SessionFlags;
use crate::process::signals;
use crate::terminals::Terminals;

/// The flags of `svc mcp`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  claude mcp add svc -- svc mcp")]
pub(crate) struct Args {
    /// The engine for local tunnels, `host:port`
    #[arg(
        long,
        env = "SVC_ENGINE",
        value_name = "HOST:PORT",
        hide_env_values = true,
        help_heading = "Platform"
    )]
    engine: Option<String>,

    #[command(flatten)]
    flags: SessionFlags,
}

/// Serves until standard input ends or a signal arrives. Its tunnels end with it.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let shutdown = signals::listen(signals::DRAIN)?;
    let flags = args.flags;
    let tunnels = Arc::new(Tunnels::new(Connection {
        engine: args.engine,
        token: flags.token.clone(),
        ca_file: flags.ca_file.clone(),
        proxy: flags.proxy.clone(),
        context: flags.context.clone(),
        config: flags.config.clone(),
    }));
    let terminals = Arc::new(Terminals::default());
    let server = Server::new(Network::open(flags, Arc::clone(&terminals))?);
    let served = tokio::select! {
        served = ::mcp::stdio(server, TunnelTools(Arc::clone(&tunnels))) => {
            served.map_err(|error| Failure::from_error("the MCP client closed the connection before it was initialised", error))
        }
        () = shutdown.drain().cancelled() => Ok(()),
    };
    terminals.leave_all().await;
    tunnels.end().await;
    served
}
