//! Conversion of webhooks and deliveries into API responses.

use api::control::webhooks::{
    Webhook, WebhookAttempt, WebhookAttemptStatus, WebhookConfig, WebhookDelivery,
    WebhookDeliveryStatus, WebhookDestinationType, WebhookStatus,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use store::deliveries::{self, Attempt, Delivery};
use store::projects::Project;
use store::webhooks;
use types::permission::Permission;

use crate::http_api::wire::date;
use crate::workspaces::role::Role;

/// A webhook for a user of this role. Users who may not change it see only its origin: with many
/// receivers the path of the address is the secret.
pub(super) fn webhook_for(
    role: Role,
    found: &webhooks::Webhook,
    project: &Project,
    now: Timestamp,
) -> Webhook {
    let mut shown = webhook(found, project, now);
    if !role.allows(Permission::NetworkWebhooksReadWrite) {
        shown.config.url = origin(&shown.config.url);
    }
    shown
}

/// Scheme, host and port of an address. The address was validated when it was stored.
fn origin(url: &str) -> String {
    let after = url.find("//").map_or(0, |at| at + 2);
    let end = url
        .bytes()
        .skip(after)
        .position(|byte| matches!(byte, b'/' | b'?' | b'#'))
        .map_or(url.len(), |length| after + length);
    format!("{}/", url.get(..end).unwrap_or_default())
}

/// A webhook of a project.
pub(super) fn webhook(found: &webhooks::Webhook, project: &Project, now: Timestamp) -> Webhook {
    let overlap = found.previous_secret_expires_at.filter(|end| now < *end);
    Webhook {
        id: found.id.to_string(),
        workspace_id: project.workspace_id.to_string(),
        project_id: found.project_id.to_string(),
        name: found.name.clone(),
        description: found.description.clone(),
        destination_type: WebhookDestinationType::WebhookEndpoint,
        status: match found.status {
            webhooks::Status::Enabled => WebhookStatus::Enabled,
            webhooks::Status::Disabled => WebhookStatus::Disabled,
        },
        events: found
            .events
            .iter()
            .filter_map(|word| serde_json::from_value(Value::String(word.clone())).ok())
            .collect(),
        config: WebhookConfig {
            url: found.url.clone(),
        },
        secret_last_rotated_at: found.secret_rotated_at.map(date),
        previous_secret_expires_at: overlap.map(date),
        failing_since: found.failing_since.map(date),
        created_by_user_id: Some(found.created_by.to_string()),
        created_at: date(found.created_at),
        updated_at: date(found.updated_at),
        deleted_at: None,
    }
}

/// A delivery with its latest attempt.
pub(super) fn delivery(
    found: &Delivery,
    project: &Project,
    latest: Option<&Attempt>,
) -> WebhookDelivery {
    let status = found.status;
    let ended_as = |wanted| found.completed_at.filter(|_| status == wanted).map(date);
    let is_waiting = matches!(
        status,
        deliveries::Status::Pending | deliveries::Status::Retrying
    );
    WebhookDelivery {
        id: found.id.to_string(),
        workspace_id: project.workspace_id.to_string(),
        project_id: found.project_id.to_string(),
        webhook_endpoint_id: found.webhook_id.to_string(),
        event_id: found.event_id.to_string(),
        event_type: found.event_type.clone(),
        status: match status {
            deliveries::Status::Pending => WebhookDeliveryStatus::Pending,
            deliveries::Status::Delivering => WebhookDeliveryStatus::Delivering,
            deliveries::Status::Retrying => WebhookDeliveryStatus::Retrying,
            deliveries::Status::Succeeded => WebhookDeliveryStatus::Succeeded,
            deliveries::Status::Failed => WebhookDeliveryStatus::Failed,
            deliveries::Status::Canceled => WebhookDeliveryStatus::Canceled,
        },
        attempt_count: found.attempts,
        next_attempt_at: is_waiting.then(|| date(found.next_attempt_at)),
        last_attempt_at: latest.map(|attempt| date(attempt.created_at)),
        succeeded_at: ended_as(deliveries::Status::Succeeded),
        failed_at: ended_as(deliveries::Status::Failed),
        last_http_status: latest.and_then(|attempt| attempt.http_status),
        last_response_time_ms: latest.map(|attempt| attempt.duration_ms),
        last_error: latest
            .and_then(|attempt| attempt.error.as_deref())
            .map(sentence),
        // Stored by the platform, as JSON.
        request_body: serde_json::from_str(&found.payload).unwrap_or_default(),
        created_at: date(found.created_at),
        updated_at: date(found.updated_at),
        attempts: None,
    }
}

/// An attempt of a delivery.
pub(super) fn attempt(number: i64, found: &Attempt) -> WebhookAttempt {
    let took = SignedDuration::from_millis(found.duration_ms);
    let ended = found.created_at.saturating_add(took);
    WebhookAttempt {
        id: found.id.to_string(),
        delivery_id: found.delivery_id.to_string(),
        attempt_number: number,
        status: match found.status.as_str() {
            "succeeded" => WebhookAttemptStatus::Succeeded,
            "timeout" => WebhookAttemptStatus::Timeout,
            "network_error" => WebhookAttemptStatus::NetworkError,
            _ => WebhookAttemptStatus::Failed,
        },
        http_status: found.http_status,
        response_time_ms: Some(found.duration_ms),
        response_headers: None,
        response_body: found.response_body.clone(),
        error_code: found.error.clone(),
        error_message: found.error.as_deref().map(sentence),
        started_at: date(found.created_at),
        completed_at: ended.ok().map(date),
        created_at: date(found.created_at),
    }
}

fn sentence(error: &str) -> String {
    let sentence = match error {
        "http_status" => "The endpoint did not respond with a 2xx status.",
        "timeout" => "The endpoint did not respond within 15 seconds.",
        "connection" => "The endpoint could not be reached, or its certificate is not trusted.",
        "refused_target" => "Webhooks are not sent to this address.",
        _ => "The attempt failed.",
    };
    sentence.to_owned()
}
