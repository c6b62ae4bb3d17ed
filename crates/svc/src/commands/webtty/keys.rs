//! `svc webtty identity`, `known-server` and `authorized-client`: the keys of end-to-end encryption.

use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use serde_json::{Value, json};
use terminal::keys::{self, Entry, KeyList};
use tty::seal::PublicKey;

use super::asked::{failed, folder};
use crate::{failure::Failure, output, output::Format};

/// One's own keys.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  svc webtty identity create")]
pub(crate) enum Identity {
    /// Make a pair of keys, for a client or a server
    Create(CreateArgs),
    /// Show the public key, to be given to the other side
    Show(ShowArgs),
    /// List the identities
    List(OutputArgs),
    /// Remove an identity; what was sealed to it stays closed
    Remove(ShowArgs),
}

/// The keys of servers that one connects to.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  svc webtty known-server add build 6fXy…")]
pub(crate) enum KnownServer {
    /// Add the public key of a server
    Add(AddArgs),
    /// List the servers that are known
    List(ListArgs),
    /// Remove a server
    Remove(RemoveArgs),
}

/// The keys of clients that a server lets in.
#[derive(Debug, Subcommand)]
#[command(after_help = "Example:
  svc webtty authorized-client add ada-laptop 6fXy…")]
pub(crate) enum AuthorizedClient {
    /// Let a client in, by its public key
    Add(AddArgs),
    /// List the clients that are let in
    List(ListArgs),
    /// Let a client in no more, from its next session on
    Remove(RemoveArgs),
}

/// The flags of `identity create`.
#[derive(Debug, Parser)]
pub(crate) struct CreateArgs {
    #[command(flatten)]
    which: Which,

    /// How the public key is written
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// The flags of `identity show` and `remove`.
#[derive(Debug, Parser)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    which: Which,

    /// How it is written
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// The flags of `identity list`.
#[derive(Debug, Parser)]
pub(crate) struct OutputArgs {
    /// How the list is written
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// Which identity.
#[derive(Args, Debug)]
struct Which {
    /// Its name
    #[arg(value_name = "NAME", default_value = keys::DEFAULT_IDENTITY)]
    name: String,

    /// Its file, instead of the one of that name in ~/.svc/webtty/identities
    #[arg(long, value_name = "FILE")]
    identity_file: Option<PathBuf>,
}

/// The flags of `add`.
#[derive(Debug, Parser)]
pub(crate) struct AddArgs {
    /// What its owner is called: of a server the id, the name of its tunnel, or `host:port`
    #[arg(value_name = "NAME")]
    name: String,

    /// The public key that `svc webtty identity show` tells on the other side
    // A key is base64url, and so may begin with a dash.
    #[arg(value_name = "KEY", allow_hyphen_values = true)]
    key: String,

    /// The list, instead of the one in ~/.svc/webtty
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// The flags of `list`.
#[derive(Debug, Parser)]
pub(crate) struct ListArgs {
    /// How the list is written
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    /// The list, instead of the one in ~/.svc/webtty
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// The flags of `remove`.
#[derive(Debug, Parser)]
pub(crate) struct RemoveArgs {
    /// Its name, or the key itself
    #[arg(value_name = "NAME")]
    name: String,

    /// The list, instead of the one in ~/.svc/webtty
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
}

/// Runs one of `identity`.
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
            let folder = folder()?;
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
                Failure::of(&format!("cannot remove {}", path.display()), error)
            })?;
            match args.output {
                Format::Json => output::json(&json!({"removed": args.which.name})),
                Format::Text => Ok(()),
            }
        }
    }
}

/// Runs one of `known-server`.
pub(super) fn known_server(command: KnownServer) -> Result<(), Failure> {
    let usual = || Ok::<_, Failure>(folder()?.known_servers());
    match command {
        KnownServer::Add(args) => add(args, usual),
        KnownServer::List(args) => list_of(args, usual),
        KnownServer::Remove(args) => remove(args, usual),
    }
}

/// Runs one of `authorized-client`.
pub(super) fn authorized_client(command: AuthorizedClient) -> Result<(), Failure> {
    let usual = || Ok::<_, Failure>(folder()?.authorized_clients());
    match command {
        AuthorizedClient::Add(args) => add(args, usual),
        AuthorizedClient::List(args) => list_of(args, usual),
        AuthorizedClient::Remove(args) => remove(args, usual),
    }
}

impl Which {
    fn path(&self) -> Result<PathBuf, Failure> {
        match &self.identity_file {
            Some(path) => Ok(path.clone()),
            None => folder()?
                .identity(&self.name)
                .map_err(|error| failed(&error)),
        }
    }
}

type Usual = fn() -> Result<PathBuf, Failure>;

fn add(args: AddArgs, usual: Usual) -> Result<(), Failure> {
    let key = keys::parse_key(&args.key).map_err(|error| failed(&error))?;
    let path = args.file.map_or_else(usual, Ok)?;
    let name = args.name;
    KeyList::add(&path, Entry { key, name }).map_err(|error| failed(&error))
}

fn list_of(args: ListArgs, usual: Usual) -> Result<(), Failure> {
    let path = args.file.map_or_else(usual, Ok)?;
    let read = KeyList::read(&path).map_err(|error| failed(&error))?;
    let all: Vec<_> = read
        .entries()
        .iter()
        .map(|entry| (entry.name.clone(), entry.key))
        .collect();
    list(&all, args.output)
}

fn remove(args: RemoveArgs, usual: Usual) -> Result<(), Failure> {
    let path = args.file.map_or_else(usual, Ok)?;
    KeyList::remove(&path, &args.name)
        .map_err(|error| failed(&error))
        .map(drop)
}

fn show(name: &str, path: &Path, key: PublicKey, format: Format) -> Result<(), Failure> {
    match format {
        Format::Json => {
            let mut told = told(name, &key);
            if let Some(told) = told.as_object_mut() {
                told.insert("file".to_owned(), json!(path.display().to_string()));
            }
            output::json(&told)
        }
        // The key alone, as it is copied.
        Format::Text => output::line(&keys::key_text(&key)),
    }
}

fn list(all: &[(String, PublicKey)], format: Format) -> Result<(), Failure> {
    match format {
        Format::Json => output::json(
            &all.iter()
                .map(|(name, key)| told(name, key))
                .collect::<Vec<_>>(),
        ),
        Format::Text => {
            let row = |(name, key): &(String, PublicKey)| vec![name.clone(), keys::key_text(key)];
            output::table(&["NAME", "KEY"], &all.iter().map(row).collect::<Vec<_>>())
        }
    }
}

fn told(name: &str, key: &PublicKey) -> Value {
    json!({
        "name": name,
        "public_key": keys::key_text(key),
        "key_id": keys::key_id_text(key),
    })
}
