//! `svc forward`: publish a service through an engine, or offer it for dialling.

mod engine_name;
#[cfg(unix)]
mod folder;
#[cfg(not(unix))]
#[path = "forward/no_folder.rs"]
mod folder;
mod inspect;
mod listening;
pub(crate) mod panel;
mod qr;
mod report;
mod source;

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use clap::{Parser, ValueHint};
use client::{
    Agent, CloseReason, Connection as StreamEvent, Destination, ForwardOptions, HostHeader,
    HostPort, Properties, ProxyProtocol, ServiceName, Status, Target, properties::Protocol,
    tap::Tap,
};
use daemon::shutdown::Shutdown;
use inspector::{Inspector, RecordingMode, Subscription, Update};
use tokio::{
    runtime::Handle,
    sync::{mpsc, watch},
};
use transport::Workers;

use self::{
    folder::Folder,
    inspect::{Inspect, Inspection, next_ended},
    panel::{Feeds, Panel, PanelEnd, PanelInfo, Rows, screen},
    report::Report,
    source::Source,
};
use crate::args::properties::{
    AddressNotice, SERVICE, TunnelFlags, apply_service_names, pair, preferred_hostname,
    unsupported_for_rewrite,
};
use crate::args::time;
use crate::client_key::ClientKey;
use crate::connection::Connection;
use crate::failure::{Code, Failure};
use crate::output;
use crate::output::Format;
use crate::process::{agent_metrics::AgentMetrics, descriptors, lifecycle::LifecycleFlags};
use crate::token_refusal;

/// The flags of `svc forward`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc forward 3000 --name web                     # a web service on this machine
  svc forward 5173 --host-header rewrite          # a dev server that only accepts `localhost`
  svc forward ./dist --spa                        # the files of a folder
  svc forward 3000 --token-auth --trusted-ips 192.0.2.0/24
  svc forward 5432 --bytestream --name db         # private: svc dial svc://db
  svc forward 22 --tcp                            # a port of its own

See `svc help forward` for labels, more access rules, TLS and protocols.")]
pub(crate) struct Args {
    /// The service: `PORT`, `HOST:PORT`, `https://HOST:PORT`, `unix:/PATH` or a folder
    #[arg(value_name = "TARGET", value_hint = ValueHint::AnyPath)]
    source: Source,

    #[command(flatten)]
    tunnel: TunnelFlags,

    /// Host header that the service receives: `rewrite` for its own
    ///
    /// An Origin or a WebDAV Destination with the public host is rewritten too, and redirects to the
    /// service's host lead to the public one. For services that use HTTP/1.1. With an https://
    /// target, the agent opens the TLS session instead of the engine.
    #[arg(long, value_name = "HOST", help_heading = SERVICE)]
    host_header: Option<HostHeader>,

    /// For an https:// target: server name (SNI) of the TLS session. Default: the host of
    /// --host-header, or else of the target
    #[arg(long, value_name = "NAME", help_heading = SERVICE, hide_short_help = true)]
    server_name: Option<ServiceName>,

    /// Send the visitor's address to the service: start each connection with a PROXY protocol
    /// header of this version (v1 or v2). For tls, tcp and private tunnels; an http service reads
    /// X-Forwarded-For
    #[arg(long, value_name = "VERSION", help_heading = SERVICE, hide_short_help = true)]
    proxy_protocol: Option<ProxyProtocol>,

    /// For a folder: also serve names that start with a dot
    #[arg(long, help_heading = SERVICE, hide_short_help = true)]
    hidden: bool,

    /// For a folder: serve index.html for paths without a file
    #[arg(long, help_heading = SERVICE)]
    spa: bool,

    /// Label of this client (repeatable)
    #[arg(long = "client-label", value_name = "KEY=VALUE", value_parser = pair, help_heading = CONNECTION, hide_short_help = true)]
    client_labels: Vec<(String, String)>,

