//! Links with short waits, and handlers that record their calls.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use api::link::{Item, Platform};
use link::{Backoff, Endpoint, Handler, Link, LinkTimes, Status};
use testing::{FakePlatform, within};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Waits that are short for a test, but longer than any delay on loopback.
pub(crate) fn pace() -> LinkTimes {
    LinkTimes {
        retry: Backoff::new(Duration::from_millis(10), Duration::from_millis(50)),
        refused: Duration::from_millis(50),
        save: Duration::from_millis(10),
        batch: Duration::from_millis(10),
        ..LinkTimes::default()
    }
}

pub(crate) fn endpoint(url: &str, secret: &str, folder: &Path) -> Endpoint {
    let token = folder.join("token");
    std::fs::write(&token, secret).unwrap();
    Endpoint::new(url, token, None).unwrap()
}

/// Calls of the handler, in order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum HandlerCall {
    Snapshot(Vec<Item>),
    Change(Vec<Item>),
}

#[derive(Debug)]
pub(crate) struct RecordingHandler {
    pub(crate) told: watch::Sender<Vec<HandlerCall>>,
    /// The cluster whose updates it accepts.
    cluster: &'static str,
}

impl Handler for RecordingHandler {
    fn snapshot(&self, platform: Platform, items: Vec<Item>) -> Result<(), String> {
        if platform.cluster_domain != self.cluster {
            return Err("another cluster".to_owned());
        }
        self.told
            .send_modify(|told| told.push(HandlerCall::Snapshot(items)));
        Ok(())
    }

    fn change(&self, items: Vec<Item>) {
        self.told
            .send_modify(|told| told.push(HandlerCall::Change(items)));
    }
}

/// A running link.
pub(crate) struct RunningLink {
    pub(crate) status: Arc<Status>,
    pub(crate) ear: Arc<RecordingHandler>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl RunningLink {
    pub(crate) fn start(platform: &FakePlatform, folder: &Path, pace: LinkTimes) -> Self {
        Self::at(&platform.url(), platform.secret(), folder, pace, CLUSTER)
    }

    pub(crate) fn at(
        url: &str,
        secret: &str,
        folder: &Path,
        pace: LinkTimes,
        cluster: &'static str,
    ) -> Self {
        let link = Link::open(endpoint(url, secret, folder), &folder.join("link"), pace).unwrap();
        let ear = Arc::new(RecordingHandler {
            told: watch::Sender::new(Vec::new()),
            cluster,
        });
        link.restore(&*ear);
        let (status, stop) = (link.status(), CancellationToken::new());
        let task = tokio::spawn(link.run(Arc::clone(&ear), stop.clone()));
        Self {
            status,
            ear,
            stop,
            task,
        }
    }

    /// Waits until `is` holds for the calls so far. Returns all of them.
    pub(crate) async fn wait_for_calls(
        &self,
        is: impl Fn(&[HandlerCall]) -> bool,
    ) -> Vec<HandlerCall> {
        let mut told = self.ear.told.subscribe();
        let reached = told.wait_for(|told| is(told));
        within("something to be told", reached)
            .await
            .unwrap()
            .clone()
    }

    /// Waits until all changes of the platform are applied.
    pub(crate) async fn wait_until_current(&self, platform: &FakePlatform) {
        within(
            "what was told",
            self.status.wait_for_version(platform.version()),
        )
        .await;
    }

    pub(crate) async fn stop(self) {
        self.stop.cancel();
        within("end of the link", self.task).await.unwrap();
    }
}

pub(crate) const CLUSTER: &str = "engine.localhost";
