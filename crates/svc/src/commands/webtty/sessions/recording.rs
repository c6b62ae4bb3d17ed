//! Search and deletion of recordings.

use api::webtty::{RECORDING, SEARCH};
use clap::Parser;
use client::api::{Api, Call};
use http::Method;
use serde_json::Value;

use super::{OutputArgs, SessionArgs, cell, complete_session, get, set_params};
use crate::{
    connection::Connection,
    failure::{Code, Failure},
    output,
    output::Format,
    prompt,
};

/// The flags of `svc webtty sessions search`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc webtty sessions search \"permission denied\"
  svc webtty sessions search deploy.sh --user-id usr_…")]
pub(crate) struct SearchArgs {
    /// Displayed text within one line; case is ignored
    #[arg(value_name = "TEXT")]
    text: String,

    /// Only in this session
    #[arg(long, value_name = "ID")]
    session_id: Option<String>,

    /// Only in sessions on this registered server
    #[arg(long, value_name = "ID")]
    server_id: Option<String>,

    /// Only in sessions of this account
    #[arg(long, value_name = "ID")]
    user_id: Option<String>,

    /// Only in sessions older than this one
    #[arg(long, value_name = "ID")]
    before: Option<String>,

    /// Maximum number of lines. Default: 50
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=200))]
    limit: Option<u32>,

    #[command(flatten)]
    written: OutputArgs,

    #[command(flatten)]
    connection: Connection,
}

/// The flags of `svc webtty sessions delete-recording`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  svc webtty sessions delete-recording wts_… --yes")]
pub(crate) struct DeleteArgs {
    /// Do not ask for confirmation
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    on: SessionArgs,
}

/// Searches the recordings.
pub(super) async fn search(args: SearchArgs) -> Result<(), Failure> {
    let api = Api::new(&args.connection.resolve()?)?;
    let session = match &args.session_id {
        Some(id) => Some(complete_session(&api, id).await?),
        None => None,
    };
    let text = |text: Option<String>| text.map(Value::String);
    let params = set_params([
        ("query", Some(args.text.into())),
        ("session_id", text(session)),
        ("server_id", text(args.server_id)),
        ("user_id", text(args.user_id)),
        ("before", text(args.before)),
        ("limit", args.limit.map(Value::from)),
    ]);
    let found = get(&api, SEARCH, params).await?;
    if args.written.output == Format::Json {
        return output::json(&found);
    }
    let hits = found.get("hits").and_then(Value::as_array);
    let heading = ["SESSION", "SEQ", "TIME", "LINE"];
    let hits = hits.map(Vec::as_slice).unwrap_or_default().iter();
    let columns = ["/session_id", "/seq", "/created_at", "/line"];
    let rows: Vec<Vec<String>> = hits
        .map(|place| columns.map(|pointer| cell(place, pointer)).into())
        .collect();
    output::table(&heading, &rows)?;
    if found.get("incomplete").and_then(Value::as_bool) == Some(true) {
        output::message("some recordings could not be read");
    }
    if let Some(next) = found.get("next").and_then(Value::as_str) {
        output::message(&format!("older sessions: --before {}", output::plain(next)));
    }
    Ok(())
}

/// Deletes the recording of a session.
pub(super) async fn delete(mut args: DeleteArgs) -> Result<(), Failure> {
    let api = args.on.open().await?;
    let what = format!("the recording of {}", args.on.session);
    if !args.yes {
        if !prompt::is_possible() {
            return Err(
                Failure::usage(format!("{what} would be deleted permanently"))
                    .hint("add --yes to confirm without a prompt"),
            );
        }
        if !prompt::confirm(&format!("Delete {what} permanently?"))? {
            return Err(Failure::new(Code::Failed, "nothing was deleted"));
        }
    }
    let path = args.on.path(RECORDING);
    api.call(Call::new(Method::DELETE, &path)).await?;
    output::message(&format!("{what} is deleted"));
    Ok(())
}
