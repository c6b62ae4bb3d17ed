//! Finds the terminal server that the user named.

use std::path::PathBuf;

use clap::Args;
use client::{Token, Trust, api::Api};
use terminal::client::{
    Endpoint, Url,
    inventory::{self, FindError, Server, UnreachableError},
};

use super::offline_server;
use crate::args::suggest;
use crate::connection::Connection;
use crate::failure::{Code, Failure};
use crate::output::plain;

/// The flags of every command that connects to a server.
#[derive(Debug, Args)]
pub(super) struct TargetArgs {
    /// File with the bearer token for a server that listens on an address
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    auth_token_file: Option<PathBuf>,

    /// The bearer token itself
    #[arg(
        long,
        env = "SVC_WEBTTY_AUTH_TOKEN",
        value_name = "TOKEN",
        hide_env_values = true,
        hide = true
    )]
    auth_token: Option<String>,

    #[command(flatten)]
    connection: Connection,
}

/// A server that was found.
#[derive(Debug)]
pub(super) struct ResolvedServer {
    /// Its endpoint.
    pub(super) endpoint: Endpoint,
    /// Its address for messages, without secrets.
    pub(super) url: String,
    /// The engine's entry of the server. `None` for an address that no engine lists.
    pub(super) server: Option<Server>,
}

/// Kind of session that the client announces to the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionMode {
    /// A person at a terminal.
    Interactive,
    /// A script.
    NonInteractive,
}

impl SessionMode {
    fn as_str(self) -> &'static str {
        match self {
            Self::Interactive => "interactive",
            Self::NonInteractive => "non-interactive",
        }
    }
}

impl TargetArgs {
    /// Finds the named server: an address, or the name of a tunnel of the engine.
    pub(super) async fn find(
        &self,
        target: &str,
        mode: SessionMode,
    ) -> Result<ResolvedServer, Failure> {
        let mut reached = if target.starts_with("ws://") || target.starts_with("wss://") {
            self.at_address(target).await?
        } else {
            self.on_engine(target).await?
        };
        if reached.server.is_some()
            && let Endpoint::Url { url, .. } = &mut reached.endpoint
        {
            *url = url.clone().with_parameter("session_mode", mode.as_str());
        }
        Ok(reached)
    }

    /// All servers that the engine lists.
    pub(super) async fn servers(&self) -> Result<Vec<Server>, Failure> {
        let api = Api::new(&self.connection.resolve()?)?;
        let tunnels = api.tunnels(&client::api::ListQuery::new()).await?;
        Ok(inventory::servers(&tunnels))
    }

    async fn at_address(&self, target: &str) -> Result<ResolvedServer, Failure> {
        // The target is not repeated in the error, because it may contain a token.
        let url = Url::parse(target)
            .map_err(|error| Failure::usage(format!("the address is {error}")))?;
        let mut bearer = self.own_token()?;
        let mut trust = self.ca_file()?.map_or(Trust::Platform, Trust::CaFile);
        let proxies = self.connection.proxies()?;
        let mut server = None;
        // The context's token is only sent to its engine.
        if url.is_secure
            && let Ok(config) = self.connection.resolve()
            && let Ok(listed) = self.servers().await
        {
            server = listed.into_iter().find(|server| is_at(server, &url));
            if let Some(server) = &server {
                bearer = server.bearer(bearer, &config.tokens);
                trust = config.trust;
            }
        }
        Ok(ResolvedServer {
            url: without_query(&url),
            endpoint: Endpoint::Url {
                url,
                bearer,
                trust,
                proxies,
            },
            server,
        })
    }

    async fn on_engine(&self, target: &str) -> Result<ResolvedServer, Failure> {
        let wanted = name(target)?;
        let config = self.connection.resolve()?;
        let servers = self.servers().await?;
        let server = match inventory::find(&servers, &wanted) {
            Ok(server) => server.clone(),
            Err(error) => {
                let away = match &error {
                    FindError::Unknown(wanted) => {
                        offline_server::offline_failure(&self.connection, wanted).await
                    }
                    FindError::Ambiguous { .. } | FindError::Offline(_) => None,
                };
                return Err(away.unwrap_or_else(|| not_found(&error, &servers)));
            }
        };
        let endpoint = server.endpoint(config, self.own_token()?);
        let endpoint = endpoint.map_err(|error| no_way(&error))?;
        Ok(ResolvedServer {
            url: server.svc_url.clone(),
            endpoint,
            server: Some(server),
        })
    }

