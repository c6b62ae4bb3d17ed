//! `svc doctor`: checks the path from this machine to the engine and the platform.
//!
//! The checks run in the order in which commands depend on them. Checks that depend on a failed one
//! do not run. A check with nothing to examine is skipped and reports the reason.

#[cfg(feature = "server")]
mod certificates;
mod check;
mod network;
mod service;
mod token;
mod tunnel;
mod visitor;

#[cfg(feature = "server")]
use std::path::PathBuf;
use std::time::Duration;

use api::control::whoami::{WHOAMI, Whoami};
use clap::Parser;
use client::{
    Config, HostPort,
    api::{Api, ApiError, EngineStatus, ListQuery, PlatformLink},
};

use self::check::{Check, Report};
use crate::args::time;
use crate::connection::{Connection, config_directory};
use crate::context;
use crate::context::Context;
use crate::failure::Failure;
use crate::output::Format;
use crate::platform::{ApiUrl, Platform};

/// The flags of `svc doctor`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc doctor
  svc doctor --no-tunnel --output json")]
pub(crate) struct Args {
    /// Skip the round trip through a temporary tunnel
    #[arg(long)]
    no_tunnel: bool,

    /// Time limit of each check
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = time::duration)]
    timeout: Duration,

    /// Check the certificates of the engine with this configuration as well
    #[cfg(feature = "server")]
    #[arg(long, value_name = "FILE")]
    engine_file: Option<PathBuf>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    connection: Connection,
}

/// Runs all checks, and fails if one of them fails.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let context = args.connection.read_context();
    let config = args.connection.resolve();
    let engine = config.as_ref().ok().map(|config| config.engine.to_string());
    let mut report = Report::start(args.output, engine)?;
    report.add(check_context(&args.connection, &context))?;
    let context = context.ok().flatten();
    let check_platform = check_platform_token(&args.connection, context.as_ref());
    report.add(with_timeout(args.timeout, "control_plane_auth", check_platform).await)?;
    #[cfg(feature = "server")]
    let of = (context.as_ref(), args.engine_file.as_deref());
    #[cfg(feature = "server")]
    certificates::run_checks(of, args.timeout, &mut report).await?;
    match config {
        Ok(config) => check_engine(&config, &args, &mut report).await?,
        // On the machine of an engine no user has to be signed in.
        Err(failure) if has_engine_file(&args) => {
            report.add(Check::skip("settings", failure.message()))?;
        }
        Err(failure) => {
            report.add(Check::failed("settings", &failure))?;
        }
    }
    report.finish()
}

#[cfg(feature = "server")]
fn has_engine_file(args: &Args) -> bool {
    args.engine_file.is_some()
}

#[cfg(not(feature = "server"))]
fn has_engine_file(_: &Args) -> bool {
    false
}

/// A check that exceeds the limit has failed.
async fn with_timeout(
    limit: Duration,
    name: &'static str,
    check: impl Future<Output = Check>,
) -> Check {
    tokio::time::timeout(limit, check)
        .await
        .unwrap_or_else(|_elapsed| {
            Check::fail(name, format!("no answer in {limit:?}")).with_next_step(
                "a proxy or firewall on the path may delay it; use a longer \
                                 --timeout",
            )
        })
}

fn check_context(connection: &Connection, context: &Result<Option<Context>, Failure>) -> Check {
    match context {
        Ok(Some(_)) => {
            let directory = config_directory(connection.config.as_ref());
            let chosen = directory
                .and_then(|at| context::effective_name(&at, connection.context.as_deref()).ok());
            let name = chosen.map(|(name, _why)| name).unwrap_or_default();
            Check::pass(
                "context",
                format!("`{name}`; `svc context show` shows its contents"),
            )
        }
        Ok(None) => Check::skip(
            "context",
            "no context is selected: flags and the environment are \
                                            used",
        ),
        Err(failure) => Check::failed("context", failure),
    }
}

/// Checks that the platform of the context accepts the token.
async fn check_platform_token(connection: &Connection, context: Option<&Context>) -> Check {
    const NAME: &str = "control_plane_auth";
    let Some(context) = context else {
        return Check::skip(NAME, "no context names a platform");
    };
    let Some(address) = &context.api_url else {
        return Check::skip(NAME, "the context names no platform");
    };
    if !may_send_token(connection, context, address) {
        return Check::skip(
            NAME,
            format!("the given token belongs elsewhere, so it is not sent to {address}"),
        );
    }
    let requested = async {
        let address: ApiUrl = address
            .parse()
            .map_err(|error| Failure::usage(format!("{address} is {error}")))?;
        let platform = Platform::new(
            address,
            connection.token()?,
            context.ca_file.clone(),
            connection.proxies()?,
        )?;
        let whoami: Whoami = platform.call(WHOAMI, &[]).answer().await?;
        Ok::<_, Failure>(whoami)
    };
    match requested.await {
        Ok(whoami) => Check::pass(
            NAME,
            format!("{address} accepts the token of {}", whoami.id),
        ),
        Err(failure) => Check::failed(NAME, &failure),
    }
}

