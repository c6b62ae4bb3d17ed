//! `svc project addresses`: reserved TCP addresses.

use api::control::addresses::{LIST, RELEASE, RESERVE, TcpAddress, TcpAddressList};
use clap::{Parser, Subcommand};

use super::ProjectArg;
use crate::{
    failure::{Code, Failure},
    output,
    output::Format,
};

/// The subcommands of `svc project addresses`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List the reserved TCP addresses of a project
    List(ProjectArg),
    /// Reserve one more address; the platform picks the port
    Reserve(ProjectArg),
    /// Release a reserved address
    Release(ReleaseArgs),
}

/// The flags of `svc project addresses release`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc project addresses release 20000")]
pub(crate) struct ReleaseArgs {
    /// The port
    port: u16,

    #[command(flatten)]
    on: ProjectArg,
}

/// Runs a subcommand.
pub(super) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(on) => list(on).await,
        Command::Reserve(on) => reserve(on).await,
        Command::Release(args) => release(args).await,
    }
}

async fn list(on: ProjectArg) -> Result<(), Failure> {
    let session = on.flags.open()?;
    let project = session.project(on.project.as_deref()).await?;
    let call = session.platform.call(LIST, &[&project.id]);
    let list: TcpAddressList = call.answer().await?;
    if on.output == Format::Json {
        return output::json(&list);
    }
    let rows: Vec<_> = list.addresses.iter().map(row).collect();
    output::table(&["PORT", "DOMAIN", "CREATED", "ID"], &rows)
}

async fn reserve(on: ProjectArg) -> Result<(), Failure> {
    let session = on.flags.open()?;
    let project = session.project(on.project.as_deref()).await?;
    let call = session.platform.call(RESERVE, &[&project.id]);
    let address: TcpAddress = call.answer().await?;
    match on.output {
        Format::Json => output::json(&address),
        Format::Text => output::record(&[
            ("port", address.port.to_string()),
            ("domain", address.domain),
            ("id", address.id),
        ]),
    }
}

async fn release(args: ReleaseArgs) -> Result<(), Failure> {
    let session = args.on.flags.open()?;
    let project = session.project(args.on.project.as_deref()).await?;
    let call = session.platform.call(LIST, &[&project.id]);
    let list: TcpAddressList = call.answer().await?;
    let mut addresses = list.addresses.into_iter();
    let port = args.port;
    let Some(address) = addresses.find(|address| address.port == port) else {
        let text = format!("port {port} is not reserved by the project");
        return Err(Failure::new(Code::Failed, text));
    };
    let call = session.platform.call(RELEASE, &[&project.id, &address.id]);
    call.execute().await?;
    output::message(&format!("port {port} is released"));
    Ok(())
}

fn row(address: &TcpAddress) -> Vec<String> {
    vec![
        address.port.to_string(),
        address.domain.clone(),
        address.created_at.clone(),
        address.id.clone(),
    ]
}
