//! `svc login` and `svc whoami`: sign in to a platform, and show the identity of the token.

mod device;

use std::{
    io::{self, Read},
    path::PathBuf,
};

use api::control::whoami::{CallerKind, WHOAMI, Whoami};
use clap::{Parser, ValueEnum};
use client::Token;
use types::permission::Permissions;

use crate::connection::{config_directory, non_empty_path};
use crate::context::{Context, TokenStorage};
use crate::failure::{Code, Failure};
use crate::keyring::Account;
use crate::output::Format;
use crate::platform::{ApiUrl, AuthorizationServer, Session, SessionFlags, parse};
use crate::process::signals;
use crate::{context, keyring, output, prompt};

/// The flags of `svc login`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc login --api-url https://svc.example.com
  svc login --api-url https://svc.example.com --token-file token.txt")]
pub(crate) struct LoginArgs {
    /// Read a token from standard input, or prompt for it at a terminal
    #[arg(long, conflicts_with = "token_file")]
    token_stdin: bool,

    /// Read a token from a file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Permission to request (repeatable). Default: those to create a project and publish in it
    #[arg(long = "scope", value_name = "PERMISSION", conflicts_with_all = ["token_stdin", "token_file"])]
    scopes: Vec<String>,

    /// Do not open a browser
    #[arg(long)]
    no_browser: bool,

    /// Storage of the token
    #[arg(long, value_enum, default_value_t)]
    token_storage: StorageOption,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// Storage of a token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum StorageOption {
    /// In the file of the context, readable only by its owner.
    #[default]
    File,
    /// In the system keyring, if the build supports it.
    Keyring,
}

/// The flags of `svc whoami`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  svc whoami --output json")]
pub(crate) struct WhoamiArgs {
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// Uses the given token, or lets the user approve a new one, and stores it after the platform has
/// confirmed its owner.
pub(crate) async fn login(args: LoginArgs) -> Result<(), Failure> {
    if args.token_storage == StorageOption::Keyring {
        // A token that cannot be stored is not requested.
        keyring::ready()?;
    }
    let directory = config_directory(args.flags.config.as_ref())
        .ok_or_else(|| Failure::usage("no home directory is set").hint("give --config"))?;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let name = given(&args.flags.context)
        .or_else(|| context::selected(&directory))
        .unwrap_or_else(|| context::DEFAULT.to_owned());
    let before = Context::read(&directory, &name)?;
    let kept_url = before.as_ref().and_then(|context| context.api_url.clone());
    let api_url = given(&args.flags.api_url).or(kept_url).ok_or_else(|| {
        Failure::usage("no platform is given").hint("give --api-url (or SVC_API_URL)")
    })?;
    let address = parse(&api_url)?;
    let given_ca = non_empty_path(args.flags.ca_file.as_ref())
        .map(absolute)
        .transpose()?;
    let kept_ca = matching_context(before.as_ref(), &address).and_then(|same| same.ca_file.clone());
    let place = LoginTarget {
        directory,
        name,
        storage: args.token_storage,
        ca_file: given_ca.or(kept_ca),
        before,
        address,
    };
    if let Some(token) = token(&args)? {
        return store_login(&place, token, &args).await;
    }
    let scope = match super::token::permissions(&args.scopes)? {
        Some(requested) => requested.into_iter().collect(),
        None => device::default_scope(),
    };
    let shutdown = signals::listen(signals::DRAIN)?;
    tokio::select! {
        result = approved(&place, scope, &args) => result,
        () = shutdown.drain().cancelled() => {
            Err(Failure::new(Code::Failed, "login cancelled"))
        }
    }
}

/// The context that a login writes.
struct LoginTarget {
    directory: PathBuf,
    name: String,
    /// The previous content of the context.
    before: Option<Context>,
    storage: StorageOption,
    ca_file: Option<PathBuf>,
    address: ApiUrl,
}

/// Returns the previous context if it is for this platform.
fn matching_context<'a>(before: Option<&'a Context>, address: &ApiUrl) -> Option<&'a Context> {
    before.filter(|before| {
        let kept = before.api_url.as_deref().map(str::parse::<ApiUrl>);
        kept.is_some_and(|kept| kept.is_ok_and(|kept| kept == *address))
    })
}

async fn approved(
    place: &LoginTarget,
    scope: Permissions,
    args: &LoginArgs,
) -> Result<(), Failure> {
    let address = place.address.clone();
    let server =
        AuthorizationServer::discover(address, place.ca_file.as_deref(), args.flags.proxies()?)
            .await?;
    let token = device::token(&server, scope, args.output, !args.no_browser).await?;
    let kept = store_login(place, token.expose().to_owned(), args).await;
    if kept.is_err() {
        // No copy of the token is left. The storage error is reported, not this one.
        drop(server.revoke(&token).await);
    }
    kept
}

