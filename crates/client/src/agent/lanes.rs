//! Lanes (`lane/2`): many small streams on one connection, and the migration of streams that grow.

use std::{future::poll_fn, sync::Arc, time::Duration};

use tokio_util::sync::CancellationToken;
use tracing::debug;
use transport::{
    TlsStream,
    lane::{Lane, LaneStream, MigratingStream},
    rendezvous::{MigrateToConnection, MigrationRendezvous},
};
use wire::{lane::StreamOpen, message::IpAddress};

use super::{
    forward::{Visit, serve_carried},
    shared::{AgentState, Handler},
};
use crate::Stream;

/// A stream that arrived on a lane.
pub(crate) type MigratingLaneStream = MigratingStream<MigrateToConnection>;

/// Serves a lane until it ends. Once its channel is `over`, the lane ends with its last stream.
pub(crate) async fn serve(
    shared: Arc<AgentState>,
    moves: Arc<MigrationRendezvous>,
    over: CancellationToken,
    io: TlsStream,
) {
    io.get_ref().0.limit_stall(Some(STALL));
    let (lane, mut driver) = Lane::agent(io);
    let (mut stopping, mut ending) = (false, false);
    loop {
        let accepted = tokio::select! {
            accepted = poll_fn(|cx| driver.poll_accept(cx)) => accepted,
            // The engine is notified and then opens no new connections.
            () = shared.stop.cancelled(), if !stopping => {
                lane.stay();
                stopping = true;
                continue;
            }
            () = over.cancelled(), if !ending => {
                lane.retire();
                ending = true;
                continue;
            }
        };
        match accepted {
            Ok(Some((open, stream))) => {
                let serving = serve_stream(Arc::clone(&shared), Arc::clone(&moves), open, stream);
                // Spawned on the runtime of the lane, because both wake each other with every
                // exchange.
                shared.spawn_here(serving);
            }
            Ok(None) => return,
            Err(error) => {
                debug!(%error, "a lane failed");
                return;
            }
        }
    }
}

/// Serves one stream.
async fn serve_stream(
    shared: Arc<AgentState>,
    moves: Arc<MigrationRendezvous>,
    open: StreamOpen,
    mut stream: LaneStream,
) {
    let visit = Visit {
        stream_id: open.stream_id.clone(),
        source_ip: open.source_ip.as_ref().and_then(IpAddress::to_ip),
    };
    let exchanges = open.exchanges;
    let Some(entry) = shared.route(&open.tunnel_id).await else {
        let unknown = wire::Error::tunnel_not_found("the agent has no such tunnel");
        return stream.reset(Some(&unknown));
    };
    let to = MigrateToConnection::new(moves, open.stream_id);
    let mut carried = MigratingStream::new(stream, to, entry.budget());
    match entry.handler() {
        Handler::Forward(forward) => {
            serve_carried(&forward, &visit, carried, exchanges).await;
        }
        Handler::Queue(queue) => {
            let Ok(slot) = queue.try_reserve_owned() else {
                let full = wire::Error::capacity_exhausted("too many visitors are waiting");
                return carried.lane().reset(Some(&full));
            };
            let stream = Stream::new(Box::new(carried), visit.stream_id, visit.source_ip)
                .counted(shared.streams.token());
            drop(slot.send(Box::new(stream)));
        }
    }
}

/// As in the engine: maximum time without an acknowledgement for bytes in flight.
const STALL: Duration = Duration::from_secs(30);