/// True if the token that commands use belongs to the platform of the context, which is at this
/// address. A token of a flag or a variable belongs to its issuer. Without one it belongs to the
/// engine that it is given for.
fn may_send_token(connection: &Connection, context: &Context, address: &str) -> bool {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.trim().is_empty());
    let Some(token) = given(&connection.token) else {
        // The context's own token.
        return true;
    };
    if let Some(issuer) = token::issuer(token.trim()) {
        let origin = |text: &str| text.parse::<ApiUrl>().ok();
        return origin(&issuer).is_some() && origin(&issuer) == origin(address);
    }
    let parsed = |text: &str| text.parse::<HostPort>().ok();
    match (given(&connection.engine), &context.engine) {
        (None, _) => true,
        (Some(engine), Some(kept)) => parsed(&engine).is_some() && parsed(&engine) == parsed(kept),
        (Some(_), None) => false,
    }
}

/// The checks that need the engine.
async fn check_engine(config: &Config, args: &Args, report: &mut Report) -> Result<(), Failure> {
    if !network::run_checks(config, args.timeout, report).await? {
        return Ok(());
    }
    let api = match Api::new(config) {
        Ok(api) => api,
        Err(error) => {
            report.add(Check::failed("engine", &error.into()))?;
            return Ok(());
        }
    };
    let status = match api.status().await {
        Ok(status) => Ok(status),
        // The engine responded, so it is reachable and rejects the token.
        Err(refused @ ApiError::Refused(_)) => Err(refused),
        Err(error) => {
            report.add(Check::failed("engine", &error.into()))?;
            return Ok(());
        }
    };
    report.add(Check::pass("engine", format!("{} answers", config.engine)))?;
    let EngineStatus { platform, .. } = match status {
        Ok(status) => status,
        Err(error) => {
            report.add(token::rejected(config, error))?;
            return Ok(());
        }
    };
    report.add(token::accepted(config))?;
    report.add(token::permissions(config))?;
    report.add(check_link(platform))?;
    let all = ListQuery::new();
    let tunnels = async { check_list("engine_tunnels", api.tunnels(&all).await) };
    report.add(with_timeout(args.timeout, "engine_tunnels", tunnels).await)?;
    let clients = async { check_list("engine_clients", api.clients(&all).await) };
    report.add(with_timeout(args.timeout, "engine_clients", clients).await)?;
    if args.no_tunnel {
        report.add(Check::skip("tunnel", "left out by --no-tunnel"))?;
        return Ok(());
    }
    tunnel::run_checks(config, args.timeout, report).await
}

/// Checks that the engine decides with current data.
fn check_link(platform: Option<PlatformLink>) -> Check {
    const NAME: &str = "control_plane";
    let Some(link) = platform else {
        return Check::skip(NAME, "the engine is not connected to a platform");
    };
    let silence = link.silence.as_secs();
    if link.is_up {
        let message =
            format!("the engine is connected to its platform (last message {silence} s ago)");
        Check::pass(NAME, message)
    } else {
        let message = format!(
            "the engine has lost its platform (last message {silence} s ago): it serves with its \
             last known state, and credentials issued or revoked since then have not taken effect"
        );
        Check::warn(NAME, message)
            .with_next_step("is the platform running, and can the engine reach it?")
    }
}

/// Checks a list that the token may not be allowed to read.
fn check_list(name: &'static str, list: Result<Vec<serde_json::Value>, ApiError>) -> Check {
    match list {
        Ok(list) => Check::pass(name, format!("{} online", list.len())),
        Err(ApiError::Refused(problem)) if problem.status == 403 => {
            Check::skip(name, "the token may not list them")
        }
        Err(error) => Check::failed(name, &error.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::{check::Status, *};

    #[test]
    fn a_given_token_is_sent_only_to_the_platform_that_it_belongs_to() {
        use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
        let issued_by = |claims: &str| {
            let [head, claims, signature] =
                [r#"{"alg":"EdDSA"}"#, claims, "sig"].map(|part| URL_SAFE_NO_PAD.encode(part));
            format!("{head}.{claims}.{signature}")
        };
        let context = Context {
            engine: Some("engine.example:443".to_owned()),
            ..Context::default()
        };
        let may = |token: Option<&str>, engine: Option<&str>| {
            let connection = Connection {
                token: token.map(str::to_owned),
                engine: engine.map(str::to_owned),
                ..Connection::default()
            };
            may_send_token(&connection, &context, "https://platform.example")
        };
        let own = issued_by(r#"{"iss":"https://platform.example/"}"#);
        let foreign = issued_by(r#"{"iss":"https://other.example"}"#);
        let secret = issued_by(r#"{"type":"app"}"#);
        let other = Some("engine.other.example:443");
        assert!(may(None, other), "the context's own token");
        assert!(may(Some(&own), other));
        assert!(!may(Some(&foreign), None));
        assert!(!may(Some(&secret), other));
        assert!(may(Some(&secret), Some("engine.example:443")));
        assert!(may(Some(&secret), None));
    }

    #[test]
    fn only_a_lost_platform_connection_is_a_warning() {
        let silence = Duration::from_secs(62);
        let link = |is_up| Some(PlatformLink::new(is_up, silence));
        assert_eq!(check_link(link(true)).status, Status::Pass);
        assert_eq!(check_link(None).status, Status::Skip);
        let lost = check_link(link(false));
        assert_eq!(lost.status, Status::Warn);
        assert!(lost.message.contains("62 s"), "{}", lost.message);
    }
}
