//! What the process says about itself: text on a terminal, JSON lines elsewhere, on stderr.

use std::io::{self, IsTerminal};
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::util::SubscriberInitExt;

/// How much is logged; a level includes those before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// What failed and needs somebody.
    Error,
    /// What was unexpected and was dealt with.
    Warn,
    /// What an operator wants to know of a healthy process.
    #[default]
    Info,
    /// What a developer wants to know; names peers and addresses.
    Debug,
}

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// For people.
    Text,
    /// One JSON object a line, for machines.
    Json,
}

impl Format {
    /// Text when stderr is a terminal, else JSON.
    pub fn of_stderr() -> Self {
        if io::stderr().is_terminal() {
            Self::Text
        } else {
            Self::Json
        }
    }
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// The filter (the value of `SVC_LOG`) cannot be read.
    #[error("the log filter {filter:?} cannot be read: {source}")]
    Filter {
        /// The text as given.
        filter: String,
        /// What is wrong with it.
        source: tracing_subscriber::filter::ParseError,
    },
    /// Somebody set it up before.
    #[error("logging is already set up in this process")]
    AlreadySet,
}

/// Sets up logging for the whole process, once. `filter` is the value of `SVC_LOG` where it is
/// set (`debug`, or `info,engine=debug`) and stands above `level`.
///
/// # Errors
/// The filter cannot be read, or logging was set up before.
pub fn init(level: Level, filter: Option<&str>, format: Format) -> Result<(), LogsError> {
    let filter = parse_filter(level, filter)?;
    subscriber(filter, format, io::stderr)
        .try_init()
        .map_err(|_| LogsError::AlreadySet)
}

/// `level` for our crates; the protocol libraries at most at info, since their debug lines are
/// one per frame.
fn parse_filter(level: Level, filter: Option<&str>) -> Result<EnvFilter, LogsError> {
    let text = filter
        .filter(|filter| !filter.is_empty())
        .unwrap_or(match level {
            Level::Error => "error",
            Level::Warn => "warn",
            Level::Info => "info",
            Level::Debug => "debug,h2=info,hyper=info,hyper_util=info,rustls=info,reqwest=info",
        });
    EnvFilter::from_str(text).map_err(|source| LogsError::Filter {
        filter: text.to_owned(),
        source,
    })
}

fn subscriber<W>(
    filter: EnvFilter,
    format: Format,
    writer: W,
) -> Box<dyn tracing::Subscriber + Send + Sync>
where
    W: for<'a> MakeWriter<'a> + Send + Sync + 'static,
{
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer);
    match format {
        Format::Text => Box::new(builder.with_ansi(true).finish()),
        Format::Json => Box::new(builder.json().flatten_event(true).finish()),
    }
}
