//! `svc token`: creates tokens with a key or at the platform, and inspects tokens.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use api::control::tokens::{MINT_TOKEN, MintToken, MintedToken};
use clap::{ArgGroup, Parser, Subcommand};
use client::Token;
use credentials::{Identity, MintError, MintRequest, Secret, SigningKey, TokenKind};
use jiff::Timestamp;
use serde_json::{Value, json};
use types::permission::Permission;

use crate::args::{suggest, time};
use crate::connection::Connection;
use crate::failure::{Code, Failure};
use crate::output;
use crate::output::Format;
use crate::platform::SessionFlags;

/// The subcommands of `svc token`.
#[derive(Debug, Subcommand)]
#[command(after_help = "Examples:
  svc token mint --secret-file engine.secret --type app --client ci --ttl 24h
  svc token inspect
  svc token permissions")]
pub(crate) enum Command {
    /// Create a short-lived token with at most your own permissions
    Create(CreateArgs),
    /// Sign a token with the engine's secret or a private key
    Mint(MintArgs),
    /// Show the claims of a token; nothing is verified
    Inspect(InspectArgs),
    /// List all permissions with their meaning
    Permissions(PermissionsArgs),
}

/// The flags of `svc token create`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  svc token create --permission tunnels.resources.read-only --ttl 5m")]
pub(crate) struct CreateArgs {
    /// Permissions that it grants (repeatable). Default: the same permissions as your token
    #[arg(long = "permission", value_name = "PERMISSION")]
    permissions: Vec<String>,

    /// Restrict it: the `resources` claim, as JSON
    #[arg(long, value_name = "JSON")]
    resources: Option<String>,

    /// Lifetime, up to 1h. Default: 5m
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    ttl: Option<Duration>,

    /// Output format; as text, only the token is printed
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    flags: SessionFlags,
}

/// The flags of `svc token mint`.
#[derive(Debug, Parser)]
#[command(group = ArgGroup::new("key").required(true), group = ArgGroup::new("identity"))]
#[command(after_help = "Examples:
  svc token mint --secret-file engine.secret --type app --client ci --ttl 24h
  svc token mint --key-file app.pem --type app --client app_1 \\
    --permission tunnels.streams.create-delete")]
pub(crate) struct MintArgs {
    /// The secret of the engine (HS256)
    #[arg(long, value_name = "SECRET", group = "key")]
    secret: Option<String>,

    /// Read the secret from a file (keeps it out of `ps`); `-`: stdin
    #[arg(long, value_name = "FILE", group = "key")]
    secret_file: Option<PathBuf>,

    /// A private key (PEM, PKCS#8)
    #[arg(long, value_name = "FILE", group = "key")]
    key_file: Option<PathBuf>,

    /// The `kid` of the key, if the engine has several keys
    #[arg(long, value_name = "ID")]
    kid: Option<String>,

    /// The type: auth (short-lived), app, or pat
    #[arg(long = "type", value_name = "KIND", default_value = "auth")]
    kind: TokenKind,

    /// Lifetime: 5m, 24h, 90d. Default: 5m for auth, 1h for app, 90d for pat
    #[arg(long, value_name = "DURATION", value_parser = time::duration)]
    ttl: Option<Duration>,

    /// The user of the token
    #[arg(long, value_name = "ID", group = "identity")]
    user: Option<String>,

    /// The application of the token
    #[arg(long, value_name = "ID", group = "identity")]
    client: Option<String>,

    /// Permissions that it grants (repeatable). Default: all
    #[arg(long = "permission", value_name = "PERMISSION")]
    permissions: Vec<String>,

    /// Restrict it: the `resources` claim, as JSON
    #[arg(long, value_name = "JSON")]
    resources: Option<String>,
}

/// The flags of `svc token inspect`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc token inspect
  svc token mint --secret-file engine.secret | svc token inspect - --output json")]
pub(crate) struct InspectArgs {
    /// The token, or `-` to read it from stdin. Default: the one that other commands use
    value: Option<String>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    connection: Connection,
}

/// The flags of `svc token permissions`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc token permissions --output json")]
pub(crate) struct PermissionsArgs {
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// Runs a subcommand.
pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Create(args) => create(args).await,
        Command::Mint(args) => output::line(&mint(&args)?),
        Command::Inspect(args) => inspect(&args),
        Command::Permissions(args) => list(args.output),
    }
}

