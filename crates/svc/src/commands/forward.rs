//! `svc forward`: publish a service through an engine, or offer it for dialling.

mod report;

use std::{sync::Arc, time::Duration};

use clap::Parser;
use client::{
    Agent, Closed, Connection as StreamEvent, Destination, Properties, ProxyProtocol, Target,
    tunnel::Observer,
};
use tokio::sync::mpsc;
use transport::Workers;

use self::report::Report;
use crate::{
    cli::Format,
    connection::Connection,
    descriptors,
    failure::{Code, Failure},
    properties::{TunnelFlags, pair},
    signals, time,
};

/// The flags of `svc forward`.
#[derive(Debug, Parser)]
pub(crate) struct Args {
    /// The service: `PORT`, `HOST:PORT`, `https://HOST:PORT` or `unix:/PATH`
    #[arg(value_name = "TARGET")]
    target: Target,

    #[command(flatten)]
    tunnel: TunnelFlags,

    /// Tell the service who visits: begin each connection to it with a PROXY protocol header of
    /// this version (v1 or v2). For tls, tcp and private tunnels; an http service reads
    /// X-Forwarded-For
    #[arg(long, value_name = "VERSION")]
    proxy_protocol: Option<ProxyProtocol>,

    /// A label of this client (repeatable)
    #[arg(long = "client-label", value_name = "KEY=VALUE", value_parser = pair)]
    client_labels: Vec<(String, String)>,

    /// The interval of heartbeats; three silent ones, and at least 10 s, are a loss
    #[arg(long, value_name = "DURATION", default_value = "5s", value_parser = heartbeat)]
    heartbeat: Duration,

    /// How tunnels and connections are written
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    connection: Connection,
}

/// Forwards until a signal or a refusal. What a network can cause is no end: it is told, and the
/// tunnel comes back.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let properties = args.tunnel.properties(&args.target)?;
    let destination = destination(&args, &properties)?;
    let mut config = args.connection.resolve()?;
    config.labels = args.client_labels.into_iter().collect();
    config.heartbeat = args.heartbeat;
    let engine = config.engine.clone();
    descriptors::raise_limit();
    let shutdown = signals::listen(signals::DRAIN)?;
    let workers = Workers::per_core("svc-agent")
        .map_err(|error| Failure::of("the workers cannot be started", error))?;
    config.runtimes = workers.handles().to_vec();

    let agent = Agent::start(config)?;
    let mut tunnel = agent.open(properties);
    let mut status = tunnel.status();
    let mut report = Report::new(args.output, args.target.clone(), engine);
    let (observer, mut streams) = observe();
    let forwarding = tunnel.forward(destination, Some(observer));
    let stopping = async {
        shutdown.drain().cancelled().await;
        tokio::select! {
            _drained = agent.close(signals::DRAIN) => {}
            () = shutdown.hard().cancelled() => drop(agent.close(Duration::ZERO).await),
        }
    };
    tokio::pin!(forwarding, stopping);
    let mut over = false;
    loop {
        tokio::select! {
            biased;
            () = &mut stopping => return report.closed(&Closed::Asked),
            Ok(()) = status.changed() => {
                let now = status.borrow_and_update().clone();
                report.status(&now)?;
            }
            Some(stream) = streams.recv() => report.stream(&stream)?,
            closed = &mut forwarding, if !over => {
                over = true;
                // While stopping, what was accepted is still being served.
                if !shutdown.drain().is_cancelled() {
                    report.closed(&closed)?;
                    // A tunnel that was taken over still serves those that it has accepted.
                    tokio::select! {
                        _drained = agent.close(signals::DRAIN) => {}
                        () = shutdown.drain().cancelled() => {
                            agent.close(Duration::ZERO).await;
                        }
                    }
                    return Err(ended(&closed));
                }
            }
        }
    }
}

/// A PROXY header says whose a connection is, so the connection must be one visitor's.
fn destination(args: &Args, properties: &Properties) -> Result<Destination, Failure> {
    let is_http = properties.protocol.as_deref() == Some("http");
    if args.proxy_protocol.is_some() && is_http {
        return Err(Failure::usage(
            "--proxy-protocol is not for http tunnels: a connection to the service carries the \
             requests of many visitors",
        )
        .hint("read X-Forwarded-For in the service, or give --tls, --tcp or --bytestream"));
    }
    Ok(Destination {
        target: args.target.clone(),
        proxy_protocol: args.proxy_protocol,
    })
}

/// Streams are told through a bounded queue: a terminal that does not keep up must not hold
/// visitors. Those that do not fit are counted by the report's reader as missing pairs.
fn observe() -> (Observer, mpsc::Receiver<StreamEvent>) {
    let (told, streams) = mpsc::channel(LINES);
    let observer: Observer = Arc::new(move |stream| {
        // A full queue loses the line, not the stream.
        drop(told.try_send(stream));
    });
    (observer, streams)
}

/// Why the tunnel is over, when nobody asked for that.
pub(crate) fn ended(closed: &Closed) -> Failure {
    match closed {
        Closed::Refused(refusal) => refusal.into(),
        Closed::ByEngine => Failure::new(Code::Failed, "the engine closed the tunnel")
            .hint("its log says why; run the command again to open it anew"),
        Closed::Asked => Failure::new(Code::Failed, "the agent ended"),
    }
}

/// What the protocol allows.
pub(crate) fn heartbeat(text: &str) -> Result<Duration, String> {
    let interval = time::duration(text)?;
    if (MIN_HEARTBEAT..=MAX_HEARTBEAT).contains(&interval) {
        Ok(interval)
    } else {
        Err("a heartbeat interval is 100ms to 5m".to_owned())
    }
}

/// The range that engines accept.
const MIN_HEARTBEAT: Duration = Duration::from_millis(100);
const MAX_HEARTBEAT: Duration = Duration::from_mins(5);

/// Lines that wait for the terminal: a burst of a thousand visitors, begin and end.
const LINES: usize = 2048;
