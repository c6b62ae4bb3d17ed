//! An engine that forwards visitors to this one: its control connection, standing connections and
//! lanes.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until, timeout};
use tracing::{debug, info};
use transport::TlsStream;
use transport::lane::{Budget, Lane, LaneStream, MigratingStream};
use transport::permit::Permit;
use transport::rendezvous::MigrateToConnection;
use transport::standing::{AcceptedStream, FramedStream, StandingConnection};
use wire::cluster::{ConnectionPurpose, ForwardedVisitor, PeerFrame, PeerIdentity, StreamProtocol};
use wire::lane::{DOWN_LIMIT, MAX_LANES};
use wire::pool::{Side, StreamOpen};

use super::control::{ControlStream, PING_INTERVAL, SILENCE};
use super::peers::{Cluster, InboundPeer};
use super::relay;
use crate::core::Worker;

/// Data connections of one process of another engine. The engine that opens them has the same limit
/// for each of its workers.
const MAX_CONNECTIONS: usize = 16 * 1024;

/// Maximum time that an idle connection outlives its control connection: a stream may have been
/// started before.
const LAST: Duration = Duration::from_secs(1);

/// Maximum time to discard the rest of a stream before its connection is closed.
const RECYCLE: Duration = Duration::from_secs(5);

/// As towards agents: maximum time without an acknowledgement for bytes in flight on a lane.
const STALL: Duration = Duration::from_secs(30);

/// Serves the control connection of another engine until it ends.
pub(super) async fn control(
    mut control: ControlStream,
    identity: &PeerIdentity,
    worker: &Arc<Worker>,
    cluster: &Arc<Cluster>,
) {
    if worker.drain.is_cancelled() {
        let stopping = wire::Error::service_unavailable("the engine is stopping");
        return control.refuse(stopping).await;
    }
    let Some(peer) = cluster.admit(identity) else {
        let full = wire::Error::capacity_exhausted("too many engines are connected");
        return control.refuse(full).await;
    };
    info!(engine = identity.engine, "another engine connected");
    // Before the hello: the other engine keeps no connection to a tunnel that ended before it.
    let ended = cluster.ended.subscribe();
    let hello = PeerFrame::Hello(cluster.identity(ConnectionPurpose::Control));
    if control.send(&hello).await.is_ok() {
        exchange(&mut control, worker, ended).await;
    }
    cluster.forget(identity);
    peer.over.cancel();
    info!(engine = identity.engine, "another engine disconnected");
}

async fn exchange(
    control: &mut ControlStream,
    worker: &Arc<Worker>,
    mut ended: broadcast::Receiver<Arc<[String]>>,
) {
    let stop = worker.core.agents_stop.clone();
    let mut ping = interval(PING_INTERVAL);
    ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut heard = Instant::now();
    let (mut is_draining, mut is_closing) = (false, false);
    loop {
        // Every branch is cancel safe.
        let frame = tokio::select! {
            received = control.next() => match received {
                Ok(Some(PeerFrame::Hello(_)) | None) => return,
                Ok(Some(_)) => {
                    heard = Instant::now();
                    continue;
                }
                Err(error) => {
                    debug!(%error, "a control connection of another engine failed");
                    return;
                }
            },
            _ = ping.tick() => PeerFrame::Ping,
            tunnels = ended.recv() => match tunnels {
                Ok(tunnels) => PeerFrame::Ended(tunnels.to_vec()),
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => return,
            },
            () = worker.drain.cancelled(), if !is_draining => {
                is_draining = true;
                PeerFrame::Drain
            }
            () = worker.closing.cancelled(), if !is_closing => {
                is_closing = true;
                PeerFrame::Closing
            }
            () = sleep_until(heard + SILENCE) => return,
            () = stop.cancelled() => return,
        };
        if control.send(&frame).await.is_err() {
            return;
        }
    }
}

