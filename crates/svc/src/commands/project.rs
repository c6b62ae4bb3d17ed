//! `svc project`: projects of the platform.

mod addresses;
mod create;
mod offer;
mod plan_change;
mod records;
mod settings;
mod takedowns;
mod webhooks;

use api::control::Paging;
use api::control::projects::{
    DELETE, Deployment, LIST, Project, ProjectList, ProjectStatus, TRANSFER, TransferProject,
    UPDATE, UpdateProject,
};
use clap::{Args, Parser, Subcommand};

use crate::{
    context::{Context, SelectedProject},
    failure::{Code, Failure},
    output,
    output::Format,
    platform::SessionFlags,
    prompt,
};

/// The subcommands of `svc project`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List projects
    List(ListArgs),
    /// Set the default project
    Use(UseArgs),
    /// Create a project (shows the price and asks first)
    Create(Box<create::CreateArgs>),
    /// Change a project's name
    Rename(RenameArgs),
    /// Move a project to another workspace
    Transfer(TransferArgs),
    /// Delete a project
    Delete(DeleteArgs),
    /// Show or change the policy of a project
    Settings(Box<settings::SettingsArgs>),
    /// Show or change the plan of a project
    Plan(Box<records::PlanArgs>),
    /// Show the traffic of a project's tunnels
    Usage(records::UsageArgs),
    /// List requests and connections
    Logs(Box<records::LogsArgs>),
    /// List stored events
    Events(Box<records::EventsArgs>),
    /// Manage webhooks for the events of a project
    #[command(subcommand)]
    Webhooks(Box<webhooks::Command>),
    /// Reserve TCP ports for a project
    #[command(subcommand)]
    Addresses(Box<addresses::Command>),
    /// List host names that an operator has taken down, with the reasons
    Takedowns(ProjectArg),
}

/// The flags of `svc project list`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc project list --q stag --sort name --output json")]
pub(crate) struct ListArgs {
    /// Only projects whose name or endpoint contains this text
    #[arg(long, value_name = "TEXT")]
    q: Option<String>,

    /// Only projects of this workspace (id or name)
    #[arg(long, value_name = "WORKSPACE")]
    workspace: Option<String>,

    /// Sort key
    #[arg(long, value_parser = ["id", "name", "endpoint", "status", "plan", "deployment"])]
    sort: Option<String>,

    /// Sort order
    #[arg(long, value_parser = ["asc", "desc"])]
    order: Option<String>,

    /// Page number, starting at 1
    #[arg(long, value_name = "N")]
    page: Option<u32>,

    /// Projects per page, up to 100
    #[arg(long, value_name = "N")]
    page_size: Option<u32>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// A named project, and the output format.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc project use staging")]
pub(crate) struct UseArgs {
    /// The project: endpoint, id or name
    project: String,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// The flags of `svc project rename`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc project rename staging production")]
pub(crate) struct RenameArgs {
    /// The project: endpoint, id or name
    project: String,

    /// The new name
    name: String,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// The flags of `svc project transfer`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc project transfer staging --to \"Analytical Engines\"")]
pub(crate) struct TransferArgs {
    /// The project: endpoint, id or name
    project: String,

    /// The workspace that receives it (id or name)
    #[arg(long, value_name = "WORKSPACE")]
    to: String,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// The flags of `svc project delete`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc project delete staging --yes")]
pub(crate) struct DeleteArgs {
    /// The project: endpoint, id or name
    project: String,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    flags: SessionFlags,
}

/// The project argument of commands that default to the selected one.
#[derive(Debug, Args)]
pub(crate) struct ProjectArg {
    /// The project: endpoint, id or name. Default: the selected one
    #[arg(long, value_name = "PROJECT")]
    pub(crate) project: Option<String>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    pub(crate) output: Format,