    /// Heartbeat interval; three silent intervals (at least 10 s) mean a lost connection
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = heartbeat, help_heading = CONNECTION, hide_short_help = true)]
    heartbeat: Duration,

    /// Also show the address as a QR code
    #[arg(long, help_heading = DISPLAY)]
    qr: bool,

    /// Print plain lines instead of the panel
    #[arg(long, help_heading = DISPLAY)]
    no_panel: bool,

    /// Show requests in a local web page at ADDRESS or PORT, or `off`
    ///
    /// Default: 127.0.0.1:4040, or the next free port.
    #[arg(
        long,
        value_name = "ADDRESS",
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "on",
        help_heading = DISPLAY
    )]
    inspect: Option<Inspect>,

    /// Output format
    #[arg(long, short, value_enum, default_value_t, help_heading = DISPLAY)]
    output: Format,

    #[command(flatten)]
    key: ClientKey,

    #[command(flatten)]
    lifecycle: LifecycleFlags,

    #[command(flatten)]
    connection: Connection,
}

/// Forwards until a signal or a refusal. Network failures are reported, and the tunnel is restored.
#[expect(
    clippy::too_many_lines,
    reason = "starts the parts in their order, and one loop over their events"
)]
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let workers = Workers::per_core("svc-agent")
        .map_err(|error| Failure::from_error("cannot start the worker threads", error))?;
    // The folder is served until this guard is dropped.
    let (target, _folder) = args.target(workers.handles())?;
    let mut properties = args.tunnel.properties(&target)?;
    let destination = args.destination(target.clone(), &mut properties)?;
    let takes_host =
        unsupported_for_rewrite(&properties).is_none() && args.inspect != Some(Inspect::Off);
    let mut config = args.connection.resolve_with(args.key.tokens()?)?;
    config.labels = args.client_labels.iter().cloned().collect();
    config.heartbeat = args.heartbeat;
    config.runtimes = workers.handles().to_vec();
    let engine = config.engine.clone();
    descriptors::raise_limit();
    let shutdown = args.lifecycle.listen_for_signals()?;
    let health = args.lifecycle.health().await?;

    let named = args.source.to_string();
    let inspection =
        Inspection::start(args.inspect, args.output, &target, &named, &properties).await?;
    // A folder is served by this process.
    let probed = matches!(args.source, Source::Service(_)).then(|| target.clone());
    let mut absent = std::pin::pin!(async {
        match &probed {
            Some(target) => listening::warning(target).await,
            None => None,
        }
    });
    let mut is_probed = false;
    let agent = Agent::start(config.clone())?;
    health.metrics().follow(&agent);
    let preferred = preferred_hostname(&properties);
    let mut tunnel = match &preferred {
        Some(hostname) => agent.open_at(properties, hostname),
        None => agent.open(properties),
    };
    let mut status = tunnel.status();
    let mut report = Report::new(args.output, named.clone(), engine.clone());
    let mut address = AddressNotice::new(preferred);
    report.set_inspector(inspection.url());
    let streams = Streams::default();
    let (observer, mut stream_events) = streams.observe(health.metrics());
    let mut interactive = InteractiveOutput::default();
    let mut tap = inspection.tap();
    let mut requests = match args.output {
        Format::Json => inspection.subscribe(),
        Format::Text => None,
    };
    if args.output == Format::Text && !args.no_panel && screen::is_available() {
        let feeds = Feeds {
            status: tunnel.status(),
            round_trip: agent.round_trip(),
            streams: stream_events,
            dropped_streams: streams.dropped,
            requests: inspection.subscribe(),
            knows_host_header: args.host_header.is_some(),
            show_code: args.qr,
        };
        let panel = start_panel(named, &engine, inspection.url(), feeds, shutdown.clone())?;
        interactive.panel = Some(panel);
        stream_events = mpsc::channel(1).1;
    } else {
        report = report.with_code(args.qr);
        if args.output == Format::Text && args.host_header.is_none() && takes_host {
            let (advice, own) = Advice::start(&inspection, target);
            interactive.advice = Some(advice);
            tap = tap.or(own);
        }
    }
    let mut forwarding = ForwardOptions::to(destination).with_observer(observer);
    if let Some(tap) = tap {
        forwarding = forwarding.with_tap(tap);
    }
    let forwarding = tunnel.forward(forwarding);
    let stopping = async {
        shutdown.drain().cancelled().await;
        health.set_ready(false);
        close(&agent, &shutdown).await;
    };
    tokio::pin!(forwarding, stopping);
    let mut over = false;
    let mut was_online = false;
    loop {
        tokio::select! {
            biased;
            () = &mut stopping => {
                interactive.end().await?;
                inspection.end().await;
                return report.closed(&CloseReason::Asked);
            }
            Ok(()) = status.changed() => {
                let now = status.borrow_and_update().clone();
                let is_stopping = shutdown.drain().is_cancelled();
                let is_online = matches!(now, Status::Online(_));
                health.metrics().set_tunnels(usize::from(is_online));
                health.set_ready(is_online && !is_stopping);
                inspection.status(&now);
                was_online |= matches!(now, Status::Online(_));
                let failure = match &now {
                    Status::Disconnected { error, .. } => Failure::of_disconnection(&agent, error),
                    _ => None,
                };
                // A certificate or an address that was wrong from the start does not become right.
                // One that has worked may be replaced at this moment.
                let mistake = match &failure {
                    Some((_, false)) if !was_online => tokio::select! {
                        mistake = engine_name::mistake(&agent, &config) => mistake,
                        () = shutdown.drain().cancelled() => None,
                    },
                    _ => None,
                };
                let failure = match (failure, mistake) {
                    (Some((failure, true)), None) | (Some(_), Some(failure)) if !was_online => {
                        interactive.end().await?;
                        inspection.end().await;
                        agent.close(Duration::ZERO).await;
                        return Err(failure);
                    }
                    (failure, _) => failure.map(|(failure, _lasting)| failure),
                };
                if let Some(notice) = address.text(&now) {
                    output::message(&notice);
                }
                if interactive.is_plain() {
                    report.status(&now, failure.as_ref())?;
                }
            }
            Some(stream) = stream_events.recv() => report.stream(&stream)?,
            request = next_ended(&mut requests) => Report::request(&request)?,
            () = interactive.changed() => {}
            // After the address, which the warning is about.
            warning = &mut absent, if is_online(&status) && !is_probed => {
                is_probed = true;
                if let Some(warning) = warning {
                    output::message(&warning);
                }
            }
            closed = &mut forwarding, if !over => {
                over = true;
                // Accepted visitors are still served during the shutdown.
                if !shutdown.drain().is_cancelled() {
                    interactive.end().await?;
                    report.closed(&closed)?;
                    // A tunnel that another agent took over still serves the visitors that it
                    // accepted.
                    tokio::select! {
                        _drained = agent.close(shutdown.deadline()) => {}
                        () = shutdown.drain().cancelled() => {
                            agent.close(Duration::ZERO).await;
                        }
                    }
                    return Err(token_refusal::explain(closed_failure(&closed), &config).await);
                }
            }
        }
    }
}

