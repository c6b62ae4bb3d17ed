//! `svc tunnels`: the current tunnels of an engine.

mod close;

use clap::{Parser, Subcommand};
use client::api::{Api, ListQuery};
use serde_json::Value;

use crate::args::filters;
use crate::connection::Connection;
use crate::engine_client::watch;
use crate::engine_client::watch::ListKind;
use crate::failure::Failure;
use crate::names::Names;
use crate::output;
use crate::output::Format;
use crate::token_refusal;

/// The flags of `svc tunnels`.
#[derive(Debug, Parser)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  svc tunnels --filter publish=true --filter labels.site=bern
  svc tunnels --watch
  svc tunnels --output json | jq -r '.[].host'
  svc tunnels close web"
)]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Option<Command>,

    #[command(flatten)]
    list: ListArgs,
}

/// The subcommands. Without one, the tunnels are listed.
#[derive(Debug, Subcommand)]
enum Command {
    /// Close tunnels, whichever agent has opened them
    Close(close::CloseArgs),
}

/// The flags of the list.
#[derive(Debug, Parser)]
struct ListArgs {
    /// Only matching tunnels: `name=web`, `labels.k=v`, `publish=true`, … (repeatable)
    #[arg(long = "filter", value_name = "KEY=VALUE", value_parser = filters::parse)]
    filters: Vec<(String, Option<String>)>,

    /// Maximum number of tunnels to list
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: Option<u32>,

    /// Keep running and show every change: a live table, or one line per change when piped
    #[arg(long, short, conflicts_with = "limit")]
    watch: bool,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    connection: Connection,
}

/// Lists the tunnels, or runs a subcommand.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        None => list(args.list).await,
        Some(Command::Close(close)) => close::close(close).await,
    }
}

async fn list(args: ListArgs) -> Result<(), Failure> {
    let config = args.connection.resolve()?;
    let api = Api::new(&config)?;
    let filters = filters::collect(&args.filters);
    if args.watch {
        return watch::watch(api, &KIND, filters, args.output, &Names::default()).await;
    }
    let query = ListQuery::new()
        .with_filters(filters)
        .with_limit(args.limit);
    let tunnels = match api.tunnels(&query).await {
        Ok(tunnels) => tunnels,
        Err(error) => return Err(token_refusal::explain(error.into(), &config).await),
    };
    match args.output {
        Format::Json => output::json(&tunnels),
        Format::Text => output::table(KIND.heading, &tunnels.iter().map(cells).collect::<Vec<_>>()),
    }
}

const KIND: ListKind = ListKind {
    list: "tunnels",
    event_prefix: "tunnel.",
    matches: |_, _| true,
    heading: &["NAME", "PROTOCOL", "ADDRESS", "STATUS", "ID"],
    row: |tunnel, _names| cells(tunnel),
};

fn cells(tunnel: &Value) -> Vec<String> {
    let field = |key: &str| {
        tunnel
            .get(key)
            .and_then(Value::as_str)
            .unwrap_or("-")
            .to_owned()
    };
    vec![
        field("name"),
        field("protocol"),
        address(tunnel),
        field("status"),
        field("id"),
    ]
}

/// The public address of a tunnel, or the one for `svc dial`.
pub(super) fn address(tunnel: &Value) -> String {
    let text = |key: &str| tunnel.get(key).and_then(Value::as_str);
    let is_published = tunnel.get("publish").and_then(Value::as_bool);
    match text("host").or_else(|| text("hostname")) {
        Some(host) if is_published.unwrap_or(true) => host.to_owned(),
        _ => {
            let name = text("name").or_else(|| text("id"));
            format!("svc://{}", name.unwrap_or("-"))
        }
    }
}