    /// The token for this server only.
    fn own_token(&self) -> Result<Option<Token>, Failure> {
        if let Some(path) = &self.auth_token_file {
            let token = std::fs::read_to_string(path).map_err(|error| {
                Failure::from_error(&format!("cannot read {}", path.display()), error)
            })?;
            return Ok(Some(Token::new(&token)));
        }
        let given = self.auth_token.as_deref().map(str::trim);
        Ok(given.filter(|token| !token.is_empty()).map(Token::new))
    }

    fn ca_file(&self) -> Result<Option<PathBuf>, Failure> {
        if let Some(path) = self.connection.ca_file() {
            return Ok(Some(path.clone()));
        }
        let context = self.connection.read_context()?;
        Ok(context.and_then(|context| context.ca_file))
    }
}

fn no_way(error: &UnreachableError) -> Failure {
    let message = plain(&error.to_string());
    match error {
        UnreachableError::Transport { .. } => {
            Failure::new(Code::Failed, message).named("webtty_transport")
        }
        UnreachableError::WebTransport(_) => Failure::new(Code::NotAvailable, message)
            .hint("start the server with --transport websocket"),
        UnreachableError::Address(_) => Failure::new(Code::Failed, message),
    }
}

/// An address without its query, which may contain a token.
fn without_query(url: &Url) -> String {
    let path = url.path.split('?').next().unwrap_or_default().to_owned();
    Url {
        path,
        ..url.clone()
    }
    .to_string()
}

fn is_at(server: &Server, url: &Url) -> bool {
    let host = server.host.as_str();
    server.publish
        && Url::parse(&format!("wss://{host}")).is_ok_and(|known| known.address == url.address)
}

/// Parses `svc://name`, or the name alone.
fn name(text: &str) -> Result<String, Failure> {
    let name = text.strip_prefix("svc://").unwrap_or(text);
    let name = name.strip_suffix('/').unwrap_or(name);
    if name.is_empty() || name.contains(['/', ':']) {
        let shown = text.split('?').next().unwrap_or_default();
        return Err(
            Failure::usage(format!("`{}` is not a server", plain(shown)))
                .hint("write svc://NAME, or an address that starts with ws:// or wss://"),
        );
    }
    Ok(name.to_owned())
}

fn not_found(error: &FindError, servers: &[Server]) -> Failure {
    let failure = Failure::new(Code::Failed, plain(&error.to_string()));
    match error {
        FindError::Unknown(wanted) => {
            let failure = failure.named("webtty_server_not_found");
            let names = servers.iter().map(|server| server.target.as_str());
            match suggest::nearest(wanted, names) {
                Some(known) => failure.hint(format!(
                    "did you mean `{}`? `svc webtty list` shows them all",
                    plain(known)
                )),
                None => failure.hint("`svc webtty list` shows the servers that are online"),
            }
        }
        FindError::Ambiguous { .. } => failure
            .named("webtty_server_ambiguous")
            .hint("select one of these by its id"),
        FindError::Offline(_) => failure
            .named("webtty_server_offline")
            .hint("is `svc webtty server` running on its host?"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_with_or_without_the_scheme() {
        for text in ["svc://build", "build", "svc://build/"] {
            assert_eq!(name(text).unwrap(), "build");
        }
        for text in ["", "svc://", "https://build", "svc://a/b", "a:80"] {
            assert!(name(text).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_is_compared_with_its_port() {
        let server = |host: &str| Server {
            publish: true,
            host: host.to_owned(),
            ..Server::default()
        };
        let url = |text: &str| Url::parse(text).unwrap();
        assert!(is_at(&server("a.example"), &url("wss://a.example/x")));
        assert!(is_at(
            &server("a.example:8443"),
            &url("wss://a.example:8443")
        ));
        assert!(!is_at(&server("a.example"), &url("wss://a.example:8443")));
        assert!(!is_at(&server(""), &url("wss://a.example")));
    }
}