/// Checks the token at the platform and stores it.
async fn store_login(place: &LoginTarget, token: String, args: &LoginArgs) -> Result<(), Failure> {
    let format = args.output;
    let (directory, name) = (&place.directory, place.name.as_str());
    let flags = SessionFlags {
        api_url: Some(place.address.to_string()),
        token: Some(token.clone()),
        ca_file: place.ca_file.clone(),
        proxy: args.flags.proxy.clone(),
        // Stored values must not help here: only the given token is checked.
        context: None,
        config: Some(directory.clone()),
    };
    let session = flags.open()?;
    let whoami = fetch_whoami(&session).await?;
    let address = session.platform.address().to_string();
    // A new login on the same platform keeps the selected project.
    let same = matching_context(place.before.as_ref(), &place.address);
    let workspace_id = match whoami.workspace_ids.as_slice() {
        [only] => Some(only.clone()),
        _ => same.and_then(|same| same.workspace_id.clone()),
    };
    let context = Context {
        api_url: Some(address.clone()),
        token: store_token(place, token).await?,
        ca_file: flags.ca_file,
        workspace_id,
        ..same.cloned().unwrap_or_default()
    };
    let account = context.token.account();
    if let Err(failure) = context.save(directory, name) {
        // Without the file, the keyring entry would be unreachable.
        account.map_or(Ok(()), Account::delete)?;
        return Err(failure);
    }
    let before = place.before.as_ref();
    let left = before.and_then(|before| before.token.account());
    if let Some(left) = left.filter(|left| account != Some(*left))
        && let Err(failure) = left.delete()
    {
        output::message(&format!(
            "the previous token is still in the keyring: {failure}"
        ));
    }
    let who = &whoami.email;
    output::message(&format!(
        "signed in to {address} as {who} (context `{name}`)"
    ));
    if name != context::LOCAL && Context::read(directory, context::LOCAL)?.is_some() {
        output::message(&format!(
            "while `svc up` runs, commands use its own context; add --context {name} to use this \
             one"
        ));
    }
    match format {
        Format::Json => output::json(&whoami),
        Format::Text => Ok(()),
    }
}

/// Stores the token. The caller writes the file of the context afterwards.
async fn store_token(place: &LoginTarget, token: String) -> Result<TokenStorage, Failure> {
    if place.storage == StorageOption::File {
        return Ok(TokenStorage::Token(token));
    }
    let account = context::account(&place.directory, &place.name)?;
    let kept = account.clone();
    // Runs in a separate thread, because the keyring may wait for its owner. A signal must still
    // stop the process.
    let keeping = tokio::task::spawn_blocking(move || kept.store(&Token::new(&token)));
    keeping
        .await
        .map_err(|error| Failure::from_error("the keyring failed", error))??;
    Ok(TokenStorage::KeyringAccount(account))
}

/// Shows the identity of the token.
pub(crate) async fn whoami(args: WhoamiArgs) -> Result<(), Failure> {
    let session = args.flags.open()?;
    let whoami = fetch_whoami(&session).await?;
    if args.output == Format::Json {
        return output::json(&whoami);
    }
    let optional = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
    output::record(&[
        ("platform", session.platform.address().to_string()),
        ("user", whoami.email.clone()),
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
                .map_or_else(|| "not restricted".to_owned(), ToString::to_string),
        ),
    ])
}

async fn fetch_whoami(session: &Session) -> Result<Whoami, Failure> {
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

/// The given token, if there is one.
fn token(args: &LoginArgs) -> Result<Option<String>, Failure> {
    let given = args.flags.token.as_ref().filter(|token| !token.is_empty());
    let text = if let Some(path) = &args.token_file {
        let file = std::fs::File::open(path).map_err(|error| {
            Failure::from_error(&format!("cannot read {}", path.display()), error)
        })?;
        read(file)?
    } else if args.token_stdin && prompt::is_possible() {
        prompt::secret("token (a personal access token; it is not shown): ")?
    } else if args.token_stdin {
        read(io::stdin().lock())?
    } else if let Some(token) = given {
        token.clone()
    } else {
        return Ok(None);
    };
    let text = text.trim();
    if text.is_empty() || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(Failure::new(Code::Usage, "this is not a token")
            .hint("a token is one word of three parts separated by dots"));
    }
    Ok(Some(text.to_owned()))
}

/// Reads a token with a size limit.
pub(super) fn read(source: impl Read) -> Result<String, Failure> {
    let mut text = String::new();
    source
        .take(MAX_TOKEN)
        .read_to_string(&mut text)
        .map_err(|error| Failure::from_error("the token cannot be read", error))?;
    Ok(text)
}

fn absolute(path: &PathBuf) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::from_error(&format!("{} is not a file", path.display()), error))
}

/// A token has at most 8 KiB. Longer input is not a token.
const MAX_TOKEN: u64 = 16 * 1024;