    #[command(flatten)]
    pub(crate) flags: SessionFlags,
}

/// Runs a subcommand.
pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list(args).await,
        Command::Use(args) => select(args).await,
        Command::Create(args) => create::run(*args).await,
        Command::Rename(args) => rename(args).await,
        Command::Transfer(args) => transfer(args).await,
        Command::Delete(args) => delete(args).await,
        Command::Settings(args) => settings::run(*args).await,
        Command::Plan(args) => records::plan(*args).await,
        Command::Usage(args) => records::usage(args).await,
        Command::Logs(args) => records::logs(*args).await,
        Command::Events(args) => records::events(*args).await,
        Command::Webhooks(command) => webhooks::run(*command).await,
        Command::Addresses(command) => addresses::run(*command).await,
        Command::Takedowns(project_arg) => takedowns::run(project_arg).await,
    }
}

async fn list(args: ListArgs) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let workspace = match &args.workspace {
        Some(text) => Some(session.workspace(Some(text)).await?.id),
        None => None,
    };
    let call = session.platform.call(LIST, &[]);
    let list: ProjectList = call
        .query("q", args.q)
        .query("workspaceId", workspace)
        .query("sort", args.sort)
        .query("order", args.order)
        .query("page", args.page)
        .query("pageSize", args.page_size)
        .answer()
        .await?;
    if args.output == Format::Json {
        return output::json(&list);
    }
    let heading = [
        "NAME",
        "ENDPOINT",
        "STATUS",
        "PLAN",
        "DEPLOYMENT",
        "PROVIDER",
        "REGION",
        "WORKSPACE",
        "ID",
    ];
    output::table(&heading, &list.projects.iter().map(row).collect::<Vec<_>>())?;
    more(&list.paging);
    Ok(())
}

/// Prints a hint if the list has more pages.
fn more(paging: &Paging) {
    if paging.total_pages > u64::from(paging.page) {
        output::message(&format!(
            "page {} of {}; use --page {} for the next one",
            paging.page,
            paging.total_pages,
            paging.page.saturating_add(1)
        ));
    }
}

async fn select(args: UseArgs) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let project = session.find_project(&args.project).await?;
    let Some(kept) = &session.context else {
        return Err(Failure::usage(format!(
            "no context has a token for {}",
            session.platform.address()
        ))
        .hint("sign in there with `svc login`"));
    };
    // An engine has one address for each project.
    let engine = format!(
        "{}.{}:{}",
        project.endpoint, project.domain, project.engine_port
    );
    session.save_context(&Context {
        engine: Some(engine),
        workspace_id: Some(project.workspace_id.clone()),
        project: Some(SelectedProject {
            id: project.id.clone(),
            endpoint: project.endpoint.clone(),
        }),
        ..kept.clone()
    })?;
    output::message(&format!(
        "now using project {} ({})",
        project.name, project.endpoint
    ));
    match args.output {
        Format::Json => output::json(&project),
        Format::Text => Ok(()),
    }
}

async fn rename(args: RenameArgs) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let project = session.find_project(&args.project).await?;
    let body = UpdateProject { name: args.name };
    let call = session.platform.call(UPDATE, &[&project.id]);
    show(args.output, &call.body(&body)?.answer().await?)
}

async fn transfer(args: TransferArgs) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let project = session.find_project(&args.project).await?;
    let body = TransferProject {
        workspace_id: session.workspace(Some(&args.to)).await?.id,
    };
    let call = session.platform.call(TRANSFER, &[&project.id]);
    show(args.output, &call.body(&body)?.answer().await?)
}

async fn delete(args: DeleteArgs) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let project = session.find_project(&args.project).await?;
    confirm_named_deletion(
        &format!("the project {} ({})", project.name, project.endpoint),
        &args.project,
        &[&project.name, &project.endpoint, &project.id],
        args.yes,
    )?;
    session
        .platform
        .call(DELETE, &[&project.id])
        .execute()
        .await?;
    output::message(&format!(
        "the project {} ({}) is deleted",
        project.name, project.endpoint
    ));
    Ok(())
}

/// [`confirm_deletion`] of an object that has `names`. Without a prompt, `given` must be one of them:
/// the start of an id may also be the name of another object, which no longer exists.
pub(super) fn confirm_named_deletion(
    what: &str,
    given: &str,
    names: &[&str],
    yes: bool,
) -> Result<(), Failure> {
    if yes && !names.contains(&given) {
        let given = output::plain(given);
        let message = format!("`{given}` is only the start of an id of {what}");
        return Err(Failure::usage(message).hint("--yes needs the complete name or id"));
    }
    confirm_deletion(what, yes)
}

/// Asks for confirmation before a permanent deletion. Scripts confirm with a flag.
pub(super) fn confirm_deletion(what: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !prompt::is_possible() {
        return Err(
            Failure::usage(format!("{what} would be deleted permanently"))
                .hint("add --yes to confirm without a prompt"),
        );
    }
    if prompt::confirm(&format!("Delete {what} permanently?"))? {
        Ok(())
    } else {
        Err(Failure::new(Code::Failed, "nothing was deleted"))
    }
}

/// Prints one project.
pub(super) fn show(format: Format, project: &Project) -> Result<(), Failure> {
    match format {
        Format::Json => output::json(project),
        Format::Text => output::record(&[
            ("name", project.name.clone()),
            ("endpoint", project.endpoint.clone()),
            ("id", project.id.clone()),
            ("workspace", project.workspace_id.clone()),
            ("plan", project.plan.to_string()),
            ("region", format!("{}/{}", project.provider, project.region)),
            ("engine", project.url.clone()),
        ]),
    }
}

fn row(project: &Project) -> Vec<String> {
    vec![
        project.name.clone(),
        project.endpoint.clone(),
        status(project.status).to_owned(),
        project.plan.to_string(),
        deployment(project.deployment).to_owned(),
        project.provider.to_string(),
        project.region.clone(),
        project.workspace_id.clone(),
        project.id.clone(),
    ]
}

fn status(status: ProjectStatus) -> &'static str {
    match status {
        ProjectStatus::Active => "active",
        ProjectStatus::Unavailable => "unavailable",
        ProjectStatus::Error => "error",
    }
}

fn deployment(deployment: Deployment) -> &'static str {
    match deployment {
        Deployment::Shared => "shared",
        Deployment::Dedicated => "dedicated",
    }
}
