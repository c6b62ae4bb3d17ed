//! Every combination of a tunnel's rules and a request's proofs, compared with a second
//! implementation of the rules.

use super::*;
use crate::access::policy::RequiredProofs;

/// Validity of a proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Validity {
    Absent,
    Good,
    Bad,
    /// Valid, but its user has no permission.
    Barred,
}

const VALIDITIES: [Validity; 4] = [
    Validity::Absent,
    Validity::Good,
    Validity::Bad,
    Validity::Barred,
];

const PASSWORDS: [PasswordProof; 3] = [
    PasswordProof::Absent,
    PasswordProof::Valid,
    PasswordProof::Wrong,
];

/// A request to a tunnel.
#[derive(Clone, Copy, Debug)]
struct Case {
    guards: RequiredProofs,
    policy: PublicAccessPolicy,
    /// `None`: malformed.
    query: Option<Validity>,
    bearer: Validity,
    session: Validity,
    certificate: Validity,
    password: PasswordProof,
    worked: bool,
    navigation: bool,
}

impl Case {
    /// The rules, written as a sequence of conditions.
    fn expected(self) -> RequestResult {
        let RequiredProofs {
            token,
            session,
            certificate,
            challenge,
            password,
        } = self.guards;
        let not_allowed = RequestResult::Refused(403, "public_access_not_allowed");
        // ED-8: `forbidden` refuses all visitors; `auth-required` refuses them at tunnels without
        // proofs.
        match self.policy {
            PublicAccessPolicy::Forbidden => return not_allowed,
            PublicAccessPolicy::AuthRequired if !(token || session || certificate) => {
                return not_allowed;
            }
            _ => {}
        }
        // ED-5: a certificate beside a query credential, our cookie, or a bearer that is read.
        let is_there = |worth: Validity| worth != Validity::Absent;
        let query_there = self.query.is_none_or(is_there);
        let reads_bearer = token || challenge && !self.worked;
        if certificate
            && is_there(self.certificate)
            && (query_there || is_there(self.session) || reads_bearer && is_there(self.bearer))
        {
            return RequestResult::Refused(400, "ambiguous_credentials");
        }
        // A link password beside another credential that the tunnel reads, or any bearer.
        let has_password = password && self.password != PasswordProof::Absent;
        if has_password
            && (self.query.is_some_and(is_there)
                || is_there(self.bearer)
                || session && is_there(self.session)
                || certificate && is_there(self.certificate))
        {
            return RequestResult::Refused(400, "ambiguous_credentials");
        }
        // ED-1b.
        let Some(query) = self.query else {
            return RequestResult::Refused(400, "invalid_request");
        };
        // A link password replaces the challenge, and its result is final. It identifies no
        // user, so it does not count if the project requires a proof.
        let admits_password = self.policy != PublicAccessPolicy::AuthRequired;
        if has_password && admits_password {
            return if self.password == PasswordProof::Valid {
                RequestResult::Service("")
            } else {
                RequestResult::Refused(401, "invalid_password")
            };
        }
        // ED-1a: with a query credential, the bearer is application data.
        let credential = if query_there { query } else { self.bearer };
        let judged = |worth: Validity, method, bad| match worth {
            Validity::Good => RequestResult::Service(method),
            Validity::Bad => RequestResult::Refused(401, bad),
            Validity::Barred => RequestResult::Refused(403, "insufficient_scope"),
            Validity::Absent => RequestResult::Refused(401, "unauthenticated"),
        };
        // ED-4, ED-6: a token is checked first, and its result is final.
        if token && is_there(credential) {
            return judged(credential, "token", "invalid_token");
        }
        let mut open = RequestResult::Service("");
        if challenge && !self.worked {
            match credential {
                Validity::Absent if self.navigation => return RequestResult::Challenge,
                Validity::Absent => return RequestResult::Refused(403, "challenge_required"),
                Validity::Good => open = RequestResult::Service("token"),
                worth => return judged(worth, "token", "invalid_token"),
            }
        }
        if certificate && is_there(self.certificate) {
            return judged(self.certificate, "mtls", "invalid_certificate");
        }
        if session {
            return match self.session {
                Validity::Absent | Validity::Bad if self.navigation => RequestResult::SignIn,
                Validity::Absent | Validity::Bad => RequestResult::Refused(401, "unauthenticated"),
                worth => judged(worth, "session", ""),
            };
        }
        if password && admits_password {
            return RequestResult::Refused(401, "password_required");
        }
        if token || certificate {
            return RequestResult::Refused(401, "unauthenticated");
        }
        open
    }
}

