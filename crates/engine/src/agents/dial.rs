//! Dialling of private tunnels by name or id.

use std::future::pending;
use std::sync::Arc;

use transport::TlsStream;
use types::id::StreamId;
use types::permission::Permission;
use types::webtty::Transport;
use wire::message::{StreamOutcome, StreamReq, StreamRsp};
use wire::{Error, Kind};

use super::hello::{farewell, send, token};
use super::{Agent, Purpose, StreamOrigin, TunnelStream};
use crate::access::{self, Proof, Rule, TokenForm, VisitorInfo};
use crate::core::{Core, Worker};
use crate::directory::Project;
use crate::edge::access_record::{AccessRecord, Outcome};
use crate::edge::{UpstreamIo, raw};
use crate::limits::ThrottledStream;
use crate::live::LiveTunnel;
use crate::webtty::{self, Opener, Peer, Policy, Server, SessionContext, SessionPermit};

/// A stream for a dialler, after its access was checked.
struct DialledStream {
    tunnel: Arc<LiveTunnel<Agent>>,
    proof: Proof,
    stream: ThrottledStream<TunnelStream>,
    id: StreamId,
    /// The permit for the session, at a managed terminal server.
    terminal: Option<(Policy, SessionPermit)>,
}

/// Serves one dialler: checks its access, opens the stream, and joins the two.
pub(super) async fn serve(
    mut stream: TlsStream,
    request: StreamReq,
    project: &Project,
    worker: &Arc<Worker>,
) {
    let zero_rtt = request.zero_rtt.is_some_and(|zero_rtt| zero_rtt.value);
    let mut record = AccessRecord::start(worker, "dial", stream.get_ref().0.peer().ip());
    let opened = open(&request, &stream, project, &mut record, worker).await;
    let outcome = match &opened {
        Ok(opened) => StreamOutcome::StreamId(opened.id.to_string()),
        Err(error) => StreamOutcome::Error(error.clone()),
    };
    // With zero-RTT there is no response: a failed dial is only visible by the close.
    if !zero_rtt {
        let answer = Kind::StreamRsp(StreamRsp {
            outcome: Some(outcome),
        })
        .into();
        if opened.is_err() {
            farewell(&mut stream, answer).await;
        } else if send(&mut stream, answer).await.is_err() {
            return;
        }
    }
    match opened {
        Ok(mut opened) => match opened.terminal.take() {
            Some((policy, permit)) => {
                let opening = terminal(stream, opened, policy, (permit, record), worker);
                Box::pin(opening).await;
            }
            None => raw::serve_dial(stream, opened.stream, &mut record).await,
        },
        Err(_told) => {}
    }
}

/// Opens a session at a managed terminal server, and serves the dialler for the lifetime of its
/// participation. Later errors are sent in the terminal protocol.
async fn terminal(
    stream: TlsStream,
    opened: DialledStream,
    policy: Policy,
    (permit, mut record): (SessionPermit, AccessRecord),
    worker: &Arc<Worker>,
) {
    let source = stream.get_ref().0.peer().ip();
    let DialledStream { tunnel, proof, .. } = opened;
    let peer = Peer::plain(stream);
    let io = UpstreamIo::Plain(opened.stream);
    let server = match Server::reach(io, &tunnel.view, Some(&proof), source).await {
        Ok(server) => server,
        Err(error) => {
            record.set_failure(error.to_string());
            return webtty::refuse(peer, &error.to_string()).await;
        }
    };
    record.mark_stream_opened();
    record.mark_first_byte();
    let opener = Opener::from_proof(
        Some(&proof),
        SessionContext::default(),
        policy,
        Transport::Plain,
        &worker.core.tenancy,
    );
    match webtty::start_session(worker, &tunnel, opener, server, (permit, record)) {
        Ok(started) => webtty::participate(&started.session, &started.seat, peer, pending()).await,
        Err(refused) => {
            let (error, mut record) = *refused;
            record.set_failure(error.to_string());
            webtty::refuse(peer, &error.to_string()).await;
        }
    }
}

