//! `svc context`: saved settings of commands, and the source of each effective value.

mod effective;
mod token;

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use client::HostPort;
use serde::Serialize;

use self::{effective::Settings, token::StoredToken};
use super::login::read;
use crate::{
    connection::{Connection, config_directory, contexts, non_empty_path, path},
    context::{self, Context, TokenStorage},
    failure::{Code, Failure},
    output,
    output::Format,
    platform::parse,
    prompt,
};

/// The subcommands of `svc context`.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  svc context set work --engine engine.example.com:443 --token-file token.txt --use
  svc context list
  svc context show")]
pub(crate) enum Command {
    /// List the contexts, and mark the selected one
    List(ListArgs),
    /// Show each value that commands use, and its source
    Show(Box<ShowArgs>),
    /// Select the context for commands without `--context`; without a name, clear the selection
    Use(UseArgs),
    /// Create a context, or change some of its values
    #[command(visible_alias = "create")]
    Set(Box<SetArgs>),
    /// Rename a context
    Rename(RenameArgs),
    /// Remove a context and the token in it; the token itself stays valid (see `svc logout`)
    Delete(DeleteArgs),
}

/// The directory of the contexts.
#[derive(Debug, Args)]
struct ContextDirectory {
    /// Configuration directory
    #[arg(long, env = "SVC_CONFIG", value_name = "DIR", hide_env_values = true, value_parser = path())]
    config: Option<PathBuf>,
}

impl ContextDirectory {
    fn directory(&self) -> Result<PathBuf, Failure> {
        config_directory(self.config.as_ref())
            .ok_or_else(|| Failure::usage("no home directory is set").hint("give --config"))
    }
}

/// The flags of `svc context list`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc context list --output json")]
pub(crate) struct ListArgs {
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    place: ContextDirectory,
}

/// The flags of `svc context show`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc context show
  SVC_ENGINE=other.example.com svc context show work --output json")]
pub(crate) struct ShowArgs {
    // Parsed before the values, because clap returns each value only once.
    #[command(flatten)]
    sources: effective::Sources,

    /// Name of the context. Default: the selected one
    #[arg(value_name = "NAME", add = contexts())]
    name: Option<String>,

    /// The platform, `https://host`
    #[arg(long, env = "SVC_API_URL", value_name = "URL", hide_env_values = true)]
    api_url: Option<String>,

    /// Output format; secrets are never shown
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    connection: Connection,
}

/// The flags of `svc context use`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc context use work")]
pub(crate) struct UseArgs {
    /// Name of the context
    #[arg(value_name = "NAME", add = contexts())]
    name: Option<String>,

    #[command(flatten)]
    place: ContextDirectory,
}

/// The flags of `svc context set`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc context set work --engine engine.example.com:443 --token-file token.txt --use
  svc context set work --ca-file ''      (an empty value removes it)")]
pub(crate) struct SetArgs {
    /// Name of the context
    #[arg(value_name = "NAME", add = contexts())]
    name: String,

    /// The engine, `host:port`
    #[arg(long, value_name = "HOST:PORT")]
    engine: Option<String>,

    /// The platform, `https://host`
    #[arg(long, value_name = "URL")]
    api_url: Option<String>,

    /// Token for the engine and the platform
    #[arg(long, value_name = "TOKEN", group = "of_token")]
    token: Option<String>,

    /// Read the token from a file
    #[arg(long, value_name = "FILE", group = "of_token", value_parser = path())]
    token_file: Option<PathBuf>,

    /// Read the token from standard input, or prompt for it at a terminal
    #[arg(long, group = "of_token")]
    token_stdin: bool,

    /// CA certificates that both are verified with (PEM)
    #[arg(long, value_name = "FILE", value_parser = path())]
    ca_file: Option<PathBuf>,

    /// Select it as the default context
    #[arg(long = "use")]
    select: bool,

    #[command(flatten)]
    place: ContextDirectory,
}

/// The flags of `svc context rename`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc context rename default work")]
pub(crate) struct RenameArgs {
    /// Name of the context
    #[arg(value_name = "NAME", add = contexts())]
    from: String,

    /// New name
    #[arg(value_name = "NEW")]
    to: String,

