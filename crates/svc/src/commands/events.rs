//! `svc events`: the live stream, one JSON object per line, or posted to a receiver (EV-1). On a
//! terminal, each event is a line of text.

mod line;
mod receiver;
mod webhook;

use std::time::Duration;

use clap::{Parser, ValueEnum};
use client::api::{Api, Event, Filters, Transport};
use credentials::webhook::WebhookSecret;
use jiff::tz::TimeZone;
use reqwest::Url;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use types::event::EventType;

use self::{
    receiver::{Receiver, target},
    webhook::{Post, Signer, secret},
};
use crate::args::{filters, suggest};
use crate::connection::Connection;
use crate::engine_client::feed::{Feed, FeedItem};
use crate::failure::Failure;
use crate::names::Names;
use crate::output;
use crate::output::Format;
use crate::process::signals;

/// The flags of `svc events`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc events --events tunnel.created,tunnel.deleted --tunnels labels.site=bern
  svc events --forward-to http://localhost:4000/events
  svc events --webhook --webhook-secret whsec_… --forward-to http://localhost:4000/in")]
pub(crate) struct Args {
    /// Only these types (comma-separated): `state.initial`, `tunnel.created`, …
    #[arg(long, value_name = "TYPE", value_delimiter = ',', value_parser = event_type)]
    events: Vec<EventType>,

    /// Only clients that match; same syntax as `svc clients --filter` (repeatable)
    #[arg(long = "clients", visible_alias = "client-filter", value_name = "KEY=VALUE", value_parser = filters::parse)]
    clients: Vec<(String, Option<String>)>,

    /// Only tunnels that match; same syntax as `svc tunnels --filter` (repeatable)
    #[arg(long = "tunnels", visible_alias = "tunnel-filter", value_name = "KEY=VALUE", value_parser = filters::parse)]
    tunnels: Vec<(String, Option<String>)>,

    /// Transport of the event stream
    #[arg(long, value_enum, default_value_t)]
    transport: TransportOption,

    /// POST each event to this URL, in order, with retries
    #[arg(long, value_name = "URL", value_parser = target)]
    forward_to: Option<Url>,

    /// Accept any certificate of the receiver
    #[arg(long, requires = "forward_to")]
    forward_insecure_tls: bool,

    /// Send events like webhooks: only their types, signed
    #[arg(long)]
    webhook: bool,

    /// Signing secret. Default: a new one, printed to stderr
    #[arg(long, env = "SVC_WEBHOOK_SECRET", value_name = "whsec_…", hide_env_values = true, requires = "webhook", value_parser = secret)]
    webhook_secret: Option<WebhookSecret>,

    /// Print `{headers, body}` of each signed request to stdout
    #[arg(long, requires = "webhook")]
    include_webhook_headers: bool,

    /// Also send the headers under the SDKs' names
    #[arg(long, requires = "webhook")]
    compat: bool,

    /// Exit when the stream ends, instead of reconnecting
    #[arg(long)]
    no_retry: bool,

    /// Output format. Default: text on a terminal; on a pipe, events are JSON
    #[arg(long, short, value_enum)]
    output: Option<Format>,

    #[command(flatten)]
    connection: Connection,
}

/// The transports under their command-line names.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
enum TransportOption {
    /// Server-sent events.
    #[default]
    Sse,
    /// A WebSocket.
    Websocket,
}

/// Follows the stream until a signal, a refusal, or the end of the reader.
///
/// After a loss it reconnects. Each connection starts with a snapshot (`state.initial`), so a
/// reader misses nothing that still matters.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let feed = Feed {
        api: Api::new(&args.connection.resolve()?)?,
        transport: match args.transport {
            TransportOption::Sse => Transport::Sse,
            TransportOption::Websocket => Transport::WebSocket,
        },
        clients: to_filters(&args.clients),
        tunnels: to_filters(&args.tunnels),
        sessions: None,
        reconnect: !args.no_retry,
    };
    let proxies = args.connection.proxies()?;
    let shows_text = match args.output {
        Some(format) => format == Format::Text,
        None => output::is_terminal(),
    };
    let teller = EventHandler {
        events: args.events,
        signer: args
            .webhook
            .then(|| Signer::new(args.webhook_secret, args.compat))
            .transpose()?,
        receiver: args
            .forward_to
            .map(|url| Receiver::new(url, args.forward_insecure_tls, &proxies))
            .transpose()?,
        shows_requests: args.include_webhook_headers,
        format: args.output.unwrap_or_default(),
        names: if shows_text {
            Names::of_engine(&args.connection).await
        } else {
            Names::default()
        },
        shows_text,
    };
    let shutdown = signals::listen(DELIVERY_TIMEOUT)?;
    let drain = shutdown.drain();
    tokio::select! {
        told = feed.run_with(async |news| teller.handle(news, drain).await) => told,
        // A delivery in flight is finished first.
        () = async {
            drain.cancelled().await;
            if teller.receiver.is_some() {
                shutdown.hard().cancelled().await;
            }
        } => Ok(()),
    }
}

