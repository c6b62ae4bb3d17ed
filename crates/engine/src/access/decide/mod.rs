//! Decides about a visitor before any byte is sent upstream.
//!
//! Order: rules for all visitors ([`visitor`]: the visitor's address, the project's rules), then
//! the choice of the proof that counts ([`table`], by presence), then that proof, its permission
//! and its boundary ([`proof`]). A request that is not clearly allowed is refused.

mod outcome;
mod password;
mod proof;
mod table;
#[cfg(test)]
mod tests;
mod unauthenticated;
mod visitor;

use std::net::IpAddr;

use types::permission::Permission;
use types::problem::Problem;
use types::query_credential::{self, MalformedCredential};
use types::tunnel::{Country, TlsVersion};

pub use self::outcome::{Admission, Decision, Outcome, Proof, Rule, TokenForm};
pub use self::proof::proof_covers;
use self::proof::{BoundaryTarget, ProofRefusal};
use self::table::{Action, ConditionBits, PresentedProofs, QueryProof};
pub(crate) use self::visitor::hostname_taken_down;
pub use self::visitor::{reauthorize_visit, refuse as refuse_visitor};
use super::bearer::Bearer;
use super::certificate::ClientCertificate;
use super::link_password::PasswordProof;
use super::tenancy::Tenancy;
use super::tokens::Tokens;
use crate::browser::{Challenges, EdgeCookies, Seals};
use crate::live::LiveTunnel;

/// The parts of a request that a decision depends on.
#[derive(Debug)]
pub struct EdgeRequest<'a, A> {
    pub tunnel: &'a LiveTunnel<A>,
    pub visitor: VisitorInfo<'a>,
    /// Name of the tunnel's host, in lower case and without port: cookies are bound to it.
    pub host: &'a str,
    pub bearer: Bearer<'a>,
    /// The link password; absent at a tunnel that has none.
    pub password: PasswordProof,
    /// Only required for a tunnel whose policy depends on cookies
    /// ([`super::TunnelPolicy::reads_cookies`]).
    pub cookies: EdgeCookies<'a>,
    /// A browser navigates to a page, so it can be redirected.
    pub navigation: bool,
    /// Path of the request target as received, without the query.
    pub path: &'a str,
    /// Query of the request target as received, without `?`.
    pub query: Option<&'a str>,
    /// Names of the reserved query parameter: [`query_credential::NAMES`], or
    /// [`query_credential::COMPAT_NAMES`] with `compat.rstream`.
    pub reserved: &'static [&'static str],
}

/// Facts about a visitor that its connection provides.
#[derive(Debug, Clone, Copy)]
pub struct VisitorInfo<'a> {
    /// Address of the visitor from the connection or a trusted proxy; never from a header.
    pub peer: IpAddr,
    /// Country of that address, if known.
    pub country: Option<&'a Country>,
    /// TLS version of the handshake, if the edge performed it.
    pub tls_version: Option<TlsVersion>,
    pub certificate: Option<&'a ClientCertificate>,
}

impl VisitorInfo<'_> {
    /// A visitor with a known address only.
    pub fn at(peer: IpAddr) -> Self {
        Self {
            peer,
            country: None,
            tls_version: None,
            certificate: None,
        }
    }
}

/// Input of all decisions.
#[derive(Debug, Clone, Copy)]
pub struct AuthContext<'a> {
    pub tokens: &'a Tokens,
    pub tenancy: &'a Tenancy,
    /// `None`: there are neither browser sessions nor challenges on this engine.
    pub seals: Option<&'a Seals>,
    /// Unix seconds.
    pub now: i64,
}

/// The permission that a visitor needs to use a tunnel.
const PERMISSION: Permission = Permission::TunnelsStreamsCreateDelete;

/// Reason of [`Rule::Ambiguous`] that concerns no client certificate.
pub(crate) const PASSWORD_AND_PROOF: &str = "a link password and another proof";

