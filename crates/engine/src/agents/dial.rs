//! A private tunnel dialled by name or id.

use std::sync::Arc;

use transport::TlsStream;
use types::id::StreamId;
use types::permission::Permission;
use wire::message::{StreamOutcome, StreamReq, StreamRsp};
use wire::{Error, Kind};

use super::hello::{farewell, send, token};
use super::{OpenError, TunnelStream};
use crate::access::{self, PROJECT, Proof, ProofMethod, Rule};
use crate::core::{Core, Worker};
use crate::edge::raw;
use crate::edge::record::{Outcome, Record};

/// Serves one dialler: judges it, opens the stream, joins the two.
pub(super) async fn serve(mut stream: TlsStream, request: StreamReq, worker: &Arc<Worker>) {
    let zero_rtt = request.zero_rtt.is_some_and(|zero_rtt| zero_rtt.value);
    let mut record = Record::begin(worker, "dial", stream.get_ref().0.peer().ip());
    let opened = open(&request, &stream, &mut record, worker).await;
    let outcome = match &opened {
        Ok((_, id)) => StreamOutcome::StreamId(id.to_string()),
        Err(error) => StreamOutcome::Error(error.clone()),
    };
    // A dialler that did not want to wait learns from the close that there is no stream.
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
    if let Ok((through, _)) = opened {
        raw::join(stream, through, &mut record).await;
    }
}

async fn open(
    request: &StreamReq,
    stream: &TlsStream,
    record: &mut Record,
    worker: &Arc<Worker>,
) -> Result<(TunnelStream, StreamId), Error> {
    let core: &Core = &worker.core;
    record.ended(Outcome::Refused);
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
            record.decided(Rule::Token.as_str(), Some(refused.to_string().into()));
            Error::unauthorized("the token is not valid here")
        })?;
    record.proof(&Proof {
        token: Arc::clone(&credential),
        method: ProofMethod::Header,
    });
    access::require(&credential, Permission::TunnelsStreamsCreateDelete).map_err(|denied| {
        record.decided(Rule::Permission.as_str(), None);
        Error::unauthorized(denied.to_string())
    })?;
    record.decided("unknown", None);
    let tunnel = core
        .live
        .find(PROJECT, &request.tunnel_id_name)
        // A published tunnel has its address at the edge, and guards that a dial would go around.
        .filter(|tunnel| tunnel.view.properties.publish == Some(false))
        .ok_or_else(|| Error::tunnel_not_found("no such private tunnel is online"))?;
    record.tunnel(&tunnel);
    record.decided(Rule::Boundary.as_str(), None);
    access::may_dial(&credential, &tunnel.view)
        .map_err(|denied| Error::unauthorized(denied.to_string()))?;
    record.decided(Rule::Token.as_str(), None);
    let source = stream.get_ref().0.peer().ip();
    let opened = tunnel
        .agent
        .open_stream(worker.index, tunnel.view.id, source)
        .await;
    opened.map_err(|error| {
        record.failed(error.to_string());
        match error {
            OpenError::Refused(refusal) => refusal,
            OpenError::Full => Error::capacity_exhausted(error.to_string()),
            OpenError::Gone | OpenError::Deadline => Error::service_unavailable(error.to_string()),
        }
    })
}
