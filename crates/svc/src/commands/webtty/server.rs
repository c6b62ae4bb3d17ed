//! `svc webtty server`: serves terminals of this host on an address or through a tunnel.

mod report;
mod settings;

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use clap::{Parser, ValueEnum};
use client::{
    Agent, Status, Tunnel,
    properties::{HttpVersion, Protocol, TunnelKind},
};
use daemon::shutdown::Shutdown;
use terminal::{
    inventory::{self, Host, Transport},
    server::{Server, Settings},
};
use tokio::net::TcpListener;
use transport::Workers;

use self::{
    report::{Report, Sessions},
    settings::RegisteredServer,
};
use crate::args::properties::pair;
use crate::args::time;
use crate::commands::forward::closed_failure;
use crate::connection::Connection;
use crate::failure::Failure;
use crate::output::Format;
use crate::process::{descriptors, signals};

/// The flags of `svc webtty server`.
#[derive(Debug, Parser)]
#[command(after_help = "Examples:
  svc webtty server --name build                  # through the engine of the context
  svc webtty server --no-publish --name build     # private: reachable only by name
  svc webtty server --listen 127.0.0.1:8080 --auth-token-file token
  sudo -E svc webtty server --name build --execution-mode login --login-user deploy")]
pub(crate) struct Args {
    /// Listen on this address instead of opening a tunnel
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["tunnel", "name", "host", "publish", "no_publish"], help_heading = PLACE)]
    listen: Option<SocketAddr>,

    /// Open a tunnel (the default)
    #[arg(long, help_heading = PLACE)]
    tunnel: bool,

    /// Name of the tunnel, which clients connect to
    #[arg(long, value_name = "NAME", help_heading = PLACE)]
    name: Option<String>,

    /// Public host name of the tunnel
    #[arg(long, value_name = "HOSTNAME", help_heading = PLACE)]
    host: Option<String>,

    /// Publish the tunnel for clients with a token (the default)
    #[arg(long, help_heading = PLACE, overrides_with = "no_publish")]
    publish: bool,

    /// No public address; clients connect by name
    #[arg(long, help_heading = PLACE, overrides_with = "publish")]
    no_publish: bool,

    /// Transport: `websocket` for browsers and published clients, `plain` for private tunnels
    #[arg(long, value_enum, value_name = "TRANSPORT", help_heading = PLACE)]
    transport: Option<TransportOption>,

    /// Label of the server (repeatable)
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = pair, help_heading = PLACE)]
    labels: Vec<(String, String)>,

    /// Id of the registered server to serve as; needs its enrollment
    #[arg(long, value_name = "ID", conflicts_with = "listen", help_heading = PLACE)]
    server_id: Option<String>,

    /// Enrollment file of the registered server, if it is not in the default directory
    #[arg(long, value_name = "FILE", conflicts_with = "listen", help_heading = PLACE)]
    server_enrollment: Option<PathBuf>,

    /// Account that runs commands: `spawn` for that of this program, `login` for a logged-in
    /// account
    #[arg(long, value_enum, value_name = "MODE", help_heading = COMMANDS)]
    execution_mode: Option<ExecutionMode>,

    /// Account for commands, with `login`
    #[arg(long, value_name = "ACCOUNT", help_heading = COMMANDS)]
    login_user: Option<String>,

    /// Let clients choose the account, with `login`
    #[arg(long, help_heading = COMMANDS)]
    allow_client_user: bool,

    /// Default command of sessions. Default: the account's login shell
    #[arg(long, value_name = "PROGRAM", help_heading = COMMANDS)]
    shell: Option<PathBuf>,

    /// Maximum number of concurrent sessions
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=100_000), help_heading = LIMITS)]
    max_sessions: u32,

    /// End a session after this time without input or output
    #[arg(long, value_name = "DURATION", value_parser = time::duration, help_heading = LIMITS)]
    idle_timeout: Option<Duration>,

    /// Maximum duration of a session
    #[arg(long, value_name = "DURATION", value_parser = time::duration, help_heading = LIMITS)]
    max_duration: Option<Duration>,

    /// Time that a command outlives its client, which can reconnect; `0` ends it immediately
    #[arg(long, value_name = "DURATION", default_value = "2m", value_parser = grace, help_heading = LIMITS)]
    grace: Duration,

    /// Also serve this folder over WebDAV, below /fs
    #[arg(long, value_name = "DIR", help_heading = FILES)]
    fs_root: Option<PathBuf>,

    /// Serve the files read-only
    #[arg(long, requires = "fs_root", help_heading = FILES)]
    fs_read_only: bool,

    /// Maximum size of an uploaded file, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = MAX_UPLOAD, requires = "fs_root", help_heading = FILES)]
    fs_max_upload_size: u64,

    /// Require end-to-end encryption; only clients with known keys are admitted
    #[arg(long, help_heading = ACCESS)]
    e2e: bool,

    /// File of the server's key for encryption. Default: the identity `default`
    #[arg(long, value_name = "FILE", requires = "e2e", conflicts_with_all = ["server_id", "server_enrollment"], help_heading = ACCESS)]
    identity_file: Option<PathBuf>,

    /// File with the keys of admitted clients, for encrypted sessions
    #[arg(long, value_name = "FILE", help_heading = ACCESS)]
    authorized_clients_file: Option<PathBuf>,

    /// File with the token that clients need, with --listen (or `SVC_WEBTTY_AUTH_TOKEN`)
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = ACCESS)]
    auth_token_file: Option<PathBuf>,

    /// With --listen: admit clients without a token
    #[arg(long, requires = "listen", conflicts_with = "auth_token_file", help_heading = ACCESS)]
    allow_unauthenticated: bool,

    /// With --listen: admit web pages of this origin (repeatable)
    #[arg(long = "allowed-origin", value_name = "ORIGIN", requires = "listen", help_heading = ACCESS)]
    allowed_origins: Vec<String>,

    /// Output format of the server's and sessions' lines
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,

    #[command(flatten)]
    connection: Connection,
}

