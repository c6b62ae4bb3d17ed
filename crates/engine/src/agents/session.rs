//! The actor of one control channel: it reads what the agent asks, answers, and keeps the channel
//! alive. When the channel ends, its tunnels go; streams that were accepted live on.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use credentials::Verified;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info};
use transport::TlsStream;
use types::client::{Client, check_labels};
use types::id::{StreamId, TunnelId};
use types::tunnel::{Protocol, TunnelProperties};
use wire::liveness::EngineLiveness;
use wire::message::{
    ClientDetails, CloseControlChannelRsp, CloseTunnelReq, CloseTunnelRsp, ControlChannelLiveness,
    ControlChannelOk, ControlChannelOutcome, OpenControlChannelReq, OpenControlChannelRsp,
    OpenTunnelReq, OpenTunnelRsp, ProxyConnReq, ProxyConnRsp, ServerDetails, ServerMessage,
    TunnelOutcome, text,
};
use wire::{Decoder, Error, ErrorCode, Kind, Message};

use super::hello::{farewell, refuse, token};
use super::pool::Pool;
use super::{Agent, OUTBOX, Order, hex, random_bytes};
use crate::access;
use crate::core::{Core, Worker};
use crate::listen::{BoundPort, NoPort, check_ciphers};
use crate::live::{HostnameRefused, Identity, OpenRefused, Owner};

/// How long a write to the control channel may take: an agent that does not read for so long is
/// as good as gone.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);

/// How often idle data connections are looked through.
const TRIM_INTERVAL: Duration = Duration::from_secs(15);

/// Longest detail of a client (its version, its system) that is kept.
const DETAIL_BYTES: usize = 256;

/// Serves a control channel from its hello to its end.
pub(super) async fn run(mut stream: TlsStream, hello: OpenControlChannelReq, worker: &Arc<Worker>) {
    let (session, answer) = match Session::open(hello, worker) {
        Ok(opened) => opened,
        Err(error) => {
            debug!(
                code = error.code,
                reason = error.text(),
                "a control channel is refused"
            );
            worker.core.metrics.agent_refused(error.kind());
            refuse(&mut stream, error).await;
            return;
        }
    };
    let agent = Arc::clone(&session.agent);
    worker.core.metrics.agents_connected.increment(1);
    info!(client = %agent.client_id, "an agent is connected");
    let end = session.serve(stream, answer).await;
    worker.core.metrics.agent_gone(end.as_str());
    info!(client = %agent.client_id, reason = %end, "an agent is gone");
}

struct Session {
    core: Arc<Core>,
    worker: Arc<Worker>,
    agent: Arc<Agent>,
    credential: Arc<Verified>,
    identity: Identity,
    liveness: EngineLiveness,
    orders: mpsc::Receiver<Order>,
    /// Tunnels of this channel, to know which displacements concern it.
    tunnels: BTreeSet<TunnelId>,
    out: Vec<u8>,
    closing: bool,
}

/// Why a control channel ended.
#[derive(Debug, thiserror::Error)]
enum End {
    #[error("the connection ended")]
    Closed,
    #[error("the connection failed: {0}")]
    Failed(#[from] io::Error),
    #[error("no sign of life within the agreed time")]
    Silent,
    #[error("the agent broke the protocol: {0}")]
    Violation(String),
    #[error("the agent said goodbye")]
    Goodbye,
    #[error("the engine stops")]
    Stopping,
}

impl End {
    /// Name in metrics.
    fn as_str(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Failed(_) => "failed",
            Self::Silent => "silent",
            Self::Violation(_) => "violation",
            Self::Goodbye => "goodbye",
            Self::Stopping => "stopping",
        }
    }
}

