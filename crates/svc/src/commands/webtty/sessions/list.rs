//! `svc webtty sessions list`: lists sessions.

use api::webtty::SESSIONS;
use clap::{Args, Parser};
use client::api::{Api, ListQuery};
use serde_json::{Map, Value};
use types::webtty::SessionStatus;

use super::{OutputArgs, cell, get_list, set_params, time, write_list};
use crate::connection::Connection;
use crate::engine_client::watch;
use crate::engine_client::watch::ListKind;
use crate::failure::Failure;
use crate::names::Names;
use crate::output;

/// The flags of `svc webtty sessions list`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc webtty sessions list --status active
  svc webtty sessions list --watch
  svc webtty sessions list --origin agent --started-from 2026-01-02T00:00:00Z -o json")]
pub(crate) struct ListArgs {
    #[command(flatten)]
    filter: Filter,

    /// Maximum number of sessions
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: Option<u32>,

    /// Keep running and show every change: a live table, or one line per change when piped
    #[arg(long, short, conflicts_with = "limit")]
    watch: bool,

    #[command(flatten)]
    written: OutputArgs,

    #[command(flatten)]
    connection: Connection,
}

/// Filters of sessions.
#[derive(Debug, Default, Args)]
pub(super) struct Filter {
    /// Only on this registered server
    #[arg(long, value_name = "ID")]
    server_id: Option<String>,

    /// Only through this tunnel
    #[arg(long, value_name = "ID")]
    tunnel_id: Option<String>,

    /// Only opened by this account
    #[arg(long, value_name = "ID")]
    user_id: Option<String>,

    /// Only in this group
    #[arg(long, value_name = "ID")]
    group_id: Option<String>,

    /// Only with this origin: human, agent, api, automation, ci, scheduled-job
    #[arg(long, value_name = "ORIGIN")]
    origin: Option<String>,

    /// Only with this status: opening, active, closing, closed, errored
    #[arg(long, value_name = "STATUS", value_parser = status)]
    status: Option<SessionStatus>,

    /// Only started at this time or later (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = time)]
    started_from: Option<String>,

    /// Only started at this time or earlier (RFC 3339)
    #[arg(long, value_name = "TIME", value_parser = time)]
    started_to: Option<String>,
}

impl Filter {
    /// The filters as the API expects them. Empty if there are none.
    pub(super) fn to_json(&self) -> Map<String, Value> {
        let text = |text: &Option<String>| text.clone().map(Value::String);
        set_params([
            ("server_id", text(&self.server_id)),
            ("tunnel_id", text(&self.tunnel_id)),
            ("user_id", text(&self.user_id)),
            ("group_id", text(&self.group_id)),
            ("origin", text(&self.origin)),
            ("status", self.status.map(|status| status.as_str().into())),
            ("started_from", text(&self.started_from)),
            ("started_to", text(&self.started_to)),
        ])
    }
}

/// Lists the sessions.
pub(super) async fn list(args: ListArgs) -> Result<(), Failure> {
    let api = Api::new(&args.connection.resolve()?)?;
    let filters = args.filter.to_json();
    if args.watch {
        let names = read_names(&api, &args.connection).await;
        return watch::watch(api, &KIND, filters, args.written.output, &names).await;
    }
    let filters = (!filters.is_empty()).then_some(Value::Object(filters));
    let params = set_params([("filters", filters), ("limit", args.limit.map(Value::from))]);
    let sessions = get_list(&api, SESSIONS, params).await?;
    let format = args.written.output;
    let names = read_names(&api, &args.connection);
    write_list(format, &sessions, KIND.heading, names, row).await
}

/// The names of users, registered servers and tunnels.
async fn read_names(api: &Api, connection: &Connection) -> Names {
    let mut names = Names::of_engine(connection).await;
    if output::is_terminal()
        && let Ok(tunnels) = api.tunnels(&ListQuery::new()).await
    {
        names.add_tunnels(&tunnels);
    }
    names
}

const KIND: ListKind = ListKind {
    list: watch::SESSIONS,
    event_prefix: "webtty.session.",
    matches: keeps,
    heading: &[
        "ID", "STATUS", "SERVER", "USER", "COMMAND", "STREAMS", "STARTED",
    ],
    row,
};

fn row(session: &Value, names: &Names) -> Vec<String> {
    let server = session.get("server_id").map_or_else(
        || cell(session, "/tunnel_id"),
        |_| cell(session, "/server_id"),
    );
    vec![
        cell(session, "/id"),
        cell(session, "/status"),
        names.of(&server),
        names.of(&cell(session, "/initiator_user_id")),
        command(session),
        cell(session, "/live/participant_count"),
        cell(session, "/started_at"),
    ]
}

/// The running command. It is empty for the login shell.
pub(super) fn command(session: &Value) -> String {
    match session.pointer("/command_meta/command") {
        Some(Value::String(command)) if command.is_empty() => "shell".to_owned(),
        _ => cell(session, "/command_meta/command"),
    }
}

/// True if a changed session still matches the filters. Without a status filter, ended sessions do
/// not match.
fn keeps(session: &Value, filters: &Map<String, Value>) -> bool {
    let is_over = matches!(cell(session, "/status").as_str(), "closed" | "errored");
    let at: Option<jiff::Timestamp> = cell(session, "/started_at").parse().ok();
    let time = |value: &Value| value.as_str().and_then(|text| text.parse().ok());
    let matches = |(name, value): (&String, &Value)| match name.as_str() {
        "started_from" => at >= time(value),
        "started_to" => at <= time(value),
        "user_id" => session.get("initiator_user_id") == Some(value),
        "origin" => session.pointer("/context/origin") == Some(value),
        name => session.get(name) == Some(value),
    };
    filters.iter().all(matches) && (filters.contains_key("status") || !is_over)
}

fn status(text: &str) -> Result<SessionStatus, String> {
    text.parse().map_err(|_unknown| {
        let known: Vec<_> = SessionStatus::ALL.iter().map(|one| one.as_str()).collect();
        format!("valid values: {}", known.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_are_converted_to_api_filters() {
        let filter = Filter {
            user_id: Some("usr_1".to_owned()),
            status: Some(SessionStatus::Active),
            started_from: Some(time("2026-01-02T04:04:05+01:00").unwrap()),
            ..Filter::default()
        };
        assert_eq!(
            Value::Object(filter.to_json()).to_string(),
            r#"{"started_from":"2026-01-02T03:04:05.000Z","status":"active","user_id":"usr_1"}"#
        );
        let session = |status, user: &str| {
            serde_json::json!({
                "id": "wts_1", "status": status, "initiator_user_id": user,
                "started_at": "2026-01-02T03:04:05.678Z",
            })
        };
        assert!(keeps(&session("active", "usr_1"), &filter.to_json()));
        assert!(!keeps(&session("closed", "usr_1"), &filter.to_json()));
        assert!(!keeps(&session("active", "usr_2"), &filter.to_json()));
        assert!(keeps(&session("active", "usr_2"), &Map::new()));
        assert!(!keeps(&session("closed", "usr_2"), &Map::new()));
        assert!(time("yesterday").is_err());
        assert!(status("running").unwrap_err().contains("active"));
    }
}
