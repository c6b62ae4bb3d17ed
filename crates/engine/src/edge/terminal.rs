//! Visitors who open a managed terminal: a WebSocket that ends here, at a session.

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

use super::answer::reason;
use super::exchange::{problem_of, refuse};
use super::forwarding::CONNECTION;
use super::http1::{ConnectionState, Request, Visitor};
use super::routing::{HeaderFields, RequestInfo};
use super::upstream_pool::{self, ConnectError};
use crate::access::Rule;
use crate::webtty::{self, Opener, Peer, Policy, Server, ServerError, SessionContext};

/// What is said to those who come over HTTP/2, where browsers of today do not open WebSockets by
/// themselves.
pub(super) const HTTP1: &str = "A terminal is opened with a WebSocket over HTTP/1.1.";

/// A terminal that a visitor wants to open.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// What the handshake is answered with (RFC 6455, 4.2.2).
    accept: FieldValueBuf,
    stated: SessionContext,
}

impl Terminal {
    /// Reads the handshake of a WebSocket (RFC 6455, 4.2.1), and what the query says about the
    /// session.
    pub(super) fn asked<H: HeaderFields>(
        inbound: &RequestInfo<'_>,
        heads: &H,
        query: Option<&str>,
    ) -> Result<Self, Box<Problem>> {
        let asks = |upgrade: Protocol<'_>| upgrade.as_str().eq_ignore_ascii_case("websocket");
        if !inbound.upgrade.is_some_and(asks) {
            return Err(Problem::upgrade_required().with_detail(HTTP1).into());
        }
        if inbound.method != Method::Get || inbound.body != BodyLength::Empty {
            return Err(Problem::only_allowed("GET").into());
        }
        let mut versions = heads
            .fields()
            .filter(|field| field.is("sec-websocket-version"));
        if versions
            .next()
            .is_none_or(|field| field.value.as_bytes() != b"13")
            || versions.next().is_some()
        {
            return Err(Problem::invalid_request("Sec-WebSocket-Version is not 13").into());
        }
        let mut keys = heads
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
            stated: SessionContext::read(query.unwrap_or_default()).map_err(Problem::from)?,
        })
    }
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
enum ConnectFailure {
    #[error(transparent)]
    Connect(#[from] ConnectError),
    #[error(transparent)]
    Server(#[from] ServerError),
}

/// Opens a session, and serves its opener for as long as they take part.
pub(super) async fn run(visitor: &mut Visitor, mut request: Request) -> ConnectionState {
    let Some(terminal) = request.forward.terminal.take() else {
        return ConnectionState::Abort;
    };
    let worker = Arc::clone(&visitor.worker);
    let tunnel = &request.forward.tunnel;
    let project = Arc::clone(&tunnel.project);
    let (proof, tenancy) = (request.forward.proof(), &worker.core.tenancy);
    let policy = match Policy::of(&tunnel.view, &project, proof, tenancy) {
        Ok(policy) => policy,
        Err(not) => {
            let reason = Some(not.to_string().into());
            request.record.refused(Rule::Permission, reason);
            return refuse(visitor, request, &not.into()).await;
        }
    };
    let place = match worker.core.terminals.reserve(&project.id) {
        Ok(place) => place,
        Err(full) => {
            let reason = Some(full.to_string().into());
            request.record.refused(Rule::RateLimit, reason);
            return refuse(visitor, request, &full.into()).await;
        }
    };
    let server = loop {
        let failed = match connect(visitor, &request).await {
            Ok(server) => break server,
            Err(failed) => failed,
        };
        if !request.fail_over(&worker) {
            request.record.failed(failed.to_string());
            let problem = match failed {
                ConnectFailure::Connect(error) => problem_of(&error),
                ConnectFailure::Server(ServerError::Deadline) => Problem::upstream_timeout(),
                ConnectFailure::Server(_) => Problem::upstream_unreachable(),
            };
            return refuse(visitor, request, &problem).await;
        }
    };
    request.record.opened();
    request.record.status(101);
    request.record.first_byte();
    request.forward.tunnel.health.served();
    let Request {
        forward,
        body,
        down,
        expects_continue,
        record,
    } = request;
    let opener = Opener::of(
        forward.proof(),
        terminal.stated,
        policy,
        Transport::Websocket,
        tenancy,
    );
    let begun = webtty::begin(&worker, &forward.tunnel, opener, server, (place, record));
    let begun = match begun {
        Ok(begun) => begun,
        Err(refused) => {
            let (not, record) = *refused;
            let problem = webtty::StartError::from(not).into();
            let request = Request {
                forward,
                body,
                down,
                expects_continue,
                record,
            };
            return refuse(visitor, request, &problem).await;
        }
    };
    // From here on the two ends alone know whether one that pauses is well.
    visitor.io.io.get_ref().0.limit_stall(None);
    let head = answer(&terminal.accept);
    let answering = async {
        visitor.io.io.write_all(&head).await?;
        visitor.io.io.flush().await
    };
    if answering.await.is_err() {
        begun.session.lost(begun.seat.id);
        return ConnectionState::Abort;
    }
    let ahead = visitor.io.unread().to_vec();
    visitor.io.consume(ahead.len());
    let config = Some(webtty::websocket_config());
    let io = &mut visitor.io.io;
    let socket = WebSocketStream::from_partially_read(io, ahead, Role::Server, config).await;
    let peer = Peer::websocket(socket);
    // What ends the session from outside ends it for everybody.
    webtty::participate(&begun.session, &begun.seat, peer, pending()).await;
    ConnectionState::Close
}

async fn connect(visitor: &Visitor, request: &Request) -> Result<Server, ConnectFailure> {
    let (tunnel, source) = (&request.forward.tunnel, visitor.seen.source);
    let io = upstream_pool::connect_raw(&visitor.worker, tunnel, source, None).await?;
    let proof = request.forward.proof();
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