/// Serves a data connection of another engine, one stream after another.
pub(super) async fn data(
    stream: TlsStream,
    identity: &PeerIdentity,
    worker: &Arc<Worker>,
    cluster: &Arc<Cluster>,
) {
    let Some(peer) = cluster.inbound(identity) else {
        debug!("a data connection of an engine without a control connection");
        return;
    };
    let Some(_permit) = Permit::try_take(&peer.connections, MAX_CONNECTIONS) else {
        return;
    };
    let mut standing = StandingConnection::new(stream, Side::Agent);
    loop {
        // Cancelling the wait drops the connection, as intended.
        let last = async {
            peer.over.cancelled().await;
            sleep(LAST).await;
        };
        let next = tokio::select! {
            next = standing.accept() => next,
            () = last => return,
        };
        let (open, framed) = match next {
            Ok(Some(AcceptedStream::Stream(open, framed))) => (*open, framed),
            Ok(Some(AcceptedStream::Lane(io))) => {
                if let Some(lane) = Permit::try_take(&peer.lanes, MAX_LANES) {
                    serve_lane(io, &peer, worker).await;
                    drop(lane);
                }
                return;
            }
            Ok(None) => return,
            Err(error) => {
                debug!(%error, "a data connection of another engine failed");
                return;
            }
        };
        let Some(framed) = Box::pin(serve_framed(&open, framed, &peer, worker)).await else {
            return;
        };
        standing = match timeout(RECYCLE, framed.recycle()).await {
            Ok(Some(standing)) => standing,
            Ok(None) | Err(_) => return,
        };
    }
}

/// Serves one stream; `None` if its connection was lost with it.
async fn serve_framed(
    open: &StreamOpen,
    mut framed: FramedStream<TlsStream>,
    peer: &Arc<InboundPeer>,
    worker: &Arc<Worker>,
) -> Option<FramedStream<TlsStream>> {
    if open.moved {
        return peer.moves.lend(&open.stream_id, framed).await;
    }
    // A drain waits for it.
    let _visit = worker.core.visits.token();
    match ForwardedVisitor::decode(open) {
        Ok(forwarding) => relay::serve(open, &forwarding, &mut framed, peer, worker).await,
        Err(error) => framed.reset(Some(wire::Error::invalid_request(error.to_string()))),
    }
    Some(framed)
}

/// Serves a lane until it ends. Once the control connection is over, the lane ends with its last
/// stream.
async fn serve_lane(io: TlsStream, peer: &Arc<InboundPeer>, worker: &Arc<Worker>) {
    io.get_ref().0.limit_stall(Some(STALL));
    let (lane, mut driver) = Lane::agent(io);
    let mut ending = false;
    loop {
        let accepted = tokio::select! {
            accepted = poll_fn(|cx| driver.poll_accept(cx)) => accepted,
            () = peer.over.cancelled(), if !ending => {
                lane.retire();
                ending = true;
                continue;
            }
        };
        match accepted {
            // On the runtime of the lane, because both wake each other with every exchange.
            Ok(Some((open, stream))) => {
                let (peer, at) = (Arc::clone(peer), Arc::clone(worker));
                worker.spawn(async move { serve_carried(open, stream, &peer, &at).await });
            }
            Ok(None) => return,
            Err(error) => {
                debug!(%error, "a lane of another engine failed");
                return;
            }
        }
    }
}

/// Serves a stream that starts on a lane.
async fn serve_carried(
    open: StreamOpen,
    mut stream: LaneStream,
    peer: &Arc<InboundPeer>,
    worker: &Arc<Worker>,
) {
    let forwarding = match ForwardedVisitor::decode(&open) {
        Ok(forwarding) => forwarding,
        Err(error) => {
            return stream.reset(Some(&wire::Error::invalid_request(error.to_string())));
        }
    };
    let budget = match forwarding.protocol {
        StreamProtocol::Exchanges => Budget::exchanges(DOWN_LIMIT),
        StreamProtocol::Bytes | StreamProtocol::TlsExchanges | StreamProtocol::Shared => {
            Budget::bytes()
        }
    };
    let to = MigrateToConnection::new(Arc::clone(&peer.moves), open.stream_id.clone());
    let mut carried = MigratingStream::new(stream, to, budget);
    relay::serve(&open, &forwarding, &mut carried, peer, worker).await;
}
