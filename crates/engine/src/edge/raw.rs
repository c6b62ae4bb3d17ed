//! Connections whose bytes the edge does not parse: TLS tunnels, TCP tunnels and private dials.

use std::future::poll_fn;
use std::sync::Arc;

use transport::memory::Source;
use transport::{BidirectionalCopy, Socket, Stream, TlsStream};
use types::tunnel::TlsVersion;

use super::access_record::{AccessRecord, Outcome};
use super::connection_info;
use super::revocation;
use crate::access::{self, ClientCertificate, Rule};
use crate::agents::{Agent, StreamOrigin, TunnelStream};
use crate::core::Worker;
use crate::edge::upstream;
use crate::edge::upstream::UpstreamIo;
use crate::edge::websocket::{self, DrainEnd};
use crate::limits::{self, ThrottledStream};
use crate::live::LiveTunnel;

/// The connection of a visitor. It can be reset, so that the visitor sees an error.
pub(crate) trait VisitorStream: Stream {
    /// The underlying socket.
    fn socket(&self) -> &Socket;

    /// The underlying socket, to select a normal close or a reset (RST).
    fn socket_mut(&mut self) -> &mut Socket;

    /// The protocol (ALPN) that was negotiated, if the edge terminates TLS.
    fn protocol(&self) -> Option<&[u8]>;

    /// The TLS version, if the edge terminates TLS.
    fn tls_version(&self) -> Option<TlsVersion>;

    /// The client certificate, if the edge requested one and got it.
    fn certificate(&self) -> Option<ClientCertificate>;
}

impl VisitorStream for Socket {
    fn socket(&self) -> &Socket {
        self
    }

    fn socket_mut(&mut self) -> &mut Socket {
        self
    }

    fn protocol(&self) -> Option<&[u8]> {
        None
    }

    fn tls_version(&self) -> Option<TlsVersion> {
        None
    }

    fn certificate(&self) -> Option<ClientCertificate> {
        None
    }
}

impl VisitorStream for TlsStream {
    fn socket(&self) -> &Socket {
        self.get_ref().0
    }

    fn socket_mut(&mut self) -> &mut Socket {
        self.get_mut().0
    }

    fn protocol(&self) -> Option<&[u8]> {
        self.get_ref().1.alpn_protocol()
    }

    fn tls_version(&self) -> Option<TlsVersion> {
        connection_info::tls_version(self)
    }

    fn certificate(&self) -> Option<ClientCertificate> {
        connection_info::certificate(self)
    }
}

/// Connects a visitor to the service of `tunnel`, if the tunnel's policy admits it. Here a client
/// certificate is the only possible proof.
pub(crate) async fn serve<V: VisitorStream>(
    visitor: V,
    tunnel: &Arc<LiveTunnel<Agent>>,
    kind: &'static str,
    worker: &Arc<Worker>,
) {
    let source = visitor.socket().peer().ip();
    let mut record = AccessRecord::start(worker, kind, source);
    record.set_tunnel(tunnel);
    let certificate = visitor.certificate();
    let country = worker.core.country_for(tunnel, source);
    record.set_country(country.as_ref());
    let visitor_info = access::VisitorInfo {
        country: country.as_ref(),
        tls_version: visitor.tls_version(),
        certificate: certificate.as_ref(),
        ..access::VisitorInfo::at(source)
    };
    let decision = access::decide_connection(tunnel, visitor_info, worker.core.auth_context());
    let access::Outcome::Allow(allowed) = decision.outcome else {
        record.set_refusal(decision.rule, decision.reason);
        record.set_outcome(Outcome::Refused);
        visitor.socket().abort_on_close();
        return;
    };
    if let Err(exceeded) =
        limits::count_request(&tunnel.project, &tunnel.meters, &*worker.core.clock)
    {
        record.set_refusal(Rule::RateLimit, Some(exceeded.to_string().into()));
        record.set_outcome(Outcome::Refused);
        visitor.socket().abort_on_close();
        return;
    }
    if record.acquire_slot(&tunnel.project).is_err() {
        record.set_outcome(Outcome::Refused);
        visitor.socket().abort_on_close();
        return;
    }
    record.set_rule(decision.rule.as_str(), decision.reason);
    if let Some(proof) = &allowed.proof {
        record.set_proof(proof);
    }
    record.register_visit(tunnel, visitor_info, allowed.proof.as_ref());
    // The future is boxed and dropped after use, because the copy that follows may run for days.
    let origin = StreamOrigin {
        source: visitor.socket().peer(),
        reference: record.reference(),
        is_terminated: visitor.tls_version().is_some(),
    };
    let connecting = upstream::connect_raw(worker, tunnel, origin, visitor.protocol());
    match Box::pin(connecting).await {
        Ok(stream) => pump(source.into(), visitor, stream, &mut record).await,
        Err(error) => {
            record.set_failure(error.to_string());
            visitor.socket().abort_on_close();
        }
    }
}