/// Decides about an HTTP request to a published tunnel.
pub fn decide<A>(request: &EdgeRequest<'_, A>, context: AuthContext<'_>) -> Decision {
    let tunnel = request.tunnel;
    if let Some(refused) = visitor::refuse(tunnel, request.visitor, context) {
        return refused;
    }
    // The parameter is reserved on every published tunnel. The upstream must never see a token in
    // the address, and a token that cannot be removed cleanly is refused (ED-1b).
    let query = request.query.unwrap_or_default();
    let (query_proof, extracted) = match query_credential::extract(query, request.reserved) {
        Ok(Some(extracted)) => (QueryProof::WellFormed, Some(extracted)),
        Ok(None) => (QueryProof::Absent, None),
        Err(MalformedCredential) => (QueryProof::Malformed, None),
    };
    let (credential, rest) = extracted
        .map(|extracted| (extracted.token, extracted.rest))
        .unzip();
    let guards = tunnel.policy.required_proofs;
    let has = PresentedProofs {
        certificate: request.visitor.certificate.is_some(),
        query: query_proof,
        bearer: request.bearer != Bearer::Absent,
        session: request.cookies.session.is_present(),
        password: request.password != PasswordProof::Absent,
        challenge_passed: guards.challenge && has_passed_challenge(request, context),
    };
    let mut facts = ConditionBits::of(guards, visitor::project_policy(tunnel), has);
    let mut allowed = Admission {
        query: rest,
        ..Admission::default()
    };
    let mut passed_by = None;
    let rule = loop {
        let step = facts.step();
        match step {
            Action::Token(form) | Action::BypassChallenge(form) => {
                let text = match form {
                    TokenForm::Query => credential.as_deref(),
                    TokenForm::Header => match request.bearer {
                        Bearer::Token(token) => Some(token),
                        Bearer::Absent | Bearer::Malformed => None,
                    },
                };
                // ED-4: if the token is invalid, no other proof is used.
                match proof::check_token(text, form, target(request), context) {
                    Ok((proof, path)) => {
                        allowed.strip_authorization = form == TokenForm::Header;
                        allowed.path = path;
                        passed_by = Some(proof);
                    }
                    Err(refused) => return refused.into(),
                }
                if matches!(step, Action::Token(_)) {
                    break Rule::Token;
                }
                facts = facts.with_challenge_passed();
            }
            Action::Certificate => match proof::check_certificate(target(request), context) {
                Ok((proof, path)) => {
                    allowed.path = path.or(allowed.path);
                    allowed.proof = Some(proof);
                    break Rule::Certificate;
                }
                Err(refused) => return refused.into(),
            },
            Action::Session => match proof::check_session(request, context) {
                Ok(proof) => {
                    allowed.proof = Some(proof);
                    break Rule::Session;
                }
                Err(ProofRefusal {
                    problem: None,
                    reason,
                    ..
                }) => return sign_in(request, reason),
                Err(refused) => return refused.into(),
            },
            Action::Password => return password::decide(request.password, guards),
            Action::Open if passed_by.is_some() => break Rule::Token,
            Action::Open => break Rule::Public,
            refusal => return refuse(refusal, request),
        }
    };
    allowed.proof = allowed.proof.or(passed_by);
    Decision::allow(rule, allowed)
}

/// The decision for the actions that admit no visitor.
fn refuse<A>(action: Action, request: &EdgeRequest<'_, A>) -> Decision {
    match action {
        Action::Ambiguous => {
            let problem = Problem::ambiguous_credentials();
            let reason = if request.password == PasswordProof::Absent {
                "a client certificate and another proof"
            } else {
                PASSWORD_AND_PROOF
            };
            Decision::refuse(Rule::Ambiguous, problem, reason)
        }
        Action::BadQuery => {
            let problem = Problem::malformed_query_credential();
            let reason = MalformedCredential.to_string();
            Decision::refuse(Rule::QueryCredential, problem, reason)
        }
        Action::Challenge => {
            let problem = Problem::challenge_required();
            Decision::refuse(Rule::Challenge, problem, "no challenge was passed")
                .or_redirect(request.navigation, Outcome::Challenge)
        }
        Action::SignIn => sign_in(request, "no session".into()),
        Action::PasswordRequired => {
            Decision::refuse(Rule::Password, unauthenticated(request), "no password")
        }
        Action::Unauthenticated => {
            let needs_token = request.tunnel.policy.required_proofs.token;
            let rule = if needs_token {
                Rule::Token
            } else {
                Rule::Certificate
            };
            Decision::refuse(rule, unauthenticated(request), "no credential")
        }
        // The project's conditions. The other actions admit a visitor and do not reach this.
        Action::VisitsForbidden
        | Action::ProofRequired
        | Action::Token(_)
        | Action::BypassChallenge(_)
        | Action::Certificate
        | Action::Session
        | Action::Password
        | Action::Open => public_access(action),
    }
}

