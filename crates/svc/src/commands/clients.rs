//! `svc clients`: the clients that are connected to an engine.

use clap::Parser;
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

/// The flags of `svc clients`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc clients --filter agent=svc --filter os=linux
  svc clients --watch --output json")]
pub(crate) struct Args {
    /// Only matching clients: `agent=svc`, `os=linux`, `labels.k=v`, … (repeatable)
    #[arg(long = "filter", value_name = "KEY=VALUE", value_parser = filters::parse)]
    filters: Vec<(String, Option<String>)>,

    /// Maximum number of clients to list
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

/// Lists the clients.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let config = args.connection.resolve()?;
    let api = Api::new(&config)?;
    let filters = filters::collect(&args.filters);
    if args.watch {
        let names = Names::of_engine(&args.connection).await;
        return watch::watch(api, &KIND, filters, args.output, &names).await;
    }
    let query = ListQuery::new()
        .with_filters(filters)
        .with_limit(args.limit);
    let clients = match api.clients(&query).await {
        Ok(clients) => clients,
        Err(error) => return Err(token_refusal::explain(error.into(), &config).await),
    };
    if args.output == Format::Json {
        return output::json(&clients);
    }
    let names = Names::of_engine(&args.connection).await;
    let rows: Vec<_> = clients.iter().map(|client| row(client, &names)).collect();
    output::table(KIND.heading, &rows)
}

const KIND: ListKind = ListKind {
    list: "clients",
    event_prefix: "client.",
    matches: |_, _| true,
    heading: &["ID", "STATUS", "AGENT", "VERSION", "OS", "USER"],
    row,
};

fn row(client: &Value, names: &Names) -> Vec<String> {
    let field = |key: &str| client.get(key).and_then(Value::as_str).unwrap_or("-");
    let mut cells = ["id", "status", "agent", "version", "os"]
        .map(|key| field(key).to_owned())
        .to_vec();
    cells.push(names.of(field("user_id")));
    cells
}
