//! Recordings as a whole: finding one by what was shown, and deleting one.

use api::webtty::{RECORDING, SEARCH};
use clap::Parser;
use client::api::Api;
use http::Method;
use serde_json::{Map, Value};

use super::{On, Written, cell, get_list, given, list::Filter, write_list};
use crate::{
    connection::Connection,
    failure::{Code, Failure},
    output, prompt,
};

/// The flags of `svc webtty sessions search`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc webtty sessions search \"permission denied\"
  svc webtty sessions search deploy.sh --user-id usr_… --started-from 2026-01-02T00:00:00Z")]
pub(crate) struct SearchArgs {
    /// What was shown, in a line; upper and lower case are the same
    #[arg(value_name = "TEXT")]
    text: String,

    #[command(flatten)]
    filter: Filter,

    /// At most so many places
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: Option<u32>,

    #[command(flatten)]
    written: Written,

    #[command(flatten)]
    connection: Connection,
}

/// The flags of `svc webtty sessions delete-recording`.
#[derive(Debug, Parser)]
#[command(after_help = "Example:
  svc webtty sessions delete-recording wts_… --yes")]
pub(crate) struct DeleteArgs {
    /// Do not ask
    #[arg(long)]
    yes: bool,

    #[command(flatten)]
    on: On,
}

/// Finds places in recordings.
pub(super) async fn search(args: SearchArgs) -> Result<(), Failure> {
    let api = Api::new(&args.connection.resolve()?)?;
    let filters = args.filter.to_json();
    let filters = (!filters.is_empty()).then_some(Value::Object(filters));
    let params = given([
        ("text", Some(args.text.into())),
        ("filters", filters),
        ("limit", args.limit.map(Value::from)),
    ]);
    let found = get_list(&api, SEARCH, params).await?;
    let heading = ["SESSION", "SEQ", "TIME", "LINE"];
    write_list(args.written.output, &found, &heading, |place| {
        let columns = ["/session_id", "/seq", "/created_at", "/line"];
        columns.map(|pointer| cell(place, pointer)).into()
    })
}

/// Deletes the recording of a session.
pub(super) async fn delete(args: DeleteArgs) -> Result<(), Failure> {
    let what = format!("the recording of {}", args.on.session);
    if !args.yes {
        if !prompt::is_possible() {
            return Err(Failure::usage(format!("{what} would be deleted for good"))
                .hint("add --yes where nobody can be asked"));
        }
        if !prompt::confirm(&format!("Delete {what} for good?"))? {
            return Err(Failure::new(Code::Failed, "nothing was deleted"));
        }
    }
    let api = args.on.api()?;
    let path = args.on.path(RECORDING);
    api.call(Method::DELETE, &path, Map::new(), None).await?;
    output::message(&format!("{what} is deleted"));
    Ok(())
}
