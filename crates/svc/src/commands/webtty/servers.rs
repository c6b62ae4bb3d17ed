//! `svc webtty server create|list|…`: registered servers of a project.

mod enroll;

use std::path::PathBuf;

use api::control::webtty_servers::{
    CREATE, CreateWebttyServer, CreatedWebttyServer, DELETE, GET, LIST, UPDATE, UpdateWebttyServer,
    WebttyServer, WebttyServerChange, WebttyServerList,
};
use clap::{Parser, Subcommand};
use types::webtty::{AccessPolicy, EncryptionPolicy, RecordingPolicy, ServerStatus};

use super::server;
use crate::args::properties::pair;
use crate::commands::project::confirm_named_deletion;
use crate::failure::{Code, Failure};
use crate::id_prefix::{self, Candidate};
use crate::output;
use crate::output::Format;
use crate::platform::{PlatformError, Session, SessionFlags};

/// The flags of `svc webtty server`.
#[derive(Debug, Parser)]
#[command(args_conflicts_with_subcommands = true)]
#[group(skip)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    serve: server::Args,
}

/// The subcommands for registered servers.
#[derive(Debug, Subcommand)]
enum Command {
    /// Register a server in a project
    Create(Box<CreateArgs>),
    /// List the registered servers of a project
    List(ListArgs),
    /// Show a registered server
    #[command(after_help = "Example:\n  svc webtty server show build-7")]
    Show(OneArgs),
    /// Change a registered server
    Update(Box<UpdateArgs>),
    /// Close a server's tunnel and end its sessions, until it is resumed
    #[command(after_help = "Example:\n  svc webtty server suspend build-7")]
    Suspend(OneArgs),
    /// Let a suspended server serve again
    #[command(after_help = "Example:\n  svc webtty server resume build-7")]
    Resume(OneArgs),
    /// Delete a registered server; its tunnel and its sessions end
    #[command(after_help = "Example:\n  svc webtty server delete build-7 --yes")]
    Delete(DeleteArgs),
    /// Enroll this host as the registered server; its keys are created here and never leave it
    #[command(after_help = "Example:\n  svc webtty server enroll build-7")]
    Enroll(EnrollArgs),
}

/// The flags of all subcommands.
#[derive(Debug, Parser)]
struct Common {
    /// The project: id, endpoint or name
    #[arg(long, alias = "project-id", value_name = "PROJECT")]
    project: Option<String>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// The flags of `svc webtty server create`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc webtty server create build-7 --enroll
  svc webtty server create vault --access-policy restricted --label site=bern

Repeating it with the same name and policies changes nothing and shows the existing server.")]
struct CreateArgs {
    /// The name, unique in the project
    name: String,

    /// Description
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    /// Recording of sessions: `recorded` or `private`
    #[arg(long, value_name = "POLICY", default_value = "recorded")]
    recording_policy: RecordingPolicy,

    /// Encryption of sessions, which cannot be changed later: `disabled` or `explicit_key` (end to
    /// end)
    #[arg(long, value_name = "POLICY", default_value = "disabled")]
    encryption_policy: EncryptionPolicy,

    /// Access: `project_members`, or `restricted` (only users that may manage registered servers)
    #[arg(long, value_name = "POLICY", default_value = "project_members")]
    access_policy: AccessPolicy,

    /// Label, `key=value` (repeatable)
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,

    /// Also enroll this host
    #[arg(long)]
    enroll: bool,

    #[command(flatten)]
    files: Files,

    #[command(flatten)]
    common: Common,
}

/// The files of an enrollment.
#[derive(Debug, Parser)]
struct Files {
    /// File of the private keys, created if missing. Default:
    /// ~/.svc/webtty/identities/ID.identity.json
    #[arg(long, value_name = "FILE")]
    identity_file: Option<PathBuf>,

    /// Enrollment file for `svc webtty server`. Default: ~/.svc/webtty/enrollments/ID.yaml
    #[arg(long, value_name = "FILE")]
    server_enrollment: Option<PathBuf>,
}

/// The flags of `svc webtty server list`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc webtty server list --status suspended --output json")]
struct ListArgs {
    /// Only servers whose name contains this text
    #[arg(long, value_name = "TEXT")]
    q: Option<String>,

    /// Only servers with this status: `pending_enrollment`, `active` or `suspended`
    #[arg(long, value_name = "STATUS")]
    status: Option<ServerStatus>,

    /// Page number, starting at 1
    #[arg(long, value_name = "N")]
    page: Option<u32>,

    /// Servers per page, up to 100
    #[arg(long, value_name = "N")]
    page_size: Option<u32>,

    #[command(flatten)]
    common: Common,
}

/// The flags of subcommands for one server.
#[derive(Debug, Parser)]
struct OneArgs {
    /// The server: id or name
    server: String,

    #[command(flatten)]
    common: Common,
}

/// The flags of `svc webtty server update`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc webtty server update build-7 --recording-policy private")]
struct UpdateArgs {
    /// The server: id or name
    server: String,

