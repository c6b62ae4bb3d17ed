//! The actor of one control channel: it handles the agent's requests and keeps the channel alive.
//! When the channel ends, its tunnels are removed; accepted streams continue.

mod admission;
mod claims;
mod deferred;
mod greeting;
mod opening;
mod refused_tunnels;
mod silence;

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use credentials::VerifiedToken;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{debug, info};
use transport::TlsStream;
use types::id::{StreamId, TunnelId};
use types::permission::Permission;
use types::tunnel::Hostname;
use wire::liveness::EngineLiveness;
use wire::message::{
    CloseControlChannelRsp, CloseTunnelReq, CloseTunnelRsp, MoveReq, OpenControlChannelReq,
    ProxyConnRsp, ServerMessage,
};
use wire::{Decoder, Error, Kind, Message};

use self::claims::ClaimedTunnel;
use self::deferred::DeferredRequests;
use self::greeting::{client_view, greeting};
use super::hello::{farewell, refuse, token};
use super::{Agent, AgentInfo, ControlCommand, OUTBOX};
use crate::core::{Core, Worker};
use crate::directory::{Project, WebttyServer};
use crate::limits::{MessageRate, monotonic};
use crate::live::Identity;

/// Time limit of a write to the control channel: an agent that does not read for this time is
/// treated as gone.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);

/// Interval for checking idle data connections.
const TRIM_INTERVAL: Duration = Duration::from_secs(15);

/// Serves a control channel from its hello to its end.
pub(super) async fn run(
    mut stream: TlsStream,
    hello: OpenControlChannelReq,
    project: &Arc<Project>,
    worker: &Arc<Worker>,
) {
    let (session, answer) = match Session::open(hello, project, worker) {
        Ok(opened) => opened,
        Err(error) => {
            debug!(
                code = error.code,
                reason = error.text(),
                "a control channel was refused"
            );
            worker.core.metrics.agent_refused(error.kind());
            refuse(&mut stream, error).await;
            return;
        }
    };
    let agent = Arc::clone(&session.agent);
    worker.core.metrics.agents_connected.increment(1);
    info!(client = %agent.client_id, "an agent connected");
    let end = session.serve(stream, answer).await;
    worker.core.metrics.agent_gone(end.as_str());
    info!(client = %agent.client_id, reason = %end, "an agent disconnected");
}

struct Session {
    core: Arc<Core>,
    agent: Arc<Agent>,
    credential: Arc<VerifiedToken>,
    project: Arc<Project>,
    identity: Identity,
    liveness: EngineLiveness,
    commands: mpsc::Receiver<ControlCommand>,
    /// Tunnels of this channel, for recognising displacements that concern it.
    tunnels: BTreeSet<TunnelId>,
    /// Tunnels on reserved ports.
    reserved: BTreeMap<TunnelId, u16>,
    /// Tunnels with a custom domain.
    domains: BTreeMap<TunnelId, Hostname>,
    /// Tunnels of registered servers.
    servers: BTreeMap<TunnelId, Arc<WebttyServer>>,
    /// The rights to the names of tunnels, in a cluster.
    claims: BTreeMap<TunnelId, etcd::Claim>,
    /// Requests for tunnels whose names are being claimed.
    claiming: JoinSet<ClaimedTunnel>,
    rate: MessageRate,
    /// Time until which no further message is read, because the agent exceeded its rate.
    paused_until: Option<Instant>,
    deferred: DeferredRequests,
    out: Vec<u8>,
    closing: bool,
    /// The agent can move to another process of this engine, and has not yet.
    unmoved: Option<TaskTrackerToken>,
    /// The tunnels are online at the process that replaces this one.
    has_moved: bool,
}

