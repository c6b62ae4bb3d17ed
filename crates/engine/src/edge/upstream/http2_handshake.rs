//! The HTTP/2 handshake with a service, and the connection after it.

use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use h2::client::{Builder, Connection};
use tokio::sync::oneshot;

use super::connect::ConnectError;
use super::http2::{Http2, MAX_CONCURRENT_STREAMS, SharedHttp2, StreamLimit, StreamPermit};
use super::io::UpstreamIo;
use super::lent_stream::{LentStream, ReturnedStream};
use super::tls::HANDSHAKE_DEADLINE;
use crate::agents::Agent;
use crate::core::Worker;
use crate::live::LiveTunnel;

/// Window of one response: the bytes in flight on a connection with 50 MB/s and 20 ms.
const STREAM_WINDOW: u32 = 1024 * 1024;

/// Window of all [`MAX_CONCURRENT_STREAMS`] responses. Bytes occupy the window until their visitor
/// has read them, so with a smaller window a few slow visitors would block all other visitors.
const CONNECTION_WINDOW: u32 = 32 * STREAM_WINDOW;

/// Performs the handshake, and adds the connection to the pool for further requests.
pub(super) async fn connect(
    worker: &Worker,
    tunnel: &LiveTunnel<Agent>,
    mut io: UpstreamIo,
) -> Result<Http2, ConnectError> {
    let load = StreamLimit::unknown();
    let permit = StreamPermit::new(&load);
    let requests = Arc::clone(&load);
    io.stream_mut().share(requests);
    let mut builder = Builder::new();
    builder
        .enable_push(false)
        .initial_max_send_streams(MAX_CONCURRENT_STREAMS)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_header_list_size(
            u32::try_from(worker.core.config.limits.header_bytes).unwrap_or(u32::MAX),
        );
    let (stream, returned) = LentStream::new(io, &load);
    let handshake = builder.handshake::<LentStream, Bytes>(stream);
    let (send, connection) = tokio::time::timeout(HANDSHAKE_DEADLINE, handshake)
        .await
        .map_err(|_| ConnectError::Deadline)?
        .map_err(ConnectError::Http2)?;
    worker
        .runtime
        .spawn(run(connection, returned, Arc::clone(&load)));
    let shared = SharedHttp2 {
        send: send.clone(),
        limit: load,
        last_used: Instant::now(),
    };
    let mut upstreams = worker.upstreams.lock();
    // As in `keep`, the check is made under the lock.
    let id = tunnel.view.id;
    let is_kept = tunnel.agent.keeps_connections(&id);
    if is_kept.unwrap_or_else(|| worker.core.live.is_online(&id)) {
        upstreams.share(id, shared);
    }
    drop(upstreams);
    Ok(Http2 {
        send,
        permit,
        is_reused: false,
    })
}

/// Runs a connection until the last sender is dropped, or until it fails: every exchange gets and
/// records the error itself. The agent then gets the result of all of them.
async fn run(
    connection: Connection<LentStream, Bytes>,
    returned: oneshot::Receiver<ReturnedStream>,
    limit: Arc<StreamLimit>,
) {
    drive(connection, &limit).await;
    let Ok(mut returned) = returned.await else {
        return;
    };
    let stream = &mut returned.io;
    let is_awaited = returned.has_ended && !limit.is_idle();
    let delivered = if is_awaited {
        stream.delivered().await
    } else {
        None
    };
    limit.set_delivered(delivered);
    // The time limits of the requests apply, also to visitors that have not read a response yet.
    limit.all_ended().await;
    if limit.has_failed() {
        stream.report_no_response();
    }
}

async fn drive(connection: Connection<LentStream, Bytes>, limit: &StreamLimit) {
    tokio::pin!(connection);
    loop {
        tokio::select! {
            _ended = &mut connection => return,
            () = limit.answered() => {}
        }
        let max = connection.max_concurrent_send_streams();
        limit.set(max);
    }
}