    /// New name
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// New description; an empty one removes it
    #[arg(long, value_name = "TEXT")]
    description: Option<String>,

    /// Recording of sessions: `recorded` or `private`
    #[arg(long, value_name = "POLICY")]
    recording_policy: Option<RecordingPolicy>,

    /// Access: `project_members` or `restricted`
    #[arg(long, value_name = "POLICY")]
    access_policy: Option<AccessPolicy>,

    /// Label, `key=value` (repeatable); replaces all labels
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair)]
    labels: Vec<(String, String)>,

    #[command(flatten)]
    common: Common,
}

/// The flags of `svc webtty server delete`.
#[derive(Debug, Parser)]
struct DeleteArgs {
    /// The server: id or name
    server: String,

    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    /// The project: id, endpoint or name
    #[arg(long, alias = "project-id", value_name = "PROJECT")]
    project: Option<String>,

    #[command(flatten)]
    flags: SessionFlags,
}

/// The flags of `svc webtty server enroll`.
#[derive(Debug, Parser)]
struct EnrollArgs {
    /// The server: id or name
    server: String,

    #[command(flatten)]
    files: Files,

    #[command(flatten)]
    common: Common,
}

/// Serves terminals, or runs a subcommand.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        None => Box::pin(server::run(args.serve)).await,
        Some(Command::Create(args)) => Box::pin(create(*args)).await,
        Some(Command::List(args)) => Box::pin(list(args)).await,
        Some(Command::Show(args)) => Box::pin(show_one(args)).await,
        Some(Command::Update(args)) => Box::pin(update(*args)).await,
        Some(Command::Suspend(args)) => {
            Box::pin(set_status(args, WebttyServerChange::Suspended)).await
        }
        Some(Command::Resume(args)) => Box::pin(set_status(args, WebttyServerChange::Active)).await,
        Some(Command::Delete(args)) => Box::pin(delete(args)).await,
        Some(Command::Enroll(args)) => Box::pin(enroll_host(args)).await,
    }
}

async fn create(args: CreateArgs) -> Result<(), Failure> {
    let session = args.common.flags.open()?;
    let project = session.project(args.common.project.as_deref()).await?;
    let body = CreateWebttyServer {
        name: args.name,
        description: args.description,
        recording_policy: Some(args.recording_policy),
        encryption_policy: Some(args.encryption_policy),
        access_policy: Some(args.access_policy),
        labels: Some(args.labels.into_iter().collect()),
    };
    let call = session.platform.call(CREATE, &[&project.id]);
    let made: Result<CreatedWebttyServer, _> = call.body(&body)?.answer().await;
    let mut server = match made {
        Ok(made) => made.server,
        Err(error) if error.refusal("name_taken").is_some() => {
            matching_server(&session, &project.id, &body, error).await?
        }
        Err(error) => return Err(error.into()),
    };
    if args.enroll {
        server = enroll::enroll(&session, server, &args.files).await?;
    }
    show(args.common.output, &server)
}

/// The existing server with this name, if it has the requested properties.
async fn matching_server(
    session: &Session,
    project: &str,
    wanted: &CreateWebttyServer,
    refused: PlatformError,
) -> Result<WebttyServer, Failure> {
    let name = wanted.name.trim();
    let Some(there) = find_by_name(session, project, name).await? else {
        return Err(refused.into());
    };
    let differs = [
        (
            "--recording-policy",
            wanted.recording_policy != Some(there.recording_policy),
        ),
        (
            "--encryption-policy",
            wanted.encryption_policy != Some(there.encryption_policy),
        ),
        (
            "--access-policy",
            wanted.access_policy != Some(there.access_policy),
        ),
    ];
    match differs.iter().find(|(_, differs)| *differs) {
        None => Ok(there),
        Some((flag, _)) => Err(Failure::new(
            Code::Failed,
            format!("the project has a server `{name}` with another {flag}"),
        )
        .named("name_taken")
        .hint("`svc webtty server update` changes it; the encryption cannot be changed")),
    }
}

async fn list(args: ListArgs) -> Result<(), Failure> {
    let session = args.common.flags.open()?;
    let project = session.project(args.common.project.as_deref()).await?;
    let call = session.platform.call(LIST, &[&project.id]);
    let list: WebttyServerList = call
        .query("q", args.q)
        .query("status", args.status)
        .query("page", args.page)
        .query("pageSize", args.page_size)
        .answer()
        .await?;
    if args.common.output == Format::Json {
        return output::json(&list);
    }
    let rows = list.servers.iter().map(|server| {
        vec![
            server.name.clone(),
            server.status.to_string(),
            server.recording_policy.to_string(),
            server.encryption_policy.to_string(),
            server.access_policy.to_string(),
            server.id.clone(),
        ]
    });
    output::table(
        &["NAME", "STATUS", "RECORDING", "ENCRYPTION", "ACCESS", "ID"],
        &rows.collect::<Vec<_>>(),
    )
}

async fn show_one(args: OneArgs) -> Result<(), Failure> {
    let (_session, server) = args.common.server(&args.server).await?;
    show(args.common.output, &server)
}

