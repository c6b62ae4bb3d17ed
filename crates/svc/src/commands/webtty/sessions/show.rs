//! One session: its details, participants, control requests and records.

use api::webtty::{CONTROL_REQUESTS, EVENTS, PARTICIPANTS, RecordedEvent, SESSION};
use clap::Parser;
use client::api::Api;
use serde_json::{Map, Value};

use super::{
    OutputArgs, SessionArgs, cell, get, get_list, list, set_params, write_list, write_one,
};
use crate::{failure::Failure, names::Names, output, output::Format};

/// The flags of `svc webtty sessions show` and `participants`.
#[derive(Debug, Parser)]
pub(crate) struct ShowArgs {
    #[command(flatten)]
    written: OutputArgs,

    #[command(flatten)]
    on: SessionArgs,
}

/// The flags of `svc webtty sessions control-requests`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  svc webtty sessions control-requests wts_… --status pending")]
pub(crate) struct RequestsArgs {
    /// Only requests with this status
    #[arg(long, value_parser = ["pending", "granted", "refused", "revoked", "expired"])]
    status: Option<String>,

    /// Only requests of this account
    #[arg(long, value_name = "ID")]
    user_id: Option<String>,

    /// Maximum number of requests
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: Option<u32>,

    #[command(flatten)]
    written: OutputArgs,

    #[command(flatten)]
    on: SessionArgs,
}

/// The flags of `svc webtty sessions events`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  svc webtty sessions events wts_… --from-seq 1000 --limit 50")]
pub(crate) struct EventsArgs {
    /// The number of the first record
    #[arg(long, value_name = "N", default_value_t = 1)]
    from_seq: u64,

    /// Maximum number of records
    #[arg(long, value_name = "N", default_value_t = 1000)]
    limit: u64,

    #[command(flatten)]
    written: OutputArgs,

    #[command(flatten)]
    on: SessionArgs,
}

/// Shows a session.
pub(super) async fn show(mut args: ShowArgs) -> Result<(), Failure> {
    let api = args.on.open().await?;
    let mut session = get(&api, &args.on.path(SESSION), Map::new()).await?;
    if args.written.output == Format::Text
        && let Some(members) = session.as_object_mut()
    {
        let command = list::command(&Value::Object(members.clone()));
        members.insert("command".to_owned(), command.into());
    }
    write_one(args.written.output, &session, FIELDS)
}

/// Lists the participants.
pub(super) async fn participants(mut args: ShowArgs) -> Result<(), Failure> {
    let api = args.on.open().await?;
    let people = get_list(&api, &args.on.path(PARTICIPANTS), Map::new()).await?;
    let heading = ["ID", "USER", "ROLE", "HERE", "CONTROL", "SINCE", "UNTIL"];
    let names = Names::of_engine(&args.on.connection);
    let row = |person: &Value, names: &Names| {
        let yes = |pointer| match person.pointer(pointer) {
            Some(Value::Bool(true)) => "yes".to_owned(),
            _ => "-".to_owned(),
        };
        vec![
            cell(person, "/id"),
            names.of(&cell(person, "/user_id")),
            cell(person, "/role"),
            yes("/live/connected"),
            yes("/live/controller"),
            cell(person, "/attached_at"),
            cell(person, "/detached_at"),
        ]
    };
    write_list(args.written.output, &people, &heading, names, row).await
}

/// Lists requests for control.
pub(super) async fn requests(mut args: RequestsArgs) -> Result<(), Failure> {
    let api = args.on.open().await?;
    let filters = set_params([
        ("status", args.status.map(Value::String)),
        ("requester_user_id", args.user_id.map(Value::String)),
    ]);
    let filters = (!filters.is_empty()).then_some(Value::Object(filters));
    let params = set_params([("filters", filters), ("limit", args.limit.map(Value::from))]);
    let requests = get_list(&api, &args.on.path(CONTROL_REQUESTS), params).await?;
    let heading = ["ID", "STATUS", "USER", "REASON", "ASKED", "EXPIRES"];
    let names = Names::of_engine(&args.on.connection);
    let row = |request: &Value, names: &Names| {
        vec![
            cell(request, "/id"),
            cell(request, "/status"),
            names.of(&cell(request, "/requester_user_id")),
            cell(request, "/reason"),
            cell(request, "/created_at"),
            cell(request, "/expires_at"),
        ]
    };
    write_list(args.written.output, &requests, &heading, names, row).await
}

