//! Sign-in of visitors of published tunnels, between an engine, a browser and the platform.

use serde::{Deserialize, Serialize};
use types::tunnel::IdentityClaim;

/// Path to which a browser is redirected to sign in for a published tunnel. See [`SignIn`].
pub const SIGN_IN: &str = "/edge/sign-in";

/// Sign-in for a published tunnel. An engine redirects a browser to [`SIGN_IN`] with these query
/// parameters. The platform redirects it back to
/// `https://<host>/.well-known/svc/callback?code=…&state=…`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignIn {
    /// Authority of the tunnel, with the port if it is not 443.
    pub host: String,
    /// SHA-256 of the secret in a cookie of that host, base64url. The code contains it, so the code
    /// is valid only in the browser that started the sign-in.
    pub nonce: String,
    /// State of the engine, which the platform returns unread.
    pub state: String,
    /// Facts about the user that the service of the tunnel receives, see
    /// [`SignIn::shared_claims`]. The parameter is absent if there are none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub identity: String,
}

impl SignIn {
    /// The facts that the user has to agree to share: `email`, `name` and `groups`, separated by
    /// commas. `None` if the parameter contains anything else, because the page could not name it.
    pub fn shared_claims(&self) -> Option<Vec<IdentityClaim>> {
        let mut claims = Vec::new();
        let words = self.identity.split(',');
        for word in words.filter(|_| !self.identity.is_empty()) {
            let claim = word
                .parse()
                .ok()
                .filter(|it: &IdentityClaim| it.needs_agreement())?;
            if claims.contains(&claim) {
                return None;
            }
            claims.push(claim);
        }
        Some(claims)
    }
}

/// Claims of a sign-in code: a JWT (`EdDSA`, the platform's keys) that is valid for one minute, at
/// one host, once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignInClaims {
    /// The platform's address.
    pub iss: String,
    /// `https://<host>` of the tunnel.
    pub aud: String,
    /// Id of the user.
    pub sub: String,
    /// From [`SignIn::nonce`].
    pub nonce: String,
    /// Id of this code.
    pub jti: String,
    /// Unix seconds.
    pub iat: i64,
    /// Unix seconds.
    pub exp: i64,
    /// Id of the person's session at the platform. The session at the tunnel ends with it. Absent
    /// in codes of an older platform.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// Facts that the user has agreed to share with the service, from [`SignIn::identity`]. Absent
    /// in codes of an older platform, which always states name and address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Vec<IdentityClaim>>,
    /// Display name, if the user shares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Verified mail address, if the user shares it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub email: Option<String>,
}

/// `typ` in the header of a sign-in code. It keeps other tokens from being accepted as codes, and
/// codes from being accepted as other tokens.
pub const SIGN_IN_TYPE: &str = "svc-sign-in+jwt";

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_sign_in_names_the_facts_that_the_service_receives() {
        let claims = |identity: &str| {
            let sign_in = json!({"host": "", "nonce": "", "state": "", "identity": identity});
            let sign_in: SignIn = serde_json::from_value(sign_in).unwrap();
            sign_in.shared_claims()
        };
        assert_eq!(claims(""), Some(vec![]));
        let both = vec![IdentityClaim::Email, IdentityClaim::Groups];
        assert_eq!(claims("email,groups"), Some(both));
        for bad in [
            ",",
            "email,",
            "email,email",
            "phone",
            "id",
            "assertion",
            "Email",
        ] {
            assert_eq!(claims(bad), None, "{bad}");
        }
    }
}
