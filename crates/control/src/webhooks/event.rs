//! Creation of deliveries for an event.

use api::control::webhooks::WebhookEventType;
use jiff::Timestamp;
use store::deliveries::{self, NewDelivery};
use store::{Tx, webhooks};
use types::event::Event;
use types::id::{DeliveryId, ProjectId, unix_millis};

use crate::http_api::problem::HandlerResult;
use crate::runtime::metrics;
use crate::runtime::random;

/// Creates a delivery for each enabled endpoint of the event's project that subscribes to its type,
/// in the transaction that stores the event. Returns the number of new deliveries. An event that is
/// reported again creates none. After the commit, [`super::Webhooks::wake`] sends them immediately.
pub async fn on_event(tx: &mut Tx, event: &Event, now: Timestamp) -> HandlerResult<u64> {
    let Some(kind) = WebhookEventType::of(event.event_type) else {
        return Ok(0);
    };
    let project: Option<ProjectId> = event.project_id.as_deref().and_then(|id| id.parse().ok());
    let Some(project_id) = project else {
        return Ok(0);
    };
    let mut made = 0;
    for webhook in webhooks::enabled(tx, project_id).await? {
        if !webhook.events.iter().any(|wanted| wanted == kind.as_str()) {
            continue;
        }
        if deliveries::count_open(tx, webhook.id, MAX_WAITING).await? >= u64::from(MAX_WAITING) {
            metrics::webhook_event_dropped();
            tracing::warn!(
                webhook.id = %webhook.id,
                "too many events are waiting for a webhook; an event is dropped"
            );
            continue;
        }
        let delivery = NewDelivery {
            id: DeliveryId::new(unix_millis(now), random::bytes()?),
            webhook_id: webhook.id,
            project_id,
            event_id: event.id,
            event_type: kind.as_str().to_owned(),
            payload: event.to_line(),
            now,
        };
        made += u64::from(deliveries::insert(tx, &delivery).await?);
    }
    Ok(made)
}

/// Maximum number of deliveries that wait for one endpoint. Further events are skipped. An endpoint
/// that was down for a night can still catch up with these in minutes. They take some megabytes.
pub const MAX_WAITING: u32 = 10_000;
