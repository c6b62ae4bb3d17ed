//! What SSE and WebSocket share: a subscription that its token bounds.

use std::sync::Arc;

use daemon::problem::Refusal;
use http::Uri;
use types::filter::WatchParams;
use types::problem::Problem;

use super::Api;
use super::caller::Watcher;
use super::lifetime::{Lapse, Lifetime};
use crate::access::reaches_list;
use crate::live::{Ended, Events, Frame, Load, Subscription, View};

/// An open stream: its first frame, then the changes, until it ends with a reason.
#[derive(Debug)]
pub(super) struct Watch {
    initial: Option<Frame>,
    events: Events,
    lifetime: Lifetime,
}

/// Why a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum End {
    #[error(transparent)]
    Token(#[from] Lapse),
    #[error(transparent)]
    Events(#[from] Ended),
}

impl Watch {
    pub(super) fn open<A: Load>(
        api: &Arc<Api<A>>,
        mut watcher: Watcher,
        uri: &Uri,
    ) -> Result<Self, Refusal> {
        let params = WatchParams::from_query(uri.query().unwrap_or_default(), api.compat)?;
        reaches_list(&watcher.token, &watcher.project)?;
        let webtty = params.webtty;
        if webtty {
            // WT-5: events of terminals are for those who may watch these, and ask for them.
            let permission = api.reads_terminals(&watcher.token, &watcher.project)?;
            watcher.lifetime.needs_too(permission);
        }
        let view = View {
            webtty,
            ..api.view(&watcher.project, watcher.token, params)
        };
        let subscription = api.live.subscribe(view).map_err(|full| {
            Problem::unavailable()
                .with_detail(full.to_string())
                .with_retry_after(RETRY_AFTER_SECONDS)
        })?;
        Ok(Self::of(subscription, watcher.lifetime))
    }

    pub(super) fn of(subscription: Subscription, lifetime: Lifetime) -> Self {
        Self {
            initial: Some(subscription.initial()),
            events: subscription.events,
            lifetime,
        }
    }

    /// Waits for the next frame; `state.initial` first (EN-3). Cancel-safe.
    ///
    /// # Errors
    /// [`End`]; there is nothing after it.
    pub(super) async fn next(&mut self) -> Result<Frame, End> {
        if let Some(initial) = self.initial.take() {
            return Ok(initial);
        }
        tokio::select! {
            // The token first: events that keep coming do not keep a stream alive.
            biased;
            lapse = self.lifetime.lapse() => Err(lapse.into()),
            delivery = self.events.next() => Ok(delivery?.frame()),
        }
    }
}

/// A place is free when some watcher leaves; nobody knows when.
const RETRY_AFTER_SECONDS: u32 = 10;
