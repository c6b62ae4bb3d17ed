//! `svc platform admin`: the operators of an installation.
//!
//! The commands use the database, so they work before the first start of the platform and while it
//! runs.

use std::{path::PathBuf, sync::Arc};

use clap::{Args, Subcommand};
use control::{app::App, config::Config};
use daemon::clock::SystemClock;
use serde::Serialize;

use super::configuration;
use crate::{
    failure::{Code, Failure, chain},
    output,
    output::Format,
    process::environment,
};

/// The subcommands of `svc platform admin`.
#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Create an operator, and print its password once
    #[command(
        after_help = "Example:\n  svc platform admin create ada@example.com -c platform.yaml"
    )]
    Create(CreateArgs),
    /// List the operators
    #[command(after_help = "Example:\n  svc platform admin list -c platform.yaml --output json")]
    List(Common),
}

/// The flags of `svc platform admin create`.
#[derive(Debug, Args)]
pub(super) struct CreateArgs {
    /// Email address of the operator
    email: String,

    #[command(flatten)]
    common: Common,
}

/// The flags of both subcommands.
#[derive(Debug, Args)]
pub(super) struct Common {
    /// Configuration file (YAML); environment variables take precedence (`SVC_PLATFORM__BASE_URL`)
    #[arg(long = "config", short, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// A new operator.
#[derive(Serialize)]
struct NewOperator<'a> {
    email: &'a str,
    /// It is not shown again.
    password: &'a str,
}

/// An operator in the list.
#[derive(Serialize)]
struct ListedOperator {
    id: String,
    email: String,
    name: String,
    status: &'static str,
    created_at: String,
}

pub(super) async fn run(command: &Command) -> Result<(), Failure> {
    match command {
        Command::Create(args) => create(args).await,
        Command::List(common) => list(common).await,
    }
}

async fn create(args: &CreateArgs) -> Result<(), Failure> {
    let app = args.common.open().await?;
    let made = control::first_admin(&app, &args.email).await;
    app.store.close().await;
    let email = args.email.as_str();
    let made = made.map_err(|refusal| {
        let message = format!("the operator was not created: {}", refusal.problem().detail);
        Failure::usage(output::plain(&message))
    })?;
    let Some(password) = made else {
        let message = format!("{email} has an account already");
        return Err(Failure::new(Code::Conflict, message)
            .hint("`svc platform admin list` shows the operators"));
    };
    let password = String::from_utf8_lossy(password.expose());
    match args.common.output {
        Format::Json => output::json(&NewOperator {
            email,
            password: &password,
        }),
        Format::Text => output::line(&format!(
            "administrator {email} created; the password is {password}"
        )),
    }
}

async fn list(common: &Common) -> Result<(), Failure> {
    let app = common.open().await?;
    let operators = control::operators(&app).await;
    app.store.close().await;
    let operators = operators.map_err(|refusal| {
        let message = format!("the operators cannot be read: {}", refusal.problem().detail);
        Failure::new(Code::Failed, output::plain(&message))
    })?;
    let operators: Vec<_> = operators
        .into_iter()
        .map(|user| ListedOperator {
            id: user.id.to_string(),
            email: user.email,
            name: user.name,
            status: user.status.as_str(),
            created_at: format!("{:.0}", user.created_at),
        })
        .collect();
    match common.output {
        Format::Json => output::json(&operators),
        Format::Text => {
            let rows: Vec<_> = operators
                .into_iter()
                .map(|one| {
                    let status = one.status.to_owned();
                    vec![one.email, one.name, status, one.created_at, one.id]
                })
                .collect();
            output::table(&["EMAIL", "NAME", "STATUS", "CREATED", "ID"], &rows)
        }
    }
}

impl Common {
    async fn open(&self) -> Result<Arc<App>, Failure> {
        let file = self.config.as_deref();
        let config = Config::load(file, environment::variables())
            .map_err(|errors| configuration::invalid("platform", file, errors, self.output))?;
        let opened = control::open(config, Arc::new(SystemClock)).await;
        opened.map_err(|error| {
            let message = format!("the platform's data cannot be opened: {}", chain(&error));
            Failure::new(Code::Failed, message)
        })
    }
}