/// Reasons why a control channel ended.
#[derive(Debug, thiserror::Error)]
enum SessionEnd {
    #[error("the connection was closed")]
    Closed,
    #[error("the connection failed: {0}")]
    Failed(#[from] io::Error),
    #[error("no sign of life within the agreed time")]
    Silent,
    #[error("the agent violated the protocol: {0}")]
    Violation(String),
    #[error("the agent said goodbye")]
    Goodbye,
    #[error("the engine is stopping")]
    Stopping,
    #[error("the agent is no longer authorized: {0}")]
    Revoked(String),
}

impl SessionEnd {
    /// Name in metrics.
    fn as_str(&self) -> &'static str {
        match self {
            Self::Closed => "closed",
            Self::Failed(_) => "failed",
            Self::Silent => "silent",
            Self::Violation(_) => "violation",
            Self::Goodbye => "goodbye",
            Self::Stopping => "stopping",
            Self::Revoked(_) => "revoked",
        }
    }
}

impl Session {
    /// Checks a hello. [`Session::serve`] sends the response before anything else.
    fn open(
        hello: OpenControlChannelReq,
        project: &Arc<Project>,
        worker: &Arc<Worker>,
    ) -> Result<(Self, Message), Error> {
        let core = &worker.core;
        let details = hello.client_details.unwrap_or_default();
        wire::handshake::check_version(&details)?;
        let credential = core
            .tokens
            .verify(token(Some(&details)), core.unix_seconds())
            .map_err(super::token_refused)?;
        core.tenancy
            .check_access(&credential, project)
            .map_err(|denied| Error::unauthorized(denied.to_string()))?;
        if core.shutdown.drain().is_cancelled() {
            return Err(Error::service_unavailable("the engine is stopping"));
        }
        project.changes.connect(monotonic()).map_err(|_| {
            Error::service_unavailable("the project's agents and tunnels change too often")
        })?;
        let (agreed, liveness) = EngineLiveness::negotiate(hello.liveness, Instant::now())?;
        let view = client_view(core, project, &details, &credential)?;
        let extensions = wire::handshake::agreed_extensions(&details.extensions);
        let pooled = extensions.contains(&wire::handshake::EXT_POOL);
        let with_lanes = extensions.contains(&wire::handshake::EXT_LANE);

        let pools = if pooled { core.workers().len() } else { 0 };
        let (agent, orders) = Agent::new(AgentInfo {
            pending: Arc::clone(&core.pending_streams),
            tasks: core.agents.clone(),
            runtimes: core
                .workers()
                .iter()
                .map(|worker| worker.runtime.clone())
                .collect(),
            client_id: view.id,
            pools,
            lanes: if with_lanes { pools } else { 0 },
            reports_delivery: extensions.contains(&wire::handshake::EXT_EXCHANGE),
            forwards: None,
            max_streams: core.config.limits.max_streams_per_client,
            open_deadline: core.config.timeouts.fixed.stream_open,
            open_seconds: core.metrics.stream_open_seconds(),
        });
        let client_id = view.id;
        core.live
            .add_client(view, project)
            .map_err(|full| Error::capacity_exhausted(full.to_string()))?;
        if pooled {
            core.pending_streams.expect_pool(&agent.pool_secret, &agent);
        }
        let identity = Identity::new(&project.id, &credential.identity);
        let session = Self {
            core: Arc::clone(core),
            agent,
            credential,
            project: Arc::clone(project),
            identity,
            liveness,
            commands: orders,
            tunnels: BTreeSet::new(),
            reserved: BTreeMap::new(),
            domains: BTreeMap::new(),
            servers: BTreeMap::new(),
            claims: BTreeMap::new(),
            claiming: JoinSet::new(),
            rate: MessageRate::default(),
            paused_until: None,
            deferred: DeferredRequests::default(),
            out: Vec::new(),
            closing: false,
            unmoved: extensions
                .contains(&wire::handshake::EXT_MOVE)
                .then(|| core.handover.count_unmoved()),
            has_moved: false,
        };
        let supported = (extensions.as_slice(), core.handover.process());
        let greeting = greeting(project, client_id.to_string(), agreed, supported);
        Ok((session, greeting))
    }