async fn create(args: CreateArgs) -> Result<(), Failure> {
    let body = MintToken {
        permissions: permissions(&args.permissions)?,
        resources: args.resources.as_deref().map(resources).transpose()?,
        ttl_seconds: args.ttl.map(seconds).transpose()?,
    };
    let session = args.flags.open()?;
    let call = session.platform.call(MINT_TOKEN, &[]).body(&body)?;
    let minted: MintedToken = call.answer().await?;
    match args.output {
        Format::Json => output::json(&minted),
        Format::Text => output::line(&minted.token),
    }
}

fn mint(args: &MintArgs) -> Result<String, Failure> {
    let key = signing_key(args)?;
    let request = MintRequest {
        kind: args.kind,
        identity: identity(args),
        ttl_seconds: Some(seconds(args.ttl.unwrap_or(default_ttl(args.kind)))?),
        permissions: permissions(&args.permissions)?,
        resources: args.resources.as_deref().map(resources).transpose()?,
    };
    let now = Timestamp::now().as_second();
    let token = credentials::mint(&key, &request, now).map_err(|error| match error {
        MintError::Param(error) => Failure::usage(error.to_string()),
        error @ MintError::Signing => Failure::from_error("cannot create the token", error),
    })?;
    String::from_utf8(token.expose().to_vec())
        .map_err(|error| Failure::from_error("the token cannot be written", error))
}

fn signing_key(args: &MintArgs) -> Result<SigningKey, Failure> {
    let bad = |error: credentials::BadKey| Failure::usage(format!("cannot use the key: {error}"));
    let key = match (&args.secret, &args.secret_file, &args.key_file) {
        (Some(secret), _, _) => {
            output::message(
                "warning: other users of this machine can see the secret in the process list; use \
                 --secret-file",
            );
            SigningKey::from_secret(&Secret::new(secret.as_bytes()))
        }
        (None, Some(path), _) => {
            let secret = text_of(path)?;
            SigningKey::from_secret(&Secret::new(secret.trim().as_bytes()))
        }
        (None, None, Some(path)) => SigningKey::from_pem(&text_of(path)?),
        (None, None, None) => {
            return Err(Failure::usage("give --secret-file, --secret or --key-file"));
        }
    };
    let key = key.map_err(bad)?;
    Ok(match &args.kid {
        Some(kid) => key.with_kid(kid),
        None => key,
    })
}

/// Reads a file or stdin.
fn text_of(path: &Path) -> Result<String, Failure> {
    let text = if path == Path::new("-") {
        std::io::read_to_string(std::io::stdin())
    } else {
        std::fs::read_to_string(path)
    };
    text.map_err(|error| Failure::from_error(&format!("cannot read {}", path.display()), error))
}

/// An identity is required, because two agents with one identity may take over each other's names.
fn identity(args: &MintArgs) -> Identity {
    match (&args.user, &args.client, args.kind) {
        (Some(user), _, _) => Identity::User(user.clone()),
        (None, Some(client), _) => Identity::Client(client.clone()),
        (None, None, TokenKind::App) => Identity::Client(DEFAULT_IDENTITY.to_owned()),
        (None, None, TokenKind::Pat | TokenKind::Auth) => {
            Identity::User(DEFAULT_IDENTITY.to_owned())
        }
    }
}

pub(super) fn permissions(names: &[String]) -> Result<Option<Vec<Permission>>, Failure> {
    if names.is_empty() {
        return Ok(None);
    }
    let parse = |name: &String| {
        name.parse::<Permission>().map_err(|_unknown| {
            let known = Permission::ALL.iter().map(|known| known.as_str());
            let failure = Failure::usage(format!("permission `{name}` does not exist"));
            match suggest::nearest(name, known.clone()) {
                Some(meant) => failure.hint(format!(
                    "did you mean `{meant}`? `svc token permissions` lists them"
                )),
                None => failure.hint(format!(
                    "valid permissions: {}",
                    known.collect::<Vec<_>>().join(", ")
                )),
            }
        })
    };
    names.iter().map(parse).collect::<Result<_, _>>().map(Some)
}

