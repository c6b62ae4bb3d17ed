//! Authorization requests and their strict validation (OA-2).

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use types::callback::Callback;
use types::form::{self, Form};
use types::permission::Permissions;

use super::clients::{Client, Clients};
use super::document_url::DocumentUrl;
use super::error::{Code, OauthError};
use super::scope::{parse_scope, resource};
use crate::config::Config;

/// A validated authorization request of a client.
#[derive(Clone, Debug)]
pub(super) struct AuthorizationRequest {
    pub(super) client: Client,
    /// The registered callback, perhaps with another port on the user's machine.
    pub(super) callback: Callback,
    pub(super) state: Option<String>,
    /// SHA-256 of the client's verifier (RFC 7636, S256).
    pub(super) challenge: [u8; 32],
    pub(super) scope: Permissions,
    /// `prompt=none`: no page may be shown.
    pub(super) is_silent: bool,
}

/// Errors of an authorization request.
#[derive(Debug)]
pub(super) enum AuthorizationError {
    /// The client or its callback is unknown. The error is shown as a page and never as a redirect.
    /// Otherwise this server would redirect to any address that a stranger chooses (RFC 9700
    /// section 4.11).
    Page(String),
    /// The client's metadata document cannot be fetched now. The value is the number of seconds to
    /// wait.
    TooSoon(u32),
    /// The client receives the error at its callback.
    Callback {
        callback: Callback,
        state: Option<String>,
        error: OauthError,
    },
}

/// The parameters of a request, before its client is known.
#[derive(Debug)]
pub(super) struct RequestParameters {
    client_id: Option<String>,
    /// All others.
    form: Form,
}

impl RequestParameters {
    /// Parses the query of a request.
    pub(super) fn parse(query: &str) -> Result<Self, AuthorizationError> {
        if query.len() > MAX_QUERY_BYTES {
            return Err(AuthorizationError::Page("it is too long".to_owned()));
        }
        let mut form =
            Form::parse(query).map_err(|bad| AuthorizationError::Page(bad.to_string()))?;
        let client_id = form.take("client_id");
        Ok(Self { client_id, form })
    }

    /// The registered client that they name.
    pub(super) fn registered_client(&self, clients: &Clients) -> Option<Client> {
        clients.client(self.client_id.as_deref()?).cloned()
    }

    /// The address of the metadata document that they name, if such clients are accepted.
    pub(super) fn document_url(&self, clients: &Clients) -> Option<DocumentUrl> {
        clients.document_url(self.client_id.as_deref()?)
    }
}

impl AuthorizationRequest {
    /// Validates the request of a client.
    pub(super) fn of_client(
        mut parameters: RequestParameters,
        client: Option<Client>,
        config: &Config,
    ) -> Result<Self, AuthorizationError> {
        let client = client.ok_or_else(|| {
            AuthorizationError::Page("its client is not registered here".to_owned())
        })?;
        // The callback is required even if only one is registered, so that it need not be guessed.
        let callback = parameters
            .form
            .take("redirect_uri")
            .and_then(|text| client.callback(&text))
            .ok_or_else(|| {
                AuthorizationError::Page(
                    "its callback is not registered for this client".to_owned(),
                )
            })?;
        let state = parameters.form.take("state");
        let form = parameters.form;
        let validated = Self::validate(form, config, client, callback.clone(), state.clone());
        validated.map_err(|error| AuthorizationError::Callback {
            callback,
            state,
            error,
        })
    }

    fn validate(
        mut form: Form,
        config: &Config,
        client: Client,
        callback: Callback,
        state: Option<String>,
    ) -> Result<Self, OauthError> {
        match form.take("response_type").as_deref() {
            Some("code") => {}
            Some(_) => {
                return Err(
                    Code::UnsupportedResponseType.with_description("response_type must be code")
                );
            }
            None => return Err(Code::InvalidRequest.with_description("response_type is missing")),
        }
        if form
            .take("response_mode")
            .is_some_and(|mode| mode != "query")
        {
            return Err(Code::InvalidRequest.with_description("response_mode must be query"));
        }
        // Request objects could repeat these parameters with other values (RFC 9101).
        if form.take("request").is_some() || form.take("request_uri").is_some() {
            return Err(Code::InvalidRequest.with_description("request objects are not supported"));
        }
        let challenge = read_challenge(&mut form)?;
        let scope = parse_scope(form.take("scope").as_deref())?;
        resource(config, form.take("resource").as_deref())?;
        let prompt = form.take("prompt").unwrap_or_default();
        let is_silent = prompt.split(' ').any(|word| word == "none");
        if is_silent && prompt != "none" {
            return Err(
                Code::InvalidRequest.with_description("none must be the only value of prompt")
            );
        }
        Ok(Self {
            client,
            callback,
            state,
            challenge,
            scope,
            is_silent,
        })
    }

