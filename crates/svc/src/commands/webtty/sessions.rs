//! `svc webtty sessions`: managed terminal sessions, their participants and their recordings.

mod control;
mod export;
mod join;
mod list;
mod recording;
mod replay;
mod show;
mod verify;

use ::api::webtty::{CONTROL_REQUESTS, PARTICIPANTS, SESSIONS};
use base64::Engine as _;
use clap::{Args, Subcommand};
use client::api::{self, Api, Call};
use serde_json::{Map, Value};

use crate::{
    connection::Connection,
    failure::Failure,
    id_prefix::{self, Candidate, Candidates},
    names::Names,
    output,
    output::Format,
};

/// The subcommands of `svc webtty sessions`.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// List active and ended sessions
    List(Box<list::ListArgs>),
    /// Show a session
    Show(show::ShowArgs),
    /// List the current and former participants of a session
    Participants(show::ShowArgs),
    /// List the requests for control of a session
    ControlRequests(show::RequestsArgs),
    /// Show the records of a recording
    Events(show::EventsArgs),
    /// Watch a session, and request control of it
    Join(join::JoinArgs),
    /// Request control for a participant
    RequestControl(control::RequestArgs),
    /// Answer a request for control, or revoke control
    ResolveControl(control::ResolveArgs),
    /// Remove a participant from a session
    Kick(control::KickArgs),
    /// End a session and its command
    Terminate(control::TerminateArgs),
    /// Export a recording as text, as JSON, or as a cast for players
    Export(export::ExportArgs),
    /// Play a recording in this terminal
    Replay(replay::ReplayArgs),
    /// Check that a recording was not modified
    Verify(verify::VerifyArgs),
    /// Search sessions by their displayed text
    Search(recording::SearchArgs),
    /// Delete the recording of a session permanently
    DeleteRecording(recording::DeleteArgs),
}

/// The session, and the flags to connect to its engine.
#[derive(Debug, Args)]
struct SessionArgs {
    /// Id of the session
    #[arg(value_name = "SESSION")]
    session: String,

    #[command(flatten)]
    connection: Connection,
}

/// The output format of a list or an object.
#[derive(Clone, Copy, Debug, Args)]
struct OutputArgs {
    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

/// Runs a subcommand.
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
    /// Opens the API of the engine, and completes the id of the session.
    async fn open(&mut self) -> Result<Api, Failure> {
        let api = Api::new(&self.connection.resolve()?)?;
        self.session = complete_session(&api, &self.session).await?;
        Ok(api)
    }

    /// The complete id of a participant of this session.
    async fn participant(&self, api: &Api, id: &str) -> Result<String, Failure> {
        let candidates = async {
            let people = get_list(api, &self.path(PARTICIPANTS), Map::new()).await?;
            let people = people.iter();
            Ok(people
                .map(|person| Candidate::new(cell(person, "/id"), cell(person, "/role")))
                .collect())
        };
        id_prefix::complete("participant", id, candidates).await
    }

    /// The complete id of a request for control of this session.
    async fn control_request(&self, api: &Api, id: &str) -> Result<String, Failure> {
        let candidates = async {
            let requests = get_list(api, &self.path(CONTROL_REQUESTS), Map::new()).await?;
            let requests = requests.iter();
            Ok(requests
                .map(|request| Candidate::new(cell(request, "/id"), cell(request, "/status")))
                .collect())
        };
        id_prefix::complete("control request", id, candidates).await
    }

    /// The API path of this session.
    fn path(&self, template: &str) -> String {
        api::path(template, &[("id", &self.session)])
    }

    /// The API path of an object in this session.
    fn path_of(&self, template: &str, name: &str, id: &str) -> String {
        api::path(template, &[("id", &self.session), (name, id)])
    }
}

/// The complete id of a session.
async fn complete_session(api: &Api, id: &str) -> Result<String, Failure> {
    let candidate = |session: &Value| {
        let name = format!("{}, {}", list::command(session), cell(session, "/status"));
        Candidate::new(cell(session, "/id"), name)
    };
    let candidates = async {
        let params = set_params([("limit", Some(MAX_SESSIONS.into()))]);
        let sessions = get_list(api, SESSIONS, params).await?;
        let most = usize::try_from(MAX_SESSIONS).unwrap_or(usize::MAX);
        Ok(Candidates {
            all: sessions.iter().map(candidate).collect(),
            is_truncated: sessions.len() >= most,
        })
    };
    id_prefix::complete("session", id, candidates).await
}

/// Reads one object.
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
            "the engine's response is not a list",
        )
        .named("engine_protocol")),
    }
}

/// The parameters that are set.
fn set_params<const N: usize>(fields: [(&str, Option<Value>); N]) -> Map<String, Value> {
    let given = fields.into_iter();
    given
        .filter_map(|(name, value)| Some((name.to_owned(), value?)))
        .collect()
}

/// A table cell: the text at this pointer of an object, or a dash.
fn cell(object: &Value, pointer: &str) -> String {
    match object.pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => "-".to_owned(),
        Some(other) => other.to_string(),
    }
}

/// Prints an object: unchanged as JSON, or its listed fields as text.
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

/// Prints a list: unchanged as JSON, or as a table with the names of users and servers.
async fn write_list(
    format: Format,
    list: &[Value],
    heading: &[&str],
    names: impl Future<Output = Names>,
    row: fn(&Value, &Names) -> Vec<String>,
) -> Result<(), Failure> {
    if format == Format::Json {
        return output::json(&list);
    }
    let names = names.await;
    let rows: Vec<_> = list.iter().map(|object| row(object, &names)).collect();
    output::table(heading, &rows)
}

/// Checks a time for the API.
fn time(text: &str) -> Result<String, String> {
    let at: jiff::Timestamp = text
        .parse()
        .map_err(|_invalid| format!("`{text}` is not a time; use e.g. 2026-01-02T03:04:05Z"))?;
    Ok(format!("{at:.3}"))
}

/// The largest number of sessions in a list. In a longer one, sessions need their complete ids.
const MAX_SESSIONS: u32 = 1000;

/// Decodes the base64 of the API.
fn decoded(text: &str) -> Option<Vec<u8>> {
    base64::engine::general_purpose::STANDARD.decode(text).ok()
}