    async fn serve(mut self, mut stream: TlsStream, answer: Message) -> SessionEnd {
        let end = match self.queue_message(&answer) {
            Ok(()) => self.exchange_messages(&mut stream).await,
            Err(end) => end,
        };
        if matches!(end, SessionEnd::Revoked(_)) {
            self.agent.revoked.store(true, Ordering::Relaxed);
            self.core.tokens.agent_revoked(&self.project.id);
        }
        // Admission ends here, before anything that may take time.
        self.agent.end_admission();
        self.core
            .pending_streams
            .forget_pool(&self.agent.pool_secret);
        let removed = self.core.live.remove_client(&self.agent.client_id);
        self.claiming.abort_all();
        self.claims.clear();
        for tunnel in &removed {
            self.core.tcp_ports.close(&tunnel.view.id);
        }
        let removed = removed.iter().map(|tunnel| tunnel.view.id).collect();
        self.core.forget_upstreams(removed);
        let last_words = match &end {
            SessionEnd::Violation(reason) => Some(reason.clone()),
            SessionEnd::Revoked(reason) => Some(reason.clone()),
            _ => None,
        };
        if let Some(message) = last_words {
            let message = ServerMessage { message };
            farewell(&mut stream, Kind::ServerMessage(message).into()).await;
        } else {
            tokio::time::timeout(WRITE_DEADLINE, stream.shutdown())
                .await
                .ok();
        }
        end
    }

