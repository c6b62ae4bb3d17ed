//! `svc webtty identity`, `known-server` and `authorized-client`: keys of end-to-end encryption.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use serde_json::{Value, json};
use terminal::keys::{self, Entry, KeyList};
use tty::seal::PublicKey;

use super::session_request::{failed, webtty_folder};
use crate::{failure::Failure, output, output::Format};

/// The subcommands for your own keys.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  svc webtty identity create")]
pub(crate) enum Identity {
    /// Create a key pair, for a client or a server
    Create(CreateArgs),
    /// Show the public key, to give to the peer
    Show(ShowArgs),
    /// List the identities
    List(OutputArgs),
    /// Remove an identity; data that was encrypted for it stays unreadable
    Remove(ShowArgs),
}

/// The subcommands for trusted keys of servers.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  svc webtty known-server add build 6fXy…")]
pub(crate) enum KnownServer {
    /// Add the public key of a server
    Add(AddArgs),
    /// List the known servers
    List(ListArgs),
    /// Remove a server
    Remove(RemoveArgs),
}

/// The subcommands for keys of clients that a server admits.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  svc webtty authorized-client add ada-laptop 6fXy…")]
pub(crate) enum AuthorizedClient {
    /// Admit a client, by its public key
    Add(AddArgs),
    /// List the admitted clients
    List(ListArgs),
    /// Stop admitting a client, from its next session on
    Remove(RemoveArgs),
}

/// The flags of `identity create`.
#[derive(Debug, Parser)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    which: IdentityArgs,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// The flags of `identity show` and `remove`.
#[derive(Debug, Parser)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    which: IdentityArgs,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// The flags of `identity list`.
#[derive(Debug, Parser)]
pub(crate) struct OutputArgs {
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// Selects an identity.
#[derive(Args, Debug)]
struct IdentityArgs {
    /// Name of the identity
    #[arg(value_name = "NAME", default_value = keys::DEFAULT_IDENTITY)]
    name: String,

    /// File of the identity, instead of the one with that name in ~/.svc/webtty/identities
    #[arg(long, value_name = "FILE")]
    identity_file: Option<PathBuf>,
}

/// The flags of `add`.
#[derive(Debug, Parser)]
pub(crate) struct AddArgs {
    /// Name of the key's owner; for a server its id, the name of its tunnel, or `host:port`
    #[arg(value_name = "NAME")]
    name: String,

    /// The public key, as printed by `svc webtty identity show` on the peer
    // A key is base64url and may start with a dash.
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    key: String,

    /// Key list, instead of the one in ~/.svc/webtty
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// The flags of `list`.
#[derive(Debug, Parser)]
pub(crate) struct ListArgs {
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    /// Key list, instead of the one in ~/.svc/webtty
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// The flags of `remove`.
#[derive(Debug, Parser)]
pub(crate) struct RemoveArgs {
    /// Name of the owner, or the key itself
    #[arg(value_name = "NAME")]
    name: String,

    /// Key list, instead of the one in ~/.svc/webtty
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Runs a subcommand of `identity`.
pub(super) fn identity(command: Identity) -> Result<(), Failure> {
    match command {
        Identity::Create(args) => {
            let path = args.which.path()?;
            let made = keys::create_identity(&path).map_err(|error| failed(&error))?;
            show(&args.which.name, &path, made.public(), args.output)
        }
        Identity::Show(args) => {
            let path = args.which.path()?;
            let read = keys::read_identity(&path).map_err(|error| failed(&error))?;
            show(&args.which.name, &path, read.public(), args.output)
        }
        Identity::List(args) => {
            let folder = webtty_folder()?;
            let mut all = Vec::new();
            for name in folder.identities().map_err(|error| failed(&error))? {
                let path = folder.identity(&name).map_err(|error| failed(&error))?;
                let read = keys::read_identity(&path).map_err(|error| failed(&error))?;
                all.push((name, read.public()));
            }
            list(&all, args.output)
        }
        Identity::Remove(args) => {
            let path = args.which.path()?;
            std::fs::remove_file(&path).map_err(|error| {
                Failure::from_error(&format!("cannot remove {}", path.display()), error)
            })?;
            match args.output {
                Format::Json => output::json(&json!({"removed": args.which.name})),
                Format::Text => Ok(()),
            }
        }
    }
}

/// Runs a subcommand of `known-server`.
pub(super) fn known_server(command: KnownServer) -> Result<(), Failure> {
    let default_path = || Ok::<_, Failure>(webtty_folder()?.known_servers());
    match command {
        KnownServer::Add(args) => add(args, default_path),
        KnownServer::List(args) => list_of(args, default_path),
        KnownServer::Remove(args) => remove(args, default_path),
    }
}

/// Runs a subcommand of `authorized-client`.
pub(super) fn authorized_client(command: AuthorizedClient) -> Result<(), Failure> {
    let default_path = || Ok::<_, Failure>(webtty_folder()?.authorized_clients());
    match command {
        AuthorizedClient::Add(args) => add(args, default_path),
        AuthorizedClient::List(args) => list_of(args, default_path),
        AuthorizedClient::Remove(args) => remove(args, default_path),
    }
}

impl IdentityArgs {
    fn path(&self) -> Result<PathBuf, Failure> {
        match &self.identity_file {
            Some(path) => Ok(path.clone()),
            None => webtty_folder()?
                .identity(&self.name)
                .map_err(|error| failed(&error)),
        }
    }
}

type DefaultPath = fn() -> Result<PathBuf, Failure>;

fn add(args: AddArgs, default_path: DefaultPath) -> Result<(), Failure> {
    let key = keys::parse_key(&args.key).map_err(|error| failed(&error))?;
    let path = args.file.map_or_else(default_path, Ok)?;
    let name = args.name;
    KeyList::add(&path, Entry { key, name }).map_err(|error| failed(&error))
}

fn list_of(args: ListArgs, default_path: DefaultPath) -> Result<(), Failure> {
    let path = args.file.map_or_else(default_path, Ok)?;
    let read = KeyList::read(&path).map_err(|error| failed(&error))?;
    let all: Vec<_> = read
        .entries()
        .iter()
        .map(|entry| (entry.name.clone(), entry.key))
        .collect();
    list(&all, args.output)
}

fn remove(args: RemoveArgs, default_path: DefaultPath) -> Result<(), Failure> {
    let path = args.file.map_or_else(default_path, Ok)?;
    KeyList::remove(&path, &args.name)
        .map_err(|error| failed(&error))
        .map(drop)
}

fn show(name: &str, path: &Path, key: PublicKey, format: Format) -> Result<(), Failure> {
    match format {
        Format::Json => {
            let mut key_json = key_json(name, &key);
            if let Some(key_json) = key_json.as_object_mut() {
                key_json.insert("file".to_owned(), json!(path.display().to_string()));
            }
            output::json(&key_json)
        }
        // Only the key, ready to be copied.
        Format::Text => output::line(&keys::key_text(&key)),
    }
}

fn list(all: &[(String, PublicKey)], format: Format) -> Result<(), Failure> {
    match format {
        Format::Json => output::json(
            &all.iter()
                .map(|(name, key)| key_json(name, key))
                .collect::<Vec<_>>(),
        ),
        Format::Text => {
            let row = |(name, key): &(String, PublicKey)| vec![name.clone(), keys::key_text(key)];
            output::table(&["NAME", "KEY"], &all.iter().map(row).collect::<Vec<_>>())
        }
    }
}

fn key_json(name: &str, key: &PublicKey) -> Value {
    json!({
        "name": name,
        "public_key": keys::key_text(key),
        "key_id": keys::key_id_text(key),
    })
}