async fn open(
    request: &StreamReq,
    stream: &TlsStream,
    project: &Project,
    record: &mut AccessRecord,
    worker: &Arc<Worker>,
) -> Result<DialledStream, Error> {
    let core: &Core = &worker.core;
    record.set_outcome(Outcome::Refused);
    if request
        .datagram_channel
        .is_some_and(|datagrams| datagrams.value)
    {
        return Err(Error::feature_not_available("datagram_channel"));
    }
    let credential = core
        .tokens
        .verify(token(request.client_details.as_ref()), core.unix_seconds())
        .map_err(|refused| {
            record.set_rule(Rule::Token.as_str(), Some(refused.to_string().into()));
            super::token_refused(refused)
        })?;
    let proof = Proof::Token {
        token: Arc::clone(&credential),
        form: TokenForm::Header,
    };
    record.set_proof(&proof);
    let permission = Permission::TunnelsStreamsCreateDelete;
    let permitted = core.tenancy.require(&credential, project, permission);
    permitted.map_err(|denied| {
        record.set_rule(Rule::Permission.as_str(), None);
        Error::unauthorized(denied.to_string())
    })?;
    if !core.serves_names() {
        record.set_rule("offline", None);
        let reason = "the engine has no contact with its cluster";
        return Err(Error::service_unavailable(reason));
    }
    record.set_rule("unknown", None);
    let tunnel = core
        .live
        .find(&project.id, &request.tunnel_id_name)
        // A published tunnel has its address at the edge, and a dial would bypass its access rules.
        .filter(|tunnel| tunnel.view.properties.publish == Some(false))
        .ok_or_else(|| Error::tunnel_not_found("no private tunnel with this name is online"))?;
    record.set_tunnel(&tunnel);
    record.set_rule(Rule::Boundary.as_str(), None);
    access::check_dial_boundary(&credential, project, &tunnel.view)
        .map_err(|denied| Error::unauthorized(denied.to_string()))?;
    record
        .acquire_slot(&tunnel.project)
        .map_err(|none| Error::capacity_exhausted(none.to_string()))?;
    let terminal = if webtty::is_terminal_tunnel(&tunnel.view) {
        Some(session_permit(&tunnel, project, &proof, record, core)?)
    } else {
        None
    };
    record.set_rule(Rule::Token.as_str(), None);
    let source = stream.get_ref().0.peer().ip();
    record.register_visit(&tunnel, VisitorInfo::at(source), Some(&proof));
    let origin = StreamOrigin {
        source: stream.get_ref().0.peer(),
        reference: record.reference(),
        is_terminated: true,
    };
    let opened = tunnel
        .agent
        .open_stream(worker.index, &tunnel, origin, Purpose::Bytes)
        .await;
    let shaped = opened.map(|(stream, id)| (ThrottledStream::new(stream, &tunnel), id));
    let (stream, id) = shaped.map_err(|error| {
        record.set_failure(error.to_string());
        Error::from(error)
    })?;
    Ok(DialledStream {
        tunnel,
        proof,
        stream,
        id,
        terminal,
    })
}

/// Checks the rights of a dialler to a session at a managed terminal server, and reserves the
/// session.
fn session_permit(
    tunnel: &LiveTunnel<Agent>,
    project: &Project,
    proof: &Proof,
    record: &mut AccessRecord,
    core: &Core,
) -> Result<(Policy, SessionPermit), Error> {
    let policy = Policy::for_session(&tunnel.view, project, Some(proof), &core.tenancy);
    let policy = policy.map_err(|error| {
        record.set_rule(Rule::Permission.as_str(), Some(error.to_string().into()));
        Error::unauthorized(error.to_string())
    })?;
    let permit = core.terminals.reserve(&project.id);
    let permit = permit.map_err(|full| Error::capacity_exhausted(full.to_string()))?;
    Ok((policy, permit))
}
