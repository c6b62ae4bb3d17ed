//! Selects the engine and the token: from flags, then the environment, then the context.

use std::path::PathBuf;

use clap::{
    Args,
    builder::{OsStringValueParser, TypedValueParser},
};
use clap_complete::{ArgValueCandidates, CompletionCandidate};
use client::{Config, HostPort, Proxies, Token, Tokens, Trust};

use crate::{
    context::{self, Context},
    failure::Failure,
    proxy::ProxyFlag,
};

/// The flags of every command that connects to an engine.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Connection")]
pub(crate) struct Connection {
    /// The engine, `host:port`
    #[arg(
        long,
        env = "SVC_ENGINE",
        value_name = "HOST:PORT",
        hide_env_values = true
    )]
    pub(crate) engine: Option<String>,

    /// The token
    #[arg(long, env = "SVC_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,

    /// CA certificates for the engine (PEM). Default: those of the system
    #[arg(long, env = "SVC_CA_FILE", value_name = "FILE", hide_env_values = true, value_parser = path())]
    pub(crate) ca_file: Option<PathBuf>,

    #[command(flatten)]
    pub(crate) proxy: ProxyFlag,

    /// Context to take missing values from
    #[arg(
        long,
        env = "SVC_CONTEXT",
        value_name = "NAME",
        hide_env_values = true,
        add = contexts()
    )]
    pub(crate) context: Option<String>,

    /// Configuration directory
    #[arg(long, env = "SVC_CONFIG", value_name = "DIR", hide_env_values = true, value_parser = path())]
    pub(crate) config: Option<PathBuf>,
}

impl Connection {
    /// The configuration for an agent or an API client.
    pub(crate) fn resolve(&self) -> Result<Config, Failure> {
        self.resolve_with(None)
    }

    /// The configuration for an agent that uses these tokens, if there are any, instead of the token
    /// of flags, environment and context.
    pub(crate) fn resolve_with(&self, tokens: Option<Tokens>) -> Result<Config, Failure> {
        let context = self.read_context()?;
        self.merge(context, tokens)
    }

    /// The token that commands use. Does not need an engine.
    pub(crate) fn token(&self) -> Result<Token, Failure> {
        let given = self.token.as_deref().map(str::trim);
        if let Some(token) = given.filter(|token| !token.is_empty()) {
            return Ok(Token::new(token));
        }
        let context = self.read_context()?;
        // The token is not sent, so the engine and platform it belongs to do not matter.
        let context = context.ok_or_else(|| {
            Failure::usage("no token is configured")
                .named("no_token")
                .hint("give --token (or SVC_TOKEN), or sign in with `svc login`")
        })?;
        context.token.token()
    }

    /// The context with the default values, if there is one.
    pub(crate) fn read_context(&self) -> Result<Option<Context>, Failure> {
        let Some(directory) = config_directory(self.config.as_ref()) else {
            return Ok(None);
        };
        let (_name, context) = context::load_effective(&directory, self.context.as_deref())?;
        Ok(context)
    }

    /// The proxies of connections to other machines.
    pub(crate) fn proxies(&self) -> Result<Proxies, Failure> {
        self.proxy.proxies()
    }

    /// The given CA file.
    pub(crate) fn ca_file(&self) -> Option<&PathBuf> {
        non_empty_path(self.ca_file.as_ref())
    }

    fn merge(&self, context: Option<Context>, tokens: Option<Tokens>) -> Result<Config, Failure> {
        // An empty variable counts as unset.
        let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        let kept_engine = context.as_ref().and_then(|context| context.engine.clone());
        let Some(engine) = given(&self.engine).or(kept_engine) else {
            let failure = Failure::usage("no engine is configured").named("no_engine");
            return Err(match &context {
                // After a login, the platform has the engine of each project.
                Some(_) => {
                    failure.hint("select a project with `svc project use <name>`, or give --engine")
                }
                None => failure.hint("start one with `svc up`, or give --engine (or SVC_ENGINE)"),
            });
        };
        let engine = parse_engine(&engine)?;
        // Values of a context apply only to its own engine. Its token must not be sent to another
        // one.
        let context = context.filter(|context| {
            let kept = context.engine.as_deref().map(parse_engine);
            kept.is_some_and(|kept| kept.is_ok_and(|kept| kept == engine))
        });
        let (kept_token, kept_ca) = context
            .map(|context| (context.token, context.ca_file))
            .unzip();
        let kept_token = kept_token.filter(|kept| !kept.is_none());
        let tokens = match (tokens, given(&self.token), kept_token) {
            (Some(tokens), ..) => tokens,
            (None, Some(token), _) => Token::new(&token).into(),
            (None, None, Some(kept)) => kept.token()?.into(),
            (None, None, None) => {
                return Err(Failure::usage("no token is given")
                    .named("no_token")
                    .hint("give --token (or SVC_TOKEN), or sign in with `svc login`"));
            }
        };
        let mut config = Config::new(engine, tokens);
        config.proxies = self.proxies()?;
        if let Some(path) = self.ca_file().cloned().or(kept_ca.flatten()) {
            config.trust = Trust::CaFile(path);
        }
        "svc".clone_into(&mut config.details.agent);
        env!("CARGO_PKG_VERSION").clone_into(&mut config.details.version);
        Ok(config)
    }
}