/// Transport of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum TransportOption {
    /// HTTP/1.1, then a WebSocket.
    Websocket,
    /// Protocol messages without a handshake.
    Plain,
}

/// Account that runs commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum ExecutionMode {
    /// The account of this program.
    Spawn,
    /// A logged-in account.
    Login,
}

/// Serves until a signal, or until the engine refuses the server.
pub(crate) async fn run(args: Args) -> Result<(), Failure> {
    let registered = args.registered()?;
    let transport = args.stream_transport(registered.as_ref())?;
    let settings = args.settings(registered.as_ref(), transport)?;
    let workers = Workers::per_core("svc-webtty")
        .map_err(|error| Failure::from_error("cannot start the worker threads", error))?;
    descriptors::raise_limit();
    let (mut sessions, observer) = Sessions::new(args.output);
    if let Some(address) = args.listen.filter(|_| !args.tunnel) {
        let shutdown = signals::listen(signals::DRAIN)?;
        let server = Server::new(settings, observer, workers.handles());
        listen(address, transport, &server, &mut sessions, &shutdown).await?;
        return sessions.write_remaining();
    }
    let mut config = args.connection.resolve()?;
    config.runtimes = workers.handles().to_vec();
    let properties = args.properties(registered.as_ref(), &settings, transport)?;
    let shutdown = signals::listen(signals::DRAIN)?;
    let mut report = Report::new(args.output, config.engine.clone());
    let server = Server::new(settings, observer, workers.handles());
    let agent = Agent::start(config)?;
    let tunnel = match registered
        .as_ref()
        .map(RegisteredServer::admission)
        .transpose()?
    {
        Some(renew) => agent.open_renewed(properties, renew),
        None => agent.open(properties),
    };
    let served = serve(
        tunnel,
        transport,
        &server,
        &mut report,
        &mut sessions,
        &shutdown,
    )
    .await;
    // The streams of the agent report their sessions.
    tokio::select! {
        ((), _) = async { tokio::join!(server.drain(), agent.close(signals::DRAIN)) } => {}
        () = shutdown.hard().cancelled() => {
            server.kill();
            server.drain().await;
            agent.close(Duration::ZERO).await;
        }
    }
    sessions.write_remaining()?;
    served?;
    report.closed()
}

