//! The decision about a visitor, rule by rule.

use std::net::IpAddr;

use engine::access::{
    Admission, AuthContext, Bearer, Decision, EdgeRequest, Outcome, PasswordProof, Proof, Rule,
    TokenForm, Tokens, VisitorInfo, decide, decide_connection,
};
use engine::browser::EdgeCookies;
use engine::directory::Project;
use engine::live::LiveTunnel;
use serde_json::{Value, json};
use types::query_credential::{COMPAT_NAMES, NAMES};

use super::{community, tunnel};
use crate::support::{CREATE, NOW, STREAMS, auth, keyring, pat, signed, token};

/// A visit from 192.0.2.7 with the given credentials.
#[derive(Default)]
struct Visit<'a> {
    bearer: Option<&'a str>,
    query: Option<&'a str>,
    path: Option<&'a str>,
    peer: Option<&'a str>,
}

impl Visit<'_> {
    fn judge(&self, tunnel: &LiveTunnel<()>) -> Decision {
        let request = EdgeRequest {
            tunnel,
            visitor: VisitorInfo::at(self.peer.unwrap_or("192.0.2.7").parse().unwrap()),
            host: "web.t.engine.localhost",
            cookies: EdgeCookies::default(),
            navigation: false,
            bearer: self.bearer.map_or(Bearer::Absent, Bearer::Token),
            password: PasswordProof::Absent,
            path: self.path.unwrap_or("/"),
            query: self.query,
            reserved: NAMES,
        };
        with_grounds(|grounds| decide(&request, grounds))
    }
}

