//! Deliveries to a webhook and their outcome.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::super::{Method, Operation, PAGE, PAGE_SIZE, Parameter, TIME_ORDER, page};
use super::{READ, UPDATES};

/// Deliveries to a webhook.
pub const LIST_DELIVERIES: &Operation = &Operation {
    query: &[
        Parameter::one_of(
            "status",
            "Only deliveries with this status.",
            &[
                "pending",
                "delivering",
                "retrying",
                "succeeded",
                "failed",
                "canceled",
            ],
        ),
        Parameter::text("eventType", "Only deliveries of events of this type."),
        Parameter::time("start", "Only deliveries created at this time or later."),
        Parameter::time("end", "Only deliveries created before this time."),
        PAGE,
        PAGE_SIZE,
        TIME_ORDER,
    ],
    ..Operation::get(
        "list_project_webhook_deliveries",
        "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}/deliveries",
        "List the deliveries to a webhook",
        READ,
        "WebhookDeliveryList",
    )
};

/// Returns one delivery with its attempts.
pub const GET_DELIVERY: &Operation = &Operation::get(
    "get_project_webhook_delivery",
    "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}/deliveries/{delivery_id}",
    "Get a delivery with its attempts",
    READ,
    "WebhookDelivery",
);

/// Retries a failed delivery.
pub const RETRY_DELIVERY: &Operation = &Operation {
    id: "retry_project_webhook_delivery",
    method: Method::Post,
    path: "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}/deliveries/{delivery_id}/retry",
    summary: "Retry a failed or canceled delivery",
    access: UPDATES,
    refusals: &[409],
    ..*GET_DELIVERY
};

/// Status of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WebhookDeliveryStatus {
    /// No attempt was made yet.
    Pending,
    /// An attempt is in progress.
    Delivering,
    /// An attempt failed, and another one will follow.
    Retrying,
    /// The receiver accepted the delivery.
    Succeeded,
    /// All attempts failed.
    Failed,
    /// Its webhook was disabled or deleted.
    Canceled,
}

/// Outcome of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookAttemptStatus {
    /// The receiver responded with a 2xx status.
    Succeeded,
    /// The receiver responded with another status.
    Failed,
    /// The receiver did not respond in time.
    Timeout,
    /// The receiver could not be reached.
    NetworkError,
}

/// Delivery of one event to one webhook. Members without a value are `null`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookDelivery {
    /// Id; the same for all attempts.
    #[schema(example = "dlv_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// The workspace that the project belongs to.
    pub workspace_id: String,
    /// The project.
    pub project_id: String,
    /// The webhook.
    pub webhook_endpoint_id: String,
    /// Id of the event; receivers can use it to detect duplicates.
    pub event_id: String,
    /// Event type.
    pub event_type: String,
    /// Status.
    pub status: WebhookDeliveryStatus,
    /// Number of started attempts.
    pub attempt_count: i64,
    /// Time of the next attempt.
    #[schema(required = true, format = DateTime)]
    pub next_attempt_at: Option<String>,
    /// Time of the last attempt.
    #[schema(required = true, format = DateTime)]
    pub last_attempt_at: Option<String>,
    /// Time of the successful delivery.
    #[schema(required = true, format = DateTime)]
    pub succeeded_at: Option<String>,
    /// Time when the delivery failed for good.
    #[schema(required = true, format = DateTime)]
    pub failed_at: Option<String>,
    /// Response status of the last attempt.
    #[schema(required = true)]
    pub last_http_status: Option<i64>,
    /// Duration of the last attempt, in milliseconds.
    #[schema(required = true)]
    pub last_response_time_ms: Option<i64>,
    /// Error of the last attempt.
    #[schema(required = true)]
    pub last_error: Option<String>,
    /// The body: the event.
    #[schema(value_type = Object)]
    pub request_body: Value,
    /// Creation time.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time of the last change.
    #[schema(format = DateTime)]
    pub updated_at: String,
    /// The attempts, oldest first; only in the response for a single delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub attempts: Option<Vec<WebhookAttempt>>,
}

/// One attempt of a delivery. Members without a value are `null`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookAttempt {
    /// Id.
    #[schema(example = "att_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// The delivery.
    pub delivery_id: String,
    /// Number of the attempt, from 1.
    pub attempt_number: i64,
    /// Outcome.
    pub status: WebhookAttemptStatus,
    /// Response status.
    #[schema(required = true)]
    pub http_status: Option<i64>,
    /// Duration in milliseconds.
    #[schema(required = true)]
    pub response_time_ms: Option<i64>,
    /// Always `null`, because header fields are not stored.
    #[schema(required = true, value_type = Option<Object>)]
    pub response_headers: Option<Value>,
    /// Start of the response body, at most 1 KiB.
    #[schema(required = true)]
    pub response_body: Option<String>,
    /// Error code: `http_status`, `timeout`, `connection` or `refused_target`.
    #[schema(required = true)]
    pub error_code: Option<String>,
    /// Error as display text.
    #[schema(required = true)]
    pub error_message: Option<String>,
    /// Start of the attempt.
    #[schema(format = DateTime)]
    pub started_at: String,
    /// End of the attempt.
    #[schema(required = true, format = DateTime)]
    pub completed_at: Option<String>,
    /// Start of the attempt.
    #[schema(format = DateTime)]
    pub created_at: String,
}

page! {
    /// One page of deliveries.
    #[derive(PartialEq)]
    pub struct WebhookDeliveryList {
        /// The deliveries of the page.
        pub deliveries: Vec<WebhookDelivery>,
        /// Position of this page in the list.
        pub paging: Paging,
    }
}
