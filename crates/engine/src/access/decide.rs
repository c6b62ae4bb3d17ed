//! The one decision about a visitor, taken before any byte goes upstream.
//!
//! Order: the visitor's address, then the form of the query credential, then proof, permission,
//! boundary. Whatever is not clearly allowed is refused.

use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

use credentials::Verified;
use types::path::NormalPath;
use types::permission::Permission;
use types::problem::Problem;
use types::query_credential;

use super::bearer::Bearer;
use super::tokens::Tokens;
use crate::live::LiveTunnel;

/// What of a request is judged.
#[derive(Debug)]
pub struct EdgeRequest<'a, A> {
    pub tunnel: &'a LiveTunnel<A>,
    /// The visitor, as the connection or a trusted proxy says it; never a header.
    pub peer: IpAddr,
    pub bearer: Bearer<'a>,
    /// Path of the request target as it came, without the query.
    pub path: &'a str,
    /// Query of the request target as it came, without `?`.
    pub query: Option<&'a str>,
    /// Names of the reserved query parameter: [`query_credential::NAMES`], or
    /// [`query_credential::COMPAT_NAMES`] with `compat.rstream`.
    pub reserved: &'static [&'static str],
}

/// What was decided, and by which rule.
#[derive(Debug)]
pub struct Decision {
    pub outcome: Outcome,
    /// For the access log and the metrics.
    pub rule: Rule,
    /// Which part failed, for the log alone; holds no secret.
    pub reason: Option<Cow<'static, str>>,
}

/// What happens to the request. Browser sign-in and challenges will be further outcomes.
#[derive(Debug)]
#[must_use]
pub enum Outcome {
    Allow(Allowed),
    Refuse(Problem),
}

/// How an allowed request travels on.
#[derive(Debug, Default)]
pub struct Allowed {
    /// The proof that was used, where one was needed.
    pub proof: Option<Proof>,
    /// The query to forward instead of the one that came; empty means no query at all.
    pub query: Option<String>,
    /// The path to forward instead of the one that came: exactly what was judged (ED-7).
    pub path: Option<NormalPath>,
    /// `Authorization` was the edge's credential and does not travel on.
    pub strip_authorization: bool,
}

/// Who the visitor proved to be.
#[derive(Debug, Clone)]
pub struct Proof {
    pub token: Arc<Verified>,
    pub method: ProofMethod,
}

/// How the visitor proved it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProofMethod {
    /// `Authorization: Bearer`.
    Header,
    /// The reserved query parameter.
    Query,
}

impl Proof {
    /// `svc-user-id`.
    pub fn user_id(&self) -> Option<&str> {
        self.token.user_id.as_deref()
    }

    /// `svc-credential-id`: the stored credential, or the application.
    pub fn credential_id(&self) -> Option<&str> {
        self.token
            .credential_id
            .as_deref()
            .or(self.token.client_id.as_deref())
    }

    /// `svc-auth-method`.
    pub fn method(&self) -> &'static str {
        match self.method {
            ProofMethod::Header | ProofMethod::Query => "token",
        }
    }
}

/// The rule that decided; a bounded set, fit for a metric's label.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Nothing guards the tunnel.
    Public,
    /// The tunnel is not published.
    Private,
    /// The tunnel asks for a guard that this engine does not have.
    Unenforceable,
    /// `trusted_ips`.
    TrustedIps,
    /// The form of the query credential (ED-1b).
    QueryCredential,
    /// `token_auth` (ED-1).
    Token,
    /// `tunnels.streams.create-delete` (ED-1c).
    Permission,
    /// `resources.tunnels` (ED-1c).
    Boundary,
    /// A path that cannot be judged (ED-7).
    Path,
}

impl Rule {
    /// Name in logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Private => "private",
            Self::Unenforceable => "unenforceable",
            Self::TrustedIps => "trusted_ips",
            Self::QueryCredential => "query_credential",
            Self::Token => "token",
            Self::Permission => "permission",
            Self::Boundary => "boundary",
            Self::Path => "path",
        }
    }
}

