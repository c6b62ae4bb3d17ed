//! One open control channel.
//!
//! The session changes the channel to match the owner's requests ([`Session::reconcile`]) and
//! handles messages of the engine. Streams are served in other tasks, so the session never waits
//! for one.

mod deadlines;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{mpsc, oneshot},
    time::{sleep_until, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{debug, info, warn};
use types::causes::chain;
use wire::{
    Kind,
    handshake::{EXT_LANE, EXT_MOVE, EXT_POOL},
    liveness::AgentLiveness,
    message::{
        CloseControlChannelReq, CloseTunnelReq, ControlChannelOutcome, MoveRsp, OpenTunnelReq,
        OpenTunnelRsp, ProxyConnRsp, ServerMessage, TunnelOutcome,
    },
};

use super::{
    AgentStatus, announcement,
    channel::{Reader, Writer, split},
    data_path::DataPath,
    hello, inbound,
    moving::{SessionExit, wait_for_arrival},
    pool::Pool,
    shared::{AgentState, Entry},
};
use crate::agent::tunnel::{CloseReason, Online, Status};
use crate::backoff::{Backoff, random};
use crate::connect::Connector;
use crate::error::Step;
use crate::{ConnectError, Properties, Refusal, RefusalKind, Token};

/// An open control channel.
pub(crate) struct Session {
    shared: Arc<AgentState>,
    reader: Reader,
    writer: Writer,
    liveness: AgentLiveness,
    client_id: String,
    /// The tunnels of this channel by local id.
    tunnels: HashMap<u64, TunnelState>,
    /// The reason that the engine announced for the next tunnel that it closes.
    close_reason: Option<Refusal>,
    /// Responses of the tasks that accept visitors.
    answers: mpsc::Receiver<ProxyConnRsp>,
    answer: mpsc::Sender<ProxyConnRsp>,
    /// State of the data connections; without them the tunnels are offline.
    path: Arc<DataPath>,
    /// Standing connections, if the engine supports `pool/1`.
    pool: Option<Pool>,
    /// The newest heartbeat and its send time, for the round-trip time.
    last_heartbeat: Option<(u64, Instant)>,
    /// Tunnels that the engine opened without a requested option. They are closed.
    unsupported: Vec<String>,
    /// Time of the request to the engine to end the channel.
    ending: Option<Instant>,
    /// Cancelled at the end of the channel: idle connections and lanes without a stream then end.
    end: CancellationToken,
    /// The process to which the engine asks the agent to move.
    move_to: Option<String>,
    /// Notified when the tunnels are online here, by a channel that replaces another one.
    arrived: Option<oneshot::Sender<()>>,
    /// Another channel replaces this one, which only serves streams.
    is_replaced: bool,
    /// Completed when the tunnels are online on the other channel.
    arrival: Option<oneshot::Receiver<()>>,
}

/// State of a tunnel on this channel.
struct TunnelState {
    entry: Arc<Entry>,
    step: Progress,
    backoff: Backoff,
}

enum Progress {
    /// The engine has not responded yet.
    Requested,
    Online {
        tunnel_id: String,
    },
    /// The engine was asked to close the tunnel.
    Closing {
        tunnel_id: String,
    },
    /// The engine could not serve the tunnel; the next request is at this time.
    Waiting {
        until: Instant,
    },
}

impl Session {
    /// Connects and exchanges hellos. It retries once if the engine refuses the token and the
    /// provider has another one.
    ///
    /// Cancel safe: dropping the future closes the connection.
    pub(crate) async fn open(
        shared: &Arc<AgentState>,
        process: Option<&str>,
    ) -> Result<Self, ConnectError> {
        let selected = process.and_then(|process| shared.connector().for_process(process));
        let connector = selected.as_ref().unwrap_or_else(|| shared.connector());
        let tokens = &shared.config().tokens;
        let token = tokens.token().await?;
        match Self::open_with(shared, connector, &token).await {
            Err(error) if error.is_unauthorized() => match tokens.replacement(&token).await? {
                Some(token) => Self::open_with(shared, connector, &token).await,
                None => Err(error),
            },
            opened => opened,
        }
    }

    async fn open_with(
        shared: &Arc<AgentState>,
        connector: &Connector,
        token: &Token,
    ) -> Result<Self, ConnectError> {
        let (reader, mut writer) = split(connector.connect().await?);
        let mut reader = reader;
        let config = shared.config();
        let proposal = AgentLiveness::propose(config.heartbeat);
        writer.send(hello::control(config, token, proposal)).await?;
        let answer = timeout(HELLO_TIMEOUT, reader.next())
            .await
            .map_err(|_elapsed| ConnectError::TimedOut(Step::Hello))??;
        let Some(Kind::OpenControlChannelRsp(answer)) = answer else {
            return Err(ConnectError::Protocol(
                "unexpected answer to the hello".into(),
            ));
        };
        let ok = match answer.outcome {
            Some(ControlChannelOutcome::Ok(ok)) => ok,
            Some(ControlChannelOutcome::Error(error)) => return Err(hello::refused(&error)),
            None => {
                return Err(ConnectError::Protocol(
                    "the answer to the hello is empty".into(),
                ));
            }
        };
        let liveness = AgentLiveness::accept(Some(proposal), ok.liveness, Instant::now())
            .map_err(|error| ConnectError::Protocol(error.to_string()))?;
        let end = CancellationToken::new();
        let server = ok.server_details.unwrap_or_default();
        let speaks = |name: &str| server.extensions.iter().any(|agreed| agreed == name);
        let process = Some(server.process.as_str()).filter(|_| speaks(EXT_MOVE));
        let selected = process.and_then(|process| shared.connector().for_process(process));
        let path = Arc::new(DataPath::new(selected));
        let speaks_pool = config.standing && speaks(EXT_POOL);
        let speaks_lane = speaks_pool && config.lanes && speaks(EXT_LANE);
        let (answer, answers) = mpsc::channel(RESPONSE_QUEUE_CAPACITY);
        info!(
            client_id = ok.client_id,
            standing = speaks_pool,
            lanes = speaks_lane,
            "connected to the engine"
        );
        shared.set_status(AgentStatus::Online {
            client_id: ok.client_id.clone(),
        });
        Ok(Self {
            shared: Arc::clone(shared),
            reader,
            writer,
            liveness,
            client_id: ok.client_id,
            tunnels: HashMap::new(),
            close_reason: None,
            answers,
            answer,
            pool: speaks_pool.then(|| {
                let (shared, path) = (Arc::clone(shared), Arc::clone(&path));
                Pool::new(shared, path, end.clone(), speaks_lane)
            }),
            path,
            last_heartbeat: None,
            unsupported: Vec::new(),
            ending: None,
            end,
            move_to: None,
            arrived: None,
            is_replaced: false,
            arrival: None,
        })
    }

    /// Notifies the earlier channel when the tunnels are online here.
    pub(crate) fn notify_arrival(&mut self, arrived: oneshot::Sender<()>) {
        self.arrived = Some(arrived);
    }

    /// Runs until the channel is closed on request or lost, or until the engine asks the agent to
    /// move.
    pub(crate) async fn run(mut self) -> SessionExit {
        let result = match self.serve().await {
            Ok(Some(process)) => return SessionExit::Moves(Box::new(self), process),
            Ok(None) => Ok(()),
            Err(error) => Err(error),
        };
        self.finish().await;
        SessionExit::Ended(result)
    }

    /// Serves the streams of this channel until the engine closes it. The tunnels are requested and
    /// closed on another channel, which completes `arrival` when they are online there.
    pub(crate) async fn serve_replaced(mut self, arrival: oneshot::Receiver<()>) {
        self.is_replaced = true;
        self.arrival = Some(arrival);
        if let Err(error) = self.serve().await {
            debug!(error = chain(&error), "the earlier channel has ended");
        }
        self.finish().await;
    }

    /// Closes the channel. Accepted streams continue.
    pub(crate) async fn finish(mut self) {
        self.end.cancel();
        for tunnel in self.tunnels.values() {
            if let Progress::Online { tunnel_id } | Progress::Closing { tunnel_id } = &tunnel.step {
                self.shared.remove_route(tunnel_id);
            }
        }
        self.writer.finish().await;
    }

    /// Serves until the channel is closed on request (`Ok(None)`), or the engine asks the agent to
    /// move to a process.
    async fn serve(&mut self) -> Result<Option<String>, ConnectError> {
        loop {
            self.reconcile().await?;
            if let Some(process) = self.move_to.take() {
                return Ok(Some(process));
            }
            self.heartbeat().await?;
            let wake_at = self.wake_at();
            tokio::select! {
                message = self.reader.next() => {
                    if self.take(message)? {
                        return Ok(None);
                    }
                }
                has_arrived = wait_for_arrival(&mut self.arrival) => {
                    self.arrival = None;
                    if has_arrived {
                        self.writer.send(Kind::MoveRsp(MoveRsp {})).await?;
                    }
                }
                Some(answer) = self.answers.recv() => {
                    self.writer.send(Kind::ProxyConnRsp(answer)).await?;
                }
                () = self.shared.woken(), if !self.is_replaced => {}
                () = self.path.broken() => return Err(ConnectError::DataPath),
                () = self.shared.stop.cancelled(), if self.ending.is_none() => {}
                () = sleep_until(wake_at.into()) => {
                    self.check_ending()?;
                    if self.is_overdue() && self.take_late_message().await? {
                        return Ok(None);
                    }
                }
            }
        }
    }

    /// Requests missing tunnels from the engine, and the closing of unwanted ones.
    async fn reconcile(&mut self) -> Result<(), ConnectError> {
        if self.ending.is_some() {
            return Ok(());
        }
        while let Some(tunnel_id) = self.unsupported.pop() {
            let close = Kind::CloseTunnelReq(CloseTunnelReq { tunnel_id });
            self.writer.send(close).await?;
        }
        if self.shared.stop.is_cancelled() {
            self.ending = Some(Instant::now());
            let bye = Kind::CloseControlChannelReq(CloseControlChannelReq {});
            return self.writer.send(bye).await;
        }
        if self.is_replaced {
            return Ok(());
        }
        for entry in self.shared.entries() {
            let now = Instant::now();
            let tunnel = self.tunnels.get_mut(&entry.id);
            match tunnel {
                None if entry.is_closing() => self.shared.finish(&entry, entry.close_reason()),
                None => {
                    self.request_tunnel(&entry).await?;
                    let backoff = self.shared.config().backoff.clone();
                    self.tunnels.insert(
                        entry.id,
                        TunnelState {
                            entry,
                            step: Progress::Requested,
                            backoff,
                        },
                    );
                }
                Some(tunnel) => match &tunnel.step {
                    Progress::Online { tunnel_id } if entry.is_closing() => {
                        let tunnel_id = tunnel_id.clone();
                        self.shared.remove_route(&tunnel_id);
                        tunnel.step = Progress::Closing {
                            tunnel_id: tunnel_id.clone(),
                        };
                        let close = Kind::CloseTunnelReq(CloseTunnelReq { tunnel_id });
                        self.writer.send(close).await?;
                    }
                    Progress::Waiting { .. } if entry.is_closing() => {
                        self.tunnels.remove(&entry.id);
                        self.shared.finish(&entry, entry.close_reason());
                    }
                    Progress::Waiting { until } if *until <= now => {
                        tunnel.step = Progress::Requested;
                        self.request_tunnel(&entry).await?;
                    }
                    Progress::Requested
                    | Progress::Online { .. }
                    | Progress::Closing { .. }
                    | Progress::Waiting { .. } => {}
                },
            }
        }
        self.report_arrival();
        Ok(())
    }

    /// Notifies the earlier channel if the engine has answered every request here.
    fn report_arrival(&mut self) {
        let mut steps = self.tunnels.values().map(|tunnel| &tunnel.step);
        if steps.any(|step| matches!(step, Progress::Requested)) {
            return;
        }
        if let Some(arrived) = self.arrived.take() {
            // The earlier channel may have ended.
            arrived.send(()).ok();
        }
    }

    async fn request_tunnel(&mut self, entry: &Entry) -> Result<(), ConnectError> {
        let ask = Kind::OpenTunnelReq(OpenTunnelReq {
            request_id: entry.id.to_string(),
            tunnel_properties: Some(entry.request().to_wire()),
        });
        self.writer.send(ask).await
    }

    async fn heartbeat(&mut self) -> Result<(), ConnectError> {
        let now = Instant::now();
        let Some(heartbeat) = self.liveness.next_heartbeat(now) else {
            return Ok(());
        };
        // A heartbeat of the old mode has no sequence and no response.
        self.last_heartbeat = (heartbeat.sequence != 0).then_some((heartbeat.sequence, now));
        self.writer.send(Kind::Heartbeat(heartbeat)).await
    }

    /// Handles the result of a read; true when the channel has ended on request.
    fn take(&mut self, message: Result<Option<Kind>, ConnectError>) -> Result<bool, ConnectError> {
        let message = message?;
        self.liveness.on_frame(Instant::now());
        message.map_or(Ok(false), |kind| self.handle(kind))
    }

    /// Handles one message; true when the channel has ended on request.
    fn handle(&mut self, kind: Kind) -> Result<bool, ConnectError> {
        match kind {
            Kind::Heartbeat(heartbeat) => {
                let now = Instant::now();
                let answered = heartbeat.acknowledgement;
                self.liveness
                    .on_heartbeat(heartbeat, now)
                    .map_err(|error| ConnectError::Protocol(error.to_string()))?;
                if let Some((_, sent)) = self
                    .last_heartbeat
                    .take_if(|(sequence, _)| *sequence == answered)
                {
                    self.shared.set_round_trip(Some(now - sent));
                }
            }
            Kind::OpenTunnelRsp(answer) => self.handle_tunnel_response(answer),
            Kind::CloseTunnelRsp(closed) => self.handle_tunnel_close(&closed.tunnel_id),
            Kind::ServerMessage(ServerMessage { message }) => {
                if let Some(reason) = announcement::close_reason(&message) {
                    self.close_reason = Some(reason);
                } else {
                    info!(
                        message = message.escape_debug().to_string(),
                        "message from the engine"
                    );
                }
            }
            Kind::ProxyConnReq(visitor) => {
                inbound::accept_visitor(&self.shared, &self.path, visitor, self.answer.clone());
            }
            Kind::PoolReq(request) => {
                if let Some(pool) = &self.pool {
                    pool.grow(&request);
                } else {
                    debug!("standing connections were not negotiated");
                }
            }
            Kind::MoveReq(request) => {
                if !self.is_replaced && self.ending.is_none() {
                    info!("the engine is being replaced; connecting to the new process");
                    self.move_to = Some(request.process);
                }
            }
            Kind::CloseControlChannelRsp(_) if self.ending.is_some() => return Ok(true),
            Kind::CloseControlChannelRsp(_) => {
                return Err(ConnectError::Unavailable(
                    "it closed the channel".to_owned(),
                ));
            }
            // Messages for an agent or another kind of connection: a defect of the engine, but
            // nothing here depends on them.
            other => debug!(message = ?std::mem::discriminant(&other), "an unexpected message"),
        }
        Ok(false)
    }

    fn handle_tunnel_response(&mut self, answer: OpenTunnelRsp) {
        let tunnel = answer
            .request_id
            .parse()
            .ok()
            .and_then(|id| self.tunnels.get_mut(&id));
        let Some(tunnel) = tunnel.filter(|tunnel| matches!(tunnel.step, Progress::Requested))
        else {
            debug!("an answer for a tunnel that was not requested");
            return;
        };
        if self.is_replaced {
            // Requested before the move, and once more on the other channel.
            if let Some(TunnelOutcome::TunnelProperties(effective)) = answer.outcome {
                let tunnel_id = Properties::from_wire(&effective).id.unwrap_or_default();
                self.shared
                    .add_route(tunnel_id.clone(), Arc::clone(&tunnel.entry));
                tunnel.step = Progress::Online { tunnel_id };
            }
            return;
        }
        match answer.outcome {
            Some(TunnelOutcome::TunnelProperties(effective)) => {
                let properties = Properties::from_wire(&effective);
                if let Some(refusal) = ignored(&tunnel.entry.request(), &properties) {
                    warn!(reason = %refusal, "the engine cannot serve a tunnel");
                    self.unsupported.extend(properties.id);
                    self.remove_tunnel(&answer.request_id, CloseReason::Refused(refusal));
                    return;
                }
                let tunnel_id = properties.id.clone().unwrap_or_default();
                tunnel.step = Progress::Online {
                    tunnel_id: tunnel_id.clone(),
                };
                tunnel.backoff.reset();
                tunnel.entry.store_hostname(&properties);
                self.shared
                    .add_route(tunnel_id.clone(), Arc::clone(&tunnel.entry));
                let forwarding = properties.forwarding(self.shared.connector().address().port());
                let client_id = self.client_id.clone();
                let online = Online {
                    tunnel_id,
                    client_id,
                    properties,
                    forwarding,
                };
                tunnel.entry.set_status(Status::Online(Arc::new(online)));
            }
            Some(TunnelOutcome::Error(error)) => match hello::refused(&error) {
                // The drawn name is no longer available, and another one is as good.
                ConnectError::Refused(_) if tunnel.entry.clear_hostname() => {
                    tunnel.step = Progress::Waiting {
                        until: Instant::now(),
                    };
                }
                ConnectError::Refused(refusal) => {
                    warn!(reason = %refusal, "the engine refused a tunnel");
                    self.remove_tunnel(&answer.request_id, CloseReason::Refused(refusal));
                }
                later => {
                    let retry_in = tunnel.backoff.next_wait(random());
                    tunnel.step = Progress::Waiting {
                        until: Instant::now() + retry_in,
                    };
                    tunnel.entry.disconnected(&chain(&later).into(), retry_in);
                }
            },
            None => {
                let empty = Refusal::new(RefusalKind::Invalid, "the engine gave an empty answer");
                self.remove_tunnel(&answer.request_id, CloseReason::Refused(empty));
            }
        }
    }

    fn handle_tunnel_close(&mut self, tunnel_id: &str) {
        // The announcement refers to this tunnel, whichever side requested its end.
        let announced = self.close_reason.take();
        let ours = self
            .tunnels
            .iter()
            .find_map(|(id, tunnel)| match &tunnel.step {
                Progress::Online { tunnel_id: id_of } if id_of == tunnel_id => Some((*id, false)),
                Progress::Closing { tunnel_id: id_of } if id_of == tunnel_id => Some((*id, true)),
                _ => None,
            });
        let Some((id, asked)) = ours else { return };
        self.shared.remove_route(tunnel_id);
        let Some(tunnel) = self.tunnels.remove(&id) else {
            return;
        };
        let why = if asked {
            tunnel.entry.close_reason()
        } else {
            announced.map_or(CloseReason::ByEngine, CloseReason::Refused)
        };
        if !self.is_replaced {
            self.shared.finish(&tunnel.entry, why);
        } else if let CloseReason::Refused(refusal) = why
            && refusal.kind == RefusalKind::ClosedByCaller
        {
            // It must not be online at the new process either, which the other channel ensures. Every
            // other end here is part of the move.
            tunnel.entry.close_for(refusal);
            self.shared.wake();
        }
    }

    fn remove_tunnel(&mut self, request_id: &str, why: CloseReason) {
        let tunnel = request_id
            .parse()
            .ok()
            .and_then(|id: u64| self.tunnels.remove(&id));
        if let Some(tunnel) = tunnel {
            self.shared.finish(&tunnel.entry, why);
        }
    }
}

/// An engine of an earlier version ignores `identity` and link passwords. It would forward the
/// fields of visitors with the names that the service trusts, or admit every visitor.
fn ignored(requested: &Properties, effective: &Properties) -> Option<Refusal> {
    let option = if !requested.identity.is_empty() && effective.identity.is_empty() {
        "identity"
    } else if requested.requires_link_password() && effective.basic_auth != Some(true) {
        "basic_auth"
    } else {
        return None;
    };
    let message = format!("this engine does not support `{option}`; it needs a newer version");
    Some(Refusal::new(RefusalKind::NotAvailable, message))
}

/// An engine responds to a hello immediately, except when it has to fetch a key to check a token.
const HELLO_TIMEOUT: Duration = Duration::from_secs(10);

/// Queued responses: as many as visitors that may be pending.
const RESPONSE_QUEUE_CAPACITY: usize = inbound::MAX_PENDING_VISITORS;
