//! A private tunnel dialled by name or id.

use std::sync::Arc;

use types::permission::Permission;
use wire::message::{StreamOutcome, StreamReq, StreamRsp};
use wire::{Error, Kind};

use super::hello::{farewell, send, token};
use super::{OpenError, TunnelStream};
use crate::core::{Core, Worker};
use crate::edge::raw;
use transport::TlsStream;

/// Serves one dialler: judges it, opens the stream, joins the two.
pub(super) async fn serve(mut stream: TlsStream, request: StreamReq, worker: &Arc<Worker>) {
    let zero_rtt = request.zero_rtt.is_some_and(|zero_rtt| zero_rtt.value);
    let opened = open(&request, &stream, worker).await;
    let outcome = match &opened {
        Ok(opened) => StreamOutcome::StreamId(opened.stream_id.clone()),
        Err(error) => StreamOutcome::Error(error.clone()),
    };
    let answer = Kind::StreamRsp(StreamRsp { outcome: Some(outcome) }).into();
    let Ok(opened) = opened else {
        // A dialler that did not want to wait learns from the close that there is no stream.
        if !zero_rtt {
            farewell(&mut stream, answer).await;
        }
        return;
    };
    if !zero_rtt && send(&mut stream, answer).await.is_err() {
        return;
    }
    raw::join(&mut stream, opened.stream, opened.visit, worker).await;
}

struct Opened {
    stream: TunnelStream,
    stream_id: String,
    visit: raw::Visit,
}

async fn open(
    request: &StreamReq,
    stream: &TlsStream,
    worker: &Arc<Worker>,
) -> Result<Opened, Error> {
    let core: &Core = &worker.core;
    if request.datagram_channel.is_some_and(|datagrams| datagrams.value) {
        return Err(Error::feature_not_available("datagram_channel"));
    }
    let details = request.client_details.as_ref();
    let now = core.unix_seconds();
    let credential = core
        .tokens
        .verify(token(details), now)
        .map_err(|_| Error::unauthorized("the token is not valid here"))?;
    if !credential.allows(Permission::TunnelsStreamsCreateDelete) {
        let missing = Permission::TunnelsStreamsCreateDelete;
        return Err(Error::unauthorized(format!("the token lacks the permission {missing}")));
    }
    let not_found = || Error::tunnel_not_found("no such tunnel is online");
    let tunnel = core
        .live
        .find(crate::access::PROJECT, &request.tunnel_id_name)
        .ok_or_else(not_found)?;
    crate::access::may_dial(&credential, &tunnel.view)
        .map_err(|_| Error::unauthorized("the token's boundary excludes this tunnel"))?;
    let peer = stream.get_ref().0.peer();
    let visit = raw::Visit::begin(core, &tunnel, peer, "dial");
    let opened = tunnel.agent.open_stream(worker.index, tunnel.view.id, peer.ip()).await;
    match opened {
        Ok(stream) => Ok(Opened { stream, stream_id: visit.stream_id().to_string(), visit }),
        Err(error) => {
            let answer = match &error {
                OpenError::Refused(refusal) => refusal.clone(),
                OpenError::Full => Error::capacity_exhausted(error.to_string()),
                OpenError::Gone | OpenError::Deadline => {
                    Error::service_unavailable(error.to_string())
                }
            };
            visit.failed(core, &error);
            Err(answer)
        }
    }
}