async fn update(args: UpdateArgs) -> Result<(), Failure> {
    let description = args
        .description
        .map(|text| (!text.trim().is_empty()).then_some(text));
    let labels = (!args.labels.is_empty()).then(|| args.labels.into_iter().collect());
    let body = UpdateWebttyServer {
        name: args.name,
        description,
        status: None,
        recording_policy: args.recording_policy,
        access_policy: args.access_policy,
        labels,
    };
    change(&args.common, &args.server, &body).await
}

async fn set_status(args: OneArgs, status: WebttyServerChange) -> Result<(), Failure> {
    let body = UpdateWebttyServer {
        status: Some(status),
        ..UpdateWebttyServer::default()
    };
    change(&args.common, &args.server, &body).await
}

async fn change(common: &Common, server: &str, body: &UpdateWebttyServer) -> Result<(), Failure> {
    let (session, server) = common.server(server).await?;
    let ids = [server.project_id.as_str(), &server.id];
    let call = session.platform.call(UPDATE, &ids);
    let changed: WebttyServer = call.body(body)?.answer().await?;
    show(common.output, &changed)
}

async fn delete(args: DeleteArgs) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let server = find(&session, args.project.as_deref(), &args.server).await?;
    confirm_named_deletion(
        &format!("the registered server {} ({})", server.name, server.id),
        &args.server,
        &[&server.name, &server.id],
        args.yes,
    )?;
    let ids = [server.project_id.as_str(), &server.id];
    session.platform.call(DELETE, &ids).execute().await?;
    let (name, id) = (&server.name, &server.id);
    output::message(&format!("the registered server {name} ({id}) is deleted"));
    Ok(())
}

async fn enroll_host(args: EnrollArgs) -> Result<(), Failure> {
    let (session, server) = args.common.server(&args.server).await?;
    let server = enroll::enroll(&session, server, &args.files).await?;
    show(args.common.output, &server)
}

impl Common {
    /// Opens the platform session, and finds the named server.
    async fn server(&self, text: &str) -> Result<(Session, WebttyServer), Failure> {
        let session = self.flags.open()?;
        let server = find(&session, self.project.as_deref(), text).await?;
        Ok((session, server))
    }
}

/// Finds a server by its id or name.
async fn find(
    session: &Session,
    project: Option<&str>,
    text: &str,
) -> Result<WebttyServer, Failure> {
    let project = session.project(project).await?;
    if text.starts_with("wsv_") {
        let call = session.platform.call(GET, &[&project.id, text]);
        match call.answer().await {
            Err(error) if PlatformError::is_not_found(&error) => {}
            other => return Ok(other?),
        }
    }
    if let Some(server) = find_by_name(session, &project.id, text).await? {
        return Ok(server);
    }
    let of_page = |list: WebttyServerList| {
        let servers = list.servers.into_iter();
        servers
            .map(|server| Candidate::new(server.id, server.name))
            .collect()
    };
    let ids = [project.id.as_str()];
    let candidates = session.candidates(LIST, &ids, of_page);
    let id = id_prefix::complete("registered server", text, candidates).await?;
    if id != text {
        let call = session.platform.call(GET, &[&project.id, &id]);
        return Ok(call.answer().await?);
    }
    let (text, project) = (output::plain(text), &project.name);
    let message = format!("the project {project} has no registered server `{text}`");
    Err(Failure::new(Code::Failed, message)
        .named("not_found")
        .hint("`svc webtty server list` shows them"))
}

/// Finds the server with exactly this name. The platform also matches parts of names, so all pages
/// are read.
async fn find_by_name(
    session: &Session,
    project: &str,
    name: &str,
) -> Result<Option<WebttyServer>, Failure> {
    let mut page = 1_u32;
    loop {
        let list: WebttyServerList = session
            .platform
            .call(LIST, &[project])
            .query("q", Some(name))
            .query("page", Some(page))
            .query("pageSize", Some(100))
            .answer()
            .await?;
        let pages = list.paging.total_pages;
        if let Some(found) = list.servers.into_iter().find(|server| server.name == name) {
            return Ok(Some(found));
        }
        if u64::from(page) >= pages {
            return Ok(None);
        }
        page = page.saturating_add(1);
    }
}

/// Prints one server.
fn show(format: Format, server: &WebttyServer) -> Result<(), Failure> {
    if format == Format::Json {
        return output::json(server);
    }
    let labels: Vec<_> = server
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let text = |value: &Option<String>| value.clone().unwrap_or_else(|| "-".to_owned());
    output::record(&[
        ("name", server.name.clone()),
        ("id", server.id.clone()),
        ("project", server.project_id.clone()),
        ("status", server.status.to_string()),
        ("recording", server.recording_policy.to_string()),
        ("encryption", server.encryption_policy.to_string()),
        ("access", server.access_policy.to_string()),
        ("labels", labels.join(" ")),
        ("description", text(&server.description)),
        ("fingerprint", text(&server.server_fingerprint)),
        ("enrolled", text(&server.enrolled_at)),
        ("created", server.created_at.clone()),
    ])
}
