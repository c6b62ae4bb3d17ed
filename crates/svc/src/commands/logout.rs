//! `svc logout`: revokes a token at its platform and deletes it locally.

use std::path::PathBuf;

use api::control::whoami::{WHOAMI, Whoami};
use clap::Parser;
use client::Proxies;

use crate::{
    connection::{config_directory, contexts, path},
    context::{self, Context},
    failure::{Code, Failure},
    output,
    platform::{ApiUrl, AuthorizationServer, Platform, parse},
    proxy::ProxyFlag,
};

/// The flags of `svc logout`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  svc logout")]
pub(crate) struct Args {
    /// Context to delete. Default: the selected one, or else `default`
    #[arg(
        long,
        env = "SVC_CONTEXT",
        value_name = "NAME",
        hide_env_values = true,
        add = contexts()
    )]
    context: Option<String>,

    /// Configuration directory
    #[arg(long, env = "SVC_CONFIG", value_name = "DIR", hide_env_values = true, value_parser = path())]
    config: Option<PathBuf>,

    #[command(flatten)]
    proxy: ProxyFlag,
}

/// Revokes the token of a context if the platform is reachable, and deletes it locally in any case.
/// If the keyring is unavailable, the context is kept because the token is still there.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let directory = config_directory(args.config.as_ref());
    let proxies = args.proxy.proxies()?;
    // The context that `svc login` writes.
    let given = args.context.filter(|name| !name.is_empty());
    let name = given
        .or_else(|| directory.as_deref().and_then(context::selected))
        .unwrap_or_else(|| context::DEFAULT.to_owned());
    let none = || output::message(&format!("context `{name}` does not exist"));
    let Some(directory) = directory else {
        none();
        return Ok(());
    };
    // An unreadable file is removed as well, because it may contain a token.
    let stored_context = Context::read(&directory, &name);
    let end = match &stored_context {
        Ok(None) => {
            none();
            return Ok(());
        }
        Ok(Some(context)) => revoke(context, proxies).await,
        Err(_broken) => Ok(RevokeOutcome::Unknown),
    };
    // The keyring entry is removed before the file, because only the file contains its account
    // name.
    let account = stored_context.as_ref().ok().and_then(Option::as_ref);
    if let Some(account) = account.and_then(|context| context.token.account()) {
        account.delete()?;
    }
    Context::remove(&directory, &name)?;
    if context::selected(&directory).as_ref() == Some(&name) {
        context::select(&directory, None)?;
    }
    output::message(&match end {
        Ok(RevokeOutcome::Revoked) => {
            format!("context `{name}` is deleted, and its token is revoked")
        }
        Ok(RevokeOutcome::Valid) => format!(
            "context `{name}` is deleted; its token was issued elsewhere and stays valid \
             until it expires or is revoked (`svc credential revoke`)"
        ),
        Ok(RevokeOutcome::Unknown) => format!("context `{name}` is deleted"),
        Err(failure) => {
            format!("{failure}\ncontext `{name}` is deleted; its token was not revoked")
        }
    });
    Ok(())
}

/// Result of revoking a token.
enum RevokeOutcome {
    /// The token is revoked.
    Revoked,
    /// The token was not issued to the command line, so it cannot revoke it.
    Valid,
    /// There is no platform, so the token cannot be revoked.
    Unknown,
}

async fn revoke(context: &Context, proxies: Proxies) -> Result<RevokeOutcome, Failure> {
    let Some(url) = &context.api_url else {
        return Ok(RevokeOutcome::Unknown);
    };
    let address: ApiUrl = parse(url)?;
    let ca_file = context.ca_file.as_deref();
    let token = context.token.token()?;
    let server = AuthorizationServer::discover(address.clone(), ca_file, proxies.clone()).await?;
    server.revoke(&token).await?;
    // The endpoint also reports success for an unknown token (RFC 7009 section 2.2).
    let platform = Platform::new(address, token, context.ca_file.clone(), proxies)?;
    let who: Result<Whoami, _> = platform.call(WHOAMI, &[]).answer().await;
    match who.map_err(Failure::from) {
        Ok(_) => Ok(RevokeOutcome::Valid),
        Err(failure) if failure.code() == Code::Refused => Ok(RevokeOutcome::Revoked),
        Err(failure) => Err(failure),
    }
}
