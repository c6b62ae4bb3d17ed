//! The first message of a connection under the agent protocol, and the dispatch by its kind.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::error::Elapsed;
use tokio::time::timeout;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::debug;
use transport::TlsStream;
use transport::standing::StandingConnection;
use types::id::StreamId;
use wire::message::{
    ClientDetails, OpenControlChannelRsp, ProxyReq, ProxyRsp, StreamOutcome, StreamRsp,
};
use wire::pool::Side;
use wire::{Decoder, Error, FrameError, Kind, Message};

use super::{dial, session};
use crate::access::wait_for_update;
use crate::core::{Core, Worker};
use crate::directory::Project;

/// Time for the first message of a connection, which every peer can send immediately.
const HELLO_DEADLINE: Duration = Duration::from_secs(10);

/// Time for sending a last response that the peer may not read.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves one connection that chose the agent protocol. It counts as a visit until its first message,
/// because that may be the one of a dialler.
pub(crate) async fn serve(
    mut stream: TlsStream,
    project: Arc<Project>,
    worker: Arc<Worker>,
    visit: TaskTrackerToken,
) {
    let first = match first_message(&mut stream).await {
        Ok(Ok(first)) => first,
        Ok(Err(error)) => {
            debug!(%error, "an agent connection without a hello");
            if let Some(frame) = error
                .get_ref()
                .and_then(|inner| inner.downcast_ref::<FrameError>())
            {
                refuse(&mut stream, Error::from(frame)).await;
            }
            return;
        }
        Err(_) => return,
    };
    match first.kind {
        Some(Kind::OpenControlChannelReq(request)) => {
            drop(visit);
            wait_for_credential(request.client_details.as_ref(), &project, &worker.core).await;
            session::run(stream, request, &project, &worker).await;
        }
        Some(Kind::ProxyReq(request)) if request.stream_id.is_empty() => {
            join_pool(stream, &request, &worker);
        }
        Some(Kind::ProxyReq(request)) => deliver_stream(stream, &request, &worker).await,
        Some(Kind::StreamReq(request)) => {
            // A dialler is a visitor, not an agent, so a drain waits for it.
            let at = Arc::clone(&worker);
            worker.spawn(async move {
                wait_for_credential(request.client_details.as_ref(), &project, &at.core).await;
                dial::serve(stream, request, &project, &at).await;
            });
        }
        _ => {
            let error = Error::invalid_request("a connection must start with a hello");
            refuse(&mut stream, error).await;
        }
    }
}

/// Waits until the engine has the platform's update with a new token or a new member, if one is
/// missing. A drain ends the wait.
async fn wait_for_credential(details: Option<&ClientDetails>, project: &Project, core: &Core) {
    let now = || core.unix_seconds();
    tokio::select! {
        () = wait_for_update(&core.tokens, &core.tenancy, (token(details), project), now) => {}
        () = core.shutdown.drain().cancelled() => {}
    }
}

/// Refuses an agent that connects before the engine has its project, so that it reconnects later.
pub(crate) async fn refuse_until_ready(mut stream: TlsStream) {
    // Without a first message there is nothing to respond to.
    let Ok(Ok(first)) = first_message(&mut stream).await else {
        return;
    };
    let error = Error::service_unavailable("the engine has no data from its platform yet");
    if let Some(Kind::StreamReq(_)) = first.kind {
        let outcome = Some(StreamOutcome::Error(error));
        farewell(&mut stream, Kind::StreamRsp(StreamRsp { outcome }).into()).await;
    } else {
        refuse(&mut stream, error).await;
    }
}

/// Adds a standing connection to the pool of the worker that needs it most.
fn join_pool(mut stream: TlsStream, request: &ProxyReq, worker: &Arc<Worker>) {
    let secret = token(request.client_details.as_ref());
    let Some(agent) = worker.core.pending_streams.claim_pool(secret) else {
        debug!("a data connection with an invalid secret");
        return;
    };
    // From here on it counts as one of its agent's connections.
    stream.get_mut().0.release_slot();
    let target = agent.neediest_worker();
    if target == worker.index {
        agent.add_standing_connection(target, StandingConnection::new(stream, Side::Engine));
        return;
    }
    let Some(other) = worker.core.workers().get(target) else {
        return;
    };
    if stream.get_mut().0.detach().is_ok() {
        // The pool polls idle connections, so the connection must be registered on the runtime that
        // polls it.
        other.runtime.spawn(async move {
            agent.add_standing_connection(target, StandingConnection::new(stream, Side::Engine));
        });
    }
}

