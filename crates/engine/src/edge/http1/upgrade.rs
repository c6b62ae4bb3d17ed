//! Protocol upgrades, above all to WebSocket. The edge checks the 101 response, then copies bytes
//! in both directions.

use http1::{FieldKind, FieldValue, Protocol, ResponseHead};
use tokio::io::AsyncWriteExt;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::{NextStep, Request, Visitor};
use crate::edge::access_record::Outcome;
use crate::edge::raw;
use crate::edge::upstream::Http1;
use crate::edge::websocket::DrainEnd;

/// An upgrade that the edge requested from a service. The edge parses nothing after a 101
/// response, so the response must belong to this request.
#[derive(Clone, Debug)]
pub(crate) struct Upgrade {
    protocol: String,
    /// The `Sec-WebSocket-Accept` value that matches the request's key (RFC 6455, 4.2.2). `None`
    /// for other protocols and without a key.
    accept: Option<String>,
}

impl Upgrade {
    /// `key` is the value of `Sec-WebSocket-Key`, if the request has one.
    pub(in crate::edge) fn new(protocol: Protocol<'_>, key: Option<FieldValue<'_>>) -> Self {
        let mut upgrade = Self {
            protocol: protocol.as_str().to_owned(),
            accept: None,
        };
        if let Some(key) = key {
            upgrade.set_key(key);
        }
        upgrade
    }

    /// Sets the request's `Sec-WebSocket-Key`.
    pub(in crate::edge) fn set_key(&mut self, key: FieldValue<'_>) {
        if self.is_websocket() {
            self.accept = Some(derive_accept_key(&key));
        }
    }

    /// True for WebSocket, the protocol whose response is bound to its request by a key.
    pub(in crate::edge) fn is_websocket(&self) -> bool {
        self.protocol.eq_ignore_ascii_case("websocket")
    }

    /// Checks a 101 response.
    ///
    /// # Errors
    /// The response does not belong to the request for this upgrade.
    pub(in crate::edge) fn check(&self, head: &ResponseHead<'_>) -> Result<(), &'static str> {
        let protocol = head.upgrade.and_then(http1::Protocols::only);
        let is_requested =
            |protocol: Protocol<'_>| protocol.as_str().eq_ignore_ascii_case(&self.protocol);
        if !protocol.is_some_and(is_requested) {
            return Err("the service changed to another protocol than the visitor requested");
        }
        let Some(expected) = &self.accept else {
            return Ok(());
        };
        let mut accepts = head.fields.of_kind(FieldKind::SecWebSocketAccept);
        let accept = accepts.next().map(|field| field.value.as_bytes());
        if accept != Some(expected.as_bytes()) || accepts.next().is_some() {
            return Err("the service's Sec-WebSocket-Accept is not of this request");
        }
        Ok(())
    }
}

/// Copies between the visitor and the service that accepted the upgrade with `head`. Bytes that
/// either peer sent early are forwarded first.
pub(in crate::edge) async fn run(
    visitor: &mut Visitor,
    mut request: Request,
    mut upstream: Http1,
    mut head: Vec<u8>,
) -> NextStep {
    // An upgraded connection may be silent for any time, so the stall limit ends here.
    visitor.io.io.get_ref().0.limit_stall(None);
    let record = &mut request.record;
    record.mark_first_byte();
    head.extend_from_slice(upstream.unread());
    let early = visitor.io.unread().to_vec();
    visitor.io.consume(early.len());
    let is_websocket = request.admitted.upgrade.as_ref();
    let is_websocket = is_websocket.is_some_and(Upgrade::is_websocket);
    let peer_closing = request.admitted.tunnel.agent.closing();
    let closing = (visitor.worker.closing.clone(), peer_closing);
    let limit = visitor.worker.core.config.timeouts.fixed.websocket_close;
    let end = is_websocket.then(|| DrainEnd::new(closing, limit, &early, upstream.unread()));
    let joined = async {
        visitor.io.io.write_all(&head).await?;
        visitor.io.io.flush().await?;
        if !early.is_empty() {
            upstream.io.write_all(&early).await?;
            upstream.io.flush().await?;
        }
        let sent = (early.len(), head.len());
        let source = visitor.connection.source.into();
        let (visitor, service) = (&mut visitor.io.io, &mut upstream.io);
        raw::pump_upgraded(source, visitor, service, record, sent, end).await
    };
    match joined.await {
        Ok(()) => {
            request.record.set_outcome(Outcome::Served);
            NextStep::Close
        }
        Err(error) => {
            request.record.set_failure(error.to_string());
            NextStep::Abort
        }
    }
}