/// Handles each event: filters it, and prints or posts it.
struct EventHandler {
    events: Vec<EventType>,
    signer: Option<Signer>,
    receiver: Option<Receiver>,
    shows_requests: bool,
    format: Format,
    /// True to print events as text instead of JSON.
    shows_text: bool,
    /// Names for this text.
    names: Names,
}

impl EventHandler {
    async fn handle(
        &self,
        mut news: mpsc::Receiver<FeedItem>,
        drain: &CancellationToken,
    ) -> Result<(), Failure> {
        while let Some(Some(said)) = drain.run_until_cancelled(news.recv()).await {
            match said {
                FeedItem::Event(event) if self.wants(&event) => self.event(&event).await?,
                // A reader without the snapshot gets this message instead, as a sign that the
                // stream works.
                FeedItem::Event(event) if is_snapshot(&event) => output::message("following"),
                FeedItem::Event(_) => {}
                FeedItem::Lost { reason, wait } => {
                    output::message(&format!("{reason}; reconnecting in {wait:.1?}"));
                }
            }
        }
        Ok(())
    }

    fn wants(&self, event: &Event) -> bool {
        let name = event.value.get("type").and_then(Value::as_str);
        let kind: Option<EventType> = name.and_then(|name| name.parse().ok());
        let is_asked_for =
            self.events.is_empty() || kind.is_some_and(|kind| self.events.contains(&kind));
        // Webhooks have fewer types than the stream.
        is_asked_for && (self.signer.is_none() || kind.is_some_and(webhook::is_delivered))
    }

    async fn event(&self, event: &Event) -> Result<(), Failure> {
        let post = Post::of(event)?;
        let headers = match &self.receiver {
            Some(receiver) => {
                let delivered = receiver.deliver(&post, self.signer.as_ref()).await?;
                if !self.shows_requests {
                    return match self.format {
                        Format::Json => output::json(&delivered),
                        Format::Text => output::line(&delivered.to_string()),
                    };
                }
                delivered.headers
            }
            None if self.shows_requests => self.signer.as_ref().map(|signer| signer.sign(&post)),
            None if self.shows_text && self.signer.is_none() => {
                return line::lines(&event.value, &TimeZone::system(), &self.names)
                    .iter()
                    .try_for_each(|text| output::line(text));
            }
            None => return output::line(&post.body),
        };
        let headers: Map<String, Value> = headers
            .unwrap_or_default()
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value.into()))
            .collect();
        output::json(&json!({ "headers": headers, "body": post.body }))
    }
}

fn is_snapshot(event: &Event) -> bool {
    let name = event.value.get("type").and_then(Value::as_str);
    name == Some(EventType::StateInitial.as_str())
}

/// An empty list is no filter at all. It is not a filter that matches everything, because the
/// engine checks each filter that it gets.
fn to_filters(pairs: &[(String, Option<String>)]) -> Option<Filters> {
    (!pairs.is_empty()).then(|| filters::collect(pairs))
}

fn event_type(text: &str) -> Result<EventType, String> {
    text.parse().map_err(|_unknown| {
        let names = EventType::ALL.iter().map(|known| known.as_str());
        match suggest::nearest(text, names.clone()) {
            Some(known) => format!("unknown event type; did you mean `{known}`?"),
            None => format!("valid types: {}", names.collect::<Vec<_>>().join(", ")),
        }
    })
}

/// Time limit of a delivery in flight after the first signal.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(10);
