//! The result of a decision.

use std::borrow::Cow;
use std::sync::Arc;

use credentials::VerifiedToken;
use types::path::NormalPath;
use types::problem::Problem;
use types::root::Root;

use super::super::tenancy::Tenancy;
use super::super::tokens::Tokens;
use crate::browser::Session;
use crate::directory::{Credential, Project, Validity};

/// The result of a decision, and the rule that caused it.
#[derive(Debug)]
pub struct Decision {
    pub outcome: Outcome,
    /// For the access log and the metrics.
    pub rule: Rule,
    /// The check that failed, only for the log; contains no secret.
    pub reason: Option<Cow<'static, str>>,
}

/// Result for the request.
#[derive(Debug)]
#[must_use]
pub enum Outcome {
    Allow(Admission),
    Refuse(Problem),
    /// A browser is redirected to sign in (ED-2).
    SignIn,
    /// A browser is redirected to the challenge (ED-6).
    Challenge,
    /// The link password is checked, and the request is decided again with the result.
    VerifyPassword,
}

/// Changes to an allowed request before it is forwarded.
#[derive(Debug, Default)]
pub struct Admission {
    /// The proof that was used, if one was needed.
    pub proof: Option<Proof>,
    /// The query to forward instead of the original one; empty means no query at all.
    pub query: Option<String>,
    /// The path to forward instead of the original one: exactly the path that was checked (ED-7).
    pub path: Option<NormalPath>,
    /// `Authorization` was the edge's credential and is not forwarded.
    pub strip_authorization: bool,
}

/// The proof that authorised the visitor.
#[derive(Debug, Clone)]
pub enum Proof {
    Token {
        token: Arc<VerifiedToken>,
        form: TokenForm,
    },
    Session(Arc<Session>),
    /// A client certificate, by the credential behind it.
    Certificate {
        credential: Arc<Credential>,
        /// Validity of the certificate.
        validity: Validity,
    },
}

/// Position of a token in the request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenForm {
    /// `Authorization: Bearer`.
    Header,
    /// The reserved query parameter.
    Query,
}

impl Proof {
    /// `svc-user-id`.
    pub fn user_id(&self) -> Option<&str> {
        match self {
            Self::Token { token, .. } => token.user_id.as_deref(),
            Self::Session(session) => Some(&session.user_id),
            Self::Certificate { credential, .. } => Some(&credential.user_id),
        }
    }

    /// `svc-credential-id`: the stored credential, or the application.
    pub fn credential_id(&self) -> Option<&str> {
        match self {
            Self::Token { token, .. } => {
                let known = token.credential_id.as_deref();
                known.or(token.client_id.as_deref())
            }
            Self::Session(_) => None,
            Self::Certificate { credential, .. } => Some(&credential.id),
        }
    }

    /// The credential or session at the start of the chain that this proof was derived from.
    pub fn root(&self) -> Root {
        match self {
            Self::Token { token, .. } => token.root.clone(),
            Self::Session(session) => {
                // A session at a tunnel has no id: its user and its start identify it.
                let Session {
                    user_id, issued_at, ..
                } = &**session;
                Root::Session(format!("{user_id}@{issued_at}").into())
            }
            Self::Certificate { credential, .. } => credential.root.clone(),
        }
    }

    /// `svc-auth-method`.
    pub fn method(&self) -> &'static str {
        match self {
            Self::Token { .. } => "token",
            Self::Session(_) => "session",
            Self::Certificate { .. } => "mtls",
        }
    }

    /// Returns true if the proof is still valid in the project at `now` (Unix seconds): it was not
    /// revoked, and its owner may still use the project. Admitted streams are checked again after
    /// each change.
    pub fn is_still_valid(
        &self,
        project: &Project,
        (tokens, tenancy): (&Tokens, &Tenancy),
        now: i64,
    ) -> bool {
        let permission = super::PERMISSION;
        let directory = tenancy.directory();
        match self {
            Self::Token { token, .. } => {
                tokens.is_still_valid(token, now)
                    && tenancy.require(token, project, permission).is_ok()
            }
            Self::Session(session) => {
                directory.is_some_and(|known| session.check_not_ended(known).is_ok())
                    && tenancy
                        .require_for_user(Some(&session.user_id), None, project, permission)
                        .is_ok()
            }
            Self::Certificate {
                credential,
                validity,
            } => {
                directory.is_some_and(|known| known.is_still_valid(credential, now))
                    && validity.contains(now)
                    && !credential.is_expired(now)
                    && tenancy
                        .require_for_user(
                            Some(&credential.user_id),
                            credential.limits.permissions(),
                            project,
                            permission,
                        )
                        .is_ok()
            }
        }
    }
}

