//! Webhooks of a project: the endpoints that receive events, and the status of each delivery.

mod deliveries;

use serde::{Deserialize, Serialize};
use serde_json::json;
use types::event::EventType;
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::{
    Access, Body, Method, ORDER, Operation, PAGE, PAGE_SIZE, Parameter, Schemas, SuccessResponse,
    add, not_null, page,
};

pub use self::deliveries::{
    GET_DELIVERY, LIST_DELIVERIES, RETRY_DELIVERY, WebhookAttempt, WebhookAttemptStatus,
    WebhookDelivery, WebhookDeliveryList, WebhookDeliveryStatus,
};

/// The webhooks of a project.
pub const LIST: &Operation = &Operation {
    query: &[
        Parameter::text("q", "Part of a name or address, case-insensitive."),
        Parameter::one_of(
            "status",
            "Only webhooks with this status.",
            &["enabled", "disabled"],
        ),
        Parameter::one_of(
            "destinationType",
            "Only webhooks of this kind.",
            &["webhook_endpoint", "amazon_eventbridge", "azure_event_grid"],
        ),
        PAGE,
        PAGE_SIZE,
        Parameter::one_of(
            "sort",
            "Sort key of the list; default `createdAt`.",
            &["name", "status", "createdAt", "updatedAt"],
        ),
        ORDER,
    ],
    ..Operation::get(
        "list_project_webhooks",
        "/api/projects/tunnels/{project_id}/webhooks",
        "List the webhooks of a project",
        READ,
        "WebhookList",
    )
};

/// Adds a webhook.
pub const CREATE: &Operation = &Operation {
    body: Some(Body::required("CreateWebhook", || {
        json!({
            "name": "Chat",
            "events": ["tunnel.created", "tunnel.deleted"],
            "config": {"url": "https://chat.example.com/in"},
        })
    })),
    refusals: &[409],
    ..Operation::new(
        "create_project_webhook",
        Method::Post,
        "/api/projects/tunnels/{project_id}/webhooks",
        "Create a webhook; the response contains its signing secret, once",
        write(&[rule(&["create"])]),
        SuccessResponse::json(201, "WebhookWithSecret"),
    )
};

/// One webhook.
pub const GET: &Operation = &Operation::get(
    "get_project_webhook",
    "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}",
    "Get a webhook",
    READ,
    "Webhook",
);

/// Changes a webhook.
pub const UPDATE: &Operation = &Operation {
    id: "update_project_webhook",
    method: Method::Patch,
    path: "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}",
    summary: "Change a webhook, enable or disable it",
    body: Some(Body::required(
        "UpdateWebhook",
        || json!({"status": "disabled"}),
    )),
    access: UPDATES,
    answer: SuccessResponse::json(200, "Webhook"),
    refusals: &[409],
    ..*GET
};

/// Removes a webhook.
pub const DELETE: &Operation = &Operation {
    id: "delete_project_webhook",
    method: Method::Delete,
    summary: "Delete a webhook; deliveries that are not complete are canceled",
    access: write(&[rule(&["delete"])]),
    answer: SuccessResponse::NO_CONTENT,
    ..*GET
};

/// Replaces the signing secret.
pub const ROTATE: &Operation = &Operation {
    id: "rotate_project_webhook_secret",
    method: Method::Post,
    path: "/api/projects/tunnels/{project_id}/webhooks/{webhook_id}/secret/rotate",
    summary: "Replace the signing secret; the old one also signs for a while",
    access: UPDATES,
    body: Some(Body::optional(
        "RotateWebhookSecret",
        || json!({"overlapSeconds": 3600}),
    )),
    answer: SuccessResponse::json(200, "WebhookWithSecret"),
    ..*GET
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[
    LIST,
    CREATE,
    GET,
    UPDATE,
    DELETE,
    ROTATE,
    LIST_DELIVERIES,
    GET_DELIVERY,
    RETRY_DELIVERY,
];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<WebhookList>(schemas);
    add::<CreateWebhook>(schemas);
    add::<UpdateWebhook>(schemas);
    add::<RotateWebhookSecret>(schemas);
    add::<WebhookWithSecret>(schemas);
    add::<WebhookDeliveryList>(schemas);
}

const READ: Access = Access::Permitted(Permission::NetworkWebhooksReadOnly, &[rule(&["read"])]);
const UPDATES: Access = write(&[rule(&["update"])]);

const fn write(rules: &'static [Rule]) -> Access {
    Access::Permitted(Permission::NetworkWebhooksReadWrite, rules)
}

