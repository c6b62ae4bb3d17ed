//! The oldest rows of each kind with limited retention, to measure the delay of the purge.

use jiff::Timestamp;

use crate::database::connection::Conn;
use crate::database::sql::{sql, statements};
use crate::error::Error;

macro_rules! rows {
    ($($(#[doc = $doc:literal])+ $name:ident $constant:ident $text:literal)+) => {
        /// Rows that expire a certain time after the value of one of their columns.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Rows { $($(#[doc = $doc])+ $name,)+ }

        statements! { $($constant = $text;)+ }

        impl Rows {
            fn statement(self) -> &'static str {
                match self { $(Self::$name => $constant,)+ }
            }
        }
    };
}

rows! {
    /// Summaries of streams, by their end.
    Logs LOGS "SELECT MIN(expires_at) AS n FROM logs"
    /// Events, by their end.
    Events EVENTS "SELECT MIN(expires_at) AS n FROM events"
    /// Completed deliveries, by completion time.
    Deliveries DELIVERIES "SELECT MIN(completed_at) AS n FROM deliveries WHERE completed_at IS NOT NULL"
    /// Deleted webhooks, by deletion time.
    DeletedWebhooks DELETED_WEBHOOKS "SELECT MIN(deleted_at) AS n FROM webhooks WHERE deleted_at IS NOT NULL"
    /// Revoked credentials, by revocation time, except those that a chain still needs.
    RevokedCredentials REVOKED_CREDENTIALS "SELECT MIN(e.revoked_at) AS n FROM credentials e WHERE e.revoked_at IS NOT NULL \
        AND NOT EXISTS (SELECT 1 FROM credentials c WHERE c.issued_by = e.id)"
    /// Usage, by the hour.
    Usage USAGE "SELECT MIN(hour) AS n FROM usage"
    /// Traffic by the minute.
    TrafficMinutes TRAFFIC_MINUTES "SELECT MIN(starts_at) AS n FROM traffic WHERE step = 60"
    /// Traffic by the hour.
    TrafficHours TRAFFIC_HOURS "SELECT MIN(starts_at) AS n FROM traffic WHERE step = 3600"
    /// Idempotency keys, by time of use.
    IdempotencyKeys IDEMPOTENCY_KEYS "SELECT MIN(created_at) AS n FROM idempotency_keys"
    /// Sessions, by their end.
    Sessions SESSIONS "SELECT MIN(expires_at) AS n FROM sessions"
    /// Sessions, by their last use.
    UsedSessions USED_SESSIONS "SELECT MIN(last_seen_at) AS n FROM sessions"
    /// Links of mails, by their end.
    Links LINKS "SELECT MIN(expires_at) AS n FROM links"
    /// Invitations, by their end.
    Invitations INVITATIONS "SELECT MIN(expires_at) AS n FROM invitations"
    /// Revoked tokens, by their end.
    RevokedTokens REVOKED_TOKENS "SELECT MIN(expires_at) AS n FROM revoked_tokens"
    /// Challenges, by their end.
    Challenges CHALLENGES "SELECT MIN(expires_at) AS n FROM used_challenges"
    /// Attempts to sign in, by their expiry.
    Attempts ATTEMPTS "SELECT MIN(expires_at) AS n FROM attempts"
    /// Authorization requests, by their end.
    OauthRequests OAUTH_REQUESTS "SELECT MIN(expires_at) AS n FROM oauth_requests"
    /// OAuth codes, by their end.
    OauthCodes OAUTH_CODES "SELECT MIN(expires_at) AS n FROM oauth_codes"
    /// Device requests, by the expiry of their codes.
    DeviceGrants DEVICE_GRANTS "SELECT MIN(expires_at) AS n FROM oauth_device_grants"
    /// TCP ports, by release time.
    ReleasedPorts RELEASED_PORTS "SELECT MIN(released_at) AS n FROM addresses WHERE released_at IS NOT NULL"
    /// Changes for engines, by creation time.
    LinkChanges LINK_CHANGES "SELECT MIN(at) AS n FROM link_changes"
    /// Links of engines, by the time when they were last seen.
    LinkedEngines LINKED_ENGINES "SELECT MIN(seen_at) AS n FROM link_engines"
    /// Pending sign-ins at a provider, by their expiry.
    PendingSignIns PENDING_SIGN_INS "SELECT MIN(expires_at) AS n FROM pending_sign_ins"
    /// Deleted projects, by deletion time, once nothing refers to them.
    DeletedProjects DELETED_PROJECTS "SELECT MIN(deleted_at) AS n FROM projects p WHERE deleted_at IS NOT NULL \
        AND NOT EXISTS (SELECT 1 FROM webhooks WHERE project_id = p.id) \
        AND NOT EXISTS (SELECT 1 FROM addresses WHERE project_id = p.id) \
        AND NOT EXISTS (SELECT 1 FROM logs WHERE project_id = p.id) \
        AND NOT EXISTS (SELECT 1 FROM events WHERE project_id = p.id)"
    /// Deleted workspaces, by deletion time, once nothing refers to them.
    DeletedWorkspaces DELETED_WORKSPACES "SELECT MIN(deleted_at) AS n FROM workspaces w WHERE deleted_at IS NOT NULL \
        AND NOT EXISTS (SELECT 1 FROM projects WHERE workspace_id = w.id) \
        AND NOT EXISTS (SELECT 1 FROM subscriptions WHERE workspace_id = w.id) \
        AND NOT EXISTS (SELECT 1 FROM credentials WHERE workspace_id = w.id)"
    /// The audit log, by creation time of its entries.
    Audit AUDIT "SELECT MIN(created_at) AS n FROM audit"
}

/// The earliest time in the column of these rows; `None` if there are none.
pub async fn oldest(conn: &mut Conn, rows: Rows) -> Result<Option<Timestamp>, Error> {
    sql(rows.statement()).time(conn).await
}
