//! The common part of SSE and WebSocket: a subscription that ends with its token.

use std::io::Write as _;
use std::sync::Arc;

use daemon::problem::Refusal;
use futures_util::FutureExt as _;
use http::Uri;
use types::filter::WatchParams;
use types::problem::Problem;

use super::Api;
use super::answers::{AnswerWriter, BufferedBody};
use super::caller::Watcher;
use super::lifetime::{CredentialEnd, CredentialGuard};
use crate::access::check_list_boundary;
use crate::live::{Events, Frame, LoadMetric, SubscriptionEnd, View};

/// An open stream: its first event, then the changes, until it ends with a reason.
#[derive(Debug)]
pub(super) struct Watch {
    initial: Option<BufferedBody>,
    events: Events,
    lifetime: CredentialGuard,
}

/// Reasons why a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum WatchEnd {
    #[error(transparent)]
    Token(#[from] CredentialEnd),
    #[error(transparent)]
    Events(#[from] SubscriptionEnd),
}

impl Watch {
    /// Subscribes. `before` and `after` are written around `state.initial` (EN-3).
    pub(super) fn open<A: LoadMetric>(
        api: &Arc<Api<A>>,
        mut watcher: Watcher,
        uri: &Uri,
        (before, after): (&str, &str),
    ) -> Result<Self, Refusal> {
        let params = WatchParams::from_query(uri.query().unwrap_or_default(), api.compat)?;
        check_list_boundary(&watcher.token, &watcher.project)?;
        let webtty = params.webtty;
        if webtty {
            // WT-5: events of terminals require permission to watch them and are only sent on
            // request.
            let permission = api.terminal_permission(&watcher.token, &watcher.project)?;
            watcher.lifetime.require_also(permission);
        }
        let view = View {
            webtty,
            ..api.view(&watcher.project, watcher.token, params)
        };
        let writer = AnswerWriter::new(&api.answers, &watcher.project)?;
        let subscription = api.live.subscribe(view).map_err(|full| {
            Problem::unavailable()
                .with_detail(full.to_string())
                .with_retry_after(RETRY_AFTER_SECONDS)
        })?;
        let initial = writer.fill(|out| {
            out.write_all(before.as_bytes())?;
            subscription.write_initial(out)?;
            out.write_all(after.as_bytes())
        })?;
        let events = subscription.events;
        Ok(Self::new(Some(initial), events, watcher.lifetime))
    }

    pub(super) fn new(
        initial: Option<BufferedBody>,
        events: Events,
        lifetime: CredentialGuard,
    ) -> Self {
        Self {
            initial,
            events,
            lifetime,
        }
    }

    /// The first event (EN-3), sent once.
    pub(super) fn take_initial(&mut self) -> Option<BufferedBody> {
        self.initial.take()
    }

    /// The reason why the stream may not continue, if its token is no longer valid.
    pub(super) fn credential_end(&mut self) -> Option<WatchEnd> {
        self.lifetime.ended().now_or_never().map(WatchEnd::Token)
    }

    /// Waits for the next change. Cancel-safe.
    ///
    /// # Errors
    /// The reason of the end. No event follows.
    pub(super) async fn next(&mut self) -> Result<Frame, WatchEnd> {
        tokio::select! {
            // The token is checked first: frequent events must not keep a stream alive.
            biased;
            lapse = self.lifetime.ended() => Err(lapse.into()),
            delivery = self.events.next() => Ok(delivery?.frame()),
        }
    }
}

/// A slot becomes free when a watcher disconnects, which cannot be predicted.
const RETRY_AFTER_SECONDS: u32 = 10;