/// Parses a path that may be empty. clap's own parser rejects an empty path.
pub(crate) fn path() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// An empty variable counts as unset.
pub(crate) fn non_empty_path(path: Option<&PathBuf>) -> Option<&PathBuf> {
    path.filter(|path| !path.as_os_str().is_empty())
}

/// Shell completion of context names.
pub(crate) fn contexts() -> ArgValueCandidates {
    ArgValueCandidates::new(|| {
        let given = std::env::var_os("SVC_CONFIG").map(PathBuf::from);
        let names = config_directory(given.as_ref())
            .and_then(|directory| context::names(&directory).ok())
            .unwrap_or_default();
        names.into_iter().map(CompletionCandidate::new).collect()
    })
}

/// The directory of contexts: the given one, or `svc` in the XDG configuration directory.
pub(crate) fn config_directory(given: Option<&PathBuf>) -> Option<PathBuf> {
    non_empty_path(given)
        .cloned()
        .or_else(|| xdg("XDG_CONFIG_HOME", ".config"))
}

/// The data directory of `svc up`.
pub(crate) fn data_directory(given: Option<&PathBuf>) -> Option<PathBuf> {
    given
        .cloned()
        .or_else(|| xdg("XDG_DATA_HOME", ".local/share"))
}

/// XDG Base Directory Specification: a variable with an absolute path, or else a default below the
/// home directory.
fn xdg(variable: &str, in_home: &str) -> Option<PathBuf> {
    let absolute = |path: PathBuf| path.is_absolute().then_some(path);
    let base = std::env::var_os(variable)
        .map(PathBuf::from)
        .and_then(absolute)
        .or_else(|| {
            std::env::var_os("HOME")
                .map(PathBuf::from)
                .and_then(absolute)
                .map(|home| home.join(in_home))
        })?;
    Some(base.join("svc"))
}

fn parse_engine(text: &str) -> Result<HostPort, Failure> {
    text.parse()
        .map_err(|error| Failure::usage(format!("--engine `{text}` is {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::TokenStorage;

    fn context() -> Context {
        Context {
            engine: Some("engine.localhost:8443".to_owned()),
            token: TokenStorage::Token("kept.kept.kept".to_owned()),
            ca_file: Some("ca.pem".into()),
            ..Context::default()
        }
    }

    #[test]
    fn a_context_provides_missing_values() {
        let config = Connection::default().merge(Some(context()), None).unwrap();
        assert_eq!(config.engine.to_string(), "engine.localhost:8443");
        assert_eq!(config.tokens.fixed().unwrap().expose(), "kept.kept.kept");
        assert!(matches!(config.trust, Trust::CaFile(_)));
    }

    #[test]
    fn flags_override_the_context() {
        let given = Connection {
            token: Some("a.b.c".to_owned()),
            ..Connection::default()
        };
        assert_eq!(
            given
                .merge(Some(context()), None)
                .unwrap()
                .tokens
                .fixed()
                .unwrap()
                .expose(),
            "a.b.c"
        );
    }

    #[test]
    fn a_stored_token_is_not_sent_to_another_engine() {
        let elsewhere = Connection {
            engine: Some("engine.example:443".to_owned()),
            ..Connection::default()
        };
        let failure = elsewhere.merge(Some(context()), None).unwrap_err();
        assert!(failure.to_string().contains("no token"), "{failure}");
    }

    #[test]
    fn a_missing_engine_is_reported_with_a_next_step() {
        let failure = Connection::default().merge(None, None).unwrap_err();
        assert!(failure.to_string().contains("svc up"), "{failure}");
        let signed_in = Context {
            engine: None,
            ..context()
        };
        let failure = Connection::default()
            .merge(Some(signed_in), None)
            .unwrap_err();
        assert!(failure.to_string().contains("project use"), "{failure}");
    }
}
