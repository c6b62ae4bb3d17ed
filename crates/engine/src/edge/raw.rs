//! Visitors whose bytes are not ours to read: TLS tunnels, TCP tunnels, private dials.

use std::future::poll_fn;
use std::sync::Arc;

use transport::{Both, Socket, Stream, TlsStream};

use super::record::{Outcome, Record};
use super::upstream::{self, UpIo};
use crate::access;
use crate::agents::{Agent, TunnelStream};
use crate::core::Worker;
use crate::live::LiveTunnel;

/// A visitor's side: whatever it is, it can be cut off so that it is seen as broken.
pub(crate) trait Visitor: Stream {
    /// The socket beneath.
    fn socket(&self) -> &Socket;

    /// The same, to say whether it may look whole.
    fn socket_mut(&mut self) -> &mut Socket;

    /// The protocol (ALPN) that the edge agreed on with the visitor, where it ended TLS.
    fn protocol(&self) -> Option<&[u8]>;
}

impl Visitor for Socket {
    fn socket(&self) -> &Socket {
        self
    }

    fn socket_mut(&mut self) -> &mut Socket {
        self
    }

    fn protocol(&self) -> Option<&[u8]> {
        None
    }
}

impl Visitor for TlsStream {
    fn socket(&self) -> &Socket {
        self.get_ref().0
    }

    fn socket_mut(&mut self) -> &mut Socket {
        self.get_mut().0
    }

    fn protocol(&self) -> Option<&[u8]> {
        self.get_ref().1.alpn_protocol()
    }
}

/// Joins a visitor with the service behind `tunnel`, if the tunnel's policy lets it in. A visitor
/// of bytes has no way to prove who it is, so address ranges are the only policy here.
pub(crate) async fn serve<V: Visitor>(
    visitor: V,
    tunnel: &Arc<LiveTunnel<Agent>>,
    kind: &'static str,
    worker: &Arc<Worker>,
) {
    let source = visitor.socket().peer().ip();
    let mut record = Record::begin(worker, kind, source);
    record.tunnel(tunnel);
    let decision = access::decide_connection(tunnel, source);
    record.decided(decision.rule.as_str(), decision.reason);
    if let access::Outcome::Refuse(_) = decision.outcome {
        record.ended(Outcome::Refused);
        visitor.socket().abort_on_close();
        return;
    }
    match upstream::connect_raw(worker, tunnel, source, visitor.protocol()).await {
        Ok(stream) => pump(visitor, stream, &mut record).await,
        Err(error) => {
            record.failed(error.to_string());
            visitor.socket().abort_on_close();
        }
    }
}

/// Joins a dialler with the stream that it asked for.
pub(crate) async fn join<V: Visitor>(visitor: V, stream: TunnelStream, record: &mut Record) {
    pump(visitor, UpIo::Plain(stream), record).await;
}

/// Moves bytes both ways until both directions have ended or one breaks.
async fn pump<V: Visitor>(mut visitor: V, mut stream: UpIo, record: &mut Record) {
    record.opened();
    // A visitor must be able to tell a break, or the end of this task, from the end of the
    // service's data.
    visitor.socket_mut().begin_message();
    let mut both = Both::default();
    let pumping = poll_fn(|cx| {
        let before = both.back();
        let polled = both.poll(cx, &mut visitor, &mut stream);
        if before == 0 && both.back() > 0 {
            record.first_byte();
        }
        polled
    });
    let result = pumping.await;
    record.bytes(both.forth(), both.back());
    match result {
        Ok(()) => {
            visitor.socket_mut().end_message();
            record.ended(Outcome::Served);
        }
        Err(error) => {
            let refusal = stream.refusal().map(|refusal| refusal.text().to_owned());
            record.failed(refusal.unwrap_or_else(|| error.to_string()));
        }
    }
}