/// Serves the streams of a tunnel until it closes or a shutdown starts.
async fn serve(
    mut tunnel: Tunnel,
    transport: Transport,
    server: &Server,
    report: &mut Report,
    sessions: &mut Sessions,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    let mut status = tunnel.status();
    loop {
        tokio::select! {
            biased;
            () = shutdown.drain().cancelled() => return Ok(()),
            Ok(()) = status.changed() => {
                let now = status.borrow_and_update().clone();
                report.status(&now)?;
                if let Status::Closed(closed) = &now {
                    return Err(closed_failure(closed));
                }
            }
            Some(line) = sessions.next() => line.write()?,
            stream = tunnel.accept() => {
                if let Some(stream) = stream {
                    let from = stream.source_ip();
                    server.spawn(stream, transport, from);
                } else if let Status::Closed(closed) = &*status.borrow() {
                    return Err(closed_failure(closed));
                }
            }
        }
    }
}

/// Serves the connections of an address until a shutdown starts.
async fn listen(
    address: SocketAddr,
    transport: Transport,
    server: &Server,
    sessions: &mut Sessions,
    shutdown: &Shutdown,
) -> Result<(), Failure> {
    let cannot = |error| Failure::from_error(&format!("cannot listen on {address}"), error);
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    sessions.listening(address, transport)?;
    loop {
        tokio::select! {
            biased;
            () = shutdown.drain().cancelled() => break,
            Some(line) = sessions.next() => line.write()?,
            accepted = listener.accept() => {
                // The connection was closed already, or no file descriptor is free. The next one
                // may succeed.
                let Ok((stream, from)) = accepted else {
                    tokio::time::sleep(ACCEPT_AGAIN).await;
                    continue;
                };
                // Key presses are sent without delay.
                drop(stream.set_nodelay(true));
                let Ok(stream) = stream.into_std() else { continue };
                let here = async { tokio::net::TcpStream::from_std(stream).ok() };
                server.spawn_with(here, transport, Some(from.ip()));
            }
        }
    }
    drop(listener);
    tokio::select! {
        () = server.drain() => {}
        () = shutdown.hard().cancelled() => {
            server.kill();
            server.drain().await;
        }
    }
    Ok(())
}

impl Args {
    /// The properties of the tunnel.
    fn properties(
        &self,
        registered: Option<&RegisteredServer>,
        settings: &Settings,
        transport: Transport,
    ) -> Result<client::Properties, Failure> {
        let offer = self.tunnel_labels(registered, settings, transport);
        let labels = inventory::labels(&offer, &Host::local());
        let publish = self.publish || !self.no_publish;
        let mut properties = client::Properties::default()
            .publish(publish)
            .labels(labels);
        properties.name.clone_from(&self.name);
        properties.hostname.clone_from(&self.host);
        if let Some(registered) = registered {
            properties
                .name
                .get_or_insert_with(|| registered.id().to_owned());
            return Ok(properties
                .kind(TunnelKind::Bytestream)
                .protocol(Protocol::Webtty));
        }
        if !publish && self.name.is_none() {
            return Err(Failure::usage("a private server needs a name")
                .hint("give --name: clients connect by this name"));
        }
        Ok(match transport {
            Transport::WebSocket => {
                // A published terminal always requires authentication.
                properties.token_auth = publish.then_some(true);
                properties
                    .protocol(Protocol::Http)
                    .http_version(HttpVersion::Http11)
            }
            Transport::Plain => properties.kind(TunnelKind::Bytestream),
        })
    }
}

/// Parses a duration that may be zero.
fn grace(text: &str) -> Result<Duration, String> {
    if matches!(text, "0" | "0s") {
        return Ok(Duration::ZERO);
    }
    time::duration(text)
}

/// Headings of the help.
const PLACE: &str = "Address";
const COMMANDS: &str = "Execution";
const LIMITS: &str = "Limits";
const FILES: &str = "Files";
const ACCESS: &str = "Access";

/// The upload limit of the published server.
const MAX_UPLOAD: u64 = 64 * 1024 * 1024;

/// Pause after a failed accept. File descriptors become free when connections end.
const ACCEPT_AGAIN: Duration = Duration::from_millis(50);
