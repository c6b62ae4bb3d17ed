//! `svc events`: the live stream, one JSON object a line (EV-1).

use std::time::Duration;

use clap::Parser;
use client::{
    api::{Api, ApiError, Event, Filters},
    backoff::Backoff,
};
use serde_json::Value;

use crate::{
    connection::Connection,
    failure::{Failure, chain},
    filters, output, signals,
};

/// The flags of `svc events`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// Only these types (comma-separated): `state.initial`, `tunnel.created`, …
    #[arg(long, value_name = "TYPE", value_delimiter = ',')]
    events: Vec<String>,

    /// Only clients that match (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = filters::parse)]
    client_filter: Vec<(String, Option<String>)>,

    /// Only tunnels that match (repeatable)
    #[arg(long, value_name = "KEY=VALUE", value_parser = filters::parse)]
    tunnel_filter: Vec<(String, Option<String>)>,

    /// End when the stream ends, instead of following it again
    #[arg(long)]
    no_retry: bool,

    #[command(flatten)]
    connection: Connection,
}

/// Follows the stream until a signal, a refusal, or the end of whoever reads.
///
/// After a loss it follows again; each time begins with a snapshot (`state.initial`), so a reader
/// misses nothing that still matters.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let api = Api::new(&args.connection.resolve()?)?;
    let shutdown = signals::listen(Duration::ZERO)?;
    tokio::select! {
        result = follow(&api, &args) => result,
        () = shutdown.drain().cancelled() => Ok(()),
    }
}

async fn follow(api: &Api, args: &Args) -> Result<(), Failure> {
    let clients = narrowed(&args.client_filter);
    let tunnels = narrowed(&args.tunnel_filter);
    let mut backoff = Backoff::default();
    loop {
        let (seen, error) = match api.events(clients.as_ref(), tunnels.as_ref()).await {
            Ok(mut events) => {
                let mut seen = false;
                loop {
                    match events.next().await {
                        Ok(Some(event)) => {
                            seen = true;
                            if wanted(&event.value, &args.events) {
                                print(&event)?;
                            }
                        }
                        Ok(None) => break (seen, None),
                        Err(error) => break (seen, Some(error)),
                    }
                }
            }
            Err(error) => (false, Some(error)),
        };
        if args.no_retry || error.as_ref().is_some_and(|error| !error.is_transient()) {
            return error.map_or(Ok(()), |error| Err(error.into()));
        }
        if seen {
            backoff.reset();
        }
        let wait = backoff.next_wait(client::backoff::random());
        output::message(&format!(
            "{}; following again in {wait:.1?}",
            reason(error.as_ref())
        ));
        tokio::time::sleep(wait).await;
    }
}

/// One line, in the engine's own order of fields where it wrote one line itself.
fn print(event: &Event) -> Result<(), Failure> {
    if event.text.contains('\n') {
        output::json(&event.value)
    } else {
        output::line(&event.text)
    }
}

/// No filter of a kind is none, not one that everything matches: the engine checks what it gets.
fn narrowed(pairs: &[(String, Option<String>)]) -> Option<Filters> {
    (!pairs.is_empty()).then(|| filters::collect(pairs))
}

fn wanted(event: &Value, types: &[String]) -> bool {
    let name = event
        .get("type")
        .and_then(Value::as_str)
        .unwrap_or_default();
    types.is_empty() || types.iter().any(|wanted| wanted == name)
}

fn reason(error: Option<&ApiError>) -> String {
    error.map_or_else(
        || "the engine ended the stream".to_owned(),
        |error| chain(error),
    )
}
