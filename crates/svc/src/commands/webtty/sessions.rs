//! `svc webtty sessions`: managed terminals that run or ran, who takes part in them, and what was
//! recorded.

mod control;
mod export;
mod join;
mod list;
mod recording;
mod replay;
mod show;
mod verify;

use base64::Engine as _;
use clap::{Args, Subcommand};
use client::api::{self, Api, Call};
use serde_json::{Map, Value};

use crate::{connection::Connection, failure::Failure, output, output::Format};

/// What can be done with sessions.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List sessions that run, and those that ended
    List(Box<list::ListArgs>),
    /// Show a session
    Show(show::ShowArgs),
    /// List who takes part in a session, and who did
    Participants(show::ShowArgs),
    /// List the requests for control of a session
    ControlRequests(show::RequestsArgs),
    /// Show what was recorded, record by record
    Events(show::EventsArgs),
    /// Watch a session, and ask to type into it
    Join(join::JoinArgs),
    /// Ask for control for a participant
    RequestControl(control::RequestArgs),
    /// Answer a request for control, or take control back
    ResolveControl(control::ResolveArgs),
    /// Have a participant leave
    Kick(control::KickArgs),
    /// End a session, and its command with it
    Terminate(control::TerminateArgs),
    /// Write a recording as text, as JSON, or as a cast for players
    Export(export::ExportArgs),
    /// Play a recording at this terminal
    Replay(replay::ReplayArgs),
    /// Check that a recording is what was recorded
    Verify(verify::VerifyArgs),
    /// Find sessions by what was shown in them
    Search(recording::SearchArgs),
    /// Delete the recording of a session for good
    DeleteRecording(recording::DeleteArgs),
}

/// The session that is meant, and how it is reached.
#[derive(Debug, Args)]
struct SessionArgs {
    /// The session's id
    #[arg(value_name = "SESSION")]
    session: String,

    #[command(flatten)]
    connection: Connection,
}

/// How a list or a thing is written.
#[derive(Clone, Copy, Debug, Args)]
struct OutputArgs {
    /// How the answer is written
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// Runs one of them.
pub(crate) async fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::List(args) => list::list(*args).await,
        Command::Show(args) => show::show(args).await,
        Command::Participants(args) => show::participants(args).await,
        Command::ControlRequests(args) => show::requests(args).await,
        Command::Events(args) => show::events(args).await,
        Command::Join(args) => Box::pin(join::join(args)).await,
        Command::RequestControl(args) => control::request(args).await,
        Command::ResolveControl(args) => control::resolve(args).await,
        Command::Kick(args) => control::kick(args).await,
        Command::Terminate(args) => control::terminate(args).await,
        Command::Export(args) => export::export(args).await,
        Command::Replay(args) => Box::pin(replay::replay(args)).await,
        Command::Verify(args) => verify::verify(args).await,
        Command::Search(args) => recording::search(args).await,
        Command::DeleteRecording(args) => recording::delete(args).await,
    }
}

impl SessionArgs {
    fn api(&self) -> Result<Api, Failure> {
        Ok(Api::new(&self.connection.resolve()?)?)
    }

    /// A path of this session.
    fn path(&self, template: &str) -> String {
        api::path(template, &[("id", &self.session)])
    }

    /// A path of something in this session.
    fn path_of(&self, template: &str, name: &str, id: &str) -> String {
        api::path(template, &[("id", &self.session), (name, id)])
    }
}

/// Reads one thing.
async fn get(api: &Api, path: &str, params: Map<String, Value>) -> Result<Value, Failure> {
    Ok(api.call(Call::get(path).with_params(params)).await?)
}

/// Reads a list.
async fn get_list(
    api: &Api,
    path: &str,
    params: Map<String, Value>,
) -> Result<Vec<Value>, Failure> {
    match get(api, path, params).await? {
        Value::Array(list) => Ok(list),
        _ => Err(Failure::new(
            crate::failure::Code::Failed,
            "the engine's answer is no list",
        )
        .named("engine_protocol")),
    }
}

/// What is given, without what is not.
fn given<const N: usize>(fields: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let given = fields.into_iter();
    given
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// A cell of a table: the text at a place of an object, or a dash.
fn cell(object: &Value, pointer: &str) -> String {
    match object.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "-".to_owned(),
        Some(other) => other.to_string(),
    }
}

/// Writes a thing: as the engine does, or these of its fields that are there.
fn write_one(
    format: Format,
    object: &Value,
    fields: &[(&'static str, &str)],
) -> Result<(), Failure> {
    match format {
        Format::Json => output::json(object),
        Format::Text => {
            let there = |(name, pointer): &(&'static str, &str)| {
                object
                    .pointer(pointer)
                    .map(|_there| (*name, cell(object, pointer)))
            };
            output::record(&fields.iter().filter_map(there).collect::<Vec<_>>())
        }
    }
}

/// Writes a list: as the engine does, or as a table.
fn write_list(
    format: Format,
    list: &[Value],
    heading: &[&str],
    row: fn(&Value) -> Vec<String>,
) -> Result<(), Failure> {
    match format {
        Format::Json => output::json(&list),
        Format::Text => output::table(heading, &list.iter().map(row).collect::<Vec<_>>()),
    }
}

/// A time as the API takes it.
fn time(text: &str) -> Result<String, String> {
    let at: jiff::Timestamp = text
        .parse()
        .map_err(|_invalid| format!("`{text}` is no time; write 2026-01-02T03:04:05Z"))?;
    Ok(format!("{at:.3}"))
}

/// Bytes out of the API's base64.
fn decoded(text: &str) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}
