//! `svc clients`: who is connected now.

use clap::Parser;
use client::api::Api;
use serde_json::Value;

use crate::{cli::Format, connection::Connection, failure::Failure, filters, output};

/// The flags of `svc clients`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Only those that match: `agent=svc`, `os=linux`, `labels.k=v`, … (repeatable)
    #[arg(long = "filter", value_name = "KEY=VALUE", value_parser = filters::parse)]
    filters: Vec<(String, Option<String>)>,

    /// At most so many
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: Option<u32>,

    /// How the list is written
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    connection: Connection,
}

/// Lists the clients.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let api = Api::new(&args.connection.resolve()?)?;
    let clients = api
        .clients(&filters::collect(&args.filters), args.limit)
        .await?;
    match args.output {
        Format::Json => output::json(&clients),
        Format::Text => output::table(
            &["ID", "STATUS", "AGENT", "VERSION", "OS", "USER"],
            &clients.iter().map(row).collect::<Vec<_>>(),
        ),
    }
}

fn row(client: &Value) -> Vec<String> {
    ["id", "status", "agent", "version", "os", "user_id"]
        .map(|key| {
            client
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or("-")
                .to_owned()
        })
        .into()
}
