//! The session that a client requests from a server: the command, its environment, and the
//! encryption.

use std::{path::PathBuf, sync::Arc};

use clap::Args;
use terminal::{
    client::{Endpoint, Seal, inventory::Server},
    keys::{self, Folder, KeyError, KeyList},
};
use tty::{
    message::{Config, Environment, Options, User, Username, Workdir},
    seal::PublicKey,
};

use super::target::ResolvedServer;
use crate::{
    failure::{Code, Failure},
    output::plain,
};

/// Input of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StdinMode {
    /// The client forwards its stdin.
    Forward,
    /// The command gets no input.
    Closed,
}

/// Streams of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamMode {
    /// The server allocates a terminal.
    Terminal,
    /// The command has a pipe for each stream.
    Pipes,
}

/// The flags for the command's environment.
#[derive(Debug, Args)]
pub(super) struct CommandEnvironment {
    /// Environment variable for the command; without a value, the local value is used (repeatable)
    #[arg(long = "env", short = 'e', value_name = "KEY[=VALUE]")]
    variables: Vec<String>,

    /// Working directory of the command
    #[arg(long, short, value_name = "DIR")]
    workdir: Option<String>,

    /// Account that runs the command, by name or number, if the server lets clients choose
    #[arg(long, short, value_name = "USER")]
    user: Option<String>,
}

/// The flags for end-to-end encryption.
#[derive(Debug, Args)]
#[command(next_help_heading = "End-to-end encryption")]
pub(super) struct EncryptionArgs {
    /// Require end-to-end encryption; fail if it is not possible
    #[arg(long)]
    e2e: bool,

    /// Identity of `svc webtty identity` to authenticate with
    #[arg(long, value_name = "NAME", default_value = keys::DEFAULT_IDENTITY, hide_default_value = true)]
    identity: String,

    /// File of the identity
    #[arg(
        long,
        env = "SVC_WEBTTY_IDENTITY_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    identity_file: Option<PathBuf>,

    /// Name in the list of known servers, if it differs from the target's
    #[arg(long, value_name = "NAME")]
    known_server: Option<String>,

    /// The server's public key
    #[arg(
        long,
        env = "SVC_WEBTTY_KNOWN_SERVER_KEY",
        value_name = "KEY",
        allow_hyphen_values = true,
        hide_env_values = true
    )]
    known_server_key: Option<String>,

    /// List of known servers, instead of the one in ~/.svc/webtty
    #[arg(
        long,
        env = "SVC_WEBTTY_KNOWN_SERVERS_FILE",
        value_name = "FILE",
        hide_env_values = true
    )]
    known_servers_file: Option<PathBuf>,

    /// Id of the registered server, if the target is an address
    #[arg(long, value_name = "ID", hide = true)]
    server_id: Option<String>,
}

impl CommandEnvironment {
    /// The message that requests the session.
    pub(super) fn config(
        &self,
        command: &[String],
        stdin: StdinMode,
        streams: StreamMode,
    ) -> Result<Config, Failure> {
        Ok(Config {
            options: Some(Options {
                interactive: stdin == StdinMode::Forward,
                allocate_tty: streams == StreamMode::Terminal,
                send_heartbeat: true,
            }),
            cmd_args: command.to_vec(),
            env_vars: self.environment(streams)?,
            workdir: self.workdir.clone().map(|value| Workdir { value }),
            username: self.user.as_deref().map(|user| Username {
                payload: Some(match user.parse() {
                    Ok(id) => User::Id(id),
                    Err(_name) => User::Name(user.to_owned()),
                }),
            }),
        })
    }

    fn environment(&self, streams: StreamMode) -> Result<Vec<Environment>, Failure> {
        let mut all = Vec::new();
        let is_given = |name: &str| {
            self.variables
                .iter()
                .any(|given| variable_name(given) == name)
        };
        // Variables of the user's terminal: a command without a terminal draws nothing.
        let of_terminal = TERMINAL_VARIABLES
            .iter()
            .filter(|_| streams == StreamMode::Terminal);
        for name in of_terminal.chain(&LOCALE_VARIABLES) {
            if let Ok(value) = std::env::var(name)
                && is_plain_value(&value)
                && !is_given(name)
            {
                all.push(Environment {
                    key: (*name).to_owned(),
                    value,
                });
            }
        }
        for given in &self.variables {
            let key = variable_name(given);
            if key.is_empty() {
                return Err(Failure::usage(format!(
                    "`--env {}` has no name",
                    plain(given)
                )));
            }
            let value = match given.split_once('=') {
                Some((_, value)) => value.to_owned(),
                None => std::env::var(key).map_err(|_unset| {
                    Failure::usage(format!("--env {key}: the variable is not set"))
                        .hint("give it a value with KEY=VALUE")
                })?,
            };
            all.push(Environment {
                key: key.to_owned(),
                value,
            });
        }
        Ok(all)
    }
}

/// True for a value that can be the name of a terminal or of a locale. Others stay here.
fn is_plain_value(value: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_.@-+:".contains(&byte);
    !value.is_empty() && value.len() <= MAX_PASSED_VALUE && value.bytes().all(is_plain)
}

/// Variables of the terminal that commands get.
const TERMINAL_VARIABLES: [&str; 2] = ["TERM", "COLORTERM"];