    #[command(flatten)]
    place: ContextDirectory,
}

/// The flags of `svc context delete`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc context delete work")]
pub(crate) struct DeleteArgs {
    /// Name of the context
    #[arg(value_name = "NAME", add = contexts())]
    name: String,

    #[command(flatten)]
    place: ContextDirectory,
}

/// Runs a subcommand.
pub(crate) fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list(&args),
        Command::Show(args) => show(&args),
        Command::Use(args) => select(&args),
        Command::Set(args) => set(&args),
        Command::Rename(args) => rename(&args),
        Command::Delete(args) => delete(&args),
    }
}

/// A context in the list.
#[derive(Serialize)]
struct ContextRow {
    name: String,
    /// True if commands use it by default.
    in_use: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_url: Option<String>,
    /// Endpoint of the selected project.
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<StoredToken>,
}

fn list(args: &ListArgs) -> Result<(), Failure> {
    let directory = args.place.directory()?;
    let used = context::effective_name(&directory, None).map(|(name, _why)| name);
    let mut listed = Vec::new();
    for name in context::names(&directory)? {
        // A broken file must not hide the other contexts.
        let context = match Context::read(&directory, &name) {
            Ok(Some(context)) => context,
            Ok(None) => continue,
            Err(failure) => {
                output::message(&failure.to_string());
                continue;
            }
        };
        listed.push(ContextRow {
            in_use: used.as_ref().is_ok_and(|used| *used == name),
            name,
            token: StoredToken::of(&context.token),
            engine: context.engine,
            api_url: context.api_url,
            project: context.project.map(|project| project.endpoint),
        });
    }
    match args.output {
        Format::Json => output::json(&listed),
        Format::Text => output::table(
            &["", "NAME", "ENGINE", "PLATFORM", "PROJECT", "TOKEN"],
            &listed.iter().map(ContextRow::row).collect::<Vec<_>>(),
        ),
    }
}

impl ContextRow {
    fn row(&self) -> Vec<String> {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        vec![
            if self.in_use { "*" } else { "" }.to_owned(),
            self.name.clone(),
            or_none(&self.engine),
            or_none(&self.api_url),
            or_none(&self.project),
            self.token
                .as_ref()
                .map_or_else(|| "-".to_owned(), ToString::to_string),
        ]
    }
}

fn show(args: &ShowArgs) -> Result<(), Failure> {
    let settings = Settings::of(args)?;
    match args.output {
        Format::Json => output::json(&settings),
        Format::Text => output::table(&["SETTING", "VALUE", "FROM"], &settings.rows()),
    }
}

fn select(args: &UseArgs) -> Result<(), Failure> {
    let directory = args.place.directory()?;
    let Some(name) = &args.name else {
        context::select(&directory, None)?;
        let (name, _why) = context::effective_name(&directory, None)?;
        output::message(&format!("no context is selected; using `{name}`"));
        return Ok(());
    };
    existing(&directory, name)?;
    context::select(&directory, Some(name))?;
    output::message(&format!("`{name}` is now the default context"));
    Ok(())
}

fn set(args: &SetArgs) -> Result<(), Failure> {
    let directory = args.place.directory()?;
    let before = Context::read(&directory, &args.name)?;
    let is_new = before.is_none();
    let mut context = before.unwrap_or_default();
    let token = given_token(args)?;
    if token.is_none() && !context.token.is_none() {
        require_unchanged_target(&context, args)?;
    }
    if let Some(engine) = &args.engine {
        context.engine = non_empty(engine);
        if let Some(engine) = &context.engine {
            engine
                .parse::<HostPort>()
                .map_err(|error| Failure::usage(format!("--engine `{engine}` is {error}")))?;
        }
    }
    if let Some(url) = &args.api_url {
        context.api_url = non_empty(url);
        if let Some(url) = &context.api_url {
            parse(url)?;
        }
    }
    if let Some(path) = &args.ca_file {
        let absolute = |path: &PathBuf| {
            std::path::absolute(path)
                .map_err(|error| Failure::usage(format!("{}: {error}", path.display())))
        };
        context.ca_file = non_empty_path(Some(path)).map(absolute).transpose()?;
    }
    if let Some(token) = token {
        if let Some(account) = context.token.account() {
            account.delete()?;
        }
        context.token = TokenStorage::Token(token);
    }
    if context.engine.is_none() && context.api_url.is_none() {
        return Err(
            Failure::usage("a context needs the address of an engine or a platform")
                .hint("give --engine or --api-url"),
        );
    }
    context.save(&directory, &args.name)?;
    if args.select {
        context::select(&directory, Some(&args.name))?;
    }
    let what = if is_new { "created" } else { "changed" };
    output::message(&format!("{what}: context `{}`", args.name));
    Ok(())
}

