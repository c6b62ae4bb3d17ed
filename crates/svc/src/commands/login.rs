//! `svc login`, `svc logout`, `svc whoami`: which platform commands speak to, and as whom.

use std::{
    io::{self, Read},
    path::PathBuf,
};

use api::control::whoami::{CallerKind, WHOAMI, Whoami};
use clap::Parser;

use crate::{
    cli::Format,
    connection::config_directory,
    context::{self, Context},
    failure::{Code, Failure},
    output,
    platform::{Session, SessionFlags},
    prompt,
};

/// The flags of `svc login`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  svc login --api-url https://svc.example.com --token-file token.txt")]
pub(crate) struct LoginArgs {
    /// Read the token from standard input
    #[arg(long, conflicts_with = "token_file")]
    token_stdin: bool,

    /// Read the token from a file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// How it is told who signed in
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// The flags of `svc logout`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  svc logout")]
pub(crate) struct LogoutArgs {
    /// The context to forget; without it, `default`
    #[arg(long, env = "SVC_CONTEXT", value_name = "NAME", hide_env_values = true)]
    context: Option<String>,

    /// The directory of the configuration
    #[arg(long, env = "SVC_CONFIG", value_name = "DIR", hide_env_values = true)]
    config: Option<PathBuf>,
}

/// The flags of `svc whoami`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  svc whoami --output json")]
pub(crate) struct WhoamiArgs {
    /// How it is written
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// Asks the platform whose token it is, and keeps it once that is known.
pub(crate) async fn login(args: LoginArgs) -> Result<(), Failure> {
    let directory = config_directory(args.flags.config.as_ref())
        .ok_or_else(|| Failure::usage("there is no home directory").hint("give --config"))?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let name = given(&args.flags.context).unwrap_or_else(|| context::DEFAULT.to_owned());
    let name = name.as_str();
    let before = Context::read(&directory, name)?;
    let kept_url = before.as_ref().and_then(|context| context.api_url.clone());
    let api_url = given(&args.flags.api_url).or(kept_url).ok_or_else(|| {
        Failure::usage("no platform is named").hint("give --api-url (or SVC_API_URL)")
    })?;
    let token = token(&args)?;
    let flags = SessionFlags {
        api_url: Some(api_url),
        token: Some(token.clone()),
        ca_file: args.flags.ca_file.as_deref().map(absolute).transpose()?,
        // What is kept is not to help here: the token that was given is what is checked.
        context: None,
        config: Some(directory.clone()),
    };
    let session = flags.open()?;
    let whoami = ask(&session).await?;
    let address = session.platform.address().to_string();
    // Who signs in there again goes on with what was selected.
    let same = before.filter(|before| before.api_url.as_deref() == Some(&address));
    let workspace_id = match whoami.workspace_ids.as_slice() {
        [only] => Some(only.clone()),
        _ => same.as_ref().and_then(|same| same.workspace_id.clone()),
    };
    let context = Context {
        api_url: Some(address.clone()),
        token,
        ca_file: flags.ca_file,
        workspace_id,
        ..same.unwrap_or_default()
    };
    context.save(&directory, name)?;
    let who = whoami.email.as_deref().unwrap_or(&whoami.id);
    output::message(&format!(
        "signed in to {address} as {who} (context `{name}`)"
    ));
    if name != context::LOCAL && Context::read(&directory, context::LOCAL)?.is_some() {
        output::message(&format!(
            "while `svc up` runs, commands mean its own context; add --context {name} for this one"
        ));
    }
    match args.output {
        Format::Json => output::json(&whoami),
        Format::Text => Ok(()),
    }
}

/// Forgets a context. The token itself stays valid, which is said.
pub(crate) fn logout(args: &LogoutArgs) -> Result<(), Failure> {
    let given = args.context.as_deref().filter(|name| !name.is_empty());
    let name = given.unwrap_or(context::DEFAULT);
    let removed = match config_directory(args.config.as_ref()) {
        Some(directory) => Context::remove(&directory, name)?,
        None => false,
    };
    output::message(&if removed {
        format!(
            "context `{name}` is forgotten; the token in it is valid until it ends or is revoked \
             (`svc credential revoke`)"
        )
    } else {
        format!("there is no context `{name}`")
    });
    Ok(())
}

/// Who the token speaks for.
pub(crate) async fn whoami(args: WhoamiArgs) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let whoami = ask(&session).await?;
    if args.output == Format::Json {
        return output::json(&whoami);
    }
    let optional = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    output::record(&[
        ("platform", session.platform.address().to_string()),
        ("user", optional(&whoami.email)),
        ("name", optional(&whoami.name)),
        ("id", whoami.id.clone()),
        ("role", whoami.role.clone()),
        ("credential", kind(whoami.kind).to_owned()),
        (
            "expires",
            whoami
                .expires_at
                .clone()
                .unwrap_or_else(|| "never".to_owned()),
        ),
        ("workspaces", whoami.workspace_ids.join(" ")),
        (
            "permissions",
            whoami
                .permissions
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" "),
        ),
        (
            "resources",
            whoami
                .resources
                .as_ref()
                .map_or_else(|| "not narrowed".to_owned(), ToString::to_string),
        ),
    ])
}

async fn ask(session: &Session) -> Result<Whoami, Failure> {
    Ok(session.platform.call(WHOAMI, &[]).answer().await?)
}

fn kind(kind: CallerKind) -> &'static str {
    match kind {
        CallerKind::Pat => "personal access token",
        CallerKind::App => "application token",
        CallerKind::Auth => "delegated token",
        CallerKind::Session => "session",
    }
}

/// The token: from where it was said to be, else asked for.
fn token(args: &LoginArgs) -> Result<String, Failure> {
    let text = if let Some(path) = &args.token_file {
        let file = std::fs::File::open(path)
            .map_err(|error| Failure::of(&format!("cannot read {}", path.display()), error))?;
        read(file)?
    } else if args.token_stdin {
        read(io::stdin().lock())?
    } else if let Some(token) = &args.flags.token {
        token.clone()
    } else if prompt::is_possible() {
        prompt::secret("token (a personal access token; it is not shown): ")?
    } else {
        return Err(Failure::usage("no token is given")
            .hint("pass it with --token-stdin or --token-file; a page of the platform makes one"));
    };
    let text = text.trim();
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(Failure::new(Code::Usage, "this is no token")
            .hint("a token is one word of three parts with dots between them"));
    }
    Ok(text.to_owned())
}

fn read(source: impl Read) -> Result<String, Failure> {
    let mut text = String::new();
    source
        .take(MAX_TOKEN)
        .read_to_string(&mut text)
        .map_err(|error| Failure::of("the token cannot be read", error))?;
    Ok(text)
}

fn absolute(path: &std::path::Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::of(&format!("{} is no file", path.display()), error))
}

/// A token has at most 8 KiB; more is something else.
const MAX_TOKEN: u64 = 16 * 1024;
