//! Visitors that open a managed terminal. The WebSocket is terminated here and connected to a
//! session.

use std::future::pending;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http1::{
    BodyLength, FieldKind, FieldValueBuf, Method, Protocol, field_name, field_value, write_field,
};
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;
use types::problem::Problem;
use types::webtty::Transport;

use crate::access::Rule;
use crate::agents::StreamOrigin;
use crate::edge::headers::forwarding::CONNECTION;
use crate::edge::http1::exchange::{problem_of, refuse};
use crate::edge::http1::{NextStep, Request, Visitor};
use crate::edge::response::local_response::reason;
use crate::edge::routing::{HeaderFields, RequestInfo};
use crate::edge::upstream;
use crate::edge::upstream::ConnectError;
use crate::webtty::{self, Opener, Peer, Policy, Server, ServerError, SessionContext};

/// Detail of the refusal over HTTP/2. Current browsers do not open WebSockets over HTTP/2
/// automatically.
pub(in crate::edge) const HTTP1: &str = "A terminal requires a WebSocket over HTTP/1.1.";

/// A request of a visitor to open a terminal.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// Value of `Sec-WebSocket-Accept` (RFC 6455, 4.2.2).
    accept: FieldValueBuf,
    context: SessionContext,
}

impl Terminal {
    /// Parses the WebSocket handshake (RFC 6455, 4.2.1), and the query parameters of the session.
    pub(in crate::edge) fn from_request<H: HeaderFields>(
        inbound: &RequestInfo<'_>,
        headers: &H,
        query: Option<&str>,
    ) -> Result<Self, Box<Problem>> {
        let is_websocket =
            |upgrade: Protocol<'_>| upgrade.as_str().eq_ignore_ascii_case("websocket");
        if !inbound.upgrade.is_some_and(is_websocket) {
            return Err(Problem::upgrade_required().with_detail(HTTP1).into());
        }
        if inbound.method != Method::Get || inbound.body != BodyLength::Empty {
            return Err(Problem::only_allowed("GET").into());
        }
        let mut versions = headers
            .fields()
            .filter(|field| field.is("sec-websocket-version"));
        if versions
            .next()
            .is_none_or(|field| field.value.as_bytes() != b"13")
            || versions.next().is_some()
        {
            return Err(Problem::invalid_request("Sec-WebSocket-Version is not 13").into());
        }
        let mut keys = headers
            .fields()
            .filter(|field| field.kind == FieldKind::SecWebSocketKey);
        let key = keys.next().map(|field| field.value.as_bytes());
        let key = key.filter(|key| STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16));
        let (Some(key), None) = (key, keys.next()) else {
            return Err(Problem::invalid_request("Sec-WebSocket-Key is malformed").into());
        };
        let accept = FieldValueBuf::parse(derive_accept_key(key).into_bytes());
        Ok(Self {
            accept: accept.ok_or_else(Problem::internal)?,
            context: SessionContext::read(query.unwrap_or_default()).map_err(Problem::from)?,
        })
    }
}

/// Reason why no terminal server could be reached.
#[derive(Debug, thiserror::Error)]
enum ConnectFailure {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// Opens a session, and serves the visitor until it leaves the session.
#[expect(
    clippy::too_many_lines,
    reason = "one decision with its cases in order"
)]
pub(in crate::edge) async fn run(visitor: &mut Visitor, mut request: Request) -> NextStep {
    let Some(terminal) = request.admitted.terminal.take() else {
        return NextStep::Abort;
    };
    let worker = Arc::clone(&visitor.worker);
    let tunnel = &request.admitted.tunnel;
    let project = Arc::clone(&tunnel.project);
    let (proof, tenancy) = (request.admitted.proof(), &worker.core.tenancy);
    let policy = match Policy::for_session(&tunnel.view, &project, proof, tenancy) {
        Ok(policy) => policy,
        Err(error) => {
            let reason = Some(error.to_string().into());
            request.record.set_refusal(Rule::Permission, reason);
            return refuse(visitor, request, &error.into()).await;
        }
    };
    let permit = match worker.core.terminals.reserve(&project.id) {
        Ok(permit) => permit,
        Err(error) => {
            let reason = Some(error.to_string().into());
            request.record.set_refusal(Rule::RateLimit, reason);
            return refuse(visitor, request, &error.into()).await;
        }
    };
    let server = loop {
        let failed = match connect(visitor, &request).await {
            Ok(server) => break server,
            Err(failed) => failed,
        };
        if !request.fail_over(&worker) {
            request.record.set_failure(failed.to_string());
            let problem = match failed {
                ConnectFailure::Connect(error) => problem_of(&error),
                ConnectFailure::Server(ServerError::Deadline) => Problem::upstream_timeout(),
                ConnectFailure::Server(_) => Problem::upstream_unreachable(),
            };
            return refuse(visitor, request, &problem).await;
        }
    };
    request.record.mark_stream_opened();
    request.record.set_status(101);
    request.record.mark_first_byte();
    request.admitted.tunnel.health.record_success();
    let Request {
        admitted: forward,
        body,
        response_format: down,
        expects_continue,
        record,
    } = request;
    let opener = Opener::from_proof(
        forward.proof(),
        terminal.context,
        policy,
        Transport::Websocket,
        tenancy,
    );
    let started = webtty::start_session(&worker, &forward.tunnel, opener, server, (permit, record));
    let started = match started {
        Ok(started) => started,
        Err(refused) => {
            let (error, record) = *refused;
            let problem = webtty::StartError::from(error).into();
            let request = Request {
                admitted: forward,
                body,
                response_format: down,
                expects_continue,
                record,
            };
            return refuse(visitor, request, &problem).await;
        }
    };
    // A WebSocket may be silent for any time, so the stall limit ends with the handshake.
    visitor.io.io.get_ref().0.limit_stall(None);
    let head = answer(&terminal.accept);
    let answering = async {
        visitor.io.io.write_all(&head).await?;
        visitor.io.io.flush().await
    };
    if answering.await.is_err() {
        started.session.on_disconnected(started.seat.id);
        return NextStep::Abort;
    }
    let early = visitor.io.unread().to_vec();
    visitor.io.consume(early.len());
    let config = Some(webtty::websocket_config());
    let io = &mut visitor.io.io;
    let socket = WebSocketStream::from_partially_read(io, early, Role::Server, config).await;
    let peer = Peer::websocket(socket);
    // No separate signal is needed: revocation ends the session for all participants.
    webtty::participate(&started.session, &started.seat, peer, pending()).await;
    NextStep::Close
}

async fn connect(visitor: &Visitor, request: &Request) -> Result<Server, ConnectFailure> {
    let (tunnel, source) = (&request.admitted.tunnel, visitor.connection.source);
    let origin = StreamOrigin {
        source: visitor.connection.address(),
        reference: request.record.reference(),
        is_terminated: true,
    };
    let io = upstream::connect_raw(&visitor.worker, tunnel, origin, None).await?;
    let proof = request.admitted.proof();
    Ok(Server::reach(io, &tunnel.view, proof, source).await?)
}

fn answer(accept: &FieldValueBuf) -> Vec<u8> {
    let mut head = Vec::with_capacity(160);
    http1::write_status_line(&mut head, 101, reason(101));
    write_field(&mut head, field_name!("upgrade"), field_value!("websocket"));
    write_field(&mut head, CONNECTION, field_value!("Upgrade"));
    write_field(
        &mut head,
        field_name!("sec-websocket-accept"),
        accept.as_value(),
    );
    head.extend_from_slice(http1::HEAD_END);
    head
}