pub(super) fn resources(text: &str) -> Result<Value, Failure> {
    serde_json::from_str(text)
        .map_err(|error| Failure::usage(format!("--resources is not JSON: {error}")))
}

fn seconds(ttl: Duration) -> Result<u32, Failure> {
    u32::try_from(ttl.as_secs())
        .ok()
        .filter(|seconds| *seconds > 0)
        .ok_or_else(|| Failure::usage("--ttl is at least one second and at most 136 years"))
}

fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    let token = match args.value.as_deref() {
        Some("-") => Token::new(&text_of(Path::new("-"))?),
        Some(token) => Token::new(token),
        None => args.connection.token()?,
    };
    let Some(mut inspected) = credentials::inspect(token.expose()) else {
        return Err(Failure::new(Code::Failed, "this is not a token")
            .hint("a token has three parts separated by dots"));
    };
    let expires = inspected.pointer("/claims/exp").and_then(Value::as_i64);
    if let (Some(at), Some(fields)) = (expires, inspected.as_object_mut()) {
        if let Ok(date) = Timestamp::from_second(at) {
            fields.insert("expires_at".to_owned(), json!(date.to_string()));
        }
        fields.insert(
            "expired".to_owned(),
            json!(at <= Timestamp::now().as_second()),
        );
    }
    match args.output {
        Format::Json => output::json(&inspected),
        Format::Text => output::record(&summary(&inspected)),
    }
}

/// The most common claims as text. JSON output contains all of them.
fn summary(inspected: &Value) -> Vec<(&'static str, String)> {
    let claims = inspected.get("claims").unwrap_or(&Value::Null);
    let text = |name: &str| claims.get(name)?.as_str().map(str::to_owned);
    let mut fields = vec![("type", text("type").unwrap_or_else(|| "-".to_owned()))];
    let identity = [
        ("user", "userId"),
        ("client", "clientId"),
        ("issuer", "iss"),
    ];
    fields.extend(
        identity
            .into_iter()
            .filter_map(|(name, claim)| Some((name, text(claim)?))),
    );
    let ends = inspected.get("expires_at").and_then(Value::as_str);
    fields.push((
        "expires",
        match (ends, inspected.get("expired").and_then(Value::as_bool)) {
            (Some(at), Some(true)) => format!("{at} (expired)"),
            (Some(at), _) => at.to_owned(),
            (None, _) => "never".to_owned(),
        },
    ));
    let permissions = match claims.get("permissions").and_then(Value::as_array) {
        Some(held) if held.is_empty() => vec!["none".to_owned()],
        Some(held) => held
            .iter()
            .filter_map(|word| word.as_str().map(str::to_owned))
            .collect(),
        None => vec!["not restricted".to_owned()],
    };
    fields.extend(permissions.into_iter().map(|word| ("permission", word)));
    fields.push((
        "resources",
        match claims.get("resources").filter(|claim| !claim.is_null()) {
            Some(claim) => claim.to_string(),
            None => "not restricted".to_owned(),
        },
    ));
    let algorithm = inspected.pointer("/header/alg").and_then(Value::as_str);
    fields.push((
        "signed",
        format!("{} (not verified)", algorithm.unwrap_or("-")),
    ));
    fields
}

fn list(format: Format) -> Result<(), Failure> {
    match format {
        Format::Json => {
            let permission = |known: &Permission| json!({"name": known.as_str(), "description": known.description()});
            output::json(&Permission::ALL.iter().map(permission).collect::<Vec<_>>())
        }
        Format::Text => {
            let row = |known: &Permission| {
                vec![known.as_str().to_owned(), known.description().to_owned()]
            };
            output::table(
                &["PERMISSION", "WHAT IT ALLOWS"],
                &Permission::ALL.iter().map(row).collect::<Vec<_>>(),
            )
        }
    }
}

const fn default_ttl(kind: TokenKind) -> Duration {
    match kind {
        TokenKind::Auth => Duration::from_mins(5),
        // The limit of engines with a platform.
        TokenKind::App => Duration::from_hours(1),
        TokenKind::Pat => Duration::from_hours(90 * 24),
    }
}

/// Identity of a token if none is given.
const DEFAULT_IDENTITY: &str = "svc-cli";
