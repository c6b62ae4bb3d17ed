//! Proxies for the connections of commands: from `--proxy`, then the environment.

use clap::Args;
use client::{
    HostPort, Proxies, Proxy,
    proxy::{ParseProxyError, Route},
};
use reqwest::{ClientBuilder, Url};

use crate::{failure::Failure, process::environment};

/// The flag of every command that connects to another machine.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct ProxyFlag {
    /// Proxy for other machines: `http://[USER:PASSWORD@]HOST:PORT`, `socks5://…` or `none`. Default:
    /// `HTTPS_PROXY` or `ALL_PROXY`
    ///
    /// The exceptions in `NO_PROXY` are reached directly, and so is this machine.
    #[arg(
        long,
        env = "SVC_PROXY",
        value_name = "URL",
        hide_env_values = true,
        hide_short_help = true
    )]
    proxy: Option<String>,
}

impl ProxyFlag {
    /// The proxies that the flag or the environment selects.
    pub(crate) fn proxies(&self) -> Result<Proxies, Failure> {
        // An empty variable counts as unset.
        let given = self.proxy.as_deref().map(str::trim);
        match given.filter(|text| !text.is_empty()) {
            None => Ok(Proxies::from_environment(environment::variable)),
            Some(NONE) => Ok(Proxies::default()),
            Some(text) => {
                let proxy: Proxy = text
                    .parse()
                    .map_err(|error| Failure::usage(format!("--proxy: {error}")))?;
                let exceptions = ["no_proxy", "NO_PROXY"]
                    .into_iter()
                    .find_map(|name| environment::variable(name).filter(|list| !list.is_empty()));
                Ok(Proxies::new(proxy).with_exceptions(&exceptions.unwrap_or_default()))
            }
        }
    }
}

/// Applies the proxies to an HTTP client of one address. The client library does not read the
/// environment itself.
pub(crate) fn apply(
    builder: ClientBuilder,
    proxies: &Proxies,
    url: &Url,
) -> Result<ClientBuilder, Failure> {
    let proxy = of_url(proxies, url).map_err(|error| Failure::usage(error.to_string()))?;
    let builder = builder.no_proxy();
    let Some(proxy) = proxy else {
        return Ok(builder);
    };
    let proxy = reqwest::Proxy::all(proxy.expose_url())
        .map_err(|error| Failure::from_error("the proxy cannot be used", error.without_url()))?;
    Ok(builder.proxy(proxy))
}

/// The proxy for a URL.
pub(crate) fn of_url<'p>(
    proxies: &'p Proxies,
    url: &Url,
) -> Result<Option<&'p Proxy>, ParseProxyError> {
    let host = url.host_str().unwrap_or_default();
    let port = url.port_or_known_default().unwrap_or_default();
    // A URL without a host cannot be requested anyway.
    let Ok(address) = HostPort::new(host.trim_matches(['[', ']']), port) else {
        return Ok(None);
    };
    match proxies.route(&address, url.scheme() == "https")? {
        Route::Proxy(proxy) => Ok(Some(proxy)),
        Route::Direct(_) => Ok(None),
    }
}

/// The value of `--proxy` for direct connections.
const NONE: &str = "none";
