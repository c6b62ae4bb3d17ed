//! The task that sends due deliveries.
//!
//! Each process has one. A claim is a lease in the database, so that only one of several processes
//! sends a delivery. The leases of a process that dies expire. They are measured by the database's
//! clock. Otherwise a process with a fast clock would claim a delivery that another process is
//! sending.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use credentials::webhook::{Message, headers};
use daemon::counts::Counts;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use store::deliveries::{self, Attempt, Delivery, DueDelivery, Outcome};
use store::webhooks::{self, Status, Webhook};
use store::{Tx, projects};
use tokio::task::{self, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use types::id::{AttemptId, DeliveryId, ProjectId, WebhookId, unix_millis};

use super::schedule::{DISABLED_AFTER, PAUSE, next_attempt};
use super::secret;
use super::send::{AttemptOutcome, AttemptReport};
use crate::app::App;
use crate::audit::{self, Action, Actor, AuditTarget};
use crate::http_api::problem::{HandlerResult, Refusal};
use crate::runtime::metrics;
use crate::runtime::random;

/// Sends due deliveries until `stop`. Then waits for those in flight.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) {
    let mut in_flight = InFlightDeliveries::default();
    while !stop.is_cancelled() {
        let wait = start_due(&app, &mut in_flight).await;
        let wait = wait.unwrap_or_else(|refusal| {
            log_failure(&refusal);
            POLL
        });
        tokio::select! {
            () = stop.cancelled() => {}
            () = app.webhooks.woken.notified() => {}
            true = in_flight.wait_for_one() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
    while in_flight.wait_for_one().await {}
}

/// Sends everything that is currently due, and waits for the results.
pub async fn deliver_due(app: &Arc<App>) -> HandlerResult<()> {
    let mut in_flight = InFlightDeliveries::default();
    loop {
        let wait = start_due(app, &mut in_flight).await?;
        if !in_flight.wait_for_one().await && !wait.is_zero() {
            return Ok(());
        }
    }
}

/// Deliveries in flight. Their number is limited per endpoint and per project, so that a slow
/// endpoint, or a project with many of them, leaves slots for others.
#[derive(Default)]
struct InFlightDeliveries {
    tasks: JoinSet<()>,
    owners: HashMap<task::Id, (WebhookId, ProjectId)>,
    to_webhook: Counts<WebhookId>,
    of_project: Counts<ProjectId>,
}

impl InFlightDeliveries {
    fn free_slots(&self) -> usize {
        MAX_IN_FLIGHT.saturating_sub(self.tasks.len())
    }

    /// Selects the due deliveries that can start now, in their order.
    fn choose(&self, due: &[DueDelivery]) -> Vec<DeliveryId> {
        let mut webhooks = self.to_webhook.clone();
        let mut projects = self.of_project.clone();
        let may_start = |due: &&DueDelivery| {
            let is_below_limits = webhooks.get(&due.webhook_id) < MAX_TO_WEBHOOK
                && projects.get(&due.project_id) < MAX_OF_PROJECT;
            if is_below_limits {
                webhooks.increment(due.webhook_id);
                projects.increment(due.project_id);
            }
            is_below_limits
        };
        let chosen = due
            .iter()
            .filter(may_start)
            .take(self.free_slots().min(BATCH));
        chosen.map(|due| due.id).collect()
    }

    fn begin(&mut self, app: &Arc<App>, delivery: Delivery) {
        let owner = (delivery.webhook_id, delivery.project_id);
        let app = Arc::clone(app);
        let task = self.tasks.spawn(async move {
            // The lease expires, and the delivery is retried.
            if let Err(refusal) = deliver(&app, &delivery).await {
                log_failure(&refusal);
            }
        });
        self.owners.insert(task.id(), owner);
        self.to_webhook.increment(owner.0);
        self.of_project.increment(owner.1);
    }

    /// Waits until a delivery finishes, which frees a slot. `false` if none is in flight. Cancel
    /// safe.
    async fn wait_for_one(&mut self) -> bool {
        let ended = self.tasks.join_next_with_id().await;
        self.remove_task(ended)
    }

    /// Frees the slots of all finished deliveries.
    fn remove_finished(&mut self) {
        while let ended @ Some(_) = self.tasks.try_join_next_with_id() {
            self.remove_task(ended);
        }
    }

    fn remove_task(&mut self, ended: Option<Result<(task::Id, ()), JoinError>>) -> bool {
        let Some(ended) = ended else { return false };
        let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
        if let Some((webhook, project)) = self.owners.remove(&id) {
            self.to_webhook.decrement(&webhook);
            self.of_project.decrement(&project);
        }
        true
    }
}

/// Starts due deliveries while there are free slots. Returns the time until the next poll.
async fn start_due(app: &Arc<App>, in_flight: &mut InFlightDeliveries) -> HandlerResult<Duration> {
    in_flight.remove_finished();
    let now = app.database_now();
    let mut read = app.store.read().await?;
    let next = deliveries::next_due(&mut read).await?;
    let Some(next) = next.filter(|_| in_flight.free_slots() > 0) else {
        return Ok(POLL);
    };
    if next > now {
        let wait = Duration::try_from(next.duration_since(now)).unwrap_or_default();
        return Ok(wait.clamp(SHORTEST_WAIT, POLL));
    }
    let full_webhooks: Vec<_> = in_flight
        .to_webhook
        .keys_at_limit(MAX_TO_WEBHOOK)
        .copied()
        .collect();
    let full_projects: Vec<_> = in_flight
        .of_project
        .keys_at_limit(MAX_OF_PROJECT)
        .copied()
        .collect();
    let full = (&*full_webhooks, &*full_projects);
    let due = deliveries::due(&mut read, now, full, SEARCH_LIMIT).await?;
    drop(read);
    let chosen = in_flight.choose(&due);
    if chosen.is_empty() {
        return Ok(POLL);
    }
    let lease_ends_at = now.saturating_add(LEASE).unwrap_or(Timestamp::MAX);
    let mut tx = app.store.begin().await?;
    let claimed = deliveries::claim(&mut tx, now, lease_ends_at, &chosen).await?;
    tx.commit().await?;
    // Another process has claimed it.
    if claimed.is_empty() {
        return Ok(POLL);
    }
    for delivery in claimed {
        in_flight.begin(app, delivery);
    }
    Ok(Duration::ZERO)
}

/// Sends one event and records the result.
async fn deliver(app: &App, delivery: &Delivery) -> HandlerResult<()> {
    let mut read = app.store.read().await?;
    let webhook = webhooks::by_id(&mut read, delivery.project_id, delivery.webhook_id).await?;
    drop(read);
    let Some(webhook) = webhook.filter(|webhook| webhook.status == Status::Enabled) else {
        // The webhook may have been disabled or deleted since the claim.
        let mut tx = app.store.begin().await?;
        webhooks::lock(&mut tx, delivery.webhook_id).await?;
        deliveries::cancel(&mut tx, delivery.webhook_id, app.now()).await?;
        return Ok(tx.commit().await?);
    };
    let started_at = app.now();
    let message = Message {
        event_id: delivery.event_id.as_str(),
        event_type: &delivery.event_type,
        webhook_id: webhook.id.as_str(),
        delivery_id: delivery.id.as_str(),
        sent_at: started_at.as_second(),
        body: delivery.payload.as_bytes(),
    };
    let secrets = secret::active_secrets(app, &webhook, started_at)?;
    let headers = headers(&message, &secrets, app.config.compat_rstream);
    let body = delivery.payload.clone();
    let report = app.webhooks.sender.send(&webhook.url, headers, body).await;
    metrics::webhook_sent(attempt_status(&report.outcome).0);
    record_attempt(app, delivery, &webhook, started_at, report).await
}

/// Records the attempt and its consequences in one transaction. A response that is not recorded
/// leads to another request, so a busy database is retried.
async fn record_attempt(
    app: &App,
    delivery: &Delivery,
    webhook: &Webhook,
    started_at: Timestamp,
    report: AttemptReport,
) -> HandlerResult<()> {
    let now = app.database_now();
    let (status, error) = attempt_status(&report.outcome);
    let kind = AttemptEffect::of(&report.outcome);
    let outcome = match kind {
        AttemptEffect::Success => Outcome::Succeeded,
        AttemptEffect::EndpointGone => Outcome::Failed,
        AttemptEffect::Refusal | AttemptEffect::NoResponse => {
            next_attempt(delivery.attempts, now)?.map_or(Outcome::Failed, Outcome::RetryAt)
        }
    };
    let (http_status, response_body) = match report.outcome {
        AttemptOutcome::Response { status, body } => (Some(i64::from(status)), Some(body)),
        AttemptOutcome::Timeout | AttemptOutcome::Unreachable | AttemptOutcome::Refused => {
            (None, None)
        }
    };
    let attempt = Attempt {
        id: AttemptId::new(unix_millis(started_at), random::bytes()?),
        delivery_id: delivery.id,
        status: status.to_owned(),
        http_status,
        error: error.map(str::to_owned),
        response_body,
        duration_ms: i64::try_from(report.duration.as_millis()).unwrap_or(i64::MAX),
        created_at: started_at,
    };
    let mut tries = 1;
    loop {
        let noted =
            record_attempt_once(app, delivery, webhook, &attempt, (kind, outcome), now).await;
        match noted {
            Err(refusal) if tries < RECORD_ATTEMPTS && refusal.problem().status == UNAVAILABLE => {
                tries += 1;
            }
            noted => return noted,
        }
    }
}

/// Outcome of an attempt, by its effect on the webhook.
#[derive(Clone, Copy, PartialEq, Eq)]
enum AttemptEffect {
    Success,
    /// The endpoint reports that it is gone for good.
    EndpointGone,
    /// Any other response.
    Refusal,
    /// No response.
    NoResponse,
}

impl AttemptEffect {
    fn of(end: &AttemptOutcome) -> Self {
        match end {
            end if end.is_success() => Self::Success,
            end if end.is_gone() => Self::EndpointGone,
            AttemptOutcome::Response { .. } => Self::Refusal,
            AttemptOutcome::Timeout | AttemptOutcome::Unreachable | AttemptOutcome::Refused => {
                Self::NoResponse
            }
        }
    }
}

async fn record_attempt_once(
    app: &App,
    delivery: &Delivery,
    webhook: &Webhook,
    attempt: &Attempt,
    (kind, outcome): (AttemptEffect, Outcome),
    now: Timestamp,
) -> HandlerResult<()> {
    let started_at = attempt.created_at;
    let mut tx = app.store.begin().await?;
    // The lock comes first, because other attempts to the same endpoint end at the same time.
    webhooks::lock(&mut tx, webhook.id).await?;
    deliveries::add_attempt(&mut tx, attempt).await?;
    // If the lease has expired, the process with the current lease records the result.
    deliveries::finish(&mut tx, delivery, outcome, now).await?;
    if kind == AttemptEffect::Success {
        webhooks::note_success(&mut tx, webhook.id).await?;
        return Ok(tx.commit().await?);
    }
    webhooks::note_failure(&mut tx, webhook.id, started_at).await?;
    let since = webhook.failing_since.unwrap_or(started_at);
    if kind == AttemptEffect::EndpointGone || now.duration_since(since) >= DISABLED_AFTER {
        disable(&mut tx, webhook, kind == AttemptEffect::EndpointGone, now).await?;
    } else if kind == AttemptEffect::NoResponse {
        let until = now.saturating_add(PAUSE).unwrap_or(now);
        deliveries::postpone(&mut tx, webhook.id, until).await?;
    }
    Ok(tx.commit().await?)
}

/// Disables an endpoint that is gone or keeps failing.
async fn disable(
    tx: &mut Tx,
    webhook: &Webhook,
    is_gone: bool,
    now: Timestamp,
) -> HandlerResult<()> {
    if !webhooks::disable(tx, webhook.id, now).await? {
        return Ok(());
    }
    deliveries::cancel(tx, webhook.id, now).await?;
    let Some(project) = projects::by_id(tx, webhook.project_id).await? else {
        return Ok(());
    };
    let reason = if is_gone { "gone" } else { "failing" };
    let details = json!({"webhook": webhook.id, "name": webhook.name, "reason": reason});
    let (workspace, target) = (Some(project.workspace_id), AuditTarget::Project(project.id));
    let (actor, action) = (Actor::anonymous(), Action::WebhookDisabled);
    audit::record_with(tx, &actor, workspace, action, target, details, now).await
}

/// Status of the attempt, and its error.
fn attempt_status(end: &AttemptOutcome) -> (&'static str, Option<&'static str>) {
    match end {
        end if end.is_success() => ("succeeded", None),
        AttemptOutcome::Response { .. } => ("failed", Some("http_status")),
        AttemptOutcome::Timeout => ("timeout", Some("timeout")),
        AttemptOutcome::Unreachable => ("network_error", Some("connection")),
        AttemptOutcome::Refused => ("network_error", Some("refused_target")),
    }
}

fn log_failure(refusal: &Refusal) {
    metrics::job_failed();
    let problem = refusal.problem();
    tracing::error!(
        job = "webhooks", problem = %problem.detail,
        "a delivery failed with an internal error; it will be retried"
    );
}

/// Attempts to record a result. A busy database is usually free after a moment. If it is
/// unavailable, the delivery is retried when its lease expires.
const RECORD_ATTEMPTS: u32 = 3;
const UNAVAILABLE: u16 = 503;

/// Interval for polling deliveries that other processes made due.
pub const POLL: Duration = Duration::from_secs(1);

/// Minimum wait, so that a clock that is slightly behind does not cause a busy loop.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// Maximum number of deliveries in flight. Each takes a connection and some kilobytes.
const MAX_IN_FLIGHT: usize = 64;

/// Maximum to one endpoint. At a tenth of a second each, this is more than any endpoint is sent.
const MAX_TO_WEBHOOK: usize = 4;

/// Maximum for one project, so that four projects at their limit still leave slots for others.
const MAX_OF_PROJECT: usize = 12;

/// Maximum of one claim, so that processes share the work.
const BATCH: usize = 16;

/// Number of due rows that are searched for one that can start. Endpoints at their limit are
/// skipped, so the next search starts after them.
const SEARCH_LIMIT: u32 = 256;

/// Longer than an attempt may take (`send::TIMEOUT`), plus time for the database before and after
/// it.
const LEASE: SignedDuration = SignedDuration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// Each delivery has its own endpoint and project.
    #[tokio::test]
    async fn the_number_of_deliveries_in_flight_is_limited() {
        let due: Vec<_> = (0..100)
            .map(|number| DueDelivery {
                id: DeliveryId::new(number, [0; 10]),
                webhook_id: WebhookId::new(number, [0; 10]),
                project_id: ProjectId::new(number, [0; 10]),
            })
            .collect();
        let mut in_flight = InFlightDeliveries::default();
        let mut rest = due.as_slice();
        loop {
            let started = in_flight.choose(rest).len();
            if started == 0 {
                break;
            }
            rest = &rest[started..];
            for _ in 0..started {
                in_flight.tasks.spawn(std::future::pending());
            }
        }
        assert_eq!((in_flight.tasks.len(), in_flight.free_slots()), (64, 0));
    }
}