    /// The request as a query in canonical form. The browser returns to it after a sign-in, and the
    /// consent page sends it back.
    pub(super) fn query(&self) -> String {
        let scope = self.scope.to_string();
        let challenge = BASE64_URL_SAFE_NO_PAD.encode(self.challenge);
        let fixed = [
            ("response_type", "code"),
            ("client_id", self.client.id()),
            ("redirect_uri", self.callback.as_str()),
            ("scope", scope.as_str()),
            ("code_challenge", challenge.as_str()),
            ("code_challenge_method", "S256"),
        ];
        let state = self.state.as_deref().map(|state| ("state", state));
        form::encode(fixed.into_iter().chain(state))
    }

    /// Creates the error for the callback.
    pub(super) fn refuse(&self, error: OauthError) -> AuthorizationError {
        AuthorizationError::Callback {
            callback: self.callback.clone(),
            state: self.state.clone(),
            error,
        }
    }

    /// Address for the redirect with a code.
    pub(super) fn success_url(&self, code: &str, issuer: &str) -> String {
        let parameters = [("code", code), ("iss", issuer)];
        let state = self.state.as_deref().map(|state| ("state", state));
        self.callback.with(parameters.into_iter().chain(state))
    }
}

/// Address for the redirect with an error. RFC 9207 section 2 requires the issuer there as well.
pub(super) fn error_url(
    callback: &Callback,
    state: Option<&str>,
    error: &OauthError,
    issuer: &str,
) -> String {
    let parameters = [
        ("error", error.code().as_str()),
        ("error_description", error.description()),
        ("iss", issuer),
    ];
    callback.with(
        parameters
            .into_iter()
            .chain(state.map(|state| ("state", state))),
    )
}

/// Parses the challenge (RFC 7636), with S256 only. The default method is `plain`. With it, anyone
/// who sees the request can redeem the code.
fn read_challenge(form: &mut Form) -> Result<[u8; 32], OauthError> {
    let refused = |description: &str| Err(Code::InvalidRequest.with_description(description));
    let method = form.take("code_challenge_method");
    let Some(challenge) = form.take("code_challenge") else {
        return refused("code_challenge is missing");
    };
    if method.as_deref() != Some("S256") {
        return refused("code_challenge_method must be S256");
    }
    let bytes = BASE64_URL_SAFE_NO_PAD.decode(challenge).ok();
    match bytes.and_then(|bytes| bytes.try_into().ok()) {
        Some(challenge) => Ok(challenge),
        None => refused("code_challenge must be the base64url of 32 bytes"),
    }
}