    async fn exchange_messages(&mut self, stream: &mut TlsStream) -> SessionEnd {
        self.agent.fill_pools(Instant::now());
        let stop = self.core.agents_stop.clone();
        let mut decoder = Decoder::new();
        let mut bytes = vec![0; READ];
        let mut changes = self.core.tokens.changes();
        let replaced = self.core.handover.replaced().clone();
        let mut successor = self.core.handover.successor();
        if let Err(end) = self.ask_to_move(&mut successor) {
            return end;
        }
        if let Some(end) = self.revocation() {
            return end;
        }
        let mut trim = tokio::time::interval(TRIM_INTERVAL);
        trim.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            if let Err(end) = self.write_out(stream).await {
                return end;
            }
            if self.closing {
                return SessionEnd::Goodbye;
            }
            let silent = tokio::time::sleep_until(self.liveness.deadline().into());
            let paused_until = self.paused_until;
            // Every branch is cancel safe: a read takes bytes only when it completes.
            tokio::select! {
                read = stream.read(&mut bytes), if paused_until.is_none() => {
                    if let Err(end) = self.take_bytes(read, &bytes, &mut decoder) {
                        return end;
                    }
                }
                Some(order) = self.commands.recv() => {
                    if let Err(end) = self.execute_all(order) {
                        return end;
                    }
                }
                () = wait_until(paused_until) => {
                    self.paused_until = None;
                    // Bytes that the agent sent meanwhile were not read.
                    self.liveness.on_frame(Instant::now());
                    if let Err(end) = self.take_messages(&mut decoder) {
                        return end;
                    }
                }
                () = silent, if paused_until.is_none() => {
                    let check = self.check_silence(stream, &mut bytes, &mut decoder);
                    if let Err(end) = check.await {
                        return end;
                    }
                }
                // The sender exists until the engine ends.
                Ok(()) = changes.changed() => {
                    if let Some(end) = self.revocation() {
                        return end;
                    }
                    if let Err(end) = self.close_refused_tunnels() {
                        return end;
                    }
                    self.deferred.note_change(Instant::now());
                }
                () = wait_until(self.deferred.next_check()) => {
                    if let Err(end) = self.retry_deferred(Instant::now()) {
                        return end;
                    }
                }
                Some(claimed) = self.claiming.join_next(), if !self.claiming.is_empty() => {
                    let opened = claimed.map_or(Ok(()), |claimed| self.open_claimed(claimed));
                    if let Err(end) = opened {
                        return end;
                    }
                }
                Ok(()) = successor.changed() => {
                    if let Err(end) = self.ask_to_move(&mut successor) {
                        return end;
                    }
                }
                // It connects to the new process automatically.
                () = replaced.cancelled(), if !self.has_moved => return SessionEnd::Stopping,
                _ = trim.tick() => self.agent.trim_pools(Instant::now()),
                () = stop.cancelled() => return SessionEnd::Stopping,
            }
        }
    }

    /// Asks the agent to move to the process that replaces this one, if there is one.
    fn ask_to_move(
        &mut self,
        successor: &mut watch::Receiver<Option<Arc<str>>>,
    ) -> Result<(), SessionEnd> {
        let process = successor.borrow_and_update().clone();
        let Some(process) = process.filter(|_| self.unmoved.is_some()) else {
            return Ok(());
        };
        let process = process.to_string();
        self.queue_message(&Kind::MoveReq(MoveReq { process }).into())
    }

    /// The reason why the agent must be disconnected: its token was revoked, its project is
    /// suspended, or its owner is no longer a member. The expiry of a token does not end anything
    /// that was started with it.
    fn revocation(&self) -> Option<SessionEnd> {
        let now = self.core.unix_seconds();
        let tenancy = &self.core.tenancy;
        let may = |permission| {
            tenancy
                .require(&self.credential, &self.project, permission)
                .is_ok()
        };
        if !self.core.tokens.is_still_valid(&self.credential, now) {
            Some(SessionEnd::Revoked("its credential was revoked".to_owned()))
        } else if let Err(denied) = tenancy.check_access(&self.credential, &self.project) {
            Some(SessionEnd::Revoked(denied.to_string()))
        } else if !self.tunnels.is_empty() && !may(Permission::TunnelsTunnelsCreateDelete) {
            let reason = "its owner may not open tunnels here any more";
            Some(SessionEnd::Revoked(reason.to_owned()))
        } else {
            None
        }
    }

    fn take_messages(&mut self, decoder: &mut Decoder) -> Result<(), SessionEnd> {
        let violation = |error: String| SessionEnd::Violation(error);
        while self.paused_until.is_none() {
            let message = decoder.next();
            let Some(message) = message.map_err(|error| violation(error.to_string()))? else {
                break;
            };
            let now = Instant::now();
            self.liveness.on_frame(now);
            // Unknown messages of a later version are ignored.
            let Some(kind) = message.kind else { continue };
            self.count(&kind, now);
            match kind {
                Kind::Heartbeat(heartbeat) => {
                    let unix_seconds = self.core.unix_seconds();
                    self.core.tokens.note_use(&self.credential, unix_seconds);
                    let answer = self.liveness.on_heartbeat(heartbeat, now);
                    if let Some(answer) = answer.map_err(|error| violation(error.to_string()))? {
                        self.queue_message(&Kind::Heartbeat(answer).into())?;
                    }
                }
                Kind::OpenTunnelReq(request) => self.open_or_defer(request, now)?,
                Kind::CloseTunnelReq(CloseTunnelReq { tunnel_id }) => {
                    self.close_tunnel(&tunnel_id);
                    self.queue_message(&Kind::CloseTunnelRsp(CloseTunnelRsp { tunnel_id }).into())?;
                }
                Kind::CloseControlChannelReq(_) => {
                    // New visitors use another agent, so none gets a connection that is about to
                    // close.
                    self.agent.end_admission();
                    self.queue_message(
                        &Kind::CloseControlChannelRsp(CloseControlChannelRsp {}).into(),
                    )?;
                    self.closing = true;
                }
                Kind::ProxyConnRsp(ProxyConnRsp {
                    stream_id,
                    error: Some(error),
                }) => {
                    if let Ok(id) = stream_id.parse::<StreamId>() {
                        self.core
                            .pending_streams
                            .refuse_stream(id, self.agent.client_id, error);
                    }
                }
                Kind::MoveRsp(_) => {
                    self.unmoved = None;
                    self.has_moved = true;
                }
                // The arrival of the stream itself is the better signal.
                Kind::ProxyConnRsp(_) | Kind::DatagramChannelClose(_) | Kind::ServerMessage(_) => {}
                _ => return Err(violation("a message that is not allowed here".to_owned())),
            }
        }
        Ok(())
    }

    /// Counts a message. Above its rate the channel is not read for a while, so that the agent has
    /// to wait.
    fn count(&mut self, kind: &Kind, now: Instant) {
        let is_change = matches!(kind, Kind::OpenTunnelReq(_) | Kind::CloseTunnelReq(_));
        let project = is_change.then_some(&self.project.changes);
        let wait = self.rate.count(project, monotonic());
        if wait >= LEAST_PAUSE {
            self.paused_until = Some(now + wait);
        }
    }

    /// Executes a command and those behind it, at most one queue's worth at a time, so that new
    /// commands do not delay the responses.
    fn execute_all(&mut self, order: ControlCommand) -> Result<(), SessionEnd> {
        let mut next = Some(order);
        let mut left = OUTBOX;
        while let Some(order) = next {
            self.execute(order)?;
            left = left.saturating_sub(1);
            next = (left > 0).then(|| self.commands.try_recv().ok()).flatten();
        }
        Ok(())
    }

    fn execute(&mut self, order: ControlCommand) -> Result<(), SessionEnd> {
        match order {
            ControlCommand::Send(message) => self.queue_message(&message),
            ControlCommand::TakenOver(tunnel) => {
                self.announce_end(tunnel, ServerMessage::TAKEN_OVER)
            }
            ControlCommand::Closed(tunnel) => {
                self.announce_end(tunnel, ServerMessage::CLOSED_BY_CALLER)
            }
        }
    }

    /// Tells the agent that a tunnel is closed, and why, unless it has closed the tunnel itself.
    fn announce_end(&mut self, tunnel: TunnelId, reason: &str) -> Result<(), SessionEnd> {
        self.reserved.remove(&tunnel);
        self.domains.remove(&tunnel);
        self.servers.remove(&tunnel);
        self.claims.remove(&tunnel);
        if !self.tunnels.remove(&tunnel) {
            return Ok(());
        }
        let message = reason.to_owned();
        self.queue_message(&Kind::ServerMessage(ServerMessage { message }).into())?;
        let tunnel_id = tunnel.to_string();
        self.queue_message(&Kind::CloseTunnelRsp(CloseTunnelRsp { tunnel_id }).into())
    }

    fn close_tunnels(&mut self, tunnels: Vec<TunnelId>, reason: &str) -> Result<(), SessionEnd> {
        for tunnel in tunnels {
            let tunnel_id = tunnel.to_string();
            self.close_tunnel(&tunnel_id);
            let message = reason.to_owned();
            self.queue_message(&Kind::ServerMessage(ServerMessage { message }).into())?;
            self.queue_message(&Kind::CloseTunnelRsp(CloseTunnelRsp { tunnel_id }).into())?;
        }
        Ok(())
    }

    fn close_tunnel(&mut self, tunnel_id: &str) {
        let Ok(id) = tunnel_id.parse::<TunnelId>() else {
            return;
        };
        self.tunnels.remove(&id);
        self.reserved.remove(&id);
        self.domains.remove(&id);
        self.servers.remove(&id);
        if self
            .core
            .live
            .close_tunnel(&self.agent.client_id, &id)
            .is_some()
        {
            self.core.tcp_ports.close(&id);
            self.core.forget_upstreams(vec![id]);
        }
        // The tunnel is gone, so its names may be parked.
        self.claims.remove(&id);
    }

    /// Queues a message. The queue is bounded by what one round of the loop can produce.
    fn queue_message(&mut self, message: &Message) -> Result<(), SessionEnd> {
        wire::encode(message, &mut self.out).map_err(|error| {
            SessionEnd::Violation(format!("a response does not fit into a frame: {error}"))
        })
    }

    async fn write_out(&mut self, stream: &mut TlsStream) -> Result<(), SessionEnd> {
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
            Err(_) => Err(SessionEnd::Silent),
        }
    }
}

/// Shorter pauses are not made; they accumulate until they are this long.
const LEAST_PAUSE: Duration = Duration::from_millis(10);

/// Bytes per read of a control channel; its messages are small.
const READ: usize = 4096;

/// Completes at this time; never without one.
async fn wait_until(at: Option<Instant>) {
    match at {
        Some(at) => tokio::time::sleep_until(at.into()).await,
        None => pending().await,
    }
}
