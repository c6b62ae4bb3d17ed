//! Records of a project: its plan, usage, request logs and events.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use types::permission::{Permission, Rule};
use utoipa::ToSchema;

use super::plans::{Plan, Price};
use super::{Access, Operation, PAGE, PAGE_SIZE, Parameter, Schemas, TIME_ORDER, add, page};

/// The plan of the project.
pub const PLAN: &Operation = &Operation::get(
    "get_tunnels_project_plan",
    "/api/projects/tunnels/{project_id}/plan",
    "Get the plan of a project",
    allowed(Permission::AccountPlanReadOnly, &[rule("plan")]),
    "ProjectPlan",
);

/// Usage of the project's tunnels.
pub const USAGE: &Operation = &Operation {
    query: &[TIMELINE, START, END],
    ..Operation::get(
        "get_tunnels_project_usage",
        "/api/projects/tunnels/{project_id}/usage",
        "Get the usage of a project's tunnels",
        allowed(Permission::AccountPlanReadOnly, &[rule("usage")]),
        "Usage",
    )
};

/// Usage of the project's TURN relays.
pub const TURN_USAGE: &Operation = &Operation {
    id: "get_tunnels_project_turn_usage",
    path: "/api/projects/tunnels/{project_id}/turn/usage",
    summary: "Get the TURN usage of a project",
    answer: super::SuccessResponse::json(200, "TurnUsage"),
    ..*USAGE
};

/// Traffic of the project and of its tunnels over time.
pub const TRAFFIC: &Operation = &Operation {
    query: &[TIMELINE, START, END, RESOLUTION, BY, TUNNEL_NAME],
    ..Operation::get(
        "get_tunnels_project_traffic",
        "/api/projects/tunnels/{project_id}/traffic",
        "Get the traffic of a project by the minute or by the hour",
        allowed(Permission::NetworkStreamsReadOnly, &[rule("logs")]),
        "Traffic",
    )
};

/// Request and connection logs.
pub const LOGS: &Operation = &Operation {
    query: &[
        TIMELINE, START, END, PAGE, PAGE_SIZE, TIME_ORDER, OUTCOME, TUNNEL, STREAM, SEARCH,
        EVENT_TYPE, AFTER,
    ],
    ..Operation::get(
        "list_tunnels_project_logs",
        "/api/projects/tunnels/{project_id}/logs",
        "List requests and connections",
        allowed(Permission::NetworkStreamsReadOnly, &[rule("logs")]),
        "LogList",
    )
};

/// Stored events.
pub const EVENTS: &Operation = &Operation {
    query: &[
        TIMELINE, START, END, PAGE, PAGE_SIZE, TIME_ORDER, EVENT_TYPE, AFTER,
    ],
    ..Operation::get(
        "list_tunnels_project_events",
        "/api/projects/tunnels/{project_id}/events",
        "List stored events",
        allowed(Permission::NetworkEventsReadOnly, &[rule("events")]),
        "EventList",
    )
};

/// The operations of this module.
pub const OPERATIONS: &[&Operation] = &[PLAN, USAGE, TURN_USAGE, TRAFFIC, LOGS, EVENTS];

pub(super) fn schemas(schemas: &mut Schemas) {
    add::<ProjectPlan>(schemas);
    add::<Usage>(schemas);
    add::<TurnUsage>(schemas);
    add::<Traffic>(schemas);
    add::<LogList>(schemas);
    add::<EventList>(schemas);
}

const fn allowed(permission: Permission, rules: &'static [Rule]) -> Access {
    Access::Permitted(permission, rules)
}

/// The part of the permission that an operation uses.
const fn rule(resource: &'static str) -> Rule {
    Rule {
        resource,
        actions: &["read"],
    }
}

const TIMELINE: Parameter = Parameter::one_of(
    "timeline",
    "A range that ends now; cannot be combined with `start` and `end`. Default: 24h.",
    &["30m", "1h", "12h", "24h", "3d", "1w", "30d"],
);
const START: Parameter = Parameter::time("start", "Start of the range.");
const END: Parameter = Parameter::time("end", "End of the range, exclusive; default now.");
const RESOLUTION: Parameter = Parameter::one_of(
    "resolution",
    "Length of the intervals. Minutes are kept for a day. Default: minutes for a range of at most a \
        day, else hours.",
    &["minute", "hour"],
);
const BY: Parameter = Parameter::one_of(
    "by",
    "One series for the project, or one for each tunnel. The latter requires a range of at most 200 \
        intervals. Default: project.",
    &["project", "tunnel"],
);
const TUNNEL_NAME: Parameter = Parameter::text(
    "tunnel",
    "Only the tunnel with this name; cannot be combined with `by=project`.",
);
const OUTCOME: Parameter = Parameter::one_of(
    "outcome",
    "How the stream ended.",
    &["connected", "failed", "denied"],
);
const TUNNEL: Parameter = Parameter::text("tunnelId", "Only streams of this tunnel.");
const STREAM: Parameter = Parameter::text(
    "streamId",
    "Only this stream: the reference that the edge shows with a refusal. Without a \
        range, all stored streams are searched.",
);
const SEARCH: Parameter =
    Parameter::text("q", "Part of a host, path or address, case-insensitive.");
const EVENT_TYPE: Parameter = Parameter::text("eventType", "Only events of this type.");
const AFTER: Parameter = Parameter::text(
    "afterEventId",
    "Only events after the one with this id, from an earlier response.",
);