impl Session {
    /// Judges a hello. The answer is sent by [`Session::serve`], before anything else.
    fn open(hello: OpenControlChannelReq, worker: &Arc<Worker>) -> Result<(Self, Message), Error> {
        let core = &worker.core;
        let details = hello.client_details.unwrap_or_default();
        wire::handshake::check_version(&details)?;
        let credential = core
            .tokens
            .verify(token(Some(&details)), core.unix_seconds())
            .map_err(|_| Error::unauthorized("the token is not valid here"))?;
        if core.shutdown.drain().is_cancelled() {
            return Err(Error::service_unavailable("the engine is stopping"));
        }
        let (agreed, liveness) = EngineLiveness::negotiate(hello.liveness, Instant::now())?;
        let view = client_view(core, &details, &credential)?;
        let extensions = wire::handshake::agreed_extensions(&details.extensions);
        let pooled = extensions.contains(&wire::handshake::EXT_POOL);

        let (outbox, orders) = mpsc::channel(OUTBOX);
        let workers = if pooled { core.workers().len() } else { 0 };
        let agent = Arc::new(Agent {
            core: Arc::downgrade(core),
            client_id: view.id,
            outbox,
            pools: (0..workers).map(|_| Pool::default()).collect(),
            pool_secret: hex(&random_bytes::<32>()),
            asked: Semaphore::new(ProxyConnReq::MAX_PENDING),
            streams: AtomicUsize::new(0),
            max_streams: core.config.limits.max_streams_per_client,
            open_seconds: core.metrics.stream_open_seconds(),
            ended: CancellationToken::new(),
        });
        let client_id = view.id;
        core.live.add_client(view).map_err(|_| {
            Error::capacity_exhausted("the engine has as many agents as it may have")
        })?;
        if pooled {
            core.arrivals.expect_pool(&agent.pool_secret, &agent);
        }
        let identity = Identity::new(access::PROJECT, &credential.identity);
        let session = Self {
            core: Arc::clone(core),
            worker: Arc::clone(worker),
            agent,
            credential,
            identity,
            liveness,
            orders,
            tunnels: BTreeSet::new(),
            out: Vec::new(),
            closing: false,
        };
        Ok((
            session,
            greeting(client_id.to_string(), agreed, &extensions),
        ))
    }

    async fn serve(mut self, mut stream: TlsStream, answer: Message) -> End {
        let end = match self.say(&answer) {
            Ok(()) => self.converse(&mut stream).await,
            Err(end) => end,
        };
        // Admission ends here, before anything that may take time.
        self.agent.end();
        self.core.arrivals.forget_pool(&self.agent.pool_secret);
        let gone = self.core.live.remove_client(&self.agent.client_id);
        for tunnel in &gone {
            self.core.tcp_ports.close(&tunnel.view.id);
        }
        let gone = gone.iter().map(|tunnel| tunnel.view.id).collect();
        self.core.forget_upstreams(gone);
        if let End::Violation(reason) = &end {
            let message = ServerMessage {
                message: reason.clone(),
            };
            farewell(&mut stream, Kind::ServerMessage(message).into()).await;
        } else {
            tokio::time::timeout(WRITE_DEADLINE, stream.shutdown())
                .await
                .ok();
        }
        end
    }

