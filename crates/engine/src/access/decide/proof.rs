//! The proofs of a visitor, one at a time: its validity, and its boundary for this tunnel and path.

use std::borrow::Cow;
use std::sync::Arc;

use credentials::VerifiedToken;
use types::boundary::Boundary;
use types::path::NormalPath;
use types::problem::Problem;
use types::tunnel::Tunnel;

use super::outcome::{Decision, Outcome, Proof, Rule, TokenForm};
use super::{AuthContext, EdgeRequest, PERMISSION};
use crate::access::boundary_check::BoundaryDenial;
use crate::access::certificate::ClientCertificate;
use crate::browser::Session;
use crate::directory::{Credential, Project};

/// The object that a proof's boundary must include.
#[derive(Clone, Copy)]
pub(super) struct BoundaryTarget<'a> {
    pub(super) tunnel: &'a Tunnel,
    pub(super) project: &'a Project,
    pub(super) certificate: Option<&'a ClientCertificate>,
    /// `None` on a raw connection.
    pub(super) path: Option<&'a str>,
}

/// A proof that is not accepted.
pub(super) struct ProofRefusal {
    rule: Rule,
    /// The response. `None` if the request counts as unauthenticated.
    pub(super) problem: Option<Box<Problem>>,
    pub(super) reason: Cow<'static, str>,
}

impl ProofRefusal {
    fn new(rule: Rule, problem: Problem, reason: impl Into<Cow<'static, str>>) -> Self {
        Self {
            rule,
            problem: Some(Box::new(problem)),
            reason: reason.into(),
        }
    }

    fn denied(denied: BoundaryDenial) -> Self {
        let reason = denied.to_string();
        Self::new(Rule::Permission, denied.into(), reason)
    }
}

impl From<ProofRefusal> for Decision {
    fn from(refused: ProofRefusal) -> Self {
        Self {
            outcome: Outcome::Refuse(
                refused
                    .problem
                    .map_or(Problem::unauthenticated(), |problem| *problem),
            ),
            rule: refused.rule,
            reason: Some(refused.reason),
        }
    }
}

/// A proof, and the path that was checked if the boundary requires one.
type ProofResult = Result<(Proof, Option<NormalPath>), ProofRefusal>;

/// Checks a token. `text` is `None` if the bearer is malformed.
pub(super) fn check_token(
    text: Option<&str>,
    form: TokenForm,
    target: BoundaryTarget<'_>,
    context: AuthContext<'_>,
) -> ProofResult {
    let invalid = |reason| ProofRefusal::new(Rule::Token, Problem::invalid_token(), reason);
    let text = text.ok_or_else(|| invalid(Cow::Borrowed("malformed bearer")))?;
    let verified = context.tokens.verify(text, context.now);
    let token: Arc<VerifiedToken> =
        verified.map_err(|refused| invalid(refused.to_string().into()))?;
    let tenancy = context.tenancy;
    tenancy
        .require(&token, target.project, PERMISSION)
        .map_err(ProofRefusal::denied)?;
    let path = check_boundary(token.limits.boundary(), target)?;
    Ok((Proof::Token { token, form }, path))
}

/// Checks a client certificate that was proved in the handshake.
pub(super) fn check_certificate(
    target: BoundaryTarget<'_>,
    context: AuthContext<'_>,
) -> ProofResult {
    let refused = |reason: Cow<'static, str>| {
        Err(ProofRefusal::new(
            Rule::Certificate,
            invalid_certificate(),
            reason,
        ))
    };
    let known = target.certificate.zip(context.tenancy.directory());
    let Some((certificate, directory)) = known else {
        return refused("no certificate".into());
    };
    let credentials = match certificate.credentials(directory, target.project, context.now) {
        Ok(credentials) => credentials,
        Err(unmatched) => return refused(unmatched.to_string().into()),
    };
    // The first credential that includes the tunnel is used. Without one, the first refusal is the
    // reason.
    let mut first_refusal = None;
    for (credential, validity) in credentials {
        match check_credential(&credential, target, context) {
            Ok(path) => {
                let proof = Proof::Certificate {
                    credential,
                    validity,
                };
                return Ok((proof, path));
            }
            Err(refused) => first_refusal = first_refusal.or(Some(refused)),
        }
    }
    match first_refusal {
        Some(why) => Err(why),
        None => refused("no credential matches it".into()),
    }
}

