//! The task that sends what is due.
//!
//! Each process has one. A claim is a lease in the database, so that of several processes one
//! sends; a process that dies leaves leases that end by themselves. They are counted by the database's
//! clock, as one process whose own is ahead would take what another is at.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Duration;

use credentials::webhook::{Message, headers};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use store::deliveries::{self, Attempt, Delivery, Due, Outcome};
use store::webhooks::{self, Status, Webhook};
use store::{Tx, projects};
use tokio::task::{self, JoinError, JoinSet};
use tokio_util::sync::CancellationToken;
use types::id::{AttemptId, DeliveryId, ProjectId, WebhookId};

use super::schedule::{DISABLED_AFTER, PAUSE, next_attempt};
use super::secret;
use super::send::{End, Report};
use crate::app::App;
use crate::audit::{self, Action, Actor, Target};
use crate::metrics;
use crate::problem::{Answer, Refusal};
use crate::random;

/// Sends what is due until `stop`; then waits for what is under way.
pub(crate) async fn run(app: Arc<App>, stop: CancellationToken) {
    let mut under_way = InFlightDeliveries::default();
    while !stop.is_cancelled() {
        let wait = begin_due(&app, &mut under_way).await;
        let wait = wait.unwrap_or_else(|refusal| {
            failed(&refusal);
            POLL
        });
        tokio::select! {
            () = stop.cancelled() => {}
            () = app.webhooks.woken.notified() => {}
            true = under_way.next_ends() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
    while under_way.next_ends().await {}
}

/// Sends everything that is due now, and waits for how it ends.
pub async fn deliver_due(app: &Arc<App>) -> Answer<()> {
    let mut under_way = InFlightDeliveries::default();
    loop {
        let wait = begin_due(app, &mut under_way).await?;
        if !under_way.next_ends().await && !wait.is_zero() {
            return Ok(());
        }
    }
}

/// What is on its way. An endpoint that takes its time, and a project with many of them, leave room
/// for others.
#[derive(Default)]
struct InFlightDeliveries {
    tasks: JoinSet<()>,
    of: HashMap<task::Id, (WebhookId, ProjectId)>,
    to_webhook: Counts<WebhookId>,
    of_project: Counts<ProjectId>,
}

/// How many there are of each; none of which there is nothing.
struct Counts<K>(HashMap<K, usize>);

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<K: Copy + Eq + Hash> Counts<K> {
    fn has_room(&self, key: K, most: usize) -> bool {
        self.0.get(&key).is_none_or(|count| *count < most)
    }

    fn full(&self, most: usize) -> Vec<K> {
        let full = self.0.iter().filter(|(_, count)| **count >= most);
        full.map(|(key, _)| *key).collect()
    }

    fn add(&mut self, key: K) {
        *self.0.entry(key).or_default() += 1;
    }

    fn remove(&mut self, key: K) {
        if let Entry::Occupied(mut count) = self.0.entry(key) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

impl InFlightDeliveries {
    fn room(&self) -> usize {
        MAX_UNDER_WAY.saturating_sub(self.tasks.len())
    }

    /// Of what is due, in its order, what may begin now.
    fn choose(&self, due: &[Due]) -> Vec<DeliveryId> {
        let mut webhooks = Counts(self.to_webhook.0.clone());
        let mut projects = Counts(self.of_project.0.clone());
        let may = |due: &&Due| {
            let may = webhooks.has_room(due.webhook_id, MAX_TO_WEBHOOK)
                && projects.has_room(due.project_id, MAX_OF_PROJECT);
            if may {
                webhooks.add(due.webhook_id);
                projects.add(due.project_id);
            }
            may
        };
        let chosen = due.iter().filter(may).take(self.room().min(BATCH));
        chosen.map(|due| due.id).collect()
    }

    fn begin(&mut self, app: &Arc<App>, delivery: Delivery) {
        let of = (delivery.webhook_id, delivery.project_id);
        let app = Arc::clone(app);
        let task = self.tasks.spawn(async move {
            // The lease ends, and then it is tried again.
            if let Err(refusal) = deliver(&app, &delivery).await {
                failed(&refusal);
            }
        });
        self.of.insert(task.id(), of);
        self.to_webhook.add(of.0);
        self.of_project.add(of.1);
    }

    /// Waits until one has ended, which makes room. `false`: there is none. Cancel safe.
    async fn next_ends(&mut self) -> bool {
        let ended = self.tasks.join_next_with_id().await;
        self.forget(ended)
    }

    /// Makes room of all that have ended.
    fn forget_ended(&mut self) {
        while let ended @ Some(_) = self.tasks.try_join_next_with_id() {
            self.forget(ended);
        }
    }

    fn forget(&mut self, ended: Option<Result<(task::Id, ()), JoinError>>) -> bool {
        let Some(ended) = ended else { return false };
        let id = ended.map_or_else(|error| error.id(), |(id, ())| id);
        if let Some((webhook, project)) = self.of.remove(&id) {
            self.to_webhook.remove(webhook);
            self.of_project.remove(project);
        }
        true
    }
}

/// Begins what is due, as far as there is room. Returns how long to wait before looking again.
async fn begin_due(app: &Arc<App>, under_way: &mut InFlightDeliveries) -> Answer<Duration> {
    under_way.forget_ended();
    let now = app.database_now();
    let mut read = app.store.read().await?;
    let next = deliveries::next_due(&mut read).await?;
    let Some(next) = next.filter(|_| under_way.room() > 0) else {
        return Ok(POLL);
    };
    if next > now {
        let wait = Duration::try_from(next.duration_since(now)).unwrap_or_default();
        return Ok(wait.clamp(SHORTEST_WAIT, POLL));
    }
    let full = (
        under_way.to_webhook.full(MAX_TO_WEBHOOK),
        under_way.of_project.full(MAX_OF_PROJECT),
    );
    let due = deliveries::due(&mut read, now, (&full.0, &full.1), LOOKED_AT).await?;
    drop(read);
    let chosen = under_way.choose(&due);
    if chosen.is_empty() {
        return Ok(POLL);
    }
    let lease_ends_at = now.saturating_add(LEASE).unwrap_or(Timestamp::MAX);
    let mut tx = app.store.begin().await?;
    let claimed = deliveries::claim(&mut tx, now, lease_ends_at, &chosen).await?;
    tx.commit().await?;
    // Somebody else was quicker, and is at it.
    if claimed.is_empty() {
        return Ok(POLL);
    }
    for delivery in claimed {
        under_way.begin(app, delivery);
    }
    Ok(Duration::ZERO)
}

/// Sends one event and notes how it went.
async fn deliver(app: &App, delivery: &Delivery) -> Answer<()> {
    let mut read = app.store.read().await?;
    let webhook = webhooks::by_id(&mut read, delivery.project_id, delivery.webhook_id).await?;
    drop(read);
    let Some(webhook) = webhook.filter(|webhook| webhook.status == Status::Enabled) else {
        // It was disabled or deleted between the claim and now.
        let mut tx = app.store.begin().await?;
        webhooks::lock(&mut tx, delivery.webhook_id).await?;
        deliveries::cancel(&mut tx, delivery.webhook_id, app.now()).await?;
        return Ok(tx.commit().await?);
    };
    let began = app.now();
    let message = Message {
        event_id: delivery.event_id.as_str(),
        event_type: &delivery.event_type,
        webhook_id: webhook.id.as_str(),
        delivery_id: delivery.id.as_str(),
        sent_at: began.as_second(),
        body: delivery.payload.as_bytes(),
    };
    let secrets = secret::in_force(app, &webhook, began)?;
    let headers = headers(&message, &secrets, app.config.compat_rstream);
    let body = delivery.payload.clone();
    let report = app.webhooks.sender.send(&webhook.url, headers, body).await;
    metrics::webhook_sent(attempt_status(&report.end).0);
    record_attempt(app, delivery, &webhook, began, report).await
}

/// Writes the attempt down, and what follows from it, in one transaction. An answer that is not
/// noted is asked for again, so a database that is busy is asked more than once.
async fn record_attempt(
    app: &App,
    delivery: &Delivery,
    webhook: &Webhook,
    began: Timestamp,
    report: Report,
) -> Answer<()> {
    let now = app.database_now();
    let (status, error) = attempt_status(&report.end);
    let kind = EndKind::of(&report.end);
    let outcome = match kind {
        EndKind::Success => Outcome::Succeeded,
        EndKind::Gone => Outcome::Failed,
        EndKind::Refusal | EndKind::Silence => {
            next_attempt(delivery.attempts, now)?.map_or(Outcome::Failed, Outcome::RetryAt)
        }
    };
    let (http_status, response_body) = match report.end {
        End::Answered { status, body } => (Some(i64::from(status)), Some(body)),
        End::Timeout | End::Unreachable | End::Refused => (None, None),
    };
    let attempt = Attempt {
        id: AttemptId::new(random::millis(began), random::bytes()?),
        delivery_id: delivery.id,
        status: status.to_owned(),
        http_status,
        error: error.map(str::to_owned),
        response_body,
        duration_ms: i64::try_from(report.took.as_millis()).unwrap_or(i64::MAX),
        created_at: began,
    };
    let mut tries = 1;
    loop {
        let noted = note_once(app, delivery, webhook, &attempt, (kind, outcome), now).await;
        match noted {
            Err(refusal) if tries < NOTE_TRIES && refusal.problem().status == UNAVAILABLE => {
                tries += 1;
            }
            noted => return noted,
        }
    }
}

/// The ways in which an attempt ends, by what follows for the webhook.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndKind {
    Success,
    /// The endpoint says that it is gone for good.
    Gone,
    /// Another answer.
    Refusal,
    /// No answer.
    Silence,
}

impl EndKind {
    fn of(end: &End) -> Self {
        match end {
            end if end.is_success() => Self::Success,
            end if end.is_gone() => Self::Gone,
            End::Answered { .. } => Self::Refusal,
            End::Timeout | End::Unreachable | End::Refused => Self::Silence,
        }
    }
}

async fn note_once(
    app: &App,
    delivery: &Delivery,
    webhook: &Webhook,
    attempt: &Attempt,
    (kind, outcome): (EndKind, Outcome),
    now: Timestamp,
) -> Answer<()> {
    let began = attempt.created_at;
    let mut tx = app.store.begin().await?;
    // First of all: other attempts to the same endpoint end at the same time.
    webhooks::lock(&mut tx, webhook.id).await?;
    deliveries::add_attempt(&mut tx, attempt).await?;
    // Where its lease had ended, whoever has it now says how it ends.
    deliveries::finish(&mut tx, delivery, outcome, now).await?;
    if kind == EndKind::Success {
        webhooks::note_success(&mut tx, webhook.id).await?;
        return Ok(tx.commit().await?);
    }
    webhooks::note_failure(&mut tx, webhook.id, began).await?;
    let since = webhook.failing_since.unwrap_or(began);
    if kind == EndKind::Gone || now.duration_since(since) >= DISABLED_AFTER {
        disable(&mut tx, webhook, kind == EndKind::Gone, now).await?;
    } else if kind == EndKind::Silence {
        let until = now.saturating_add(PAUSE).unwrap_or(now);
        deliveries::postpone(&mut tx, webhook.id, until).await?;
    }
    Ok(tx.commit().await?)
}

/// Disables an endpoint that is not there any more.
async fn disable(tx: &mut Tx, webhook: &Webhook, is_gone: bool, now: Timestamp) -> Answer<()> {
    if !webhooks::disable(tx, webhook.id, now).await? {
        return Ok(());
    }
    deliveries::cancel(tx, webhook.id, now).await?;
    let Some(project) = projects::by_id(tx, webhook.project_id).await? else {
        return Ok(());
    };
    let reason = if is_gone { "gone" } else { "failing" };
    let details = json!({"webhook": webhook.id, "name": webhook.name, "reason": reason});
    let (workspace, target) = (Some(project.workspace_id), Target::Project(project.id));
    let (actor, action) = (Actor::nobody(), Action::WebhookDisabled);
    audit::record_with(tx, &actor, workspace, action, target, details, now).await
}

/// Status of the attempt, and what went wrong.
fn attempt_status(end: &End) -> (&'static str, Option<&'static str>) {
    match end {
        end if end.is_success() => ("succeeded", None),
        End::Answered { .. } => ("failed", Some("http_status")),
        End::Timeout => ("timeout", Some("timeout")),
        End::Unreachable => ("network_error", Some("connection")),
        End::Refused => ("network_error", Some("refused_target")),
    }
}

fn failed(refusal: &Refusal) {
    metrics::job_failed();
    let problem = refusal.problem();
    tracing::error!(job = "webhooks", problem = %problem.detail, "a delivery failed on our side; it is tried again");
}

/// How often the note of an attempt is tried: a busy database is free again after a moment, and one
/// that is away leaves the delivery to the end of its lease.
const NOTE_TRIES: u32 = 3;
const UNAVAILABLE: u16 = 503;

/// How often is looked for what other processes made due.
pub const POLL: Duration = Duration::from_secs(1);

/// A clock that is a little behind is not asked in a circle.
const SHORTEST_WAIT: Duration = Duration::from_millis(10);

/// What is on its way at once: each takes a connection and some kilobytes.
const MAX_UNDER_WAY: usize = 64;

/// To one endpoint: at a tenth of a second each, more than any of them is sent.
const MAX_TO_WEBHOOK: usize = 4;

/// Of one project, so that four that do their worst still leave room for others.
const MAX_OF_PROJECT: usize = 12;

/// What one claim takes, so that processes share.
const BATCH: usize = 16;

/// How far the line is looked along for what has room. What is at its bound is passed over, so the
/// next look begins behind it.
const LOOKED_AT: u32 = 256;

/// Longer than an attempt may take (`send::TIMEOUT`), with time for the database on both sides.
const LEASE: SignedDuration = SignedDuration::from_mins(1);

#[cfg(test)]
mod tests {
    use super::*;

    /// Each to an endpoint and of a project of its own.
    #[tokio::test]
    async fn so_many_deliveries_are_under_way() {
        let due: Vec<_> = (0..100)
            .map(|number| Due {
                id: DeliveryId::new(number, [0; 10]),
                webhook_id: WebhookId::new(number, [0; 10]),
                project_id: ProjectId::new(number, [0; 10]),
            })
            .collect();
        let mut under_way = InFlightDeliveries::default();
        let mut rest = due.as_slice();
        loop {
            let begun = under_way.choose(rest).len();
            if begun == 0 {
                break;
            }
            rest = &rest[begun..];
            for _ in 0..begun {
                under_way.tasks.spawn(std::future::pending());
            }
        }
        assert_eq!((under_way.tasks.len(), under_way.room()), (64, 0));
    }
}