macro_rules! rules {
    ($($(#[$doc:meta])* $rule:ident $name:literal $sentence:literal)*) => {
        /// The rule that decided; a bounded set, fit for a metric's label.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        pub enum Rule { $($(#[$doc])* $rule),* }

        impl Rule {
            /// Every rule.
            pub const ALL: &[Self] = &[$(Self::$rule),*];

            /// Name in logs and metrics.
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$rule => $name),* }
            }

            /// The subject of the rule, in a sentence for users that ask for the reason.
            pub fn explain(self) -> &'static str {
                match self { $(Self::$rule => $sentence),* }
            }
        }
    };
}

rules! {
    /// The tunnel has no access rules.
    Public "public" "The tunnel has no guard."
    /// The tunnel is not published.
    Private "private" "The tunnel is private: clients dial it, and it has no public address."
    /// The project is suspended.
    Suspended "suspended" "The project is suspended."
    /// An operator has taken down the host name.
    TakenDown "taken_down" "An operator has taken down the host name."
    /// The tunnel requires a rule that this engine cannot enforce.
    Unenforceable "unenforceable" "The tunnel or its project requires a guard that this engine does not support."
    /// `trusted_ips` of the tunnel or the project.
    TrustedIps "trusted_ips" "Only visitors from the addresses in `trusted_ips` are allowed."
    /// `geo_ip` of the tunnel or the project.
    GeoIp "geo_ip" "Only visitors from certain countries are allowed."
    /// The project's minimum TLS version.
    TlsVersion "tls_version" "The project requires a newer version of TLS."
    /// The project's `publicAccessPolicy`.
    PublicAccess "public_access" "The project's policy for public access does not allow this tunnel to be visited."
    /// Requests per second, of the tunnel or the project.
    RateLimit "rate_limit" "The requests per second exceed the limit of the project's plan."
    /// Two proofs (ED-5), or a link password and another proof.
    Ambiguous "ambiguous" "The request has a client certificate or a link password, and another proof."
    /// The form of the query credential (ED-1b).
    QueryCredential "query_credential" "The token in the address is empty, malformed or repeated."
    /// `challenge_mode` (ED-6).
    Challenge "challenge" "Browsers must pass a challenge first."
    /// `token_auth` (ED-1), or a token instead of a challenge.
    Token "token" "Visitors need a valid token."
    /// A session's cookie or a link password with a request that a page of another origin may have caused.
    CrossSite "cross_site" "With a user's session or a link password, only pages of the tunnel and of `allowed_origins` may send requests that change something or open WebSockets."
    /// `svc_auth` (ED-2).
    Session "session" "Visitors must sign in as a member of the project."
    /// `mtls_auth` (ED-3).
    Certificate "certificate" "Visitors need a registered client certificate."
    /// A link password.
    Password "password" "Visitors without an account need the password of the tunnel."
    /// `tunnels.streams.create-delete` (ED-1c).
    Permission "permission" "The visitor lacks the permission to open streams in the project."
    /// `resources.tunnels` (ED-1c).
    Boundary "boundary" "The boundary of the credential excludes the project, the tunnel or the path."
    /// A path that cannot be checked (ED-7).
    Path "path" "The boundary requires a path, and the path of this request cannot be checked."
}

impl Decision {
    pub(super) fn allow(rule: Rule, allowed: Admission) -> Self {
        Self {
            outcome: Outcome::Allow(allowed),
            rule,
            reason: None,
        }
    }

    pub(super) fn refuse(
        rule: Rule,
        problem: Problem,
        reason: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            outcome: Outcome::Refuse(problem),
            rule,
            reason: Some(reason.into()),
        }
    }

    /// The problem of a refusal.
    pub fn into_problem(self) -> Problem {
        match self.outcome {
            Outcome::Refuse(problem) => problem,
            // These are never converted to a problem.
            Outcome::Allow(_) | Outcome::SignIn | Outcome::Challenge | Outcome::VerifyPassword => {
                Problem::unauthenticated()
            }
        }
    }

    /// Replaces a refusal by `outcome`, a redirect, if a browser requests a page.
    pub(super) fn or_redirect(self, navigation: bool, outcome: Outcome) -> Self {
        if navigation {
            Self { outcome, ..self }
        } else {
            self
        }
    }
}
