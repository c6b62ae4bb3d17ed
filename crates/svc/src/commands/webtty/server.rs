//! `svc webtty server`: serve terminals of this host.

use clap::Parser;

use crate::{connection::Connection, failure::Failure};

/// The flags of `svc webtty server`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    #[command(flatten)]
    connection: Connection,
}

/// Serves until a signal.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let shutdown = crate::signals::listen(crate::signals::DRAIN)?;
    args.connection.resolve()?;
    shutdown.drain().cancelled().await;
    Ok(())
}
