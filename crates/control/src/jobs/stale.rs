//! Kinds of rows that expire.

macro_rules! stale {
    ($($(#[doc = $doc:literal])+ $name:ident $word:literal)+) => {
        /// What is forgotten.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Stale { $($(#[doc = $doc])+ $name,)+ }

        impl Stale {
            /// All of it.
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

stale! {
    /// Summaries of streams. Each carries its end, from the plan of its project.
    Logs "logs"
    /// Stored events. Each carries its end, from the plan of its project.
    Events "events"
    /// Deliveries of webhooks that have succeeded or were given up.
    Deliveries "deliveries"
    /// Webhooks that were deleted, once their deliveries are gone.
    Webhooks "webhooks"
    /// Credentials that were revoked or have expired.
    Credentials "credentials"
    /// Usage by the hour.
    Usage "usage"
    /// Keys of creations: the same request asked again is a new one afterwards.
    IdempotencyKeys "idempotency_keys"
    /// Sessions that came to their end.
    Sessions "sessions"
    /// Sessions that ended because nobody used them.
    UnusedSessions "unused_sessions"
    /// Links that were sent by mail, used or not.
    Links "links"
    /// Invitations that work no longer, whatever became of them.
    Invitations "invitations"
    /// Revoked tokens that would have expired by themselves by now.
    RevokedTokens "revoked_tokens"
    /// Challenges of passkeys that are too old to be answered.
    Challenges "challenges"
    /// Attempts to sign in that count no more.
    Attempts "attempts"
    /// OAuth codes whose reuse would find nothing to revoke any more.
    OauthCodes "oauth_codes"
    /// Authorization requests that nobody decided.
    OauthRequests "oauth_requests"
    /// Devices that asked to be let in, and were told long enough what became of it.
    DeviceGrants "device_grants"
    /// TCP ports that were given back long enough ago.
    ReleasedPorts "released_ports"
    /// What changed for engines, when it was long ago.
    LinkChanges "link_changes"
    /// Links, spools of reports and what was online, of engines that are gone.
    Engines "engines"
    /// Sign-ins at a provider that nobody came back from.
    PendingSignIns "pending_sign_ins"
    /// Projects that were deleted, once what refers to them is gone.
    Projects "projects"
    /// Workspaces that were deleted, once what refers to them is gone.
    Workspaces "workspaces"
    /// The audit log, unless the configuration says that it is kept for ever.
    Audit "audit"
}
