//! Visitors with their own connections: the engine announces a stream, and the agent dials back.

use std::sync::Arc;

use tokio::{io::AsyncWriteExt, sync::mpsc};
use tracing::debug;
use transport::TlsStream;
use types::causes::chain;
use wire::message::{ProxyConnReq, ProxyConnRsp, Secret, text};

use super::{
    channel::encode,
    data_path::DataPath,
    forward::{CopiedBytes, Service, Visit},
    hello,
    shared::{AgentState, Handler},
};
use crate::{
    ConnectError, Stream,
    connect::{Connector, bounded},
    error::Step,
};

/// Accepts a visitor in a new task and responds on the channel.
pub(crate) fn accept_visitor(
    shared: &Arc<AgentState>,
    path: &Arc<DataPath>,
    visitor: ProxyConnReq,
    answer: mpsc::Sender<ProxyConnRsp>,
) {
    let Ok(permit) = Arc::clone(&shared.pending_visitors).try_acquire_owned() else {
        let busy = wire::Error::capacity_exhausted(
            "the agent has too many visitors at the same \
                                                    time",
        );
        let refusal = ProxyConnRsp {
            stream_id: visitor.stream_id,
            error: Some(busy),
        };
        // A channel that accepts no response is about to be lost, together with the visitor.
        drop(answer.try_send(refusal));
        return;
    };
    let shared_by_task = Arc::clone(shared);
    let path = Arc::clone(path);
    shared.spawn(async move {
        let stream_id = visitor.stream_id.clone();
        // Boxed for its duration: the future that carries the stream afterwards is far smaller.
        let accepted = Box::pin(connect_visitor(&shared_by_task, &path, visitor)).await;
        drop(permit);
        let error = accepted.as_ref().err().cloned();
        if let Some(error) = &error {
            debug!(stream_id, error = %error, "a visitor was not accepted");
        }
        // The channel may be lost, but the accepted stream continues.
        drop(answer.send(ProxyConnRsp { stream_id, error }).await);
        if let Ok(accepted) = accepted {
            accepted.serve().await;
        }
    });
}

/// An accepted visitor with both connections open.
enum AcceptedVisitor {
    Queued {
        slot: mpsc::OwnedPermit<Box<Stream>>,
        stream: Stream,
    },
    Forwarded {
        forward: Arc<super::forward::Forward>,
        visit: Visit,
        service: Service,
        visitor: TlsStream,
    },
}

impl AcceptedVisitor {
    async fn serve(self) {
        match self {
            Self::Queued { slot, stream } => drop(slot.send(Box::new(stream))),
            Self::Forwarded {
                forward,
                visit,
                service,
                mut visitor,
            } => {
                forward.report_start(&visit);
                let pumped = forward
                    .copy_bidirectional(&visit, service, &mut visitor)
                    .await;
                if pumped.result.is_err() {
                    visitor.get_ref().0.abort_on_close();
                }
                let bytes = CopiedBytes::of(&pumped);
                let error = pumped.result.err().map(|error| error.to_string());
                forward.report_end(&visit, error, bytes);
            }
        }
    }
}

async fn connect_visitor(
    shared: &AgentState,
    path: &DataPath,
    visitor: ProxyConnReq,
) -> Result<AcceptedVisitor, wire::Error> {
    let entry = shared.route(&visitor.tunnel_id).await;
    // The process of a replaced channel has not received yet that the tunnel was closed.
    let Some(entry) = entry.filter(|entry| !entry.is_closing()) else {
        return Err(wire::Error::tunnel_not_found(
            "the agent has no such tunnel",
        ));
    };
    let visit = Visit {
        stream_id: visitor.stream_id.clone(),
        source_ip: visitor
            .source_ip
            .as_ref()
            .and_then(wire::message::IpAddress::to_ip),
    };
    match entry.handler() {
        Handler::Queue(queue) => {
            let slot = queue.try_reserve_owned().map_err(|_full| {
                wire::Error::capacity_exhausted("too many visitors are waiting")
            })?;
            let stream = dial_back(shared, path, visitor)
                .await
                .map_err(|e| unreachable(&e))?;
            let stream = Stream::new(stream, visit.stream_id, visit.source_ip)
                .counted(shared.streams.token());
            Ok(AcceptedVisitor::Queued { slot, stream })
        }
        Handler::Forward(forward) => {
            // The service is dialled first: without it the handshake with the engine would be
            // wasted.
            let service = forward
                .dial(&visit)
                .await
                .inspect_err(|error| forward.report_unreachable(&visit, error))
                .map_err(wire::Error::service_unavailable)?;
            let visitor = dial_back(shared, path, visitor)
                .await
                .map_err(|e| unreachable(&e))?;
            Ok(AcceptedVisitor::Forwarded {
                forward,
                visit,
                service,
                visitor,
            })
        }
    }
}

