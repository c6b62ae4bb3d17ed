//! Rules for every visitor, independent of its proofs.

use api::control::settings::PublicAccessPolicy;
use types::problem::Problem;
use types::tunnel::TlsVersion;

use super::outcome::{Decision, Proof, Rule};
use super::{AuthContext, VisitorInfo};
use crate::access::boundary_check::BoundaryDenial;
use crate::access::policy::RequiredProofs;
use crate::live::LiveTunnel;

/// Refuses visitors that are not allowed.
pub fn refuse<A>(
    tunnel: &LiveTunnel<A>,
    visitor: VisitorInfo<'_>,
    context: AuthContext<'_>,
) -> Option<Decision> {
    let policy = &tunnel.policy;
    if !policy.published {
        let problem = Problem::tunnel_not_found();
        return Some(Decision::refuse(Rule::Private, problem, "not published"));
    }
    if let Some(refused) = refuse_by_operator(tunnel) {
        return Some(refused);
    }
    let state = tunnel.project.state();
    let project = &state.policy;
    if project.unreadable || !is_enforceable(tunnel, context) {
        let reason = "a guard that this engine cannot keep";
        return Some(Decision::refuse(
            Rule::Unenforceable,
            Problem::unavailable(),
            reason,
        ));
    }
    let forbidden = |rule, code, detail, reason: &'static str| {
        Some(Decision::refuse(
            rule,
            Problem::new(403, code, detail),
            reason,
        ))
    };
    if !policy.trusts(visitor.peer) || !project.trusts(visitor.peer) {
        return forbidden(
            Rule::TrustedIps,
            "address_not_trusted",
            "Your network address is not allowed here.",
            if policy.trusts(visitor.peer) {
                "address outside the project's trusted_ips"
            } else {
                "address outside trusted_ips"
            },
        );
    }
    let country_fits = policy.admits_country(visitor.country)
        && project
            .geo
            .as_ref()
            .is_none_or(|rule| rule.admits(visitor.country));
    if !country_fits {
        return forbidden(
            Rule::GeoIp,
            "country_not_allowed",
            "This tunnel does not allow visitors from this country.",
            if visitor.country.is_some() {
                "the country is not allowed"
            } else {
                "the country of the address is not known"
            },
        );
    }
    // If the edge did not terminate TLS, the version is up to the service.
    if visitor
        .tls_version
        .is_some_and(|version| is_below(version, project.min_tls))
    {
        return forbidden(
            Rule::TlsVersion,
            "tls_version_too_low",
            "This tunnel requires a newer version of TLS.",
            "an older version of TLS than the project allows",
        );
    }
    None
}

/// Refuses all visitors if the project is suspended, or if an operator has taken down the host name.
fn refuse_by_operator<A>(tunnel: &LiveTunnel<A>) -> Option<Decision> {
    let state = tunnel.project.state();
    if !state.in_use {
        let problem = BoundaryDenial::Suspended.into();
        return Some(Decision::refuse(
            Rule::Suspended,
            problem,
            "the project is suspended",
        ));
    }
    let hostname = tunnel.routed_hostname();
    if hostname.is_some_and(|hostname| state.is_taken_down(hostname)) {
        return Some(Decision::refuse(
            Rule::TakenDown,
            hostname_taken_down(),
            "an operator has taken down the host name",
        ));
    }
    None
}

/// The refusal of a host name that an operator has taken down.
pub(crate) fn hostname_taken_down() -> Problem {
    let detail = "The operator of this server has taken down this address.";
    Problem::new(403, "hostname_taken_down", detail)
}

/// Checks that an admitted visitor would be admitted again, by its address and its proof. The path
/// and the query were checked with the request and do not change.
pub fn reauthorize_visit<A>(
    tunnel: &LiveTunnel<A>,
    visitor: VisitorInfo<'_>,
    proof: Option<&Proof>,
    context: AuthContext<'_>,
) -> bool {
    if !tunnel.project.state().in_use {
        return false;
    }
    // A private tunnel has no rules of the edge: its stream was dialled.
    if tunnel.policy.published {
        let forbidden = match project_policy(tunnel) {
            PublicAccessPolicy::Allowed => false,
            // A visitor that a link password admitted has no proof.
            PublicAccessPolicy::AuthRequired => {
                !tunnel.policy.required_proofs.requires_identity() || proof.is_none()
            }
            PublicAccessPolicy::Forbidden => true,
        };
        if forbidden || refuse(tunnel, visitor, context).is_some() {
            return false;
        }
    }
    let known = (context.tokens, context.tenancy);
    proof.is_none_or(|proof| proof.is_still_valid(&tunnel.project, known, context.now))
}

/// The columns `P` and `N` of the table (ED-8).
pub(super) fn project_policy<A>(tunnel: &LiveTunnel<A>) -> PublicAccessPolicy {
    tunnel.project.state().policy.public_access
}

/// The proofs that admit visitors. A link password identifies no user, so a project that requires a
/// proof does not accept it.
pub(super) fn accepted_proofs<A>(tunnel: &LiveTunnel<A>) -> RequiredProofs {
    let mut accepted = tunnel.policy.required_proofs;
    accepted.password &= project_policy(tunnel) != PublicAccessPolicy::AuthRequired;
    accepted
}

/// Returns true if this engine can enforce the tunnel's rules. Other tunnels are not opened
/// (EN-11).
fn is_enforceable<A>(tunnel: &LiveTunnel<A>, context: AuthContext<'_>) -> bool {
    let guards = tunnel.policy.required_proofs;
    let managed = context.tenancy.directory().is_some();
    let browsers = context.seals.is_some();
    (managed || !(guards.certificate || tunnel.policy.asks_country()))
        && (managed && browsers || !(guards.session || guards.challenge))
}

fn is_below(version: TlsVersion, min: Option<TlsVersion>) -> bool {
    version == TlsVersion::Tls12 && min == Some(TlsVersion::Tls13)
}
