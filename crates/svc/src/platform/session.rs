//! Selects the platform and the token: from flags, then the environment, then the context.

use std::path::{Path, PathBuf};

use clap::Args;
use client::{Proxies, Token};

use super::{ApiUrl, Platform};
use crate::{
    connection::{config_directory, contexts, non_empty_path, path},
    context::{self, Context},
    failure::Failure,
    proxy::ProxyFlag,
};

/// The flags of every command that calls the platform.
#[derive(Debug, Default, Args)]
#[command(next_help_heading = "Platform")]
pub(crate) struct SessionFlags {
    /// The platform, `https://host`
    #[arg(long, env = "SVC_API_URL", value_name = "URL", hide_env_values = true)]
    pub(crate) api_url: Option<String>,

    /// The token
    #[arg(long, env = "SVC_TOKEN", value_name = "TOKEN", hide_env_values = true)]
    pub(crate) token: Option<String>,

    /// CA certificates for the platform (PEM). Default: those of the system
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

/// A platform, with the matching context.
#[derive(Debug)]
pub(crate) struct Session {
    /// The platform.
    pub(crate) platform: Platform,
    /// The context, if it belongs to this platform.
    pub(crate) context: Option<Context>,
    /// The name of the context.
    pub(crate) context_name: String,
    /// The directory of contexts.
    directory: Option<PathBuf>,
}

impl SessionFlags {
    /// Opens the selected platform.
    pub(crate) fn open(&self) -> Result<Session, Failure> {
        let directory = config_directory(self.config.as_ref());
        let (context_name, context) = self.pick(directory.as_deref())?;
        let ResolvedAccess {
            address,
            token,
            ca_file,
            context,
        } = self.merge(context)?;
        Ok(Session {
            platform: Platform::new(address, token, ca_file, self.proxies()?)?,
            context,
            context_name,
            directory,
        })
    }

    /// Opens the selected platform again if platform or token differ from `before`, because a `svc
    /// login` has changed the context.
    pub(crate) fn open_again(&self, before: &Platform) -> Result<Option<Platform>, Failure> {
        let directory = config_directory(self.config.as_ref());
        let (_name, context) = self.pick(directory.as_deref())?;
        let access = self.merge(context)?;
        let token = access.token;
        if before.matches(&access.address, &token, access.ca_file.as_deref()) {
            return Ok(None);
        }
        Platform::new(access.address, token, access.ca_file, self.proxies()?).map(Some)
    }

    /// The proxies of connections to other machines.
    pub(crate) fn proxies(&self) -> Result<Proxies, Failure> {
        self.proxy.proxies()
    }

    fn pick(&self, directory: Option<&Path>) -> Result<(String, Option<Context>), Failure> {
        match directory {
            Some(directory) => context::load_effective(directory, self.context.as_deref()),
            None => Ok((context::DEFAULT.to_owned(), None)),
        }
    }

    fn merge(&self, context: Option<Context>) -> Result<ResolvedAccess, Failure> {
        let kept_url = context.as_ref().and_then(|context| context.api_url.clone());
        let Some(url) = non_empty(self.api_url.as_ref()).or(kept_url) else {
            return Err(Failure::usage("no platform is configured")
                .hint("sign in with `svc login --api-url URL`, or start one here with `svc up`"));
        };
        let address = parse(&url)?;
        // Values of a context apply only to its own platform. Its token must not be sent to another
        // one.
        let context = context.filter(|context| {
            let kept = context.api_url.as_deref().map(str::parse);
            kept.is_some_and(|kept: Result<ApiUrl, _>| kept.is_ok_and(|kept| kept == address))
        });
        let kept = context.as_ref();
        let token = match (non_empty(self.token.as_ref()), kept) {
            (Some(token), _) => Token::new(&token),
            (None, Some(context)) => context.token.token()?,
            (None, None) => {
                return Err(Failure::usage(format!("no token is given for {address}"))
                    .hint("sign in with `svc login`, or give --token (or SVC_TOKEN)"));
            }
        };
        let kept_ca = kept.and_then(|context| context.ca_file.clone());
        Ok(ResolvedAccess {
            ca_file: non_empty_path(self.ca_file.as_ref()).cloned().or(kept_ca),
            address,
            token,
            context,
        })
    }
}

impl Session {
    /// Writes the context back.
    pub(crate) fn save_context(&self, context: &Context) -> Result<(), Failure> {
        let directory = self
            .directory
            .as_ref()
            .ok_or_else(|| Failure::usage("no home directory is set").hint("give --config"))?;
        context.save(directory, &self.context_name)
    }
}

/// All settings of a connection.
#[derive(Debug)]
struct ResolvedAccess {
    address: ApiUrl,
    token: Token,
    ca_file: Option<PathBuf>,
    context: Option<Context>,
}

/// Parses the address of a platform.
pub(crate) fn parse(url: &str) -> Result<ApiUrl, Failure> {
    url.parse()
        .map_err(|error| Failure::usage(format!("--api-url `{url}` is {error}")))
}

/// An empty variable counts as unset.
fn non_empty(text: Option<&String>) -> Option<String> {
    text.filter(|text| !text.trim().is_empty()).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::context::TokenStorage;

    fn context() -> Context {
        Context {
            api_url: Some("http://localhost:8445".to_owned()),
            token: TokenStorage::Token("kept.kept.kept".to_owned()),
            ..Context::default()
        }
    }

    #[test]
    fn a_context_provides_missing_values_and_flags_override_it() {
        let access = SessionFlags::default().merge(Some(context())).unwrap();
        assert_eq!(access.address.to_string(), "http://localhost:8445");
        assert_eq!(access.token.expose(), "kept.kept.kept");
        let flags = SessionFlags {
            token: Some("a.b.c\n".to_owned()),
            ..SessionFlags::default()
        };
        assert_eq!(
            flags.merge(Some(context())).unwrap().token.expose(),
            "a.b.c"
        );
    }

    #[test]
    fn a_stored_token_is_not_sent_to_another_platform() {
        let elsewhere = |token: Option<&str>| SessionFlags {
            api_url: Some("https://svc.example.com".to_owned()),
            token: token.map(str::to_owned),
            ..SessionFlags::default()
        };
        let failure = elsewhere(None).merge(Some(context())).unwrap_err();
        assert!(failure.to_string().contains("no token"), "{failure}");
        let access = elsewhere(Some("a.b.c")).merge(Some(context())).unwrap();
        assert_eq!(access.token.expose(), "a.b.c");
        // No other value of the context is used there either.
        assert!(access.context.is_none());
        // A different spelling of the same address is the same platform.
        let same = SessionFlags {
            api_url: Some("http://LOCALHOST:8445/".to_owned()),
            ..SessionFlags::default()
        };
        assert_eq!(
            same.merge(Some(context())).unwrap().token.expose(),
            "kept.kept.kept"
        );
    }

    #[test]
    fn a_missing_platform_is_reported_with_a_next_step() {
        let failure = SessionFlags::default().merge(None).unwrap_err();
        assert!(failure.to_string().contains("svc login"), "{failure}");
    }
}