/// Hands a connection to the pending stream for which the agent opened it.
async fn deliver_stream(mut stream: TlsStream, request: &ProxyReq, worker: &Arc<Worker>) {
    let secret = token(request.client_details.as_ref());
    let id = request.stream_id.parse::<StreamId>();
    let claimed = id
        .ok()
        .and_then(|id| worker.core.pending_streams.claim_stream(id, secret));
    let zero_rtt = request.zero_rtt.is_some_and(|zero_rtt| zero_rtt.value);
    let error = match claimed {
        Some(_) => None,
        None => Some(Error::invalid_stream("no pending stream has this id")),
    };
    if !zero_rtt
        && send(&mut stream, Kind::ProxyRsp(ProxyRsp { error }).into())
            .await
            .is_err()
    {
        return;
    }
    if let Some(pending) = claimed {
        stream.get_mut().0.release_slot();
        pending.deliver(stream, worker.index);
    }
}

async fn first_message(
    stream: &mut (impl AsyncRead + Unpin),
) -> Result<io::Result<Message>, Elapsed> {
    timeout(HELLO_DEADLINE, read_message(stream)).await
}

/// Reads one message and no byte beyond it, because a visitor's bytes may follow. Not cancel safe.
///
/// # Errors
/// I/O errors of the stream; [`FrameError`] inside [`io::ErrorKind::InvalidData`] for a bad frame.
pub(super) async fn read_message(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Message> {
    let invalid = |error: FrameError| io::Error::new(io::ErrorKind::InvalidData, error);
    let mut decoder = Decoder::new();
    loop {
        if let Some(message) = decoder.next().map_err(invalid)? {
            return Ok(message);
        }
        let mut bytes = vec![0; decoder.missing().map_err(invalid)?];
        stream.read_exact(&mut bytes).await?;
        decoder.push(&bytes);
    }
}

/// Sends one message.
pub(super) async fn send(stream: &mut TlsStream, message: Message) -> io::Result<()> {
    let mut frame = Vec::new();
    wire::encode(&message, &mut frame).map_err(io::Error::other)?;
    stream.write_all(&frame).await?;
    stream.flush().await
}

/// Responds to a rejected hello, if the peer still reads.
pub(super) async fn refuse(stream: &mut TlsStream, error: Error) {
    use wire::message::ControlChannelOutcome;
    let outcome = Some(ControlChannelOutcome::Error(error));
    let answer = Kind::OpenControlChannelRsp(OpenControlChannelRsp { outcome });
    farewell(stream, answer.into()).await;
}

/// Sends a last message and closes.
pub(super) async fn farewell(stream: &mut TlsStream, message: Message) {
    let closing = async {
        send(stream, message).await?;
        stream.shutdown().await
    };
    // A peer that does not read the reason sees the close.
    timeout(FAREWELL, closing).await.ok();
}

/// The token of a hello; empty if there is none.
pub(super) fn token(details: Option<&ClientDetails>) -> &str {
    details
        .and_then(|details| details.token.as_ref())
        .map_or("", |token| &token.value)
}

impl super::Agent {
    fn add_standing_connection(&self, worker: usize, standing: StandingConnection<TlsStream>) {
        if let Some(pool) = self.pool(worker) {
            pool.add(standing, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    /// Nothing, the length of a message, and half of one.
    #[tokio::test(start_paused = true)]
    async fn a_first_message_has_a_time_limit() {
        for sent in [&[][..], &[0, 0, 0, 9], &[0, 0, 0, 9, 1, 2]] {
            let (mut client, mut server) = duplex(64);
            client.write_all(sent).await.unwrap();
            let began = tokio::time::Instant::now();
            let first = timeout(Duration::from_mins(5), first_message(&mut server)).await;
            assert!(first.expect("it times out").is_err(), "{sent:?}");
            assert_eq!(began.elapsed().as_secs(), 10);
        }
    }
}