/// A token is bound to the engine and platform that it was stored for. Changing one of them must
/// not send the token elsewhere by accident.
fn require_unchanged_target(context: &Context, args: &SetArgs) -> Result<(), Failure> {
    let is_changed = |before: &Option<String>, now: &Option<String>| match (before, now) {
        (Some(before), Some(now)) => !now.is_empty() && before != now,
        _ => false,
    };
    if is_changed(&context.engine, &args.engine) || is_changed(&context.api_url, &args.api_url) {
        let name = &args.name;
        return Err(Failure::usage(format!(
            "the token of `{name}` belongs to its current engine and platform"
        ))
        .hint("give the token for the new address too; `--token ''` removes the token"));
    }
    Ok(())
}

fn given_token(args: &SetArgs) -> Result<Option<String>, Failure> {
    let text = if let Some(token) = &args.token {
        token.clone()
    } else if let Some(path) = &args.token_file {
        non_empty_path(Some(path)).map_or(Ok(String::new()), |path| {
            let file = std::fs::File::open(path).map_err(|error| {
                Failure::from_error(&format!("cannot read {}", path.display()), error)
            })?;
            read(file)
        })?
    } else if args.token_stdin && prompt::is_possible() {
        prompt::secret("token (it is not shown): ")?
    } else if args.token_stdin {
        read(std::io::stdin().lock())?
    } else {
        return Ok(None);
    };
    let token = text.trim();
    if !token.is_empty() && credentials::inspect(token).is_none() {
        return Err(Failure::usage("the given value is not a token")
            .hint("a token has three parts separated by dots"));
    }
    Ok(Some(token.to_owned()))
}

fn rename(args: &RenameArgs) -> Result<(), Failure> {
    let directory = args.place.directory()?;
    let mut context = existing(&directory, &args.from)?;
    if Context::read(&directory, &args.to)?.is_some() {
        let message = format!("context `{}` exists already", args.to);
        return Err(Failure::new(Code::Conflict, message)
            .named("context_exists")
            .hint(format!("`svc context delete {}` removes it", args.to)));
    }
    let before = context.token.account().cloned();
    if before.is_some() {
        let account = context::account(&directory, &args.to)?;
        account.store(&context.token.token()?)?;
        context.token = TokenStorage::KeyringAccount(account);
    }
    context.save(&directory, &args.to)?;
    Context::remove(&directory, &args.from)?;
    if let Some(account) = before {
        account.delete()?;
    }
    if context::selected(&directory).as_ref() == Some(&args.from) {
        context::select(&directory, Some(&args.to))?;
    }
    output::message(&format!(
        "context `{}` is now called `{}`",
        args.from, args.to
    ));
    Ok(())
}

fn delete(args: &DeleteArgs) -> Result<(), Failure> {
    let directory = args.place.directory()?;
    // The content does not matter: an unreadable file may still hold a token.
    match Context::read(&directory, &args.name) {
        Ok(None) => return Err(context::unknown_context(&directory, &args.name)),
        Ok(Some(context)) => {
            if let Some(account) = context.token.account() {
                account.delete()?;
            }
        }
        Err(_broken) => {}
    }
    Context::remove(&directory, &args.name)?;
    if context::selected(&directory).as_ref() == Some(&args.name) {
        context::select(&directory, None)?;
    }
    output::message(&format!("context `{}` is deleted", args.name));
    Ok(())
}

fn existing(directory: &Path, name: &str) -> Result<Context, Failure> {
    Context::read(directory, name)?.ok_or_else(|| context::unknown_context(directory, name))
}

/// Returns `None` for an empty text.
fn non_empty(text: &str) -> Option<String> {
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}
