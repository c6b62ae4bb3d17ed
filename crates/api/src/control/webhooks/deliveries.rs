//! What was sent to a webhook, and what came of it.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::super::{Method, Operation, Paging, Parameter, Shape};
use super::{PAGE, PAGE_SIZE, READ, UPDATES};

/// Deliveries to a webhook.
pub const LIST_DELIVERIES: &Operation = &Operation {
    query: &[
        Parameter {
            name: "status",
            description: "Deliveries with this status alone.",
            shape: Shape::OneOf(&[
                "pending",
                "delivering",
                "retrying",
                "succeeded",
                "failed",
                "canceled",
            ]),
        },
        Parameter {
            name: "eventType",
            description: "Deliveries of events of this type alone.",
            shape: Shape::Text,
        },
        Parameter {
            name: "start",
            description: "Deliveries that were made at this time or later.",
            shape: Shape::Time,
        },
        Parameter {
            name: "end",
            description: "Deliveries that were made before this time.",
            shape: Shape::Time,
        },
        PAGE,
        PAGE_SIZE,
        Parameter {
            name: "order",
            description: "The direction in time; `desc`, newest first, where it is absent.",
            shape: Shape::OneOf(&["asc", "desc"]),
        },
    ],
    ..Operation::get(
        "list_project_webhook_deliveries",
        "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}/deliveries",
        "List the deliveries to a webhook",
        READ,
        "WebhookDeliveryList",
    )
};

/// One delivery with its attempts.
pub const GET_DELIVERY: &Operation = &Operation {
    ..Operation::get(
        "get_project_webhook_delivery",
        "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}/deliveries/{delivery_id}",
        "Get a delivery with its attempts",
        READ,
        "WebhookDelivery",
    )
};

/// Tries a delivery again that was given up.
pub const RETRY_DELIVERY: &Operation = &Operation {
    id: "retry_project_webhook_delivery",
    method: Method::Post,
    path: "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}/deliveries/{delivery_id}/retry",
    summary: "Try a delivery again that failed or was canceled",
    access: UPDATES,
    refusals: &[409],
    ..*GET_DELIVERY
};

/// How a delivery stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WebhookDeliveryStatus {
    /// It was not tried yet.
    Pending,
    /// It is on its way.
    Delivering,
    /// It failed and will be tried again.
    Retrying,
    /// It arrived.
    Succeeded,
    /// It was given up.
    Failed,
    /// Its webhook was disabled or deleted.
    Canceled,
}

/// How an attempt ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookAttemptStatus {
    /// It was answered with a 2xx.
    Succeeded,
    /// It was answered otherwise.
    Failed,
    /// It was not answered in time.
    Timeout,
    /// Nobody was reached.
    NetworkError,
}

/// One event on its way to one webhook. What has no value is `null`.
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
    /// The event; receivers know it again by this.
    pub event_id: String,
    /// Its type.
    pub event_type: String,
    /// How it stands.
    pub status: WebhookDeliveryStatus,
    /// Attempts that were begun.
    pub attempt_count: i64,
    /// When it is tried next.
    #[schema(required = true, format = DateTime)]
    pub next_attempt_at: Option<String>,
    /// When it was last tried.
    #[schema(required = true, format = DateTime)]
    pub last_attempt_at: Option<String>,
    /// When it arrived.
    #[schema(required = true, format = DateTime)]
    pub succeeded_at: Option<String>,
    /// When it was given up.
    #[schema(required = true, format = DateTime)]
    pub failed_at: Option<String>,
    /// The status that the last attempt was answered with.
    #[schema(required = true)]
    pub last_http_status: Option<i64>,
    /// How long the last attempt took, in milliseconds.
    #[schema(required = true)]
    pub last_response_time_ms: Option<i64>,
    /// What went wrong with the last attempt.
    #[schema(required = true)]
    pub last_error: Option<String>,
    /// The body: the event.
    #[schema(value_type = Object)]
    pub request_body: Value,
    /// When it was made.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// When it last changed.
    #[schema(format = DateTime)]
    pub updated_at: String,
    /// The attempts, oldest first; in the answer about one delivery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub attempts: Option<Vec<WebhookAttempt>>,
}

/// One attempt of a delivery. What has no value is `null`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookAttempt {
    /// Id.
    #[schema(example = "att_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// The delivery.
    pub delivery_id: String,
    /// Which one it is, from 1.
    pub attempt_number: i64,
    /// How it ended.
    pub status: WebhookAttemptStatus,
    /// The status that it was answered with.
    #[schema(required = true)]
    pub http_status: Option<i64>,
    /// How long it took, in milliseconds.
    #[schema(required = true)]
    pub response_time_ms: Option<i64>,
    /// Always `null`: header fields are not kept.
    #[schema(required = true, value_type = Option<Object>)]
    pub response_headers: Option<Value>,
    /// The beginning of what was answered, at most 1 KiB.
    #[schema(required = true)]
    pub response_body: Option<String>,
    /// What went wrong, in a word: `http_status`, `timeout`, `connection`, `refused_target`.
    #[schema(required = true)]
    pub error_code: Option<String>,
    /// What went wrong, in a sentence.
    #[schema(required = true)]
    pub error_message: Option<String>,
    /// When it began.
    #[schema(format = DateTime)]
    pub started_at: String,
    /// When it ended.
    #[schema(required = true, format = DateTime)]
    pub completed_at: Option<String>,
    /// When it began.
    #[schema(format = DateTime)]
    pub created_at: String,
}

/// One page of deliveries.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookDeliveryList {
    /// The deliveries of the page.
    pub deliveries: Vec<WebhookDelivery>,
    /// Where in the list this page is.
    #[serde(flatten)]
    pub paging: Paging,
}