/// Decides about a raw connection (TLS or TCP tunnel), which has no request.
pub fn decide_connection<A>(
    tunnel: &LiveTunnel<A>,
    visitor: VisitorInfo<'_>,
    context: AuthContext<'_>,
) -> Decision {
    if let Some(refused) = visitor::refuse(tunnel, visitor, context) {
        return refused;
    }
    let guards = tunnel.policy.required_proofs;
    if guards.token || guards.session || guards.challenge || guards.password {
        // A raw connection cannot present these proofs. Such a tunnel cannot be opened either.
        let reason = "no place for a token";
        return Decision::refuse(Rule::Token, Problem::unauthenticated(), reason);
    }
    let has = PresentedProofs {
        certificate: visitor.certificate.is_some(),
        ..PresentedProofs::default()
    };
    match ConditionBits::of(guards, visitor::project_policy(tunnel), has).step() {
        Action::Open => Decision::allow(Rule::Public, Admission::default()),
        Action::Certificate => {
            let target = BoundaryTarget {
                tunnel: &tunnel.view,
                project: &tunnel.project,
                certificate: visitor.certificate,
                path: None,
            };
            match proof::check_certificate(target, context) {
                Ok((proof, _)) => {
                    let proof = Some(proof);
                    Decision::allow(
                        Rule::Certificate,
                        Admission {
                            proof,
                            ..Admission::default()
                        },
                    )
                }
                Err(refused) => refused.into(),
            }
        }
        step @ (Action::VisitsForbidden | Action::ProofRequired) => public_access(step),
        _ => Decision::refuse(
            Rule::Certificate,
            Problem::unauthenticated(),
            "no certificate",
        ),
    }
}

/// Returns true if the challenge was passed.
fn has_passed_challenge<A>(request: &EdgeRequest<'_, A>, context: AuthContext<'_>) -> bool {
    let cookie = request.cookies.challenge.value().zip(context.seals);
    cookie.is_some_and(|(cookie, seals)| {
        let from = (request.host, request.visitor.peer);
        Challenges::is_passed(cookie, from, seals, context.now)
    })
}

fn target<'a, A>(request: &'a EdgeRequest<'_, A>) -> BoundaryTarget<'a> {
    BoundaryTarget {
        tunnel: &request.tunnel.view,
        project: &request.tunnel.project,
        certificate: request.visitor.certificate,
        path: Some(request.path),
    }
}

/// The 401 for this request, with the credentials that the tunnel accepts.
fn unauthenticated<A>(request: &EdgeRequest<'_, A>) -> Problem {
    let query = request.query.unwrap_or_default();
    let has_query = query_credential::is_present(query, request.reserved);
    let presented = unauthenticated::UnacceptedCredentials {
        token: request.bearer != Bearer::Absent || has_query,
        session: request.cookies.session.is_present(),
        password: request.password != PasswordProof::Absent,
    };
    unauthenticated::unauthenticated(visitor::accepted_proofs(request.tunnel), presented)
}

fn sign_in<A>(request: &EdgeRequest<'_, A>, reason: std::borrow::Cow<'static, str>) -> Decision {
    Decision::refuse(Rule::Session, unauthenticated(request), reason)
        .or_redirect(request.navigation, Outcome::SignIn)
}

fn public_access(step: Action) -> Decision {
    let reason = match step {
        Action::ProofRequired => "the project requires a proof, and the tunnel accepts none",
        _ => "the project forbids published tunnels",
    };
    let problem = Problem::new(
        403,
        "public_access_not_allowed",
        "The project does not allow this tunnel to be visited.",
    );
    Decision::refuse(Rule::PublicAccess, problem, reason)
}