/// The grounds on which a community engine decides.
fn with_grounds<T>(judge: impl FnOnce(AuthContext<'_>) -> T) -> T {
    judge(AuthContext {
        tokens: &Tokens::new(keyring()),
        tenancy: &community(),
        seals: None,
        now: NOW,
    })
}

fn connection(tunnel: &LiveTunnel<()>, peer: IpAddr) -> Decision {
    with_grounds(|grounds| decide_connection(tunnel, VisitorInfo::at(peer), grounds))
}

/// Status and code of a refusal, or 200 if the visit is allowed.
fn status_and_code(decision: &Decision) -> (u16, &'static str) {
    match &decision.outcome {
        Outcome::Allow(_) => (200, ""),
        Outcome::Refuse(problem) => {
            assert!(decision.reason.is_some(), "the log needs a reason");
            (problem.status, problem.code)
        }
        Outcome::SignIn | Outcome::Challenge => (302, ""),
        Outcome::VerifyPassword => (0, ""),
    }
}

fn allowed(decision: Decision) -> Admission {
    match decision.outcome {
        Outcome::Allow(allowed) => allowed,
        other => panic!("{other:?} by {:?}", decision.rule),
    }
}

fn form(proof: Option<Proof>) -> TokenForm {
    match proof {
        Some(Proof::Token { form, .. }) => form,
        other => panic!("{other:?} is not a token"),
    }
}

#[test]
fn a_public_tunnel_allows_everyone_and_leaves_the_request_unchanged() {
    let public = tunnel(json!({}));
    let decision = Visit {
        bearer: Some("application data"),
        query: Some("a=1&b"),
        ..Visit::default()
    }
    .judge(&public);
    assert_eq!(decision.rule, Rule::Public);
    let allowed = allowed(decision);
    assert!(allowed.proof.is_none() && allowed.query.is_none() && allowed.path.is_none());
    assert!(
        !allowed.strip_authorization,
        "without token authentication it belongs to the application"
    );
}

/// ED-1.
#[test]
fn ed_1_the_reserved_parameter_never_reaches_an_upstream_even_of_a_public_tunnel() {
    let public = tunnel(json!({}));
    let query = format!("a=1&svc.token={}&b=2", token(&pat()));
    let decision = Visit {
        query: Some(&query),
        ..Visit::default()
    }
    .judge(&public);
    assert_eq!(allowed(decision).query.as_deref(), Some("a=1&b=2"));
    let decision = Visit {
        query: Some("svc.token=x"),
        ..Visit::default()
    }
    .judge(&public);
    assert_eq!(status_and_code(&decision), (400, "invalid_request"));
}

#[test]
fn visitors_cannot_reach_a_private_tunnel() {
    let private = tunnel(json!({"publish": false, "name": "db"}));
    assert_eq!(
        status_and_code(&Visit::default().judge(&private)),
        (404, "tunnel_not_found")
    );
    let peer = "192.0.2.7".parse().unwrap();
    assert_eq!(
        status_and_code(&connection(&private, peer)),
        (404, "tunnel_not_found")
    );
}

#[test]
fn trusted_ips_are_checked_first() {
    let guarded =
        tunnel(json!({"trusted_ips": ["192.0.2.0/28", "2001:db8::/32"], "token_auth": true}));
    let valid = token(&pat());
    for (peer, expected) in [
        ("192.0.2.7", 200),
        ("::ffff:192.0.2.7", 200),
        ("2001:db8::1", 200),
        ("192.0.2.16", 403),
        ("2001:db9::1", 403),
    ] {
        let decision = Visit {
            peer: Some(peer),
            bearer: Some(&valid),
            ..Visit::default()
        }
        .judge(&guarded);
        assert_eq!(status_and_code(&decision).0, expected, "{peer}");
        if expected == 403 {
            assert_eq!(decision.rule, Rule::TrustedIps);
            let bad = Visit {
                peer: Some(peer),
                query: Some("svc.token="),
                ..Visit::default()
            }
            .judge(&guarded);
            assert_eq!(
                bad.rule,
                Rule::TrustedIps,
                "an untrusted address gets no other information"
            );
        }
    }
    let raw = tunnel(json!({"protocol": "tls", "trusted_ips": ["192.0.2.0/28"]}));
    for (peer, expected) in [("192.0.2.7", 200), ("192.0.2.16", 403)] {
        let peer: IpAddr = peer.parse().unwrap();
        assert_eq!(status_and_code(&connection(&raw, peer)).0, expected);
    }
}

/// ED-1, ED-1a, ED-1b.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn ed_1_ed_1a_ed_1b_the_edge_credential() {
    let guarded = tunnel(json!({"token_auth": true}));
    let valid = token(&pat());
    let other = signed(&pat(), "another secret of at least 32 bytes");
    let expired = token(&auth(NOW - 10, 10, json!({})));
    let query = |token: &str| format!("a=%20&svc.token={token}&b");
    let (good_query, other_query, expired_query) = (query(&valid), query(&other), query(&expired));
    let twice = format!("svc.token={valid}&svc.token={valid}");
    let spelled = format!("svc%2Etoken={valid}&svc.token={valid}");
    for (case, bearer, query, expected) in [
        ("nothing", None, None, (401, "unauthenticated", Rule::Token)),
        (
            "other parameters",
            None,
            Some("token=x"),
            (401, "unauthenticated", Rule::Token),
        ),
        ("bearer", Some(&valid), None, (200, "", Rule::Token)),
        (
            "query",
            None,
            Some(good_query.as_str()),
            (200, "", Rule::Token),
        ),
        (
            "garbage bearer",
            Some(&"garbage".to_owned()),
            None,
            (401, "invalid_token", Rule::Token),
        ),
        (
            "foreign bearer",
            Some(&other),
            None,
            (401, "invalid_token", Rule::Token),
        ),
        (
            "expired bearer",
            Some(&expired),
            None,
            (401, "invalid_token", Rule::Token),
        ),
        // ED-1b: a valid bearer never repairs an invalid query credential.
        (
            "foreign query",
            Some(&valid),
            Some(&other_query),
            (401, "invalid_token", Rule::Token),
        ),
        (
            "expired query",
            Some(&valid),
            Some(&expired_query),
            (401, "invalid_token", Rule::Token),
        ),
        (
            "empty",
            Some(&valid),
            Some("svc.token="),
            (400, "invalid_request", Rule::QueryCredential),
        ),
        (
            "no value",
            Some(&valid),
            Some("svc.token"),
            (400, "invalid_request", Rule::QueryCredential),
        ),
        (
            "malformed",
            Some(&valid),
            Some("svc.token=a.b"),
            (400, "invalid_request", Rule::QueryCredential),
        ),
        (
            "broken escape",
            Some(&valid),
            Some("svc.token=a.b.%zz"),
            (400, "invalid_request", Rule::QueryCredential),
        ),
        (
            "twice",
            Some(&valid),
            Some(&twice),
            (400, "invalid_request", Rule::QueryCredential),
        ),
        (
            "twice in two spellings",
            None,
            Some(&spelled),
            (400, "invalid_request", Rule::QueryCredential),
        ),
    ] {
        let visit = Visit {
            bearer: bearer.map(String::as_str),
            query,
            ..Visit::default()
        };
        let decision = visit.judge(&guarded);
        let (status, code) = status_and_code(&decision);
        assert_eq!((status, code, decision.rule), expected, "{case}");
    }
    // ED-1a: the query credential is removed, byte for byte. The header is data.
    let decision = Visit {
        bearer: Some("application data"),
        query: Some(&good_query),
        ..Visit::default()
    }
    .judge(&guarded);
    let by_query = allowed(decision);
    assert_eq!(by_query.query.as_deref(), Some("a=%20&b"));
    assert!(!by_query.strip_authorization);
    assert_eq!(form(by_query.proof), TokenForm::Query);
    let by_header = allowed(
        Visit {
            bearer: Some(&valid),
            query: Some("a"),
            ..Visit::default()
        }
        .judge(&guarded),
    );
    assert!(
        by_header.strip_authorization,
        "the credential is not forwarded"
    );
    assert_eq!(by_header.query, None);
    let proof = by_header.proof.unwrap();
    assert_eq!((proof.user_id(), proof.method()), (Some("ann"), "token"));
}