/// The plan of a project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectPlan {
    /// The plan.
    pub plan: Plan,
    /// Display name.
    pub name: String,
    /// Purpose of the plan, as display text.
    pub description: String,
    /// Price per month; absent if nothing is charged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub monthly: Option<Price>,
    /// Retention of logs and events, in days.
    pub log_retention_days: u16,
    /// True if the project may have webhooks.
    pub webhooks: bool,
    /// Maximum number of reserved TCP addresses of the project.
    pub tcp_addresses: u32,
    /// Maximum number of custom domains of the project.
    pub domains: u32,
}

/// Usage of the tunnels of a project in a time range. Usage is counted by the hour, so the range is
/// widened to whole hours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Usage {
    /// Start of the range.
    #[schema(format = DateTime)]
    pub start: String,
    /// End of the range (exclusive).
    #[schema(format = DateTime)]
    pub end: String,
    /// Usage of the whole range.
    pub total: Carried,
    /// Usage by hour; hours without usage are left out.
    pub hours: Vec<CarriedInHour>,
}

/// Usage of tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Carried {
    /// Finished streams.
    pub streams: i64,
    /// Finished streams that failed.
    pub failed_streams: i64,
    /// Bytes from visitors to the service.
    pub upstream_bytes: i64,
    /// Bytes from the service to visitors.
    pub downstream_bytes: i64,
}

/// Usage of tunnels in one hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct CarriedInHour {
    /// Start of the hour.
    #[schema(format = DateTime)]
    pub start: String,
    /// Usage of the hour.
    #[serde(flatten)]
    pub carried: Carried,
}

/// Usage of the TURN relays of a project in a time range. Usage is counted by the hour, so the
/// range is widened to whole hours.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TurnUsage {
    /// Start of the range.
    #[schema(format = DateTime)]
    pub start: String,
    /// End of the range (exclusive).
    #[schema(format = DateTime)]
    pub end: String,
    /// Usage of the whole range.
    pub total: Relayed,
    /// Usage by hour; hours without usage are left out.
    pub hours: Vec<RelayedInHour>,
}

/// Usage of relays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Relayed {
    /// Issued credentials.
    pub credentials: i64,
    /// Allocated relay sessions.
    pub allocations: i64,
    /// Bytes in both directions.
    pub relayed_bytes: i64,
}

/// Usage of relays in one hour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct RelayedInHour {
    /// Start of the hour.
    #[schema(format = DateTime)]
    pub start: String,
    /// Usage of the hour.
    #[serde(flatten)]
    pub relayed: Relayed,
}

/// Traffic of a project over time. The range is widened to whole intervals.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Traffic {
    /// Start of the range.
    #[schema(format = DateTime)]
    pub start: String,
    /// End of the range (exclusive).
    #[schema(format = DateTime)]
    pub end: String,
    /// Length of the intervals.
    pub resolution: Resolution,
    /// Upper bounds of the buckets of `durations`, in milliseconds. A further bucket has no bound.
    pub bucket_bounds: Vec<u32>,
    /// The series, the busiest first.
    pub series: Vec<TrafficSeries>,
}

/// Length of intervals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Resolution {
    /// Minutes.
    Minute,
    /// Hours.
    Hour,
}

/// Traffic of one tunnel, or of a whole project.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficSeries {
    /// Name of the tunnel. Absent: the whole project, or among series of tunnels all visits of other
    /// tunnels and of none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "web")]
    pub tunnel: Option<String>,
    /// The intervals, oldest first; those without visits are left out.
    pub points: Vec<TrafficPoint>,
}

/// Visits that started in one interval. They are counted when they end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct TrafficPoint {
    /// Start of the interval.
    #[schema(format = DateTime)]
    pub at: String,
    /// Visits.
    pub requests: i64,
    /// Visits that failed, and responses with a status of 500 or more.
    pub errors: i64,
    /// Visits that the edge refused.
    pub denied: i64,
    /// Bytes from visitors to the service.
    pub upstream_bytes: i64,
    /// Bytes from the service to visitors.
    pub downstream_bytes: i64,
    /// HTTP responses in each bucket of durations. Buckets of several intervals and series add up.
    pub durations: Vec<i64>,
}

/// Upper bounds of the buckets of durations, in milliseconds.
pub const DURATION_BOUNDS: [u32; 15] = [
    1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000,
];

page! {
    /// One page of request and connection logs.
    #[derive(PartialEq)]
    pub struct LogList {
        /// The logs of the page; each is an event of the type `stream.summary`.
        pub logs: Vec<StoredEvent>,
        /// Position of this page in the list.
        pub paging: Paging,
    }
}

page! {
    /// One page of stored events.
    #[derive(PartialEq)]
    pub struct EventList {
        /// The events of the page.
        pub events: Vec<StoredEvent>,
        /// Position of this page in the list.
        pub paging: Paging,
    }
}

/// One stored event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoredEvent {
    /// Id.
    pub event_id: String,
    /// Type, for example `tunnel.created` or `stream.summary`.
    pub event_type: String,
    /// Category of the event.
    pub event_category: EventCategory,
    /// Project.
    pub project_id: String,
    /// Workspace of the project.
    pub workspace_id: String,
    /// Cluster that reported the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub cluster_id: Option<String>,
    /// The user that the event concerns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub user_id: Option<String>,
    /// Details of the event; the shape depends on the type.
    #[schema(value_type = Object)]
    pub payload: Value,
    /// Time of the event.
    #[schema(format = DateTime)]
    pub created_at: String,
    /// Time when the event is deleted.
    #[schema(format = DateTime)]
    pub expires_at: String,
}

/// Category of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventCategory {
    /// Clients and tunnels that connect or disconnect.
    Lifecycle,
    /// One request or connection.
    StreamLog,
}