    async fn converse(&mut self, stream: &mut TlsStream) -> End {
        self.agent.fill_pools(Instant::now());
        let stop = self.core.agents_stop.clone();
        let mut decoder = Decoder::new();
        let mut bytes = vec![0; READ];
        let mut trim = tokio::time::interval(TRIM_INTERVAL);
        trim.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if let Err(end) = self.write_out(stream).await {
                return end;
            }
            if self.closing {
                return End::Goodbye;
            }
            let silent = tokio::time::sleep_until(self.liveness.deadline().into());
            // Every branch is cancel safe: a read takes bytes only when it completes.
            tokio::select! {
                read = stream.read(&mut bytes) => match read {
                    Ok(0) => return End::Closed,
                    Ok(count) => {
                        decoder.push(bytes.get(..count).unwrap_or_default());
                        if let Err(end) = self.take_messages(&mut decoder) {
                            return end;
                        }
                    }
                    Err(error) => return End::Failed(error),
                },
                Some(order) = self.orders.recv() => {
                    let mut next = Some(order);
                    // No more than fit at once: those who ask meanwhile do not keep the answers
                    // from being sent.
                    let mut left = OUTBOX;
                    while let Some(order) = next {
                        if let Err(end) = self.obey(order) {
                            return end;
                        }
                        left = left.saturating_sub(1);
                        next = (left > 0).then(|| self.orders.try_recv().ok()).flatten();
                    }
                }
                () = silent => return End::Silent,
                _ = trim.tick() => self.agent.trim_pools(Instant::now()),
                () = stop.cancelled() => return End::Stopping,
            }
        }
    }

    fn take_messages(&mut self, decoder: &mut Decoder) -> Result<(), End> {
        let violation = |error: String| End::Violation(error);
        while let Some(message) = decoder
            .next()
            .map_err(|error| violation(error.to_string()))?
        {
            let now = Instant::now();
            self.liveness.on_frame(now);
            // What a later version says and we do not know is no error.
            let Some(kind) = message.kind else { continue };
            match kind {
                Kind::Heartbeat(heartbeat) => {
                    let answer = self.liveness.on_heartbeat(heartbeat, now);
                    if let Some(answer) = answer.map_err(|error| violation(error.to_string()))? {
                        self.say(&Kind::Heartbeat(answer).into())?;
                    }
                }
                Kind::OpenTunnelReq(request) => {
                    let answer = self.open_tunnel(request);
                    self.say(&answer)?;
                }
                Kind::CloseTunnelReq(CloseTunnelReq { tunnel_id }) => {
                    self.close_tunnel(&tunnel_id);
                    self.say(&Kind::CloseTunnelRsp(CloseTunnelRsp { tunnel_id }).into())?;
                }
                Kind::CloseControlChannelReq(_) => {
                    self.say(&Kind::CloseControlChannelRsp(CloseControlChannelRsp {}).into())?;
                    self.closing = true;
                }
                Kind::ProxyConnRsp(ProxyConnRsp {
                    stream_id,
                    error: Some(error),
                }) => {
                    if let Ok(id) = stream_id.parse::<StreamId>() {
                        self.core
                            .arrivals
                            .refuse_stream(id, self.agent.client_id, error);
                    }
                }
                // The stream itself is the better news.
                Kind::ProxyConnRsp(_) | Kind::DatagramChannelClose(_) | Kind::ServerMessage(_) => {}
                _ => return Err(violation("a message that has no place here".to_owned())),
            }
        }
        Ok(())
    }

    fn obey(&mut self, order: Order) -> Result<(), End> {
        match order {
            Order::Send(message) => self.say(&message),
            Order::TakenOver(tunnel) => {
                if !self.tunnels.remove(&tunnel) {
                    return Ok(());
                }
                let message = ServerMessage::TAKEN_OVER.to_owned();
                self.say(&Kind::ServerMessage(ServerMessage { message }).into())?;
                let tunnel_id = tunnel.to_string();
                self.say(&Kind::CloseTunnelRsp(CloseTunnelRsp { tunnel_id }).into())
            }
        }
    }

    /// Opens a tunnel or says why not.
    fn open_tunnel(&mut self, request: OpenTunnelReq) -> Message {
        let OpenTunnelReq {
            request_id,
            tunnel_properties,
        } = request;
        let outcome = match self.try_open_tunnel(&tunnel_properties.unwrap_or_default()) {
            Ok(properties) => TunnelOutcome::TunnelProperties(Box::new(properties)),
            Err(error) => TunnelOutcome::Error(error),
        };
        Kind::OpenTunnelRsp(OpenTunnelRsp {
            request_id,
            outcome: Some(outcome),
        })
        .into()
    }

    /// The order of the checks is that of every surface: permission, shape, what this edition
    /// offers, boundary, state.
    fn try_open_tunnel(
        &mut self,
        request: &wire::message::TunnelProperties,
    ) -> Result<wire::message::TunnelProperties, Error> {
        let core = Arc::clone(&self.core);
        access::may_create_tunnels(&self.credential)
            .map_err(|missing| Error::unauthorized(missing.to_string()))?;
        let mut properties = wire::properties::requested(request).map_err(Error::from)?;
        let available = |properties: &TunnelProperties| {
            access::community::refuse_unavailable(properties)
                .map_err(|option| Error::new(ErrorCode::FeatureNotAvailable, option.to_string()))
        };
        available(&properties)?;
        access::fill_and_judge(&self.credential, &mut properties)
            .map_err(|refusal| Error::unauthorized(refusal.to_string()))?;
        // What the boundary filled in was not asked for before.
        available(&properties)?;
        let mut properties = properties.resolve().map_err(Error::from)?;
        check_ciphers(&properties).map_err(Error::from)?;
        let mut port: Option<BoundPort> = None;
        if properties.publish == Some(true) {
            if properties.protocol == Some(Protocol::Tcp) {
                let key = (self.identity.clone(), properties.name.clone());
                let bound = core.tcp_ports.bind(&key).map_err(|error| {
                    let code = match error {
                        NoPort::SwitchedOff => ErrorCode::FeatureNotAvailable,
                        NoPort::Exhausted => ErrorCode::CapacityExhausted,
                    };
                    Error::new(code, error.to_string())
                })?;
                properties.port = Some(bound.port());
                properties.hostname = Some(core.namespace.base().clone());
                port = Some(bound);
            } else {
                let hostname = self.hostname(properties.hostname.as_ref())?;
                properties.hostname = Some(hostname);
                // Visitors come to the listener's port, and agents make the address of it.
                properties.port = core.tls_addr.get().map(SocketAddr::port);
            }
        }
        let policy = access::TunnelPolicy::compile(&properties);
        let owner = Owner {
            identity: self.identity.clone(),
            client_id: self.agent.client_id,
            agent: Arc::clone(&self.agent),
        };
        let opened = core
            .live
            .open_tunnel(owner, properties, policy)
            .map_err(refused)?;
        let tunnel = opened.tunnel;
        self.tunnels.insert(tunnel.view.id);
        if let Some(port) = port {
            core.tcp_ports
                .serve(port, &tunnel, self.worker.core.workers());
            // Whoever took it over between the two lines found no port to close.
            let id = tunnel.view.id.to_string();
            if core.live.find(access::PROJECT, &id).is_none() {
                core.tcp_ports.close(&tunnel.view.id);
            }
        }
        for displaced in opened.displaced {
            core.tcp_ports.close(&displaced.tunnel_id);
            core.forget_upstreams(vec![displaced.tunnel_id]);
            displaced.agent.taken_over(displaced.tunnel_id);
        }
        Ok(wire::properties::opened(&tunnel.view))
    }

    /// The name under which a tunnel is published: the one asked for, or one that is free.
    fn hostname(
        &self,
        requested: Option<&types::tunnel::Hostname>,
    ) -> Result<types::tunnel::Hostname, Error> {
        let namespace = &self.core.namespace;
        match requested {
            Some(hostname) => namespace.resolve(hostname).map_err(|error| {
                let code = match error {
                    HostnameRefused::CustomDomain => ErrorCode::FeatureNotAvailable,
                    HostnameRefused::TooLong => ErrorCode::InvalidRequest,
                };
                Error::new(code, error.to_string())
            }),
            None => namespace
                .draw(|hostname| self.core.live.is_spoken_for(hostname))
                .ok_or_else(|| Error::capacity_exhausted("no free hostname was found")),
        }
    }

    fn close_tunnel(&mut self, tunnel_id: &str) {
        let Ok(id) = tunnel_id.parse::<TunnelId>() else {
            return;
        };
        self.tunnels.remove(&id);
        if self
            .core
            .live
            .close_tunnel(&self.agent.client_id, &id)
            .is_some()
        {
            self.core.tcp_ports.close(&id);
            self.core.forget_upstreams(vec![id]);
        }
    }

    /// Queues a message. The queue is bounded by what one round of the loop can produce.
    fn say(&mut self, message: &Message) -> Result<(), End> {
        wire::encode(message, &mut self.out)
            .map_err(|error| End::Violation(format!("an answer does not fit a frame: {error}")))
    }

    async fn write_out(&mut self, stream: &mut TlsStream) -> Result<(), End> {
        if self.out.is_empty() {
            return Ok(());
        }
        let out = std::mem::take(&mut self.out);
        let writing = async {
            stream.write_all(&out).await?;
            stream.flush().await
        };
        match tokio::time::timeout(WRITE_DEADLINE, writing).await {
            Ok(written) => Ok(written?),
            Err(_) => Err(End::Silent),
        }
    }
}