#[test]
fn a_malformed_bearer_is_401_and_not_a_missing_one() {
    let guarded = tunnel(json!({"token_auth": true}));
    let request = EdgeRequest {
        tunnel: &guarded,
        visitor: VisitorInfo::at("192.0.2.7".parse().unwrap()),
        host: "web.t.engine.localhost",
        cookies: EdgeCookies::default(),
        navigation: false,
        bearer: Bearer::Malformed,
        password: PasswordProof::Absent,
        path: "/",
        query: None,
        reserved: COMPAT_NAMES,
    };
    let decision = with_grounds(|grounds| decide(&request, grounds));
    assert_eq!(status_and_code(&decision), (401, "invalid_token"));
}

/// ED-1c.
#[test]
#[expect(
    clippy::too_many_lines,
    reason = "a test tells one story from start to end"
)]
fn ed_1c_types_permissions_and_boundaries() {
    let guarded = tunnel(json!({"token_auth": true, "name": "web"}));
    let connect = |scope: Value| json!({"tunnels": {"scopes": {"tunnels": {"connect": scope}}}});
    let narrow = |resources: Value| {
        auth(
            NOW,
            60,
            json!({"permissions": [STREAMS], "resources": resources}),
        )
    };
    for (case, claims, expected) in [
        ("pat", pat(), (200, Rule::Token)),
        (
            "app",
            json!({"type": "app", "clientId": "c"}),
            (200, Rule::Token),
        ),
        (
            "auth",
            auth(NOW, 60, json!({"permissions": [STREAMS]})),
            (200, Rule::Token),
        ),
        (
            "no permission",
            auth(NOW, 60, json!({"permissions": [CREATE]})),
            (403, Rule::Permission),
        ),
        (
            "this project",
            narrow(json!({"tunnels": {"projects": [Project::COMMUNITY]}})),
            (200, Rule::Token),
        ),
        (
            "another project",
            narrow(json!({"tunnels": {"projects": ["x"]}})),
            (403, Rule::Boundary),
        ),
        (
            "a workspace",
            narrow(json!({"tunnels": {"workspaces": ["x"]}})),
            (403, Rule::Boundary),
        ),
        (
            "this tunnel",
            narrow(connect(json!({"filters": {"name": "web"}}))),
            (200, Rule::Token),
        ),
        (
            "another tunnel",
            narrow(connect(json!({"filters": {"name": "db"}}))),
            (403, Rule::Boundary),
        ),
        (
            "connect refused",
            narrow(connect(json!(false))),
            (403, Rule::Boundary),
        ),
        (
            "only listing",
            narrow(json!({"tunnels": {"scopes": {"tunnels": {"list": true}}}})),
            (403, Rule::Boundary),
        ),
        (
            "a wrong shape",
            narrow(json!({"tunnels": []})),
            (403, Rule::Boundary),
        ),
    ] {
        let bearer = token(&claims);
        let decision = Visit {
            bearer: Some(&bearer),
            ..Visit::default()
        }
        .judge(&guarded);
        assert_eq!(
            (status_and_code(&decision).0, decision.rule),
            expected,
            "{case}"
        );
        if let Outcome::Refuse(problem) = &decision.outcome {
            assert_eq!(problem.scope.as_deref(), Some(STREAMS), "{case}");
        }
    }
}

