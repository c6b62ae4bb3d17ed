//! `svc webtty list`: the terminal servers of an engine.

use clap::Parser;
use serde_json::{Number, Value};
use terminal::client::inventory::Server;

use super::target::TargetArgs;
use crate::{failure::Failure, output, output::Format};

/// The flags of `svc webtty list`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc webtty list --filter os_family=linux --filter labels.site=bern
  svc webtty list -q | xargs -I{} svc webtty exec {} -o text -- uptime")]
pub(crate) struct Args {
    /// Only matching servers: `status=online`, `os_family=linux`, `labels.k=v`, … (repeatable)
    #[arg(long = "filter", value_name = "KEY=VALUE", value_parser = pair)]
    filters: Vec<(String, String)>,

    /// Print only the addresses, one per line
    #[arg(long, short)]
    quiet: bool,

    /// Output format
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    reach: TargetArgs,
}

/// Lists the servers.
pub(super) async fn run(args: Args) -> Result<(), Failure> {
    let mut servers = args.reach.servers().await?;
    servers.sort_by(|a, b| (&a.target, &a.tunnel_id).cmp(&(&b.target, &b.tunnel_id)));
    let mut listed = Vec::new();
    for server in &servers {
        let value = serde_json::to_value(server)
            .map_err(|error| Failure::from_error("the output cannot be written as JSON", error))?;
        let field = |key: &str| match key.strip_prefix("labels.") {
            Some(label) => value.get("labels").and_then(|labels| labels.get(label)),
            None => value.get(key),
        };
        let is_meant = |(key, wanted): &(String, String)| match field(key) {
            Some(Value::String(text)) => text == wanted,
            Some(Value::Array(words)) => words.iter().any(|word| word == wanted),
            Some(Value::Bool(actual)) => wanted.parse() == Ok(*actual),
            Some(Value::Number(actual)) => {
                wanted.parse().is_ok_and(|wanted: Number| wanted == *actual)
            }
            Some(_) | None => false,
        };
        if args.filters.iter().all(is_meant) {
            listed.push(server);
        }
    }
    if args.quiet {
        return listed
            .iter()
            .try_for_each(|server| output::line(&output::plain(&server.svc_url)));
    }
    match args.output {
        Format::Json => output::json(&listed),
        Format::Text => {
            let rows: Vec<_> = listed.iter().map(|server| row(server)).collect();
            output::table(
                &["NAME", "ADDRESS", "STATUS", "CAN", "E2E", "SYSTEM"],
                &rows,
            )
        }
    }
}

fn row(server: &Server) -> Vec<String> {
    let fact = |name: &str| server.facts.get(name).map_or("", String::as_str);
    let system = match fact("os_pretty_name") {
        "" => fact("os_family"),
        pretty => pretty,
    };
    let system = format!("{system} {}", fact("arch"));
    let dashed = |text: &str| match text.trim() {
        "" => "-".to_owned(),
        text => text.to_owned(),
    };
    vec![
        server.target.clone(),
        server.svc_url.clone(),
        server.status.clone(),
        server.capabilities.join(","),
        dashed(if server.requires_seal() {
            "required"
        } else {
            ""
        }),
        dashed(&system),
    ]
}

fn pair(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(format!("`{text}` is not key=value")),
    }
}