/// What is read from a control channel at once; its messages are small.
const READ: usize = 4096;

fn client_view(
    core: &Core,
    details: &ClientDetails,
    credential: &Verified,
) -> Result<Client, Error> {
    check_labels(&details.labels).map_err(Error::from)?;
    let detail = |name: &str, value: Option<&wire::message::StringValue>| match text(value) {
        Some(value) if value.len() > DETAIL_BYTES => Err(Error::invalid_request(format!(
            "client_details.{name} is longer than {DETAIL_BYTES} bytes"
        ))),
        value => Ok(value.map(str::to_owned)),
    };
    let mut view = Client::online(core.live.new_client_id());
    view.user_id.clone_from(&credential.user_id);
    view.project_id = Some(access::PROJECT.to_owned());
    view.agent = detail("agent", details.agent.as_ref())?;
    view.channel = detail("channel", details.channel.as_ref())?;
    view.version = detail("version", details.version.as_ref())?;
    view.os = detail("os", details.os.as_ref())?;
    view.arch = detail("arch", details.arch.as_ref())?;
    view.protocol_version = detail("protocol_version", details.protocol_version.as_ref())?;
    view.labels.clone_from(&details.labels);
    Ok(view)
}

fn greeting(
    client_id: String,
    liveness: Option<ControlChannelLiveness>,
    extensions: &[&'static str],
) -> Message {
    let server_details = ServerDetails {
        agent: Some("svc-engine".into()),
        channel: Some("stable".into()),
        version: Some(env!("CARGO_PKG_VERSION").into()),
        extensions: extensions.iter().map(|&name| name.to_owned()).collect(),
        ..ServerDetails::default()
    };
    let ok = ControlChannelOk {
        client_id,
        server_details: Some(server_details),
        liveness,
    };
    let outcome = Some(ControlChannelOutcome::Ok(ok));
    Kind::OpenControlChannelRsp(OpenControlChannelRsp { outcome }).into()
}

fn refused(refused: OpenRefused) -> Error {
    match refused {
        OpenRefused::Full => Error::capacity_exhausted(refused.to_string()),
        OpenRefused::NotConnected => Error::service_unavailable(refused.to_string()),
        OpenRefused::NameTaken | OpenRefused::HostnameTaken | OpenRefused::AlreadyYours => {
            Error::invalid_request(refused.to_string())
        }
    }
}