/// ED-7.
#[test]
fn ed_7_the_path_is_checked_as_the_upstream_will_see_it() {
    let guarded = tunnel(json!({"token_auth": true}));
    let resources = json!({"tunnels": {"scopes": {"tunnels": {"connect": {"params": {"path": {"regex": "/api/.*"}}}}}}});
    let bearer = token(&auth(
        NOW,
        60,
        json!({"permissions": [STREAMS], "resources": resources}),
    ));
    for (path, expected) in [
        ("/api/x", Ok("/api/x")),
        ("/api/%41?", Err(Rule::Boundary)),
        ("/api/%41", Ok("/api/A")),
        ("/api/./a/../b", Ok("/api/b")),
        ("/other", Err(Rule::Boundary)),
        ("/api", Err(Rule::Boundary)),
        ("/x/api/y", Err(Rule::Boundary)),
        ("/api/../other", Err(Rule::Boundary)),
        ("/api/%2e%2e/other", Err(Rule::Boundary)),
        ("/api/..%2fother", Err(Rule::Path)),
        ("/api/..%5cother", Err(Rule::Path)),
        ("/api/..\\other", Err(Rule::Path)),
        ("/api/%252e%252e/other", Err(Rule::Path)),
        ("//api/x", Err(Rule::Path)),
        ("/api/..;/x", Err(Rule::Path)),
        ("/api/..%20/x", Err(Rule::Path)),
        ("/api/%00", Err(Rule::Path)),
        ("/api/%c0%ae", Err(Rule::Path)),
        ("*", Err(Rule::Path)),
    ] {
        let decision = Visit {
            bearer: Some(&bearer),
            path: Some(path),
            ..Visit::default()
        }
        .judge(&guarded);
        match expected {
            Ok(forwarded) => {
                let path = allowed(decision)
                    .path
                    .expect("the checked path is the forwarded path");
                assert_eq!(path.as_str(), forwarded);
            }
            // A question mark is never part of a path. A path with one is refused.
            Err(_) if path.contains('?') => assert_eq!(status_and_code(&decision).0, 403),
            Err(rule) => {
                assert_eq!(
                    (status_and_code(&decision), decision.rule),
                    ((403, "insufficient_scope"), rule),
                    "{path}"
                );
            }
        }
    }
    // Without a path boundary nothing is normalised.
    let free = token(&pat());
    let decision = Visit {
        bearer: Some(&free),
        path: Some("/a/%2f/../b"),
        ..Visit::default()
    }
    .judge(&guarded);
    assert!(allowed(decision).path.is_none());
}

/// EN-11.
#[test]
fn en_11_a_guard_that_cannot_be_enforced_refuses_every_visitor() {
    for guard in [
        json!({"svc_auth": true}),
        json!({"challenge_mode": true}),
        json!({"mtls_auth": true}),
        json!({"geo_ip": ["CH"]}),
    ] {
        let tunnel = tunnel(guard);
        let valid = token(&pat());
        let decision = Visit {
            bearer: Some(&valid),
            ..Visit::default()
        }
        .judge(&tunnel);
        assert_eq!(
            (status_and_code(&decision).0, decision.rule),
            (503, Rule::Unenforceable)
        );
    }
}
