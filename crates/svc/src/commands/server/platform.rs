//! `svc platform`: runs the control plane from a configuration file.

mod admin;

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use clap::{Parser, Subcommand};
use control::{app::App, config::Config, keys::Rotation};
use daemon::{clock::SystemClock, config::SecretString, logs};
use jiff::Timestamp;
use serde::Serialize;

use super::{configuration, surfaces, up};
use crate::connection::{config_directory, data_directory};
use crate::context::{Context, LOCAL};
use crate::failure::{Code, Failure, chain};
use crate::output;
use crate::output::Format;
use crate::process::{descriptors, environment, replacement, signals, supervisor};

/// The flags of `svc platform`.
#[derive(Debug, Parser)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  svc platform -c platform.yaml --create-admin ada@example.com
  svc platform admin create ada@example.com -c platform.yaml
  svc platform backup -c platform.yaml platform-today.db
  svc platform restore -c platform.yaml platform-today.db"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    /// Configuration file (YAML); environment variables take precedence (`SVC_PLATFORM__BASE_URL`)
    #[arg(long = "config", short, value_name = "FILE")]
    config: Option<PathBuf>,

    /// Check the configuration, list all errors and exit
    #[arg(long)]
    check: bool,

    /// Print the JSON Schema of the configuration and exit
    #[arg(long, conflicts_with_all = ["config", "check"])]
    schema: bool,

    /// Create the operator with this email address if it does not exist, and print its password
    /// once
    #[arg(long, value_name = "EMAIL", conflicts_with_all = ["check", "schema"])]
    create_admin: Option<String>,

    /// Start a rotation of the token signing keys, print when the new key is used, and exit.
    /// Running platforms on the same database apply it
    #[arg(long, conflicts_with_all = ["check", "schema", "create_admin"])]
    rotate_keys: bool,

    /// Output format of the readiness message: only the log, or one line of JSON
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// Maintenance commands of a platform.
#[derive(Debug, Subcommand)]
enum Command {
    /// Copy the embedded database to a new file, even while the platform runs
    Backup(BackupArgs),

    /// Replace the embedded database by a backup, while the platform is stopped
    Restore(RestoreArgs),

    /// Create and list operators, also while the platform runs
    #[command(subcommand)]
    Admin(admin::Command),
}

/// The flags of `svc platform backup`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc platform backup platform-today.db
  svc platform backup -c platform.yaml platform-today.db

`svc platform restore` restores the file. The other files of the data directory, such as keys and
secrets, belong to it: keep them too.")]
struct BackupArgs {
    /// The new file, which must not exist yet
    file: PathBuf,

    #[command(flatten)]
    place: DatabaseArgs,
}

/// The flags of `svc platform restore`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc platform restore platform-today.db
  svc platform restore -c platform.yaml platform-today.db

Everything written since the backup is lost, including revocations. Engines receive the
full state again as soon as the platform runs.")]
struct RestoreArgs {
    /// The backup file, which is not modified
    file: PathBuf,

    #[command(flatten)]
    place: DatabaseArgs,
}

/// The flags that select the embedded database.
#[derive(Debug, Parser)]
struct DatabaseArgs {
    /// The configuration of the platform
    #[arg(
        long = "config",
        short,
        value_name = "FILE",
        conflicts_with = "data_dir"
    )]
    config: Option<PathBuf>,

    /// Data directory of the platform. Default: that of `svc up`
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

/// Addresses of a running platform.
#[derive(Serialize)]
struct ReadyReport {
    /// Public URL of the platform.
    base_url: String,
    /// The address of the listener.
    listen_addr: SocketAddr,
    /// The listener for plain HTTP, which redirects.
    #[serde(skip_serializing_if = "Option::is_none")]
    http_url: Option<String>,
    /// The metrics listener: metrics and health.
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics_url: Option<String>,
    /// Email address of the new operator.
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_email: Option<String>,
    /// Password of that operator. It is not shown again.
    #[serde(skip_serializing_if = "Option::is_none")]
    admin_password: Option<String>,
    /// Id of this process.
    pid: u32,
}

/// A started rotation.
#[derive(Serialize)]
struct StartedRotation {
    /// Id of the new key.
    kid: String,
    /// Start of its use (RFC 3339).
    signs_from: String,
}

/// Time for open requests at a shutdown. They are short, so a longer one hangs.
const DRAIN: Duration = Duration::from_secs(15);