/// Starts the panel with a list of requests if they are inspected, and of streams otherwise.
fn start_panel(
    target: String,
    engine: &HostPort,
    inspector: Option<String>,
    feeds: Feeds,
    shutdown: Shutdown,
) -> Result<Panel, Failure> {
    let rows = match feeds.requests {
        Some(_) => Rows::Requests,
        None => Rows::Streams,
    };
    let info = PanelInfo {
        target,
        engine: engine.to_string(),
        inspector,
        rows,
    };
    Panel::start(info, feeds, shutdown)
}

/// Drains the agent, until the user asks for an immediate stop.
async fn close(agent: &Agent, shutdown: &Shutdown) {
    tokio::select! {
        _drained = agent.close(shutdown.deadline()) => {}
        () = shutdown.hard().cancelled() => drop(agent.close(Duration::ZERO).await),
    }
}

impl Args {
    /// Returns the target of the streams, and starts to serve a folder.
    fn target(&self, runtimes: &[Handle]) -> Result<(Target, Option<Folder>), Failure> {
        let path = match &self.source {
            Source::Service(_) if self.hidden || self.spa => {
                return Err(Failure::usage("--hidden and --spa need a folder")
                    .hint("give a folder as the target: svc forward ./dist"));
            }
            Source::Service(target) => return Ok((target.clone(), None)),
            Source::Folder(path) => path,
        };
        let options = folder::Options {
            hidden: self.hidden,
            spa: self.spa,
        };
        let runtime = runtimes.first().cloned().unwrap_or_else(Handle::current);
        let folder = Folder::serve(path, &options, &runtime)?;
        Ok((Target::Unix(folder.socket()), Some(folder)))
    }

