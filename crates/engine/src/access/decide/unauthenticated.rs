//! The response to a visitor without a valid credential. It names every credential that the tunnel
//! accepts, and fits what the visitor presented.

use types::problem::Problem;

use super::super::policy::RequiredProofs;

/// Credentials that a visitor presented although the tunnel does not accept them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct UnacceptedCredentials {
    /// A token in the header or the query.
    pub(super) token: bool,
    /// A session cookie.
    pub(super) session: bool,
    /// A link password.
    pub(super) password: bool,
}

/// 401 for a tunnel with these rules.
pub(super) fn unauthenticated(rules: RequiredProofs, presented: UnacceptedCredentials) -> Problem {
    let why = if presented.token && !rules.token {
        "Tokens are not accepted here. "
    } else if presented.session && rules.session {
        "The session is not valid here, or has ended. "
    } else if presented.password && !rules.password {
        "A link password does not identify you. "
    } else {
        ""
    };
    let detail = format!("{why}This address needs {}.", accepted(rules));
    let problem = if rules.password {
        Problem::password_required()
    } else {
        Problem::unauthenticated()
    };
    let mut problem = problem.with_detail(detail);
    problem.accepts_token = rules.token;
    problem
}

/// The accepted credentials: "a token, a browser session or a client certificate". A tunnel has
/// either a password or browser sessions.
fn accepted(rules: RequiredProofs) -> String {
    let all = [
        (rules.password, "a password"),
        (rules.token, "a token"),
        (rules.session, "a browser session"),
        (rules.certificate, "a client certificate"),
    ];
    let names: Vec<_> = all
        .into_iter()
        .filter_map(|(is_accepted, name)| is_accepted.then_some(name))
        .collect();
    match names.as_slice() {
        // A raw connection, or a tunnel that changed. There is no way to name.
        [] => "another way in".to_owned(),
        [one] => (*one).to_owned(),
        [first, last] => format!("{first} or {last}"),
        [first, second, last, ..] => format!("{first}, {second} or {last}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(token: bool, session: bool, certificate: bool) -> RequiredProofs {
        RequiredProofs {
            token,
            session,
            certificate,
            ..RequiredProofs::default()
        }
    }

    #[test]
    fn a_password_is_requested_beside_other_credentials() {
        for (token, ways) in [(false, "a password"), (true, "a password or a token")] {
            let rules = RequiredProofs {
                password: true,
                ..rules(token, false, false)
            };
            let problem = unauthenticated(rules, UnacceptedCredentials::default());
            assert_eq!(problem.detail, format!("This address needs {ways}."));
            assert_eq!((problem.status, problem.code), (401, "password_required"));
        }
    }

    #[test]
    fn every_way_is_named() {
        for (rules, ways) in [
            (rules(true, false, false), "a token"),
            (rules(false, true, false), "a browser session"),
            (rules(false, false, true), "a client certificate"),
            (rules(true, true, false), "a token or a browser session"),
            (
                rules(false, true, true),
                "a browser session or a client certificate",
            ),
            (
                rules(true, true, true),
                "a token, a browser session or a client certificate",
            ),
        ] {
            let problem = unauthenticated(rules, UnacceptedCredentials::default());
            assert_eq!(problem.detail, format!("This address needs {ways}."));
            assert_eq!((problem.status, problem.code), (401, "unauthenticated"));
        }
    }

    #[test]
    fn the_response_depends_on_the_presented_credential() {
        let token = UnacceptedCredentials {
            token: true,
            ..UnacceptedCredentials::default()
        };
        let session = UnacceptedCredentials {
            session: true,
            ..UnacceptedCredentials::default()
        };
        let password = UnacceptedCredentials {
            password: true,
            ..UnacceptedCredentials::default()
        };
        let detail = |rules, presented| unauthenticated(rules, presented).detail.into_owned();
        assert_eq!(
            detail(rules(false, true, false), token),
            "Tokens are not accepted here. This address needs a browser session."
        );
        assert_eq!(
            detail(rules(true, true, false), session),
            "The session is not valid here, or has ended. This address needs a token or a browser \
             session."
        );
        assert_eq!(
            detail(rules(false, false, true), session),
            "This address needs a client certificate."
        );
        assert_eq!(
            detail(rules(true, false, false), password),
            "A link password does not identify you. This address needs a token."
        );
    }
}
