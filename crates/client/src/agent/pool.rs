//! Standing connections (`pool/1`): dialled before they are needed, used for one stream after
//! another.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::oneshot,
    time::timeout,
};
use tokio_util::sync::CancellationToken;
use tracing::debug;
use transport::{
    TlsStream,
    standing::{Framed, Standing},
};
use wire::{
    message::{IpAddress, PoolReq, Secret},
    pool::{Side, StreamOpen},
};

use super::{
    actor,
    data_path::DataPath,
    forward::{Visit, serve_framed},
    inbound::open_data,
    shared::{Handler, Shared},
};
use crate::{ConnectError, Stream, error::Step};

/// The standing connections of one control channel. When the channel is over, those that carry
/// no stream end; the others end after theirs.
pub(crate) struct Pool {
    shared: Arc<Shared>,
    path: Arc<DataPath>,
    over: CancellationToken,
    open: Arc<AtomicUsize>,
}

impl Pool {
    pub(crate) fn new(shared: Arc<Shared>, path: Arc<DataPath>, over: CancellationToken) -> Self {
        Self {
            shared,
            path,
            over,
            open: Arc::default(),
        }
    }

    /// Dials as many more as the engine asks for, within [`MAX_POOL`].
    pub(crate) fn grow(&self, request: &PoolReq) {
        for _ in 0..request.count {
            let Some(place) = Place::take(&self.open) else {
                debug!(
                    max = MAX_POOL,
                    "the engine asks for more standing connections"
                );
                return;
            };
            let shared = Arc::clone(&self.shared);
            let path = Arc::clone(&self.path);
            let over = self.over.clone();
            let secret = Secret {
                value: request.secret.clone(),
            };
            self.shared.spawn(async move {
                if let Err(error) = stand(&shared, &path, &over, secret).await {
                    debug!(
                        error = actor::describe(&error),
                        "a standing connection ended"
                    );
                }
                drop(place);
            });
        }
    }
}

/// One of the [`MAX_POOL`] places, given back when dropped.
struct Place(Arc<AtomicUsize>);

impl Place {
    fn take(open: &Arc<AtomicUsize>) -> Option<Self> {
        let more = |now: usize| (now < MAX_POOL).then_some(now + 1);
        open.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()?;
        Some(Self(Arc::clone(open)))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Dials one standing connection and serves its streams until it is retired or broken.
///
/// How many idle ones are too many is the engine's to judge: it closes those, and the next visitor
/// of an engine whose spare ones we had closed would pay for it. So `idle_timeout_ms`, after which
/// an agent may close one, is not used.
async fn stand(
    shared: &Shared,
    path: &DataPath,
    over: &CancellationToken,
    secret: Secret,
) -> Result<(), ConnectError> {
    let dialled = over.run_until_cancelled(async {
        open_data(shared, shared.connector(), path, String::new(), secret).await
    });
    let Some(stream) = dialled.await else {
        return Ok(());
    };
    let mut standing = Standing::new(stream?, Side::Agent);
    loop {
        // A wait that is cut short takes the connection with it, which is what is wanted.
        let Some(next) = over.run_until_cancelled(standing.accept()).await else {
            return Ok(());
        };
        let next = next.map_err(|source| ConnectError::Network {
            step: Step::Exchange,
            source,
        })?;
        let Some((open, framed)) = next else {
            return Ok(());
        };
        let Some(framed) = serve(shared, open, framed).await else {
            return Ok(());
        };
        standing = match timeout(RECYCLE, framed.recycle()).await {
            Ok(Some(standing)) => standing,
            Ok(None) | Err(_) => return Ok(()),
        };
    }
}

/// Serves one stream; `None` when its connection is gone with it.
async fn serve(
    shared: &Shared,
    open: StreamOpen,
    mut framed: Framed<TlsStream>,
) -> Option<Framed<TlsStream>> {
    let visit = Visit {
        stream_id: open.stream_id,
        source_ip: open.source_ip.as_ref().and_then(IpAddress::to_ip),
    };
    let Some(entry) = shared.route(&open.tunnel_id).await else {
        framed.reset(Some(wire::Error::tunnel_not_found(
            "the agent has no such tunnel",
        )));
        return Some(framed);
    };
    match entry.handler() {
        Handler::Forward(forward) => Some(serve_framed(&forward, &visit, framed).await),
        Handler::Queue(queue) => {
            let Ok(slot) = queue.try_reserve_owned() else {
                framed.reset(Some(wire::Error::capacity_exhausted(
                    "too many visitors wait",
                )));
                return Some(framed);
            };
            let (back, given_back) = oneshot::channel();
            let lent = Box::new(Lent {
                framed: Some(framed),
                back: Some(back),
            });
            drop(slot.send(Stream::new(lent, visit.stream_id, visit.source_ip)));
            given_back.await.ok()
        }
    }
}

/// A stream in the hands of the program, whose connection comes back when it is dropped.
struct Lent {
    framed: Option<Framed<TlsStream>>,
    back: Option<oneshot::Sender<Framed<TlsStream>>>,
}

impl Lent {
    fn framed(self: Pin<&mut Self>) -> io::Result<Pin<&mut Framed<TlsStream>>> {
        // Empty only within `drop`.
        self.get_mut()
            .framed
            .as_mut()
            .map(Pin::new)
            .ok_or(io::ErrorKind::NotConnected.into())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let (Some(framed), Some(back)) = (self.framed.take(), self.back.take()) {
            // Without a taker the agent was killed; the connection closes with the stream.
            drop(back.send(framed));
        }
    }
}

impl AsyncRead for Lent {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.framed()?.poll_read(cx, buf)
    }
}

impl AsyncWrite for Lent {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.framed()?.poll_write(cx, buf)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.framed()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.framed()?.poll_shutdown(cx)
    }
}

/// Standing connections of one agent. It bounds what an engine can make an agent hold (about
/// 20 KiB each), above what one process may commonly have open.
pub const MAX_POOL: usize = 16 * 1024;

/// How long the rest of a stream may take to pass before its connection is given up.
const RECYCLE: Duration = Duration::from_secs(5);