    /// Applies the options that describe visitors to the service, as far as the protocol allows.
    fn destination(
        &self,
        target: Target,
        properties: &mut Properties,
    ) -> Result<Destination, Failure> {
        let is_http = properties.protocol == Some(Protocol::Http);
        let has_tls = properties.upstream_tls == Some(true);
        if matches!(self.source, Source::Folder(_)) && (!is_http || has_tls) {
            return Err(Failure::usage(
                "a folder is served over http, without TLS on this machine",
            )
            .hint("leave out the conflicting options"));
        }
        // A PROXY header names one visitor, so the connection must belong to that visitor.
        if self.proxy_protocol.is_some() && is_http {
            return Err(Failure::usage(
                "--proxy-protocol is not for http tunnels: a connection to the service carries \
                 the requests of many visitors",
            )
            .hint("read X-Forwarded-For in the service, or give --tls, --tcp or --bytestream"));
        }
        if self.qr && self.output == Format::Json {
            return Err(Failure::usage("--qr cannot be combined with --output json")
                .hint("the member `forwarding` has the address"));
        }
        if self.qr && (!is_http || properties.publish == Some(false)) {
            return Err(Failure::usage(
                "--qr is for public http tunnels: a phone cannot open other addresses",
            ));
        }
        let mut destination = Destination::new(target);
        destination.proxy_protocol = self.proxy_protocol;
        let (host, name) = (self.host_header.clone(), self.server_name.clone());
        let option = if host.is_some() && name.is_none() {
            "--host-header"
        } else {
            "--server-name"
        };
        apply_service_names(properties, &mut destination, host, name).map_err(|error| {
            Failure::usage(format!("{option}: {error}"))
                .hint("omit the option and add the public name to the service's allowed hosts")
        })?;
        Ok(destination)
    }
}

/// Reports streams through a bounded queue, so that a slow terminal does not delay visitors.
/// Streams that do not fit are counted.
#[derive(Default)]
struct Streams {
    dropped: Arc<AtomicU64>,
}

impl Streams {
    fn observe(
        &self,
        metrics: &AgentMetrics,
    ) -> (impl Fn(StreamEvent) + use<>, mpsc::Receiver<StreamEvent>) {
        let (stream_events, streams) = mpsc::channel(STREAM_QUEUE_CAPACITY);
        let lost = Arc::clone(&self.dropped);
        let counter = metrics.streams();
        let observer = move |stream| {
            counter.count(&stream);
            // If the queue is full, the line is dropped. The stream is not affected.
            if stream_events.try_send(stream).is_err() {
                lost.fetch_add(1, Ordering::Relaxed);
            }
        };
        (observer, streams)
    }
}

/// Panel or advice that is shown beside the report.
#[derive(Default)]
struct InteractiveOutput {
    panel: Option<Panel>,
    advice: Option<Advice>,
}

impl InteractiveOutput {
    /// True if the report's lines are the visible output.
    fn is_plain(&self) -> bool {
        self.panel.is_none()
    }

