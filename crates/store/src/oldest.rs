//! The oldest rows of what is kept for a while: how far behind the purge is.

use jiff::Timestamp;

use crate::connection::Conn;
use crate::error::Error;
use crate::sql::{sql, statements};

macro_rules! rows {
    ($($(#[doc = $doc:literal])+ $name:ident $constant:ident $text:literal)+) => {
        /// Rows whose time is over at some time after the one in a column of theirs.
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
    /// Deliveries that ended, by when they did.
    Deliveries DELIVERIES "SELECT MIN(completed_at) AS n FROM deliveries WHERE completed_at IS NOT NULL"
    /// Webhooks that were deleted, by when they were.
    DeletedWebhooks DELETED_WEBHOOKS "SELECT MIN(deleted_at) AS n FROM webhooks WHERE deleted_at IS NOT NULL"
    /// Credentials that were revoked, by when they were, without those that a chain still needs.
    RevokedCredentials REVOKED_CREDENTIALS "SELECT MIN(e.revoked_at) AS n FROM credentials e WHERE e.revoked_at IS NOT NULL \
        AND NOT EXISTS (SELECT 1 FROM credentials c WHERE c.issued_by = e.id)"
    /// Usage, by the hour.
    Usage USAGE "SELECT MIN(hour) AS n FROM usage"
    /// Keys of creations, by when they were used.
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
    /// Attempts to sign in, by when they count no more.
    Attempts ATTEMPTS "SELECT MIN(expires_at) AS n FROM attempts"
    /// Authorization requests, by their end.
    OauthRequests OAUTH_REQUESTS "SELECT MIN(expires_at) AS n FROM oauth_requests"
    /// OAuth codes, by their end.
    OauthCodes OAUTH_CODES "SELECT MIN(expires_at) AS n FROM oauth_codes"
    /// Devices that asked, by the end of their codes.
    DeviceGrants DEVICE_GRANTS "SELECT MIN(expires_at) AS n FROM oauth_device_grants"
    /// TCP ports, by when they were given back.
    ReleasedPorts RELEASED_PORTS "SELECT MIN(released_at) AS n FROM addresses WHERE released_at IS NOT NULL"
    /// Changes for engines, by when they were made.
    LinkChanges LINK_CHANGES "SELECT MIN(at) AS n FROM link_changes"
    /// Links of engines, by when they were last seen.
    LinkedEngines LINKED_ENGINES "SELECT MIN(seen_at) AS n FROM link_engines"
    /// Sign-ins under way at a provider, by their end.
    PendingSignIns PENDING_SIGN_INS "SELECT MIN(expires_at) AS n FROM pending_sign_ins"
    /// Projects that were deleted, by when they were, once nothing of them is left.
    DeletedProjects DELETED_PROJECTS "SELECT MIN(deleted_at) AS n FROM projects p WHERE deleted_at IS NOT NULL \
        AND NOT EXISTS (SELECT 1 FROM webhooks WHERE project_id = p.id) \
        AND NOT EXISTS (SELECT 1 FROM addresses WHERE project_id = p.id) \
        AND NOT EXISTS (SELECT 1 FROM logs WHERE project_id = p.id) \
        AND NOT EXISTS (SELECT 1 FROM events WHERE project_id = p.id)"
    /// Workspaces that were deleted, by when they were, once nothing of them is left.
    DeletedWorkspaces DELETED_WORKSPACES "SELECT MIN(deleted_at) AS n FROM workspaces w WHERE deleted_at IS NOT NULL \
        AND NOT EXISTS (SELECT 1 FROM projects WHERE workspace_id = w.id) \
        AND NOT EXISTS (SELECT 1 FROM subscriptions WHERE workspace_id = w.id) \
        AND NOT EXISTS (SELECT 1 FROM credentials WHERE workspace_id = w.id)"
    /// The audit log, by when its entries were made.
    Audit AUDIT "SELECT MIN(created_at) AS n FROM audit"
}

/// The earliest time in the column of these rows; `None` where there are none.
pub async fn oldest(conn: &mut Conn, rows: Rows) -> Result<Option<Timestamp>, Error> {
    let found: Option<Option<i64>> = sql(rows.statement()).one(conn).await?;
    Ok(found
        .flatten()
        .and_then(|micros| Timestamp::from_microsecond(micros).ok()))
}