/// Copies between a dialling client and the stream that was opened for it.
pub(crate) async fn serve_dial<V: VisitorStream>(
    visitor: V,
    stream: ThrottledStream<TunnelStream>,
    record: &mut AccessRecord,
) {
    let source = visitor.socket().peer().ip();
    pump(source.into(), visitor, UpstreamIo::Plain(stream), record).await;
}

/// Copies in both directions after an upgrade. Each poll updates the byte counts of `record`, so
/// they survive if this future is dropped. `already_sent`: the bytes sent before, to the service
/// and to the visitor. `end`: only for a WebSocket.
pub(super) async fn pump_upgraded<A: Stream, B: Stream>(
    source: Source,
    visitor: &mut A,
    service: &mut B,
    record: &mut AccessRecord,
    already_sent: (usize, usize),
    end: Option<DrainEnd>,
) -> std::io::Result<()> {
    let (sent_to_service, sent_to_visitor) = (already_sent.0 as u64, already_sent.1 as u64);
    if let Some(end) = end {
        let sent = (sent_to_service, sent_to_visitor);
        return websocket::pump(source, visitor, service, record, sent, end).await;
    }
    let mut copy = BidirectionalCopy::new(source);
    poll_fn(|cx| {
        let polled = copy.poll(cx, visitor, service);
        record.set_bytes(
            sent_to_service + copy.a_to_b(),
            sent_to_visitor + copy.b_to_a(),
        );
        polled
    })
    .await
}

/// Copies until both directions have ended or one fails.
async fn pump<V: VisitorStream>(
    source: Source,
    mut visitor: V,
    mut stream: UpstreamIo,
    record: &mut AccessRecord,
) {
    record.mark_stream_opened();
    // Until the service's data is complete, a close is a reset (RST), so that the visitor sees an
    // error or an aborted task.
    visitor.socket_mut().begin_message();
    let mut copy = BidirectionalCopy::new(source);
    let revocation_signal = record.revocation();
    let pumping = poll_fn(|cx| {
        let before = copy.b_to_a();
        let polled = copy.poll(cx, &mut visitor, &mut stream);
        if before == 0 && copy.b_to_a() > 0 {
            record.mark_first_byte();
        }
        record.set_bytes(copy.a_to_b(), copy.b_to_a());
        polled
    });
    let result = tokio::select! {
        biased;
        result = pumping => result,
        () = revocation::revoked(revocation_signal.as_deref()) => {
            Err(std::io::ErrorKind::PermissionDenied.into())
        }
    };
    match result {
        Ok(()) => {
            visitor.socket_mut().end_message();
            record.set_outcome(Outcome::Served);
        }
        Err(error) => match stream.refusal() {
            Some(refusal) => record.set_unreachable(refusal.text().to_owned()),
            None if copy.is_broken_by_first() => record.set_abandoned(error.to_string()),
            None => record.set_failure(error.to_string()),
        },
    }
}