/// ED-1, ED-1a, ED-1b, ED-2, ED-4, ED-5, ED-6, ED-8, and link passwords: a quarter of a million
/// requests.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn ed_4_ed_5_ed_6_every_combination_of_guards_and_proofs() {
    let world = World::new();
    let peer: IpAddr = "192.0.2.7".parse().unwrap();
    let of = |worth, good: &str, bad: &str, barred: &str| match worth {
        Validity::Absent => None,
        Validity::Good => Some(good.to_owned()),
        Validity::Bad => Some(bad.to_owned()),
        Validity::Barred => Some(barred.to_owned()),
    };
    let tokens = [("ann", SECRET), ("ann", "another"), ("bob", SECRET)];
    let [good, bad, barred] = tokens.map(|(user, secret)| token(user, secret));
    let token = |worth| of(worth, &good, &bad, &barred);
    let sessions = [
        world.session("ann", NOW),
        "no.session".to_owned(),
        world.session("bob", NOW),
    ];
    let worked = world.worked(peer);
    let certificates = [1_u8, 9, 2].map(|first| ClientCertificate::with_digest([first; 32]));
    let mut seen = 0;
    for bits in 0..32_u8 {
        let guards = RequiredProofs {
            token: bits & 1 > 0,
            session: bits & 2 > 0,
            certificate: bits & 4 > 0,
            challenge: bits & 8 > 0,
            password: bits & 16 > 0,
        };
        // These two exclude each other.
        if guards.session && guards.password {
            continue;
        }
        let tunnel = world.tunnel(json!({
            "token_auth": guards.token,
            "svc_auth": guards.session,
            "mtls_auth": guards.certificate,
            "challenge_mode": guards.challenge,
            "basic_auth": guards.password,
        }));
        for policy in [
            PublicAccessPolicy::Allowed,
            PublicAccessPolicy::AuthRequired,
            PublicAccessPolicy::Forbidden,
        ] {
            world.set(policy);
            for number in 0..3 * 5 * 4 * 4 * 4 * 2 * 2 {
                let pick = |divisor: usize| VALIDITIES[number / divisor % 4];
                let case = Case {
                    guards,
                    policy,
                    bearer: pick(1),
                    session: pick(4),
                    certificate: pick(16),
                    worked: number / 64 % 2 > 0,
                    navigation: number / 128 % 2 > 0,
                    query: VALIDITIES.get(number / 256 % 5).copied(),
                    password: PASSWORDS[number / 1280],
                };
                let bearer = token(case.bearer);
                let session = of(case.session, &sessions[0], &sessions[1], &sessions[2]);
                let cookies = EdgeCookies {
                    session: session.as_deref().map_or(Cookie::Absent, Cookie::One),
                    challenge: if case.worked {
                        Cookie::One(&worked)
                    } else {
                        Cookie::Absent
                    },
                    ..EdgeCookies::default()
                };
                let query = match case.query {
                    None => Some("a=1&svc.token=".to_owned()),
                    Some(worth) => token(worth).map(|token| format!("svc.token={token}&a=1")),
                };
                let place = VALIDITIES
                    .iter()
                    .position(|worth| *worth == case.certificate)
                    .unwrap();
                let request = EdgeRequest {
                    tunnel: &tunnel,
                    visitor: VisitorInfo {
                        certificate: place.checked_sub(1).map(|place| &certificates[place]),
                        ..VisitorInfo::at(peer)
                    },
                    host: HOST,
                    bearer: bearer.as_deref().map_or(Bearer::Absent, Bearer::Token),
                    password: case.password,
                    cookies,
                    navigation: case.navigation,
                    path: "/",
                    query: query.as_deref(),
                    reserved: NAMES,
                };
                let decision = decide(&request, world.context());
                assert_eq!(
                    request_result(&decision),
                    case.expected(),
                    "{case:?} by {:?}",
                    decision.rule
                );
                if let Outcome::Allow(allowed) = &decision.outcome {
                    let cut = allowed.query.as_deref().or(query.as_deref());
                    assert!(!cut.unwrap_or_default().contains("svc.token"), "{case:?}");
                    // A bearer or a password that was checked is removed; any other is forwarded to the
                    // service.
                    let by_password = guards.password && case.password == PasswordProof::Valid;
                    let judged = by_password
                        || case.query == Some(Validity::Absent)
                            && case.bearer != Validity::Absent
                            && (guards.token || guards.challenge && !case.worked);
                    assert_eq!(allowed.strip_authorization, judged, "{case:?}");
                }
                seen += 1;
            }
        }
    }
    assert_eq!(seen, 24 * 3 * 3 * 1280);
}