/// Checks that a credential may open streams in the project, and includes the tunnel and the path.
fn check_credential(
    credential: &Credential,
    target: BoundaryTarget<'_>,
    context: AuthContext<'_>,
) -> Result<Option<NormalPath>, ProofRefusal> {
    let permissions = credential.limits.permissions();
    let user = Some(&*credential.user_id);
    let permitted = context
        .tenancy
        .require_for_user(user, permissions, target.project, PERMISSION);
    permitted.map_err(ProofRefusal::denied)?;
    check_boundary(credential.limits.boundary(), target)
}

fn invalid_certificate() -> Problem {
    let detail = "The client certificate is not valid here.";
    Problem::new(401, "invalid_certificate", detail)
}

/// Checks the session in a cookie. A cookie without a current session counts as absent: its user
/// has to sign in.
pub(super) fn check_session<A>(
    request: &EdgeRequest<'_, A>,
    context: AuthContext<'_>,
) -> Result<Proof, ProofRefusal> {
    let none = |reason: Cow<'static, str>| ProofRefusal {
        rule: Rule::Session,
        problem: None,
        reason,
    };
    let directory = context.tenancy.directory();
    let Some(((seals, directory), cookie)) = context
        .seals
        .zip(directory)
        .zip(request.cookies.session.value())
    else {
        return Err(none("more than one session cookie".into()));
    };
    let project = &request.tunnel.project;
    let session = Session::from_cookie(cookie, seals, request.host, project)
        .map_err(|reason| none(reason.to_string().into()))?;
    session
        .check(directory, context.now)
        .map_err(|reason| none(reason.to_string().into()))?;
    if !session.covers(&request.tunnel.policy) {
        return Err(none(
            "the user has not agreed to share what the tunnel requests".into(),
        ));
    }
    let user = Some(&*session.user_id);
    let permitted = context
        .tenancy
        .require_for_user(user, None, project, PERMISSION);
    permitted.map_err(ProofRefusal::denied)?;
    Ok(Proof::Session(Arc::new(session)))
}

/// Checks that a boundary includes the tunnel and the path. It returns the path exactly as it was
/// checked, if the boundary requires one (ED-7).
fn check_boundary(
    boundary: &Boundary,
    target: BoundaryTarget<'_>,
) -> Result<Option<NormalPath>, ProofRefusal> {
    let refused = |rule, reason: String| {
        ProofRefusal::new(rule, Problem::insufficient_scope(PERMISSION), reason)
    };
    let path = target.path.filter(|_| boundary.needs_path());
    let path = path
        .map(NormalPath::parse)
        .transpose()
        .map_err(|refusal| refused(Rule::Path, refusal.to_string()))?;
    let workspace = target.tunnel.workspace_id.as_deref();
    boundary
        .connect(&target.project.id, workspace, target.tunnel, path.as_ref())
        .map_err(|refusal| refused(Rule::Boundary, refusal.to_string()))?;
    Ok(path)
}

/// Checks that a proof that was accepted for one tunnel of a name and project covers another one as
/// well, with the path as it was checked. All other rules are the same for both.
pub fn proof_covers(
    proof: Option<&Proof>,
    tunnel: &Tunnel,
    project: &Project,
    path: Option<&NormalPath>,
) -> bool {
    let boundary = match proof {
        None | Some(Proof::Session(_)) => return true,
        Some(Proof::Token { token, .. }) => token.limits.boundary(),
        Some(Proof::Certificate { credential, .. }) => credential.limits.boundary(),
    };
    let workspace = tunnel.workspace_id.as_deref();
    boundary
        .connect(&project.id, workspace, tunnel, path)
        .is_ok()
}