/// Opens the connection for the visitor's bytes.
async fn dial_back(
    shared: &AgentState,
    path: &DataPath,
    visitor: ProxyConnReq,
) -> Result<TlsStream, ConnectError> {
    let elsewhere;
    let own = path.connector().unwrap_or_else(|| shared.connector());
    let connector = match text(visitor.proxy_endpoint.as_ref()) {
        None | Some("") => own,
        Some(endpoint) => {
            elsewhere = at_endpoint(own, endpoint, visitor.secret.as_ref())?;
            &elsewhere
        }
    };
    let secret = visitor.secret.unwrap_or_default();
    open_data(shared, connector, path, visitor.stream_id, secret).await
}

/// Opens a data connection and sends its hello.
pub(crate) async fn open_data(
    shared: &AgentState,
    connector: &Connector,
    path: &DataPath,
    stream_id: String,
    secret: Secret,
) -> Result<TlsStream, ConnectError> {
    let opened = async {
        let mut stream = connector.connect().await?;
        let mut frame = Vec::new();
        encode(hello::data(shared.config(), stream_id, secret), &mut frame)?;
        bounded(Step::Hello, HELLO_TIMEOUT, async {
            stream.write_all(&frame).await?;
            stream.flush().await
        })
        .await?;
        Ok(stream)
    };
    let opened = opened.await;
    match &opened {
        Ok(_) => path.record_success(),
        Err(error) => path.record_failure(error),
    }
    opened
}

/// Another address for the data connection is used only with a secret. Without one the agent would
/// reveal itself to a third party for nothing.
fn at_endpoint(
    connector: &Connector,
    endpoint: &str,
    secret: Option<&Secret>,
) -> Result<Connector, ConnectError> {
    if secret.is_none_or(|secret| secret.value.is_empty()) {
        return Err(ConnectError::Protocol(
            "an endpoint without a secret".to_owned(),
        ));
    }
    connector.at(endpoint.parse()?)
}

fn unreachable(error: &ConnectError) -> wire::Error {
    wire::Error::service_unavailable(chain(error))
}

/// Maximum number of visitors between announcement and first byte. Each costs a handshake, so with
/// more of them all visitors would wait too long.
pub(crate) const MAX_PENDING_VISITORS: usize = 512;

/// The hello is one small write into an empty socket buffer.
const HELLO_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Token, Trust};

    #[tokio::test]
    async fn pending_visitors_are_limited() {
        let config = Config::new("127.0.0.1:1".parse().unwrap(), Token::new("a.b.c"));
        let trust = Trust::Roots(Vec::new());
        let connector =
            Connector::new(config.engine.clone(), &trust, &config.proxies, &[b"x"]).unwrap();
        let shared = Arc::new(AgentState::new(config, connector));
        let path = Arc::default();
        let (answer, mut answers) = mpsc::channel(1024);
        for _ in 0..513 {
            let visitor = ProxyConnReq::default();
            accept_visitor(&shared, &path, visitor, answer.clone());
        }
        // The accepted visitors have not run yet, so the only response is a refusal.
        let error = answers.try_recv().unwrap().error.unwrap();
        assert_eq!(
            error,
            wire::Error::capacity_exhausted("the agent has too many visitors at the same time")
        );
        assert!(answers.try_recv().is_err());
    }
}
