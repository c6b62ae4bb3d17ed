//! An agent whose tunnel is visited all the time, beside a restart of its engine.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use e2e::{Agent, Service, Svc, Visit, Visitor};
use tokio::task::JoinHandle;

/// An agent with a service, and its visitor.
pub(crate) struct VisitedAgent {
    agent: Agent,
    visitor: Visitor,
    period: Duration,
    stop: Arc<AtomicBool>,
    visiting: JoinHandle<Result<Vec<Visit>>>,
}

impl VisitedAgent {
    /// Publishes a service at the engine of `svc`, and visits it once in each `period`.
    pub(crate) fn start(svc: &Svc, period: Duration) -> Result<Self> {
        let service = Service::mirror()?.to_string();
        let agent = Agent::forward(svc, &service, &["--http", "--hostname", "web"])?;
        let visitor = Visitor::new(svc, agent.hostname()?)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopping = Arc::clone(&stop);
        let more = move |_count: usize| !stopping.load(Ordering::Relaxed);
        let visiting = tokio::spawn(visitor.clone().visit_while(period, more));
        Ok(Self {
            agent,
            visitor,
            period,
            stop,
            visiting,
        })
    }

    /// Waits until the agent is online at the next process, and for one more visit, which succeeds.
    /// Returns all visits.
    pub(crate) async fn finish(mut self) -> Result<Vec<Visit>> {
        self.agent.online_again()?;
        let last = self.visitor.visit_while(self.period, |count| count == 0);
        let last = last.await?;
        Visit::all_succeeded(&last)?;
        self.stop.store(true, Ordering::Relaxed);
        let mut visits = self.visiting.await??;
        visits.extend(last);
        Ok(visits)
    }
}

/// Checks that no visit was refused or broken, and that none got 404.
pub(crate) fn check_answers<'v>(visits: impl IntoIterator<Item = &'v Visit>) -> Result<()> {
    for visit in visits {
        let status = visit.status.as_ref().ok();
        ensure!(matches!(status, Some(200 | 503)), "{visit:?}");
    }
    Ok(())
}