/// Limit for a `state` of 4 KiB, each byte percent-encoded, and the rest of a request. With the
/// path and a sign-in in between, the longest query is still a path that
/// [`NextPath`](crate::pages::next_path::NextPath) accepts.
const MAX_QUERY_BYTES: usize = 14 * 1024;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;
    use crate::pages::next_path::NextPath;

    const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
    const CALLBACK: &str = "https://client.example/cb?x=1";

    fn config() -> Config {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("platform.yaml");
        let yaml = json!({
            "platform": {"base_url": "https://svc.example"},
            "oauth": {"clients": [
                {"id": "web", "redirect_uris": [CALLBACK, "http://127.0.0.1:1/cb"]},
                {"id": "other", "redirect_uris": ["https://other.example/cb"]},
                {
                    "id": "native",
                    "redirect_uris": ["http://127.0.0.1/cb", "https://native.example/cb"],
                    "loopback_any_port": true,
                },
            ]},
        });
        std::fs::write(&file, yaml.to_string()).unwrap();
        Config::load(Some(&file), []).unwrap()
    }

    fn parse(query: &str, config: &Config) -> Result<AuthorizationRequest, AuthorizationError> {
        let parameters = RequestParameters::parse(query)?;
        let client = parameters.registered_client(&config.oauth);
        AuthorizationRequest::of_client(parameters, client, config)
    }

    fn good() -> Vec<(&'static str, &'static str)> {
        vec![
            ("response_type", "code"),
            ("client_id", "web"),
            ("redirect_uri", CALLBACK),
            ("scope", "account.projects.read-only"),
            ("code_challenge", CHALLENGE),
            ("code_challenge_method", "S256"),
            ("state", "s"),
        ]
    }

    /// A valid request with one parameter changed, or left out if the value is empty.
    fn with(name: &'static str, value: &'static str) -> String {
        let mut pairs = good();
        pairs.retain(|(other, _)| *other != name);
        pairs.push((name, value));
        form::encode(pairs)
    }

    fn outcome(query: &str) -> String {
        match parse(query, &config()) {
            Ok(_) => "good".to_owned(),
            Err(AuthorizationError::Page(_) | AuthorizationError::TooSoon(_)) => "page".to_owned(),
            Err(AuthorizationError::Callback { state, error, .. }) => {
                assert!(state.is_none_or(|state| state == "s"));
                error.code().as_str().to_owned()
            }
        }
    }

    /// OA-2, RFC 9700 section 4.1: nothing is redirected if the client or the callback is unknown.
    #[test]
    fn oa_2_an_unknown_client_or_callback_is_a_page() {
        for (name, value) in [
            ("client_id", ""),
            ("client_id", "WEB"),
            ("client_id", "svc-cli"),
            ("redirect_uri", ""),
            ("redirect_uri", "https://client.example/cb"),
            ("redirect_uri", "https://client.example/cb?x=1&"),
            ("redirect_uri", "https://client.example/cb?x=1#"),
            ("redirect_uri", "https://client.example/cb/../cb?x=1"),
            ("redirect_uri", "https://evil.example/cb?x=1"),
            ("redirect_uri", "https://other.example/cb"),
            ("redirect_uri", "http://127.0.0.1:2/cb"),
        ] {
            assert_eq!(outcome(&with(name, value)), "page", "{name}={value}");
        }
        let good = form::encode(good());
        for (name, _) in self::good() {
            assert_eq!(outcome(&format!("{good}&{name}=x")), "page", "{name} twice");
        }
        assert_eq!(outcome(&format!("{good}&any=1&any=2")), "page");
        assert_eq!(outcome(&format!("{good}&a=%zz")), "page");
        assert_eq!(
            outcome(&format!("{good}&a={}", "a".repeat(MAX_QUERY_BYTES))),
            "page"
        );
    }

    /// OA-2, RFC 8252 section 7.3: the port of a callback on the user's machine is free, if the
    /// client is registered so. The response is sent to the port of the request.
    #[test]
    fn oa_2_a_registered_native_client_may_use_any_loopback_port() {
        let config = config();
        let native = |callback: &'static str, scope: &'static str| {
            let mut pairs = good();
            pairs.retain(|(name, _)| !matches!(*name, "client_id" | "redirect_uri" | "scope"));
            pairs.extend([
                ("client_id", "native"),
                ("redirect_uri", callback),
                ("scope", scope),
            ]);
            parse(&form::encode(pairs), &config)
        };
        let known = "account.projects.read-only";
        let request = native("http://127.0.0.1:49152/cb", known).unwrap();
        assert_eq!(request.callback.as_str(), "http://127.0.0.1:49152/cb");
        let again = parse(&request.query(), &config).unwrap();
        assert_eq!(again.callback, request.callback);
        let code = request.success_url("c", "i");
        assert!(
            code.starts_with("http://127.0.0.1:49152/cb?code=c&"),
            "{code}"
        );
        match native("http://127.0.0.1:49152/cb", "openid").unwrap_err() {
            AuthorizationError::Callback { callback, .. } => {
                assert_eq!(callback.as_str(), "http://127.0.0.1:49152/cb");
            }
            other => panic!("{other:?}"),
        }
        let refused = native("http://127.0.0.1:49152/other", known).unwrap_err();
        assert!(matches!(refused, AuthorizationError::Page(_)));
    }

    /// OA-2, OA-6: the client receives every other error.
    #[test]
    fn oa_2_other_errors_are_sent_to_the_client() {
        for (name, value, expected) in [
            ("state", "", "good"),
            ("response_type", "", "invalid_request"),
            ("response_type", "token", "unsupported_response_type"),
            ("response_type", "code token", "unsupported_response_type"),
            ("response_mode", "query", "good"),
            ("response_mode", "fragment", "invalid_request"),
            ("response_mode", "form_post", "invalid_request"),
            ("request", "a.b.c", "invalid_request"),
            ("request_uri", "https://a", "invalid_request"),
            ("code_challenge", "", "invalid_request"),
            ("code_challenge", "short", "invalid_request"),
            ("code_challenge_method", "", "invalid_request"),
            ("code_challenge_method", "plain", "invalid_request"),
            ("code_challenge_method", "s256", "invalid_request"),
            ("scope", "", "invalid_scope"),
            ("scope", "openid", "invalid_scope"),
            ("scope", "openid offline_access", "invalid_scope"),
            ("scope", "account.projects.read-only openid", "good"),
            ("scope", "offline_access account.projects.read-only", "good"),
            ("scope", "account.projects.read-only \"x\"", "invalid_scope"),
            ("scope", "account.projects.read-only ", "invalid_scope"),
            ("scope", "account.projects.read-only\tx", "invalid_scope"),
            ("scope", "account.projects.read-only ä", "invalid_scope"),
            (
                "scope",
                "account.projects.read-only  account.plan.read-only",
                "invalid_scope",
            ),
            ("scope", "Account.projects.read-only", "invalid_scope"),
            ("resource", "", "good"),
            ("resource", "https://svc.example", "good"),
            ("resource", "https://svc.example/", "good"),
            ("resource", "https://svc.example/api/mcp", "good"),
            ("resource", "https://svc.example/api/mcp/sign-in", "good"),
            ("resource", "https://svc.example/api/mcp/", "invalid_target"),
            ("resource", "https://svc.example/api", "invalid_target"),
            ("resource", "https://svc.example.evil", "invalid_target"),
            ("resource", "https://svc.example:443", "invalid_target"),
            ("resource", "http://svc.example", "invalid_target"),
            ("resource", "HTTPS://SVC.example", "good"),
            ("resource", "https://SVC.EXAMPLE/api/mcp", "good"),
            ("resource", "https://svc.example/API/mcp", "invalid_target"),
            ("prompt", "none", "good"),
            ("prompt", "consent", "good"),
            ("prompt", "login none", "invalid_request"),
            ("unknown", "x", "good"),
        ] {
            assert_eq!(outcome(&with(name, value)), expected, "{name}={value}");
        }
    }

    proptest! {
        /// The canonical form represents the request exactly, and survives a sign-in in between.
        #[test]
        fn a_request_survives_the_sign_in_unchanged(state in "[^\\x00]{0,300}") {
            let config = config();
            let mut pairs = good();
            pairs.retain(|(name, _)| *name != "state");
            pairs.push(("state", &state));
            let request = parse(&form::encode(pairs), &config);
            // A state of many bytes exceeds the limit. Then there is no request.
            let Ok(request) = request else {
                return Err(TestCaseError::reject("too long"));
            };
            let path = format!("/oauth/authorize?{}", request.query());
            let next = NextPath::parse(&path);
            prop_assert_eq!(next.as_str(), &path);
            let query = request.query();
            let again = parse(&query, &config).unwrap();
            prop_assert_eq!(again.query(), query);
            prop_assert_eq!(again.state.unwrap_or_default(), state);
            prop_assert_eq!(again.scope, request.scope);
        }

        #[test]
        fn any_query_is_parsed_or_refused(query in ".{0,128}") {
            drop(parse(&query, &config()));
        }
    }
}
