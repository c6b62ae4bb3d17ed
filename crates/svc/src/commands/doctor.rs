//! `svc doctor`: what is wrong between here, the engine and the platform.
//!
//! Each check is one thing that commands need, in the order in which they need it: the first that
//! fails is the one to look at. A check that has nothing to look at is skipped, and says why.

use api::control::whoami::{WHOAMI, Whoami};
use clap::Parser;
use client::{
    Config,
    api::{Api, ApiError, Filters, PlatformLink, Standing},
};
use serde::Serialize;

use crate::{
    cli::Format,
    connection::Connection,
    context::Context,
    failure::{Code, Failure},
    output,
    platform::{ApiUrl, Platform},
};

/// The flags of `svc doctor`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:\n  svc doctor --output json")]
pub(crate) struct Args {
    /// How the findings are written
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    connection: Connection,
}

/// What was found.
#[derive(Serialize)]
struct Findings {
    /// Of this program.
    version: &'static str,
    /// The engine that was asked, `host:port`.
    #[serde(skip_serializing_if = "Option::is_none")]
    engine: Option<String>,
    checks: Vec<Check>,
    summary: Summary,
}

/// One thing that was looked at.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Check {
    name: &'static str,
    status: Status,
    message: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Pass,
    /// It works, and somebody should look at it.
    Warn,
    Fail,
    /// There was nothing to look at.
    Skip,
}

/// How many checks ended how.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct Summary {
    pass: usize,
    warn: usize,
    fail: usize,
    skip: usize,
}

/// Looks at everything, and fails when something is wrong.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let context = args.connection.read_context();
    let config = args.connection.resolve();
    let mut checks = vec![of_context(&context)];
    let context = context.ok().flatten();
    checks.push(of_platform(&args.connection, context.as_ref()).await);
    match &config {
        Ok(config) => checks.extend(of_engine(config).await),
        Err(failure) => checks.push(Check::fail("engine", failure)),
    }
    let findings = Findings {
        version: env!("CARGO_PKG_VERSION"),
        engine: config.ok().map(|config| config.engine.to_string()),
        summary: Summary::of(&checks),
        checks,
    };
    match args.output {
        Format::Json => output::json(&findings)?,
        Format::Text => output::table(
            &["CHECK", "STATUS", "MESSAGE"],
            &findings.checks.iter().map(Check::row).collect::<Vec<_>>(),
        )?,
    }
    match findings.summary.fail {
        0 => Ok(()),
        1 => Err(Failure::new(Code::Failed, "a check failed")),
        fail => Err(Failure::new(Code::Failed, format!("{fail} checks failed"))),
    }
}

fn of_context(context: &Result<Option<Context>, Failure>) -> Check {
    match context {
        Ok(Some(_)) => Check::pass("context", "there is one"),
        Ok(None) => Check::skip("context", "there is none: flags and the environment decide"),
        Err(failure) => Check::fail("context", failure),
    }
}

/// Whether the platform of the context takes the token.
async fn of_platform(connection: &Connection, context: Option<&Context>) -> Check {
    const NAME: &str = "control_plane_auth";
    let Some(context) = context else {
        return Check::skip(NAME, "no context names a platform");
    };
    let Some(address) = &context.api_url else {
        return Check::skip(NAME, "the context names no platform");
    };
    let asked = async {
        let address: ApiUrl = address
            .parse()
            .map_err(|error| Failure::usage(format!("{address} is {error}")))?;
        let platform = Platform::new(address, connection.token()?, context.ca_file.clone())?;
        let whoami: Whoami = platform.call(WHOAMI, &[]).answer().await?;
        Ok::<_, Failure>(whoami)
    };
    match asked.await {
        Ok(whoami) => Check::pass(NAME, format!("{address} knows the token of {}", whoami.id)),
        Err(failure) => Check::fail(NAME, &failure),
    }
}

/// What needs the engine. Where it does not answer, the rest has nothing to look at.
async fn of_engine(config: &Config) -> Vec<Check> {
    let api = match Api::new(config) {
        Ok(api) => api,
        Err(error) => return vec![Check::fail("engine", &error.into())],
    };
    let standing = match api.standing().await {
        Ok(standing) => Ok(standing),
        // It answered: it is the token that it does not take.
        Err(refused @ ApiError::Refused(_)) => Err(refused),
        Err(error) => return vec![Check::fail("engine", &error.into())],
    };
    let mut checks = vec![Check::pass("engine", format!("{} answers", config.engine))];
    match standing {
        Ok(Standing { platform }) => {
            checks.push(Check::pass("token", "the engine takes it"));
            checks.push(of_link(platform));
            let all = Filters::new();
            checks.push(of_list("engine_tunnels", api.tunnels(&all, None).await));
            checks.push(of_list("engine_clients", api.clients(&all, None).await));
        }
        Err(error) => checks.push(Check::fail("token", &error.into())),
    }
    checks
}

/// Whether what the engine decides by is of now.
fn of_link(platform: Option<PlatformLink>) -> Check {
    const NAME: &str = "control_plane";
    let Some(link) = platform else {
        return Check::skip(NAME, "the engine follows no platform");
    };
    let silence = link.silence.as_secs();
    if link.is_up {
        let message = format!("the engine follows its platform, which spoke {silence} s ago");
        Check::pass(NAME, message)
    } else {
        let message = format!(
            "the engine has lost its platform, which spoke {silence} s ago: it \
             serves with what it knew, and what was issued or revoked since is not in force"
        );
        Check::new(NAME, Status::Warn, message)
    }
}

/// A list that the token need not be allowed to read.
fn of_list(name: &'static str, list: Result<Vec<serde_json::Value>, ApiError>) -> Check {
    match list {
        Ok(list) => Check::pass(name, format!("{} online", list.len())),
        Err(ApiError::Refused(problem)) if problem.status == 403 => {
            Check::skip(name, "the token may not list them")
        }
        Err(error) => Check::fail(name, &error.into()),
    }
}

impl Check {
    fn new(name: &'static str, status: Status, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            name,
            status,
            message,
        }
    }

    fn pass(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Status::Pass, message)
    }

    fn skip(name: &'static str, message: impl Into<String>) -> Self {
        Self::new(name, Status::Skip, message)
    }

    fn fail(name: &'static str, failure: &Failure) -> Self {
        Self::new(name, Status::Fail, failure.text())
    }

    fn row(&self) -> Vec<String> {
        let status = match self.status {
            Status::Pass => "pass",
            Status::Warn => "warn",
            Status::Fail => "fail",
            Status::Skip => "skip",
        };
        vec![
            self.name.to_owned(),
            status.to_owned(),
            self.message.clone(),
        ]
    }
}

impl Summary {
    fn of(checks: &[Check]) -> Self {
        let count = |status| checks.iter().filter(|check| check.status == status).count();
        Self {
            pass: count(Status::Pass),
            warn: count(Status::Warn),
            fail: count(Status::Fail),
            skip: count(Status::Skip),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_lost_platform_is_a_warning_and_no_platform_is_none() {
        let silence = Duration::from_secs(62);
        let link = |is_up| Some(PlatformLink { is_up, silence });
        assert_eq!(of_link(link(true)).status, Status::Pass);
        assert_eq!(of_link(None).status, Status::Skip);
        let lost = of_link(link(false));
        assert_eq!(lost.status, Status::Warn);
        assert!(lost.message.contains("62 s"), "{}", lost.message);
        let summary = Summary::of(&[lost, of_link(None), of_link(link(true))]);
        assert_eq!(
            (summary.pass, summary.warn, summary.fail, summary.skip),
            (1, 1, 0, 1)
        );
    }
}