/// The part of the permission that an operation uses.
const fn rule(actions: &'static [&'static str]) -> Rule {
    Rule {
        resource: "webhooks",
        actions,
    }
}

/// Maximum length of an address in bytes, the usual limit of servers for a request target.
pub const MAX_URL_BYTES: usize = 2_048;
/// Maximum time that a replaced secret signs beside the new one: a week, which is enough for a
/// manual roll-out.
pub const MAX_OVERLAP_SECONDS: u32 = 604_800;
/// Default of this time: a day.
pub const OVERLAP_SECONDS: u32 = 86_400;

/// Event types that are delivered: creation and deletion of clients and tunnels, and each change of
/// the state of a custom domain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub enum WebhookEventType {
    /// A client connected.
    #[serde(rename = "client.created")]
    ClientCreated,
    /// A client disconnected.
    #[serde(rename = "client.deleted")]
    ClientDeleted,
    /// A tunnel was created.
    #[serde(rename = "tunnel.created")]
    TunnelCreated,
    /// A tunnel was deleted.
    #[serde(rename = "tunnel.deleted")]
    TunnelDeleted,
    /// A custom domain was added.
    #[serde(rename = "domain.created")]
    DomainCreated,
    /// The records of a domain were found.
    #[serde(rename = "domain.verified")]
    DomainVerified,
    /// The records of a verified domain are missing.
    #[serde(rename = "domain.warned")]
    DomainWarned,
    /// The records have been missing for days, and the domain is not served any more.
    #[serde(rename = "domain.suspended")]
    DomainSuspended,
    /// The project no longer holds the domain.
    #[serde(rename = "domain.released")]
    DomainReleased,
    /// A domain was removed.
    #[serde(rename = "domain.deleted")]
    DomainDeleted,
    /// A certificate of the project was uploaded for a domain.
    #[serde(rename = "domain.certificate_uploaded")]
    DomainCertificateUploaded,
    /// The uploaded certificate of a domain was removed.
    #[serde(rename = "domain.certificate_removed")]
    DomainCertificateRemoved,
}

impl WebhookEventType {
    /// The type of an event, if it is delivered.
    pub const fn of(event: EventType) -> Option<Self> {
        match event {
            EventType::ClientCreated => Some(Self::ClientCreated),
            EventType::ClientDeleted => Some(Self::ClientDeleted),
            EventType::TunnelCreated => Some(Self::TunnelCreated),
            EventType::TunnelDeleted => Some(Self::TunnelDeleted),
            EventType::DomainCreated => Some(Self::DomainCreated),
            EventType::DomainVerified => Some(Self::DomainVerified),
            EventType::DomainWarned => Some(Self::DomainWarned),
            EventType::DomainSuspended => Some(Self::DomainSuspended),
            EventType::DomainReleased => Some(Self::DomainReleased),
            EventType::DomainDeleted => Some(Self::DomainDeleted),
            EventType::DomainCertificateUploaded => Some(Self::DomainCertificateUploaded),
            EventType::DomainCertificateRemoved => Some(Self::DomainCertificateRemoved),
            EventType::StateInitial
            | EventType::ClientUpdated
            | EventType::TunnelUpdated
            | EventType::WebttySessionCreated
            | EventType::WebttySessionUpdated
            | EventType::WebttySessionClosed
            | EventType::WebttyParticipantAttached
            | EventType::WebttyParticipantDetached
            | EventType::WebttyControlRequestCreated
            | EventType::WebttyControlRequestResolved => None,
        }
    }

    /// The event type as text.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ClientCreated => EventType::ClientCreated.as_str(),
            Self::ClientDeleted => EventType::ClientDeleted.as_str(),
            Self::TunnelCreated => EventType::TunnelCreated.as_str(),
            Self::TunnelDeleted => EventType::TunnelDeleted.as_str(),
            Self::DomainCreated => EventType::DomainCreated.as_str(),
            Self::DomainVerified => EventType::DomainVerified.as_str(),
            Self::DomainWarned => EventType::DomainWarned.as_str(),
            Self::DomainSuspended => EventType::DomainSuspended.as_str(),
            Self::DomainReleased => EventType::DomainReleased.as_str(),
            Self::DomainDeleted => EventType::DomainDeleted.as_str(),
            Self::DomainCertificateUploaded => EventType::DomainCertificateUploaded.as_str(),
            Self::DomainCertificateRemoved => EventType::DomainCertificateRemoved.as_str(),
        }
    }
}