    /// Waits for the next message and prints it. Cancel safe.
    async fn changed(&mut self) {
        match self {
            Self {
                panel: Some(panel), ..
            } => {
                let shown = panel.wait_for_end().await;
                self.panel = None;
                if let Some(error) = shown.failure {
                    output::message(&format!("the panel failed: {error}; the tunnel stays open"));
                }
            }
            Self {
                advice: Some(advice),
                ..
            } => {
                if let Some(text) = advice.next().await {
                    output::message(&format!("hint: {text}"));
                }
                self.advice = None;
            }
            Self { .. } => std::future::pending().await,
        }
    }

    /// Restores the terminal, and prints a summary of the panel.
    async fn end(&mut self) -> Result<(), Failure> {
        let Some(panel) = self.panel.take() else {
            return Ok(());
        };
        match panel.end().await {
            Some(PanelEnd { total, failed, .. }) if total > 0 => {
                let s = if total == 1 { "" } else { "s" };
                let failed = match failed {
                    0 => String::new(),
                    failed => format!(", {failed} failed"),
                };
                output::line(&format!("{total} visit{s}{failed}"))
            }
            _ => Ok(()),
        }
    }
}

/// Checks the first responses of a service for signs that it rejects the public host name.
struct Advice {
    requests: Subscription,
    remaining_responses: u32,
}

impl Advice {
    /// Creates the tap that the check needs, unless requests are inspected already. Dropping the
    /// tap ends the recording.
    fn start(inspection: &Inspection, target: Target) -> (Self, Option<Arc<dyn Tap>>) {
        let of = |requests| Self {
            requests,
            remaining_responses: MAX_CHECKED_RESPONSES,
        };
        if let Some(requests) = inspection.subscribe() {
            return (of(requests), None);
        }
        let own = Inspector::new(RecordingMode::WhileSubscribed);
        (of(own.subscribe()), Some(own.tap(target)))
    }

    /// Advice to print. `None` after the last response to check.
    async fn next(&mut self) -> Option<String> {
        while self.remaining_responses > 0 {
            let Update::Exchange(summary) = self.requests.next().await? else {
                continue;
            };
            if let Some(hint) = summary.hint {
                return Some(hint.text());
            }
            if summary.duration.is_some() {
                self.remaining_responses -= 1;
            }
        }
        None
    }
}

/// True while visitors can reach the tunnel.
fn is_online(status: &watch::Receiver<Status>) -> bool {
    matches!(&*status.borrow(), Status::Online(_))
}

/// The failure for a tunnel that closed without a request of the user.
pub(crate) fn closed_failure(closed: &CloseReason) -> Failure {
    match closed {
        CloseReason::Refused(refusal) => refusal.into(),
        CloseReason::Asked => Failure::new(Code::Failed, "the agent ended"),
        _ => Failure::new(Code::Failed, "the engine closed the tunnel").hint(
            "see the engine's log for the reason; run the command again to reopen the \
                   tunnel",
        ),
    }
}

/// Parses an interval that the protocol allows.
pub(crate) fn heartbeat(text: &str) -> Result<Duration, String> {
    let interval = time::duration(text)?;
    if (MIN_HEARTBEAT..=MAX_HEARTBEAT).contains(&interval) {
        Ok(interval)
    } else {
        Err("a heartbeat interval is 100ms to 5m".to_owned())
    }
}

/// A service is near, and the warning is of no use later.
const PROBE: Duration = Duration::from_secs(2);

/// Headings of the help. The second one is for flags that every command has.
const DISPLAY: &str = "Display";
const CONNECTION: &str = "Connection";

/// The range that engines accept.
const MIN_HEARTBEAT: Duration = Duration::from_millis(100);
const MAX_HEARTBEAT: Duration = Duration::from_mins(5);

/// Queued events for the terminal: start and end of the streams of a thousand visitors.
const STREAM_QUEUE_CAPACITY: usize = 2048;

/// A service that rejects the host name does so in every response, so a few are enough.
const MAX_CHECKED_RESPONSES: u32 = 20;
