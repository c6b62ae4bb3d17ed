//! Kinds of rows that expire.

macro_rules! expiring_rows {
    ($($(#[doc = $doc:literal])+ $name:ident $word:literal)+) => {
        /// A kind of rows that expire.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum ExpiringRows { $($(#[doc = $doc])+ $name,)+ }

        impl ExpiringRows {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$name),+];

            /// The words of [`Self::as_str`].
            pub(crate) const WORDS: &[&str] = &[$($word),+];

            /// The word in logs and metrics.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => $word,)+ }
            }
        }
    };
}

expiring_rows! {
    /// Summaries of streams. Each carries its end, from the plan of its project.
    Logs "logs"
    /// Stored events. Each carries its end, from the plan of its project.
    Events "events"
    /// Webhook deliveries that succeeded, or failed for good.
    Deliveries "deliveries"
    /// Webhooks that were deleted, once their deliveries are gone.
    Webhooks "webhooks"
    /// Credentials that were revoked or have expired.
    Credentials "credentials"
    /// Usage by the hour.
    Usage "usage"
    /// Traffic by the minute.
    TrafficMinutes "traffic_minutes"
    /// Traffic by the hour.
    TrafficHours "traffic_hours"
    /// Idempotency keys of creations: the same request creates another object afterwards.
    IdempotencyKeys "idempotency_keys"
    /// Sessions past their end.
    Sessions "sessions"
    /// Sessions that ended because they were not used.
    UnusedSessions "unused_sessions"
    /// Links that were sent by mail, used or not.
    Links "links"
    /// Invitations that are no longer valid: accepted, revoked or expired.
    Invitations "invitations"
    /// Revoked tokens that would have expired by now.
    RevokedTokens "revoked_tokens"
    /// Passkey challenges that are too old for a response.
    Challenges "challenges"
    /// Sign-in attempts that no longer count.
    Attempts "attempts"
    /// OAuth codes whose reuse would have nothing left to revoke.
    OauthCodes "oauth_codes"
    /// Authorization requests without a decision.
    OauthRequests "oauth_requests"
    /// Device grants whose result was available long enough.
    DeviceGrants "device_grants"
    /// TCP ports that were released long enough ago.
    ReleasedPorts "released_ports"
    /// Old entries of the log of changes for engines.
    LinkChanges "link_changes"
    /// Links, report spools and online objects of engines that no longer exist.
    Engines "engines"
    /// Sign-ins at a provider that were not completed.
    PendingSignIns "pending_sign_ins"
    /// Deleted projects, once no row refers to them.
    Projects "projects"
    /// Deleted workspaces, once no row refers to them.
    Workspaces "workspaces"
    /// The audit log, unless the configuration keeps it forever.
    Audit "audit"
}