/// Variables of the language that commands get (POSIX, section 8.2, and those of glibc).
const LOCALE_VARIABLES: [&str; 14] = [
    "LANG",
    "LC_ALL",
    "LC_ADDRESS",
    "LC_COLLATE",
    "LC_CTYPE",
    "LC_IDENTIFICATION",
    "LC_MEASUREMENT",
    "LC_MESSAGES",
    "LC_MONETARY",
    "LC_NAME",
    "LC_NUMERIC",
    "LC_PAPER",
    "LC_TELEPHONE",
    "LC_TIME",
];

/// Maximum bytes of such a value: names of locales and terminals are shorter.
const MAX_PASSED_VALUE: usize = 64;

impl EncryptionArgs {
    /// The encryption of the session. `None` if neither the user nor the server requires it.
    ///
    /// WT-5: a server that requires encryption gets no session without it. A server whose key is
    /// unknown gets no session at all.
    pub(super) fn seal(&self, reached: &ResolvedServer) -> Result<Option<Seal>, Failure> {
        let server = reached.server.as_ref();
        let is_asked = self.e2e || self.known_server.is_some() || self.known_server_key.is_some();
        if !is_asked && !server.is_some_and(Server::requires_seal) {
            return Ok(None);
        }
        let known = self.server_key(reached)?;
        let stated_id = server.map_or("", |server| server.host_key_id.as_str());
        if !stated_id.is_empty() && keys::key_id_text(&known) != stated_id {
            let message = format!(
                "the key of {} has changed: the server states {}, but {} is the known key",
                plain(&reached.url),
                plain(stated_id),
                keys::key_id_text(&known)
            );
            return Err(Failure::new(Code::Refused, message)
                .named("webtty_server_key_changed")
                .hint(
                    "ask its owner; if the change is legitimate, run `svc webtty known-server \
                     remove`, then `add`",
                ));
        }
        let path = match &self.identity_file {
            Some(path) => path.clone(),
            None => webtty_folder()?
                .identity(&self.identity)
                .map_err(|error| failed(&error))?,
        };
        let identity = keys::read_identity(&path).map_err(|error| {
            failed(&error).hint(
                "create one with `svc webtty identity create`, and have the owner \
                                 of the server add it to its authorized clients",
            )
        })?;
        let id = server.map(|server| server.server_id.as_str());
        let id = id.filter(|id| !id.is_empty()).or(self.server_id.as_deref());
        Ok(Some(Seal {
            identity: Arc::new(identity),
            server: known,
            context: keys::seal_context(id).to_vec(),
        }))
    }

    fn server_key(&self, reached: &ResolvedServer) -> Result<PublicKey, Failure> {
        if let Some(text) = &self.known_server_key {
            return keys::parse_key(text)
                .map_err(|error| Failure::usage(format!("--known-server-key is {error}")));
        }
        let path = match &self.known_servers_file {
            Some(path) => path.clone(),
            None => webtty_folder()?.known_servers(),
        };
        let list = KeyList::read(&path).map_err(|error| failed(&error))?;
        let names = match &self.known_server {
            Some(name) => vec![name.clone()],
            None => names(reached),
        };
        let stated_id = reached.server.as_ref().map(|server| &server.host_key_id);
        for name in &names {
            let mut keys: Vec<_> = list.of_name(name).copied().collect();
            // During a key rotation there are two keys. The server states which one it has.
            keys.sort_by_key(|key| Some(&keys::key_id_text(key)) != stated_id);
            if let Some(key) = keys.first() {
                return Ok(*key);
            }
        }
        let name = names.first().map_or("NAME", String::as_str);
        let message = format!(
            "{} requires end-to-end encryption, and its key is not known",
            plain(&reached.url)
        );
        Err(Failure::new(Code::Refused, message)
            .named("webtty_server_unknown")
            .hint(format!(
                "get the key from the server's owner, and add it: svc webtty known-server add {} \
                 KEY",
                plain(name)
            )))
    }
}

/// The user's key directory.
pub(super) fn webtty_folder() -> Result<Folder, Failure> {
    let home = std::env::var_os("HOME").map(PathBuf::from);
    let home = home.filter(|home| home.is_absolute());
    home.map(|home| Folder::in_home(&home))
        .ok_or_else(|| Failure::usage("no home directory is set for keys").hint("set HOME"))
}

/// The failure for an error with keys.
pub(super) fn failed(error: &KeyError) -> Failure {
    let (code, name) = match error {
        KeyError::NotAKey | KeyError::NotAName => (Code::Usage, "webtty_keys"),
        KeyError::Exists { .. } | KeyError::Taken { .. } => (Code::Conflict, "webtty_keys"),
        KeyError::Shared { .. } => (Code::Refused, "webtty_key_open"),
        _ => (Code::Failed, "webtty_keys"),
    };
    Failure::new(code, crate::failure::chain(error)).named(name)
}

/// Names under which a server's key may be stored.
fn names(reached: &ResolvedServer) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    if let Some(server) = &reached.server {
        names.extend(server.key_names().into_iter().map(str::to_owned));
    }
    if let Endpoint::Url { url, .. } = &reached.endpoint {
        names.push(url.address.to_string());
    }
    names
}

fn variable_name(variable: &str) -> &str {
    variable.split('=').next().unwrap_or_default()
}
