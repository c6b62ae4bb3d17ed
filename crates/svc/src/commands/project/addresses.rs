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

/// Arguments of `svc project addresses release`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc project addresses release 20000")]
pub(crate) struct ReleaseArgs {
    /// Port of the reserved address
    port: u16,

    #[command(flatten)]
    project_arg: ProjectArg,
}

/// Runs a subcommand.
pub(super) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(project_arg) => list(project_arg).await,
        Command::Reserve(project_arg) => reserve(project_arg).await,
        Command::Release(args) => release(args).await,
    }
}

async fn list(project_arg: ProjectArg) -> Result<(), Failure> {
    let session = project_arg.flags.open()?;
    let project = session.project(project_arg.project.as_deref()).await?;
    let call = session.platform.call(LIST, &[&project.id]);
    let list: TcpAddressList = call.answer().await?;
    if project_arg.output == Format::Json {
        return output::json(&list);
    }
    let rows: Vec<_> = list.addresses.iter().map(row).collect();
    output::table(&["PORT", "DOMAIN", "CREATED", "ID"], &rows)
}

async fn reserve(project_arg: ProjectArg) -> Result<(), Failure> {
    let session = project_arg.flags.open()?;
    let project = session.project(project_arg.project.as_deref()).await?;
    let call = session.platform.call(RESERVE, &[&project.id]);
    let address: TcpAddress = call.answer().await?;
    match project_arg.output {
        Format::Json => output::json(&address),
        Format::Text => output::record(&[
            ("port", address.port.to_string()),
            ("domain", address.domain),
            ("id", address.id),
        ]),
    }
}

async fn release(args: ReleaseArgs) -> Result<(), Failure> {
    let session = args.project_arg.flags.open()?;
    let project = session.project(args.project_arg.project.as_deref()).await?;
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