/// Decides about an HTTP request to a published tunnel at `now` (Unix seconds).
pub fn decide<A>(request: &EdgeRequest<'_, A>, tokens: &Tokens, now: i64) -> Decision {
    let policy = &request.tunnel.policy;
    if let Some(refused) = refuse_visitor(request.tunnel, request.peer) {
        return refused;
    }
    // Reserved on every published tunnel: a token in the address is never the upstream's to see,
    // and one that cannot be cut out cleanly does not pass (ED-1b).
    let (credential, rest) =
        match query_credential::extract(request.query.unwrap_or_default(), request.reserved) {
            Ok(Some(extracted)) => (Some(extracted.token), Some(extracted.rest)),
            Ok(None) => (None, None),
            Err(malformed) => {
                let problem = Problem::malformed_query_credential();
                return Decision::refuse(Rule::QueryCredential, problem, malformed.to_string());
            }
        };
    if !policy.token_auth {
        let allowed = Allowed {
            query: rest,
            ..Allowed::default()
        };
        return Decision::allow(Rule::Public, allowed);
    }
    // ED-1a: the query credential is the edge's, and the header then is application data.
    let (text, method) = match (&credential, request.bearer) {
        (Some(token), _) => (token.as_str(), ProofMethod::Query),
        (None, Bearer::Token(token)) => (token, ProofMethod::Header),
        (None, Bearer::Malformed) => {
            return Decision::refuse(Rule::Token, Problem::invalid_token(), "malformed bearer");
        }
        (None, Bearer::Absent) => {
            return Decision::refuse(Rule::Token, Problem::unauthenticated(), "no credential");
        }
    };
    let token = match tokens.verify(text, now) {
        Ok(token) => token,
        Err(refused) => {
            return Decision::refuse(Rule::Token, Problem::invalid_token(), refused.to_string());
        }
    };
    let permission = Permission::TunnelsStreamsCreateDelete;
    if !token.allows(permission) {
        let problem = Problem::insufficient_scope(permission);
        return Decision::refuse(Rule::Permission, problem, "permission missing");
    }
    let path = match token
        .boundary
        .needs_path()
        .then(|| NormalPath::parse(request.path))
        .transpose()
    {
        Ok(path) => path,
        Err(refusal) => {
            let problem = Problem::insufficient_scope(permission);
            return Decision::refuse(Rule::Path, problem, refusal.to_string());
        }
    };
    let tunnel = request.tunnel;
    let view = &tunnel.view;
    let workspace = view.workspace_id.as_deref();
    let reach = token
        .boundary
        .connect(&tunnel.identity.project, workspace, view, path.as_ref());
    if let Err(refusal) = reach {
        let problem = Problem::insufficient_scope(permission);
        return Decision::refuse(Rule::Boundary, problem, refusal.to_string());
    }
    let allowed = Allowed {
        proof: Some(Proof { token, method }),
        query: rest,
        path,
        strip_authorization: method == ProofMethod::Header,
    };
    Decision::allow(Rule::Token, allowed)
}

/// Decides about a raw connection (TLS or TCP tunnel), where nothing but the address is known.
pub fn decide_connection<A>(tunnel: &LiveTunnel<A>, peer: IpAddr) -> Decision {
    if let Some(refused) = refuse_visitor(tunnel, peer) {
        return refused;
    }
    if tunnel.policy.token_auth {
        // Nothing on a raw connection could prove anything; such a tunnel is not opened either.
        return Decision::refuse(
            Rule::Token,
            Problem::unauthenticated(),
            "no place for a token",
        );
    }
    Decision::allow(Rule::Public, Allowed::default())
}

/// What holds for every kind of visitor.
fn refuse_visitor<A>(tunnel: &LiveTunnel<A>, peer: IpAddr) -> Option<Decision> {
    if !tunnel.policy.published {
        return Some(Decision::refuse(
            Rule::Private,
            Problem::tunnel_not_found(),
            "not published",
        ));
    }
    if tunnel.policy.unenforceable {
        let problem = Problem::unavailable();
        return Some(Decision::refuse(
            Rule::Unenforceable,
            problem,
            "a guard that this engine cannot keep",
        ));
    }
    if !tunnel.policy.trusts(peer) {
        let problem = Problem::new(
            403,
            "address_not_trusted",
            "This tunnel does not take visitors from this address.",
        );
        return Some(Decision::refuse(
            Rule::TrustedIps,
            problem,
            "address outside trusted_ips",
        ));
    }
    None
}

impl Decision {
    fn allow(rule: Rule, allowed: Allowed) -> Self {
        Self {
            outcome: Outcome::Allow(allowed),
            rule,
            reason: None,
        }
    }

    fn refuse(rule: Rule, problem: Problem, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            outcome: Outcome::Refuse(problem),
            rule,
            reason: Some(reason.into()),
        }
    }
}