/// Runs the control plane until a signal.
pub(crate) async fn run(args: Args, log: Option<&str>) -> Result<(), Failure> {
    match &args.command {
        Some(Command::Backup(args)) => return backup(args).await,
        Some(Command::Restore(args)) => return restore(args).await,
        Some(Command::Admin(command)) => return admin::run(command).await,
        None => {}
    }
    if args.schema {
        return output::line(&format!("{:#}", control::config::schema()));
    }
    let file = args.config.as_deref();
    let invalid = |errors| configuration::invalid("platform", file, errors, args.output);
    let config = Config::load(file, environment::variables()).map_err(invalid)?;
    let warnings = config
        .inspect(Timestamp::now().as_second())
        .map_err(invalid)?;
    if args.check {
        return configuration::report(&warnings);
    }
    logs::init(config.log_level, log, logs::Format::of_stderr())
        .map_err(|error| Failure::usage(error.to_string()).hint("see --log (or SVC_LOG)"))?;
    configuration::log(&warnings);
    descriptors::raise_limit();
    let shutdown = signals::listen_as_server(config.drain_period + DRAIN)?;
    let (base_url, listen) = (config.base_url.clone(), config.listen);
    let failed = |error: &dyn std::error::Error| {
        let message = format!("the platform cannot start: {}", chain(error));
        Failure::new(Code::Failed, message)
    };
    let app = control::open(config, Arc::new(SystemClock))
        .await
        .map_err(|error| failed(&error))?;
    if args.rotate_keys {
        let rotation = app.keys.rotate(&app.store, app.now()).await;
        app.store.close().await;
        let rotation =
            rotation.map_err(|error| Failure::usage(format!("--rotate-keys: {error}")))?;
        return rotating(&args, &rotation);
    }
    // Listener and routes come before the operator, whose password is printed only once.
    let mut inherited = replacement::inherited_sockets()?;
    let listener = control::listen_at(&mut inherited, listen).await;
    let listener = listener.map_err(|error| failed(&error))?;
    let routes = surfaces::routes(&app)?;
    let admin = match &args.create_admin {
        Some(email) => create_admin(&app, email).await?,
        None => None,
    };
    let sockets = (listener.into(), inherited);
    let mut running = control::start_inheriting(app, routes, sockets, shutdown.clone())
        .await
        .map_err(|error| failed(&error))?;
    let (admin_email, admin_password) = admin.unzip();
    match args.output {
        Format::Json => output::json(&ReadyReport {
            base_url,
            listen_addr: running.address(),
            http_url: running
                .http_address()
                .map(|address| format!("http://{address}")),
            metrics_url: running
                .metrics_address()
                .map(|address| format!("http://{address}")),
            admin_email,
            admin_password,
            pid: std::process::id(),
        })?,
        Format::Text => {
            for (email, password) in admin_email.iter().zip(&admin_password) {
                output::line(&format!(
                    "administrator {email} created; the password is {password}"
                ))?;
            }
        }
    }
    supervisor::notify_ready(&shutdown)?;
    supervisor::keep_listeners_open(&running.take_listeners(), running.removed_listeners())?;
    running.wait_until_stopped().await;
    Ok(())
}

/// Reports the new key, and the time from which it signs.
fn rotating(args: &Args, rotation: &Rotation) -> Result<(), Failure> {
    let (kid, signs_from) = (rotation.kid.clone(), format!("{:.0}", rotation.signs_from));
    match args.output {
        Format::Json => output::json(&StartedRotation { kid, signs_from }),
        Format::Text => output::line(&format!("the key {kid} signs from {signs_from} on")),
    }
}

async fn backup(args: &BackupArgs) -> Result<(), Failure> {
    let target = absolute(&args.file)?;
    let place = DatabaseLocation::of(&args.place)?;
    control::backup(place.database_url.as_ref(), &place.data_dir, &target)
        .await
        .map_err(|error| {
            Failure::new(
                Code::Failed,
                format!("no backup was created: {}", chain(&error)),
            )
            .hint(
                "select the platform with -c or --data-dir, and give a file that does not exist \
                   yet",
            )
        })?;
    output::message(&format!("the database was copied to {}", target.display()));
    Ok(())
}

async fn restore(args: &RestoreArgs) -> Result<(), Failure> {
    let source = absolute(&args.file)?;
    let place = DatabaseLocation::of(&args.place)?;
    control::restore(place.database_url.as_ref(), &place.data_dir, &source)
        .await
        .map_err(|error| {
            Failure::new(
                Code::Failed,
                format!("the backup was not restored: {}", chain(&error)),
            )
            .hint("stop the platform, and select it with -c or --data-dir")
        })?;
    output::message(&format!(
        "{} was restored to {}",
        source.display(),
        place.data_dir.display()
    ));
    Ok(())
}

/// Location of a platform's database.
struct DatabaseLocation {
    database_url: Option<SecretString>,
    data_dir: PathBuf,
}

impl DatabaseLocation {
    /// The location from the configuration, or else the given directory, or that of a running `svc
    /// up`, or its default.
    fn of(args: &DatabaseArgs) -> Result<Self, Failure> {
        if let Some(file) = &args.config {
            let config = Config::load(Some(file), environment::variables())
                .map_err(|error| Failure::usage(error.to_string()))?;
            return Ok(Self {
                database_url: config.database_url,
                data_dir: config.data_dir,
            });
        }
        let data_dir = args.data_dir.clone().or_else(running);
        let data_dir = data_dir.or_else(|| data_directory(None));
        Ok(Self {
            database_url: None,
            data_dir: data_dir.ok_or_else(|| {
                Failure::usage("no home directory is set").hint("give --data-dir")
            })?,
        })
    }
}

/// The data directory of a running `svc up`.
fn running() -> Option<PathBuf> {
    let given = std::env::var_os("SVC_CONFIG").map(PathBuf::from);
    let directory = config_directory(given.as_ref())?;
    let data_dir = Context::read(&directory, LOCAL).ok()??.data_dir?;
    // A killed process leaves its context behind.
    up::is_in_use(&data_dir).then_some(data_dir)
}

fn absolute(path: &Path) -> Result<PathBuf, Failure> {
    std::path::absolute(path)
        .map_err(|error| Failure::from_error(&format!("{} is not a file", path.display()), error))
}

/// Email address and password of a new operator. `None` if it exists already.
async fn create_admin(app: &App, email: &str) -> Result<Option<(String, String)>, Failure> {
    let made = control::first_admin(app, email).await.map_err(|refusal| {
        Failure::usage(format!("--create-admin: {}", refusal.problem().detail))
    })?;
    let Some(password) = made else {
        output::message(&format!("{email} has an account already"));
        return Ok(None);
    };
    let password = String::from_utf8_lossy(password.expose()).into_owned();
    Ok(Some((email.to_owned(), password)))
}