/// Status of a webhook.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum WebhookStatus {
    /// The webhook receives events.
    #[default]
    Enabled,
    /// The webhook receives no events.
    Disabled,
}

/// Kind of receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum WebhookDestinationType {
    /// An address that receives HTTP requests.
    #[default]
    WebhookEndpoint,
    /// Not available here.
    AmazonEventbridge,
    /// Not available here.
    AzureEventGrid,
}

/// Target of the events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct WebhookConfig {
    /// The address: https, without user and password, and publicly reachable. Members that may not
    /// change webhooks see only its origin.
    #[schema(
        example = "https://chat.example.com/in",
        format = "uri",
        min_length = 1,
        max_length = 2048
    )]
    pub url: String,
}

/// A webhook of a project. Members without a value are `null`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Webhook {
    /// Id.
    #[schema(example = "whk_01h455vb4pex5vsknk084sn02q")]
    pub id: String,
    /// The workspace that the project belongs to.
    pub workspace_id: String,
    /// The project whose events it receives.
    pub project_id: String,
    /// Display name.
    pub name: String,
    /// Description by its owner.
    #[schema(required = true)]
    pub description: Option<String>,
    /// Kind of receiver.
    pub destination_type: WebhookDestinationType,
    /// Status. A webhook that failed continuously for five days is disabled.
    pub status: WebhookStatus,
    /// The event types that it receives.
    pub events: Vec<WebhookEventType>,
    /// Target of the events.
    pub config: WebhookConfig,
    /// Time of the last rotation of the signing secret.
    #[schema(required = true, format = DateTime)]
    pub secret_last_rotated_at: Option<String>,
    /// Time until which the previous secret also signs.
    #[schema(required = true, format = DateTime)]
    pub previous_secret_expires_at: Option<String>,
    /// Start of the current series of failed attempts.
    #[schema(required = true, format = DateTime)]
    pub failing_since: Option<String>,
    /// User that added it.
    #[schema(required = true)]
    pub created_by_user_id: Option<String>,
    /// Creation time.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time of the last change.
    #[schema(format = DateTime)]
    pub updated_at: String,
    /// Always `null`, because deleted webhooks are not returned.
    #[schema(required = true, format = DateTime)]
    pub deleted_at: Option<String>,
}

/// A webhook and its new signing secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct WebhookWithSecret {
    /// The webhook.
    #[serde(flatten)]
    pub webhook: Webhook,
    /// The secret; it is shown only once.
    #[schema(example = "whsec_p5jXN8AQM9LWM0D4loKWxJekqW3cZ7tBvY2hGnR6sD1f")]
    pub signing_secret: String,
}

page! {
    /// One page of webhooks.
    #[derive(PartialEq, Eq)]
    pub struct WebhookList {
        /// The webhooks of the page.
        pub webhooks: Vec<Webhook>,
        /// Position of this page in the list.
        pub paging: Paging,
    }
}

/// Properties of a new webhook.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CreateWebhook {
    /// Display name.
    #[schema(min_length = 1, max_length = 100)]
    pub name: String,
    /// Description.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(max_length = 1000)]
    pub description: Option<String>,
    /// Initial status; `enabled` if absent.
    #[serde(default)]
    #[schema(required = false)]
    pub status: WebhookStatus,
    /// Kind of receiver; `webhook_endpoint` if absent, which is the only kind available here.
    #[serde(default)]
    #[schema(required = false)]
    pub destination_type: WebhookDestinationType,
    /// The event types that it receives.
    #[schema(min_items = 1)]
    pub events: Vec<WebhookEventType>,
    /// Target of the events.
    pub config: WebhookConfig,
}

/// A change to a webhook. Absent members stay unchanged.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UpdateWebhook {
    /// Display name.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_length = 1, max_length = 100)]
    pub name: Option<String>,
    /// Description; `null` removes it.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, max_length = 1000)]
    pub description: Option<Option<String>>,
    /// Status. Pending deliveries are canceled when the webhook is disabled.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub status: Option<WebhookStatus>,
    /// The event types that it receives.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, min_items = 1)]
    pub events: Option<Vec<WebhookEventType>>,
    /// Target of the events.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub config: Option<WebhookConfig>,
}

/// Options of a secret rotation.
#[derive(Clone, Debug, Default, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RotateWebhookSecret {
    /// Seconds that the old secret signs beside the new one; a day if absent.
    #[serde(default, with = "not_null", skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, minimum = 0, maximum = 604_800)]
    pub overlap_seconds: Option<u32>,
}