/// Shows records.
pub(super) async fn events(mut args: EventsArgs) -> Result<(), Failure> {
    let api = args.on.open().await?;
    let mut pages = Pages::new(&args.on, args.from_seq);
    let mut shown = Vec::new();
    let limit = usize::try_from(args.limit).unwrap_or(usize::MAX);
    while shown.len() < limit {
        let Some(page) = pages.next(&api, limit - shown.len()).await? else {
            break;
        };
        shown.extend(page);
    }
    match args.written.output {
        Format::Json => output::json(&shown),
        Format::Text => {
            let rows: Vec<_> = shown.iter().map(record_row).collect();
            let heading = ["SEQ", "TIME", "TYPE", "BY", "BYTES", "WHAT"];
            output::table(&heading, &rows)
        }
    }
}

/// The records of a session, page by page.
#[derive(Debug)]
pub(super) struct Pages {
    path: String,
    next: u64,
}

impl Pages {
    /// Starts at this record.
    pub(super) fn new(on: &SessionArgs, from: u64) -> Self {
        Self {
            path: on.path(EVENTS),
            next: from,
        }
    }

    /// The next records, up to this number. `None` at the end.
    pub(super) async fn next(
        &mut self,
        api: &Api,
        limit: usize,
    ) -> Result<Option<Vec<Value>>, Failure> {
        // Pages are small, because a record may contain 64 KiB.
        let params = set_params([
            ("from_seq", Some(self.next.to_string().into())),
            ("limit", Some(limit.min(PAGE).into())),
        ]);
        let page = get_list(api, &self.path, params).await?;
        let last = page.last().and_then(|record| record.get("seq"));
        let last = last
            .and_then(Value::as_str)
            .and_then(|seq| seq.parse().ok());
        // A page that does not advance would be requested forever.
        let Some(next) = last
            .and_then(|last: u64| last.checked_add(1))
            .filter(|next| *next > self.next)
        else {
            return Ok(None);
        };
        self.next = next;
        Ok(Some(page))
    }
}

fn record_row(record: &Value) -> Vec<String> {
    let kind = match record.get("stream_type").and_then(Value::as_str) {
        Some(stream) => stream.to_owned(),
        None => cell(record, "/type"),
    };
    vec![
        cell(record, "/seq"),
        cell(record, "/created_at"),
        kind,
        cell(record, "/participant_id"),
        cell(record, "/payload_length"),
        summarise(record),
    ]
}

/// A summary of a record in one line.
fn summarise(record: &Value) -> String {
    let Ok(event) = serde_json::from_value::<RecordedEvent>(record.clone()) else {
        return "-".to_owned();
    };
    let metadata = event.metadata.unwrap_or_default();
    if metadata.get("masked").and_then(Value::as_bool) == Some(true) {
        return "not shown".to_owned();
    }
    if let Some(bytes) = event.payload_plaintext.as_deref().and_then(super::decoded) {
        let text = String::from_utf8_lossy(&bytes);
        return text.escape_debug().take(MAX_SHOWN).collect();
    }
    if event.payload_ciphertext.is_some() {
        return "end-to-end encrypted".to_owned();
    }
    if let Some(size) = metadata.get("terminal_size") {
        let size = format!("{}x{}", cell(size, "/col"), cell(size, "/row"));
        let detail = metadata.get("detail").and_then(Value::as_str);
        return detail.map_or(size.clone(), |detail| format!("{size} {detail}"));
    }
    let metadata = Value::Object(metadata);
    match (cell(&metadata, "/exit_code"), cell(&metadata, "/detail")) {
        (code, detail) if code == "-" => detail,
        (code, detail) => format!("{code} {detail}"),
    }
}

const FIELDS: &[(&str, &str)] = &[
    ("id", "/id"),
    ("status", "/status"),
    ("server", "/server_id"),
    ("tunnel", "/tunnel_id"),
    ("command", "/command"),
    ("mode", "/session_mode"),
    ("recording", "/recording_mode"),
    ("encryption", "/encryption_mode"),
    ("opened by", "/initiator_user_id"),
    ("origin", "/context/origin"),
    ("agent", "/context/agent_name"),
    ("purpose", "/context/purpose"),
    ("started", "/started_at"),
    ("ended", "/ended_at"),
    ("exit code", "/exit_code"),
    ("error", "/error_message"),
    ("streams", "/live/participant_count"),
    ("controller", "/live/controller_participant_id"),
];

/// Records per response.
const PAGE: usize = 200;
/// Limit of displayed input or output of a record.
const MAX_SHOWN: usize = 120;
